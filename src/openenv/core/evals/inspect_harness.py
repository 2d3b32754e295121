"""The old path `openenv.core.evals.inspect_harness`; written by scripts/mirrors.py."""

from openenv.evals.base import EvalHarness as EvalHarness
from openenv.evals.inspect_harness import InspectAIHarness as InspectAIHarness

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
