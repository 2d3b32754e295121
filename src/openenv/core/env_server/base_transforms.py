"""The old path `openenv.core.env_server.base_transforms`; written by scripts/mirrors.py."""

from openenv.environment import CompositeTransform as CompositeTransform
from openenv.environment import NullTransform as NullTransform
from openenv.environment import Transform as Transform
from openenv.types import Observation as Observation

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
