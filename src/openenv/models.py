"""The old path `openenv.models`; written by scripts/mirrors.py."""

from openenv.types import Action as Action
from openenv.types import EnvironmentMetadata as EnvironmentMetadata
from openenv.types import Observation as Observation
from openenv.types import State as State
from openenv.types import StepResult as StepResult

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
