"""The old path `openenv.core.containers.runtime.daytona_provider`; written by scripts/mirrors.py."""

from openenv.providers.daytona import DaytonaProvider as DaytonaProvider

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
