"""The old path `openenv.recording`; written by scripts/mirrors.py."""

from openenv.rollouts.replays.reading import read as read
from openenv.rollouts.replays.replaying import replay as replay

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
