"""A limit to how long something is awaited, such that a cancellation is never lost.

`asyncio.wait_for` loses one, before Python 3.12, that comes just as what it awaits has ended.
"""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from openenv._lazy import lazy_module

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = lazy_module("asyncio")

__all__ = ["within"]

T = TypeVar("T")


async def within(seconds: float | None, work: Coroutine[Any, Any, T]) -> T:
    """Await `work`, for so many seconds at most; None is for ever.

    Raises:
        asyncio.TimeoutError: It took longer, and has been cancelled.
    """
    if sys.version_info >= (3, 11):
        async with asyncio.timeout(seconds):
            return await work
    if seconds is None:
        return await work
    task, is_over = asyncio.current_task(), False
    assert task is not None

    def expire() -> None:
        nonlocal is_over
        is_over = True
        task.cancel()

    alarm = asyncio.get_running_loop().call_later(seconds, expire)
    try:
        return await work
    except asyncio.CancelledError:
        if is_over:
            raise asyncio.TimeoutError from None
        raise
    finally:
        alarm.cancel()
