"""The old path `openenv.auto.auto_action`; written by scripts/mirrors.py."""

from openenv.hub.auto_action import AutoAction as AutoAction

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
