"""The old path `openenv.core.auto_env`; written by scripts/mirrors.py."""

from openenv.hub.auto_action import AutoAction as AutoAction
from openenv.hub.auto_env import AutoEnv as AutoEnv

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
