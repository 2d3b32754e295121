"""Event loops, timeouts that never lose a cancellation, and pauses between attempts.

Before Python 3.12, `asyncio.wait_for` loses a cancellation that arrives just as the awaited work
ends.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Awaitable, Iterable
from typing import Any, TypeVar

from openenv._internal.lazy import asyncio

T = TypeVar("T")
LARGEST_EXPONENT = 60  # a float overflows above 1,000

if sys.version_info >= (3, 11):
    TimeoutBase = TimeoutError
else:  # asyncio.TimeoutError is the builtin TimeoutError since 3.11
    import asyncio

    class TimeoutBase(TimeoutError, asyncio.TimeoutError):
        """The base class of OpenEnv's timeouts, caught by either name."""


class Expired(TimeoutBase):
    """The time limit of `within` expired; never a timeout that the awaited work itself raised."""


async def within(seconds: float | None, work: Awaitable[T]) -> T:
    """Await `work` with a time limit in seconds; None means no limit.

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


def backoff_s(
    failures: int, first_s: float, longest_s: float = math.inf, *, jitter: float = 0.0
) -> float:
    """Return the seconds to wait after `failures` failures in a row; 0 after none.

    Args:
        failures: The number of failures in a row.
        first_s: The pause after the first failure; it doubles with each further failure.
        longest_s: The longest pause.
        jitter: The random part of the pause, from 0 to 1, so that many clients do not retry at the
            same time. 1 is "full jitter" (Brooker, Exponential Backoff And Jitter, AWS Architecture
            Blog, 2015).
    """
    if failures < 1:
        return 0.0
    pause_s = min(first_s * 2.0 ** min(failures - 1, LARGEST_EXPONENT), longest_s)
    return pause_s * random.uniform(1.0 - jitter, 1.0)  # nosec B311  # no secret


def raise_first(outcomes: Iterable[Any]) -> None:
    """Raise the first exception among the results of `asyncio.gather`, if any."""
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop; from uvloop if installed, which takes half the time."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def close_loop(loop: asyncio.AbstractEventLoop, *, waits_for_threads: bool) -> None:
    """Cancel all tasks of an event loop that is not running, and close the loop.

    Args:
        waits_for_threads: Wait without a time limit until functions on the loop's executor have
            returned. Pass False at interpreter exit, when no thread can be started for that.
    """

    async def end() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await loop.shutdown_asyncgens()
        if waits_for_threads:
            await loop.shutdown_default_executor()

    loop.run_until_complete(end())
    loop.close()
