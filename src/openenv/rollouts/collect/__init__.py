"""Collected datasets: episodes of a teacher, in a folder that can be resumed and shared.

Both ways of collecting are runs of `openenv.rollouts`: ``environments.py`` lets a policy play,
``runner.py`` a harness. Read ``environments.py`` first. The folder holds:

results.jsonl    the dataset: one `EpisodeRecord` per line
metadata.json    how the dataset was collected, and the tools of the model
rollouts.jsonl   for environments: all rollouts in full, failed ones included; never uploaded
failures.jsonl   for harness sessions: failures with their reasons; never uploaded
README.md        the dataset's card
results.parquet  the same episodes as a table, if requested
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.rollouts.collect.card import build_dataset_readme as build_dataset_readme
    from openenv.rollouts.collect.environments import Collected as Collected
    from openenv.rollouts.collect.environments import collect as collect
    from openenv.rollouts.collect.environments import collect_async as collect_async
    from openenv.rollouts.collect.hub import DatasetHubError as DatasetHubError
    from openenv.rollouts.collect.hub import push_to_hf_hub as push_to_hf_hub
    from openenv.rollouts.collect.records import EpisodeRecord as EpisodeRecord
    from openenv.rollouts.collect.runner import CollectResult as CollectResult
    from openenv.rollouts.collect.runner import CollectRunner as CollectRunner
    from openenv.rollouts.collect.serializer import METADATA_FILENAME as METADATA_FILENAME
    from openenv.rollouts.collect.serializer import README_FILENAME as README_FILENAME
    from openenv.rollouts.collect.serializer import RESULTS_FILENAME as RESULTS_FILENAME
    from openenv.rollouts.collect.serializer import RolloutSerializer as RolloutSerializer
    from openenv.rollouts.collect.sft import SFTFilters as SFTFilters
    from openenv.rollouts.collect.sft import SFTSummary as SFTSummary
    from openenv.rollouts.collect.sft import sft_rows as sft_rows
    from openenv.rollouts.collect.sft import write_sft as write_sft
    from openenv.rollouts.collect.teachers import ConversingPolicy as ConversingPolicy
    from openenv.rollouts.collect.teachers import build_model_step as build_model_step
else:
    __getattr__, __dir__, __all__ = lazy(__name__)
