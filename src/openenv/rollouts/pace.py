"""The number of episodes at once: more as episodes succeed, half as many under pressure.

This is additive increase and multiplicative decrease (Chiu & Jain 1989), as in TCP's congestion
avoidance (RFC 5681). It converges to a fair and efficient share of the bottleneck without knowing
which part that is: a part that is full or too slow refuses requests, and then gets fewer.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque

DECREASE = 0.5
TRACE_LENGTH = 1000


class Pace:
    """A number of places that changes between 1 and `most`; used from one event loop.

    Args:
        most: Initial and maximum number of places.

    Attributes:
        trace: The last 1000 decreases and recoveries to `most`, each with the seconds since the
            beginning, the new number of places, and the reason.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._limit = float(most)
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._began = time.monotonic()
        self._decreases = 0
        self.trace: deque[tuple[float, int, str]] = deque([(0.0, most, "begun")], TRACE_LENGTH)

    @property
    def limit(self) -> int:
        """The number of places now."""
        return int(self._limit)

    async def enter(self) -> int:
        """Wait for a place and take it; return a ticket for `press`."""
        while self._taken >= self.limit:
            called = asyncio.get_running_loop().create_future()
            self._waiting.append(called)
            try:
                await called
            except asyncio.CancelledError:
                if called.done() and not called.cancelled():
                    self._call()
                raise
        self._taken += 1
        return self._decreases

    def leave(self) -> None:
        """Give a place back."""
        self._taken -= 1
        self._call()

    def _call(self) -> None:
        free = self.limit - self._taken
        while self._waiting and free > 0:
            called = self._waiting.popleft()
            if not called.done():
                called.set_result(None)
                free -= 1

    def ease(self) -> None:
        """Note a success: one place is added after as many successes as there are places."""
        if self._limit < self._most:
            self._limit = min(self._limit + 1.0 / self._limit, float(self._most))
            if self._limit == self._most:
                self._note("recovered")
            self._call()

    def press(self, ticket: int, why: str) -> None:
        """Note pressure: halve the number of places.

        Calls that began before the last decrease are ignored: a full server refuses many at once.
        """
        if ticket == self._decreases and self.limit > 1:
            self._limit = max(1.0, self._limit * DECREASE)
            self._decreases += 1
            self._note(why)

    def _note(self, why: str) -> None:
        self.trace.append((round(time.monotonic() - self._began, 3), self.limit, why))
