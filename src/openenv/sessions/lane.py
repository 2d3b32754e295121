"""Where an environment's code runs.

`ThreadLane`: a synchronous environment sees one and the same thread from its constructor to
`close`. `LoopLane`: an asynchronous one is awaited on the event loop, and what it does
synchronously (construction, and a `close` or `reset` that is no coroutine) runs on a helper
thread, so that nothing slow ever runs on the loop.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import queue
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["Lane", "LoopLane", "ThreadLane", "WorkerThread"]

logger = logging.getLogger(__name__)


class WorkerThread:
    """A daemon thread that runs calls one after the other and answers on an event loop.

    It is a daemon so that user code that hangs cannot keep the process from ending.
    """

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def submit(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Run ``function(*arguments)`` on the thread; the future belongs to the running loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def call() -> None:
            result, error = _outcome(function, arguments)
            try:
                loop.call_soon_threadsafe(_settle, future, result, error)
            except RuntimeError:  # the loop has closed: nobody is waiting any more
                logger.debug("a call finished after its event loop had closed")

        self._calls.put(call)
        return future

    def stop(self) -> None:
        """End the thread once it has run what was submitted; does not wait."""
        self._calls.put(None)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            del call  # keep nothing of the last call alive while waiting for the next


def _outcome(
    function: Callable[..., Any], arguments: tuple[Any, ...]
) -> tuple[Any, BaseException | None]:
    try:
        return function(*arguments), None
    except BaseException as error:
        return None, contain(error)


def contain(error: BaseException) -> Exception:
    """Make what user code raised safe to pass on: it must not end the server.

    `SystemExit` and the like would end the event loop, and `StopIteration` cannot be set on a
    future.
    """
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    contained = RuntimeError(f"the environment raised {type(error).__name__}: {error}")
    contained.__cause__ = error
    return contained


async def _contained(awaitable: Awaitable[Any]) -> Any:
    """Await user code on the event loop, which nothing that it raises may end."""
    task = asyncio.current_task()
    assert task is not None
    try:
        return await awaitable
    except Exception:
        raise
    except BaseException as error:
        if _comes_from_outside(error, task):
            raise
        raise contain(error) from error


def _comes_from_outside(error: BaseException, task: asyncio.Task[Any]) -> bool:
    """Say whether the task was cancelled, or its coroutine thrown away while it waited."""
    if isinstance(error, GeneratorExit):
        return asyncio.current_task(task.get_loop()) is not task
    if isinstance(error, asyncio.CancelledError):
        # Before 3.11 an environment's own CancelledError cannot be told from a real one.
        return sys.version_info < (3, 11) or task.cancelling() > 0
    return False


async def _called(function: Callable[[], Any]) -> Any:
    result = function()
    return await result if inspect.isawaitable(result) else result


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


class Lane(ABC):
    """Runs the synchronous parts of one environment, one call at a time, in order."""

    @abstractmethod
    async def run(self, function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Any:
        """Call `function` where this environment lives and return what it returns.

        An awaitable result is awaited on the event loop. When the caller is cancelled, a call
        that has begun on a thread goes on, and the next call waits for it.
        """

    @abstractmethod
    async def peek(self, function: Callable[[], Any]) -> Any:
        """Call something that is quick and changes nothing, such as reading `state`."""

    @abstractmethod
    def release(self) -> None:
        """Give back what the lane holds; it runs nothing afterwards."""


class ThreadLane(Lane):
    """All calls run on one thread.

    Attributes:
        worker: The thread.
        shared: Other lanes use it too, so it outlives this one.
    """

    def __init__(self, worker: WorkerThread, *, shared: bool = False) -> None:
        self.worker = worker
        self.shared = shared

    async def run(self, function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Any:
        result = await self.worker.submit(_bind(function, keywords), *arguments)
        return await _contained(result) if inspect.isawaitable(result) else result

    async def peek(self, function: Callable[[], Any]) -> Any:
        return await self.run(function)

    def release(self) -> None:
        if not self.shared:
            self.worker.stop()


class LoopLane(Lane):
    """Coroutines run on the loop, everything else on a helper thread."""

    def __init__(self) -> None:
        self._running: asyncio.Future[Any] | None = None

    async def run(self, function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Any:
        await self._idle()
        if inspect.iscoroutinefunction(function):
            return await _contained(function(*arguments, **keywords))
        worker = WorkerThread("openenv-helper")
        self._running = worker.submit(_bind(function, keywords), *arguments)
        worker.stop()
        result = await asyncio.shield(self._running)
        return await _contained(result) if inspect.isawaitable(result) else result

    async def peek(self, function: Callable[[], Any]) -> Any:
        return await _contained(_called(function))

    def release(self) -> None:
        self._running = None

    async def _idle(self) -> None:
        if self._running is not None and not self._running.done():
            await asyncio.wait([self._running])


def _bind(function: Callable[..., Any], keywords: dict[str, Any]) -> Callable[..., Any]:
    if not keywords:
        return function
    return lambda *arguments: function(*arguments, **keywords)
