"""The old path `openenv.core.evals`; written by scripts/mirrors.py."""

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.evals.base import EvalConfig as EvalConfig
    from openenv.evals.base import EvalHarness as EvalHarness
    from openenv.evals.base import EvalResult as EvalResult
    from openenv.evals.inspect_harness import InspectAIHarness as InspectAIHarness
    from openenv.core.evals import base as base
    from openenv.core.evals import inspect_harness as inspect_harness
    from openenv.core.evals import types as types
else:
    __getattr__, __dir__, __all__ = lazy(__name__, unlisted=["openenv.core.evals"])
