"""The old path `openenv.auto.auto_env`; written by scripts/mirrors.py."""

from openenv.hub.auto_env import AutoEnv as AutoEnv

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
