"""Collecting: episodes of a teacher as a dataset, in a folder that can be gone on with and shared.

results.jsonl    an episode a line, as `EpisodeRecord` has it: the dataset
metadata.json    how it was collected, and how the model acted
rollouts.jsonl   of environments: the whole rollouts, also those that failed; never uploaded
failures.jsonl   of harness sessions: what failed, and why; never uploaded
README.md        the dataset's card
results.parquet  the same episodes as a table, where that was asked for
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.rollouts.collect.card import build_dataset_readme
    from openenv.rollouts.collect.environments import Collected, collect, collect_async
    from openenv.rollouts.collect.hub import HubError, push_to_hf_hub
    from openenv.rollouts.collect.records import EpisodeRecord
    from openenv.rollouts.collect.runner import CollectResult, CollectRunner
    from openenv.rollouts.collect.serializer import (
        METADATA_FILENAME,
        README_FILENAME,
        RESULTS_FILENAME,
        RolloutSerializer,
    )
    from openenv.rollouts.collect.sft import SFTFilters, SFTSummary, sft_rows, write_sft
    from openenv.rollouts.collect.teachers import ConversingPolicy, build_model_step

__all__ = [
    "METADATA_FILENAME",
    "README_FILENAME",
    "RESULTS_FILENAME",
    "CollectResult",
    "CollectRunner",
    "Collected",
    "ConversingPolicy",
    "EpisodeRecord",
    "HubError",
    "RolloutSerializer",
    "SFTFilters",
    "SFTSummary",
    "build_dataset_readme",
    "build_model_step",
    "collect",
    "collect_async",
    "push_to_hf_hub",
    "sft_rows",
    "write_sft",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "openenv.rollouts.collect.card": ["build_dataset_readme"],
        "openenv.rollouts.collect.environments": ["Collected", "collect", "collect_async"],
        "openenv.rollouts.collect.hub": ["HubError", "push_to_hf_hub"],
        "openenv.rollouts.collect.records": ["EpisodeRecord"],
        "openenv.rollouts.collect.runner": ["CollectResult", "CollectRunner"],
        "openenv.rollouts.collect.serializer": [
            "METADATA_FILENAME",
            "README_FILENAME",
            "RESULTS_FILENAME",
            "RolloutSerializer",
        ],
        "openenv.rollouts.collect.sft": ["SFTFilters", "SFTSummary", "sft_rows", "write_sft"],
        "openenv.rollouts.collect.teachers": ["ConversingPolicy", "build_model_step"],
    },
)
