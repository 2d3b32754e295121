"""The old path `openenv.core.env_server._utils`; written by scripts/mirrors.py."""

from openenv._internal.generics import overrides_method as overrides_method

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
