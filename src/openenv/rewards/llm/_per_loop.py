"""Objects that exist once per event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class PerLoop(Generic[T]):
    """A factory that keeps one object for each open event loop.

    Args:
        make: Function that creates an object; called inside the loop.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: dict[asyncio.AbstractEventLoop, T] = {}

    def get(self) -> T:
        """Return the object of the running loop, creating the object if necessary."""
        loop = asyncio.get_running_loop()
        if loop not in self._made:
            self._made = {one: made for one, made in self._made.items() if not one.is_closed()}
            self._made[loop] = self._make()
        return self._made[loop]

    def pop(self) -> T | None:
        """Remove and return the object of the running loop, or None."""
        return self._made.pop(asyncio.get_running_loop(), None)
