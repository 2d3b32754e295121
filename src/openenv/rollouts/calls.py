"""Calling code of users that may be plain or a coroutine, quick or slow, from an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from inspect import isawaitable, iscoroutinefunction
from typing import Any


class UserCodeCaller:
    """Calls functions of users, plain or coroutine functions, without blocking the event loop.

    Those that are plain are called in a thread, each time: they may block, and may wait for a
    synchronous client, which on the loop that it lives on would never be answered.

    Args:
        threads: How many plain calls there may be at once; with one, they come one after the other.
    """

    def __init__(self, threads: int = 64) -> None:
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None

    async def __call__(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call a function, plain or ``async def``, and return the result."""
        if iscoroutinefunction(function):
            return await function(*arguments, **named)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "openenv-rollout")

        def call() -> Any:
            try:
                return function(*arguments, **named)
            except StopIteration as error:  # which no future can carry
                raise RuntimeError("StopIteration") from error

        found = await asyncio.get_running_loop().run_in_executor(self._pool, call)
        return await found if isawaitable(found) else found

    def close(self, *, wait: bool = False) -> None:
        """End the threads once the calls in them have returned; the caller can be used again.

        Args:
            wait: Wait for these calls. Those that have not begun are dropped.
        """
        if self._pool is not None:
            self._pool.shutdown(wait=wait, cancel_futures=True)
            self._pool = None
