"""Calls of user code from an event loop: plain or coroutine functions, quick or slow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from inspect import isawaitable, iscoroutinefunction
from typing import Any


class UserCodeCaller:
    """Calls users' functions, plain or coroutine functions, without blocking the event loop.

    A plain function is always called in a thread, since it may block. It may also wait for a
    synchronous client, which would deadlock on the client's own event loop.

    Args:
        threads: Maximum number of plain calls at once; with 1, they run one after the other.
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
            except StopIteration as error:  # a future cannot carry this exception
                raise RuntimeError("StopIteration") from error

        found = await asyncio.get_running_loop().run_in_executor(self._pool, call)
        return await found if isawaitable(found) else found

    def close(self, *, wait: bool = False) -> None:
        """End the threads once their calls have returned; the caller can be used again.

        Args:
            wait: Wait for running calls. Calls that have not begun are dropped in any case.
        """
        if self._pool is not None:
            self._pool.shutdown(wait=wait, cancel_futures=True)
            self._pool = None
