"""The old path `openenv.core.evals.types`; written by scripts/mirrors.py."""

from openenv.evals.types import EvalConfig as EvalConfig
from openenv.evals.types import EvalResult as EvalResult

__all__ = [name for name in dir() if not name.startswith("__")]
