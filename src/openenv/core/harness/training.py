"""The old path `openenv.core.harness.training`; written by scripts/mirrors.py."""

from openenv.rollouts.harness.training import TrainingTrace as TrainingTrace
from openenv.rollouts.harness.training import TrainingTurn as TrainingTurn

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
