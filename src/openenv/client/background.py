"""The event loop that all synchronous clients of a process share, on a thread of this package.

A call on the loop may complete just as its caller stops waiting, because of a cancellation or a
signal. Its result is not lost: the code that received the server's answer has noted, with `hold`,
where the answer can be kept. It is kept there, and a caller that repeats the request gets it.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from typing_extensions import ParamSpec

from openenv._internal.lazy import asyncio, lazy_module
from openenv._internal.timing import new_event_loop

if TYPE_CHECKING:
    from openenv.client import _calls
    from openenv.client._calls import PendingCall
else:
    _calls = lazy_module("openenv.client._calls")

T = TypeVar("T")
P = ParamSpec("P")

EXIT_GRACE_S = 1.0


class Leaving(Protocol):
    """A connection that says goodbye at exit, so that the server does not keep its sessions."""

    def leave(self) -> None:
        """Say goodbye, without waiting; called on the shared loop."""
        ...


leaving: weakref.WeakSet[Leaving] = weakref.WeakSet()

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None


def background_loop() -> asyncio.AbstractEventLoop:
    """Return the shared loop, starting it on first use."""
    global _loop, _thread
    with _lock:
        if _loop is None:
            loop = new_event_loop()
            thread = threading.Thread(
                target=loop.run_forever, name="openenv-background-loop", daemon=True
            )
            thread.start()
            _loop, _thread = loop, thread  # only now: a signal may prevent the thread's start
        return _loop


@atexit.register  # at import, so that exit handlers registered later can still use the loop
def _end() -> None:
    """End the clients that were not closed, within 1 s; called at exit."""
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
    """Return whether a loop is the shared loop."""
    return loop is _loop


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the loop that runs on this thread; None if there is none."""
    return asyncio._get_running_loop()


class Held(Protocol):
    """Answers of a server that may not reach the caller."""

    def give_back(self) -> None:
        """Keep the answers for a caller that repeats the request."""

    def take_back(self) -> None:
        """Discard the kept answers: the caller received them after all."""


class Receipt:
    """The answers that a running call received from the server, until its caller has them.

    Args:
        loop: The loop that runs the call.
    """

    __slots__ = ("_held", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._held: Held | None = None

    def hold(self, held: Held | None) -> None:
        """Note the latest answers; None if nothing has to be given back."""
        self._held = held

    def hand_on(self, other: Receipt | None) -> None:
        """Make another receipt hold the same answers."""
        if other is not None and self._held is not None:
            other.hold(self._held)

    def give_back(self) -> None:
        """Keep the answers for a caller that repeats the request; called on the call's loop."""
        if self._held is not None:
            self._held.give_back()

    def take_back(self) -> None:
        """Undo `give_back`: the caller has the result after all."""
        if self._held is not None:
            self._held.take_back()

    def forget(self) -> None:
        """Hold no answers any longer: the caller knows the outcome of the call."""
        self._held = None

    def soon(self, what: Callable[[], None]) -> None:
        """Call `give_back` or `take_back` on the call's loop, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended, and its connections with it
            self._loop.call_soon_threadsafe(what)


# The receipt of the running call; None if the caller awaits the call itself.
current_receipt: ContextVar[Receipt | None] = ContextVar("receipt", default=None)


def hold(held: Held | None) -> None:
    """Note answers to give back if the caller never gets the running call's result."""
    receipt = current_receipt.get()
    if receipt is not None:
        receipt.hold(held)


@contextlib.contextmanager
def given_back() -> Iterator[None]:
    """Give back the answers received within the block if the block raises."""
    receipt = Receipt(asyncio.get_running_loop())
    token = current_receipt.set(receipt)
    try:
        yield
    except BaseException:
        receipt.give_back()
        raise
    finally:
        current_receipt.reset(token)
    receipt.hand_on(current_receipt.get())


class _Latest(threading.local):
    """The latest call of a thread, and its receipt."""

    call: Callable[[], PendingCall[Any] | None] | None = None
    receipt: Receipt | None = None


_latest = _Latest()


def interruptible(function: Callable[P, T]) -> Callable[P, T]:
    """Make a public method safe to interrupt.

    If a signal handler raises before the method has returned, the answer of its call is given back.
    """

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        _latest.receipt = None
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            interrupted(error)
            raise

    setattr(guarded, _GUARDED, True)
    return guarded


_GUARDED = "_sees_to_interrupts"


def guards_itself(function: Callable[P, T]) -> Callable[P, T]:
    """Mark a public method that already does what `interruptible` does."""
    setattr(function, _GUARDED, True)
    return function


def is_interruptible(function: Any) -> bool:
    """Return whether a method is safe to interrupt: see `interruptible` and `guards_itself`."""
    return hasattr(function, _GUARDED)


def expect() -> None:
    """Forget this thread's earlier calls: `interrupted` now refers to calls made from here on."""
    _latest.receipt = None


def interrupted(error: BaseException) -> None:
    """Give back the answer of this thread's latest call, or cancel the call.

    The caller gets `error` in place of the result. `error` may be the error of the call itself.
    """
    receipt, _latest.receipt = _latest.receipt, None
    if receipt is None:
        return
    call = None if _latest.call is None else _latest.call()
    if call is not None:
        call.drop(error)
    else:
        receipt.soon(receipt.give_back)


def submit(
    coroutine: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop | None = None
) -> PendingCall[T]:
    """Start `coroutine` on `loop` (by default the shared loop), whether awaited or not."""
    loop = loop or background_loop()
    receipt = Receipt(loop)
    call: PendingCall[T] = _calls.PendingCall(loop, receipt)
    _latest.call, _latest.receipt = weakref.ref(call), receipt
    context = copy_context()
    context.run(current_receipt.set, receipt)
    loop.call_soon_threadsafe(call.begin, coroutine, context=context)
    return call


def run(coroutine: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop | None = None) -> T:
    """Run `coroutine` on `loop` (by default the shared loop) and wait for the result.

    Raises:
        RuntimeError: Called on that loop's own thread, where the wait would never end.
    """
    loop = loop or background_loop()
    if running_loop() is loop:
        coroutine.close()
        raise RuntimeError(
            "a synchronous call inside the event loop that the client lives on would wait for "
            "ever; await it: `result = await client.reset()`"
        )
    return submit(coroutine, loop).taken()


def _forget_after_fork() -> None:
    """Forget the shared loop in a forked child, which has the loop but not the thread."""
    global _loop, _lock
    _loop, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
