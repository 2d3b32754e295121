"""Waits until something is so that a process, a thread or a task brings about."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

__all__ = ["eventually", "wait_until"]

# Far longer than what is waited for takes, on a busy machine too.
TIMEOUT_S = 20.0
INTERVAL_S = 0.01


def wait_until(
    condition: Callable[[], object],
    timeout_s: float = TIMEOUT_S,
    shown: Callable[[], object] = lambda: "",
) -> None:
    """Wait until `condition()` is true.

    Raises:
        AssertionError: `timeout_s` passed; it says what `shown()` returns then.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"it never came true {shown()}"
        time.sleep(INTERVAL_S)


async def eventually(condition: Callable[[], object], timeout_s: float = TIMEOUT_S) -> None:
    """Wait as `wait_until` does, while the event loop goes on."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        await asyncio.sleep(INTERVAL_S)
