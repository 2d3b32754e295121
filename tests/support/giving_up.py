"""Callers that stop waiting: just before an answer comes, as it comes, and after it has come."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from support.waiting import wait_until

__all__ = ["Interrupted", "give_up_answered", "interrupted", "settled"]


T = TypeVar("T")


class Interrupted(BaseException):
    """What the handler of the signal raises, as that of Ctrl-C raises KeyboardInterrupt."""


def interrupted(
    call: Callable[[], T],
    when: Callable[[], object] | float,
    meanwhile: Callable[[], Any] = lambda: None,
) -> T | None:
    """Make a call, and interrupt the main thread once; gives None where the call was interrupted.

    Not by SIGALRM, which is what limits the time of a test.

    Args:
        call: What is called.
        when: What has to be so before; or after how many seconds, where the call may have ended.
        meanwhile: Done by the handler before it raises, while the loop of the client goes on.
    """
    main, has_ended = threading.main_thread().ident, threading.Event()
    assert main is not None

    def handle(*_: Any) -> None:
        meanwhile()
        if not has_ended.is_set():
            raise Interrupted

    def send() -> None:
        if isinstance(when, float):
            time.sleep(when)
        else:
            wait_until(when)
        if not has_ended.is_set():
            signal.pthread_kill(main, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handle)
    sending = threading.Thread(target=send)
    found: list[T] = []
    try:
        with contextlib.suppress(Interrupted):
            try:
                sending.start()
                found.append(call())  # whole: what the call returns is never dropped here
            finally:
                has_ended.set()
    finally:
        sending.join()
        signal.signal(signal.SIGUSR1, before)
    return found[0] if found else None


def settled(client: Any) -> bool:
    """Whether a client has had the answers of all that it has asked."""
    return not client._session.remote.sent


async def give_up_answered(pending: Any, client: Any) -> None:
    """Await a pending answer of a bare client, and be cancelled after it has come to the client:
    the caller's loop is blocked meanwhile, as by an optimizer's step.
    """
    waiting = asyncio.ensure_future(pending)
    await asyncio.sleep(0)
    wait_until(vars(pending)["_source"].done)
    assert settled(client)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
