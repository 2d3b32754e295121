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

from openenv._lazy import lazy

if TYPE_CHECKING:
    from openenv.harness.collect.card import build_dataset_readme
    from openenv.harness.collect.environments import Collected, collect, collect_async
    from openenv.harness.collect.hub import HubError, push_to_hf_hub
    from openenv.harness.collect.records import EpisodeRecord
    from openenv.harness.collect.runner import CollectResult, CollectRunner
    from openenv.harness.collect.serializer import (
        METADATA_FILENAME,
        README_FILENAME,
        RESULTS_FILENAME,
        RolloutSerializer,
    )
    from openenv.harness.collect.sft import SFTFilters, SFTSummary, sft_rows, write_sft
    from openenv.harness.collect.teachers import ConversingPolicy, build_model_step

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
        "openenv.harness.collect.card": ["build_dataset_readme"],
        "openenv.harness.collect.environments": ["Collected", "collect", "collect_async"],
        "openenv.harness.collect.hub": ["HubError", "push_to_hf_hub"],
        "openenv.harness.collect.records": ["EpisodeRecord"],
        "openenv.harness.collect.runner": ["CollectResult", "CollectRunner"],
        "openenv.harness.collect.serializer": [
            "METADATA_FILENAME",
            "README_FILENAME",
            "RESULTS_FILENAME",
            "RolloutSerializer",
        ],
        "openenv.harness.collect.sft": ["SFTFilters", "SFTSummary", "sft_rows", "write_sft"],
        "openenv.harness.collect.teachers": ["ConversingPolicy", "build_model_step"],
    },
)
