"""Calling code of users that may be plain or a coroutine, quick or slow, from an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from inspect import isawaitable, iscoroutinefunction
from typing import Any

__all__ = ["Caller"]

QUICK_S, ENOUGH_QUICK = 0.002, 8
SLOW_S = 0.02


class Caller:
    """Calls functions of one kind such that no event loop waits for them.

    Those that are plain are called in a thread at first. Once some in a row were quick they are
    called on the loop, as a thread would cost more than it saves, until one holds it up.

    Args:
        threads: How many calls there may be at once.
    """

    def __init__(self, threads: int = 64) -> None:
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._quick = 0  # of the last calls, how many in a row

    async def __call__(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call one, plain or ``async def``, and give what it returns.

        Raises:
            Exception: What it raises.
        """
        if iscoroutinefunction(function):
            return await function(*arguments, **named)
        if self._quick >= ENOUGH_QUICK:
            began = time.perf_counter()
            found = function(*arguments, **named)
            if time.perf_counter() - began > SLOW_S:
                self._quick = 0
        else:
            found, took = await self._in_thread(function, arguments, named)
            self._quick = self._quick + 1 if took < QUICK_S else 0
        return await found if isawaitable(found) else found

    async def _in_thread(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[Any, float]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "openenv-rollout")

        def timed() -> tuple[Any, float]:
            began = time.perf_counter()
            try:
                found = function(*arguments, **named)
            except StopIteration as error:  # which no future can carry
                raise RuntimeError("StopIteration") from error
            return found, time.perf_counter() - began

        return await asyncio.get_running_loop().run_in_executor(self._pool, timed)

    def close(self) -> None:
        """End the threads, once the calls in them are over. It may be used again after."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
