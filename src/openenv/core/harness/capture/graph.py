"""The old path `openenv.core.harness.capture.graph`; written by scripts/mirrors.py."""

from openenv.capture.graph import RolloutGraph as RolloutGraph
from openenv.capture.graph import TrainingSequence as TrainingSequence
from openenv.capture.graph import TurnNode as TurnNode
from openenv.capture.graph import common_prefix_len as common_prefix_len

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
