"""The old path `openenv.core.rubrics.base`; written by scripts/mirrors.py."""

from openenv.rewards.rubric import Rubric as Rubric

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
