"""One event loop on a thread of its own, shared by every synchronous face in the process."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from openenv._lazy import lazy_module
from openenv._loops import new_event_loop

if TYPE_CHECKING:
    import asyncio
    import concurrent.futures
else:
    asyncio = lazy_module("asyncio")

__all__ = ["background_loop", "leaving", "run", "running_loop", "submit"]

T = TypeVar("T")

EXIT_GRACE_S = 1.0


class Leaving(Protocol):
    """A connection that says goodbye when the program ends, so that nobody waits for it."""

    def leave(self) -> None:
        """Say goodbye, without waiting; called on the shared loop."""
        ...


leaving: weakref.WeakSet[Leaving] = weakref.WeakSet()

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None


def background_loop() -> asyncio.AbstractEventLoop:
    """The shared loop; started on first use."""
    global _loop, _thread
    with _lock:
        if _loop is None:
            _loop = new_event_loop()
            _thread = threading.Thread(
                target=_loop.run_forever, name="openenv-background-loop", daemon=True
            )
            _thread.start()
        return _loop


@atexit.register  # now, so that what a program registers later can still use the loop
def _end() -> None:
    """At exit, end what still runs: clients that nobody closed. It is given a second."""
    loop, thread = _loop, _thread
    if loop is None or thread is None or not thread.is_alive():
        return

    async def cancel_all() -> None:
        for connection in list(leaving):
            connection.leave()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        loop.stop()

    asyncio.run_coroutine_threadsafe(cancel_all(), loop)
    thread.join(EXIT_GRACE_S)
    if not thread.is_alive():
        loop.close()


def is_shared(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether it is the shared loop."""
    return loop is _loop


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The loop that runs on this thread, if any."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def submit(
    coroutine: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop | None = None
) -> concurrent.futures.Future[T]:
    """Start `coroutine` on `loop` (by default the shared one); it runs whether awaited or not."""
    return asyncio.run_coroutine_threadsafe(coroutine, loop or background_loop())


def run(coroutine: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop | None = None) -> T:
    """Run `coroutine` on `loop` (by default the shared one) and wait for what it returns.

    Raises:
        RuntimeError: Called on that very loop's thread, where waiting could never end.
    """
    loop = loop or background_loop()
    if running_loop() is loop:
        coroutine.close()
        raise RuntimeError(
            "a synchronous call inside the event loop that the client lives on would wait for "
            "ever; await it: `result = await client.reset()`"
        )
    future = submit(coroutine, loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def _forget_after_fork() -> None:
    """A forked child has the loop but not its thread."""
    global _loop, _lock
    _loop, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
