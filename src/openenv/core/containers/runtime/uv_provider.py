"""The old path `openenv.core.containers.runtime.uv_provider`; written by scripts/mirrors.py."""

from openenv.providers.uv import UVProvider as UVProvider

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
