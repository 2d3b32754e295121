"""The old path `openenv.core.harness.capture`; written by scripts/mirrors.py."""

from typing import TYPE_CHECKING

from openenv._lazy import lazy

if TYPE_CHECKING:
    from openenv.core.harness.capture import upstream as upstream
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {},
        submodules=["upstream"],
    )
