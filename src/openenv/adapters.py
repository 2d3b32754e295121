"""The old path `openenv.adapters`; written by scripts/mirrors.py."""

from openenv.wrappers.gymnasium import from_gymnasium as from_gymnasium

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
