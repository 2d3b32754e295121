"""The old path `openenv.core.containers`; written by scripts/mirrors.py."""

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.core.containers import runtime as runtime
else:
    __getattr__, __dir__, __all__ = lazy(__name__, unlisted=["openenv.core.containers"])
