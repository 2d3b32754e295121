"""The old path `openenv.core.rubrics.containers`; written by scripts/mirrors.py."""

from openenv.rewards.containers import Gate as Gate
from openenv.rewards.containers import RubricDict as RubricDict
from openenv.rewards.containers import RubricList as RubricList
from openenv.rewards.containers import Sequential as Sequential
from openenv.rewards.containers import WeightedSum as WeightedSum
from openenv.rewards.rubric import Rubric as Rubric

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
