"""What belongs to one event loop, and is made anew in another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["PerLoop"]

T = TypeVar("T")


class PerLoop(Generic[T]):
    """One of its kind for each event loop that is not closed.

    Args:
        make: Makes one, in the loop.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: dict[asyncio.AbstractEventLoop, T] = {}

    def get(self) -> T:
        """That of the running loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._made:
            self._made = {one: made for one, made in self._made.items() if not one.is_closed()}
            self._made[loop] = self._make()
        return self._made[loop]

    def pop(self) -> T | None:
        """That of the running loop, which is forgotten; None where there was none yet."""
        return self._made.pop(asyncio.get_running_loop(), None)
