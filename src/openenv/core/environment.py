"""The old path `openenv.core.environment`; written by scripts/mirrors.py."""

from openenv.environment import Environment as Environment
from openenv.environment import Transform as Transform

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
