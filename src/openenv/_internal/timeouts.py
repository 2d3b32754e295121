"""Timeouts that never lose a cancellation.

`asyncio.wait_for` loses one, before Python 3.12, that comes just as what it awaits has ended.
"""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from openenv._internal.lazy import lazy_module

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = lazy_module("asyncio")

__all__ = ["Expired", "TimeoutBase", "within"]

T = TypeVar("T")

if sys.version_info >= (3, 11):
    TimeoutBase = TimeoutError
else:  # asyncio.TimeoutError became the builtin one in 3.11
    import asyncio

    class TimeoutBase(TimeoutError, asyncio.TimeoutError):
        """The base of our timeouts, caught by either name."""


class Expired(TimeoutBase):
    """The time of `within` was up; never a timeout that the awaited work raised by itself."""


async def within(seconds: float | None, work: Coroutine[Any, Any, T]) -> T:
    """Await `work` for at most so many seconds; None is without a limit.

    Raises:
        Expired: The work took longer, and was cancelled.
    """
    if sys.version_info >= (3, 11):
        try:
            async with asyncio.timeout(seconds) as limit:
                return await work
        except TimeoutError:
            if limit.expired():
                raise Expired from None
            raise
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
            raise Expired from None
        raise
    finally:
        alarm.cancel()
