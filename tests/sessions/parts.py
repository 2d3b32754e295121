"""What these tests share beside fixtures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from openenv.sessions.manager import SessionManager

__all__ = ["HANGS_S", "Manage", "eventually"]

Manage = Callable[..., SessionManager]

HANGS_S = 30.0  # longer than any test waits, on a busy machine too


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until it is so, while the loop goes on."""
    for _ in range(400):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came true")
