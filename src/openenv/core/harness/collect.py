"""The old path `openenv.core.harness.collect`; written by scripts/mirrors.py."""

from openenv.rollouts.collect.card import build_dataset_readme as build_dataset_readme
from openenv.rollouts.collect.hub import push_to_hf_hub as push_to_hf_hub
from openenv.rollouts.collect.records import EpisodeRecord as EpisodeRecord
from openenv.rollouts.collect.runner import CollectResult as CollectResult
from openenv.rollouts.collect.runner import CollectRunner as CollectRunner
from openenv.rollouts.collect.serializer import METADATA_FILENAME as METADATA_FILENAME
from openenv.rollouts.collect.serializer import README_FILENAME as README_FILENAME
from openenv.rollouts.collect.serializer import RESULTS_FILENAME as RESULTS_FILENAME
from openenv.rollouts.collect.serializer import RolloutSerializer as RolloutSerializer
from openenv.rollouts.collect.teachers import build_model_step as build_model_step

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
