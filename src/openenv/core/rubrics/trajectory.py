"""The old path `openenv.core.rubrics.trajectory`; written by scripts/mirrors.py."""

from openenv.rewards.rubric import Rubric as Rubric
from openenv.rewards.trajectory import (
    ExponentialDiscountingTrajectoryRubric as ExponentialDiscountingTrajectoryRubric,
)
from openenv.rewards.trajectory import TrajectoryRubric as TrajectoryRubric

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
