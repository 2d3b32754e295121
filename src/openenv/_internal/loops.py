"""Event loops for our own threads and processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy_module

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = lazy_module("asyncio")

__all__ = ["new_event_loop"]


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop, of uvloop if installed, which takes half the time."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
