"""The old path `openenv.core.client_types`; written by scripts/mirrors.py."""

from openenv.environment import StateT as StateT
from openenv.types import ObsT as ObsT
from openenv.types import StepResult as StepResult

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
