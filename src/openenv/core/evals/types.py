"""The old path `openenv.core.evals.types`; written by scripts/mirrors.py."""

from openenv.evals.base import EvalConfig as EvalConfig
from openenv.evals.base import EvalResult as EvalResult

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
