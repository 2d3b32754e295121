"""Events of a dynamic world, which happen between the agent's steps.

    class Inbox(Environment[Reply, Mail, State]):
        def reset(self, seed=None, episode_id=None):
            self.events.arrivals("mail", per_unit=0.2)   # a letter every five steps or so
            ...

        def on_event(self, event):                       # before the next step
            self._letters.append(event.data)

A static world has an empty queue. In a dynamic world events are scheduled, drawn at random from the
episode's seed, or pushed from outside. Before each step the server passes the due events to
`on_event`. In simulation, time is counted in steps and restarts with each episode, so that the same
seed and actions meet the same events. In production, time is real time in seconds and never
restarts.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from pydantic import BaseModel, Field

__all__ = ["Event", "EventQueue"]

MAX_WAITING = 100_000


class Event(BaseModel):
    """An event in a world, apart from the agent's actions.

    Attributes:
        kind: The kind of event.
        data: The details.
        at: The time: in simulation, steps since the episode began; in production, seconds since the
            environment was made.
    """

    kind: str
    data: dict[str, Any] = Field(default_factory=dict)
    at: float = 0.0


class EventQueue:
    """A queue of events that wait for the next step.

    `push` may be called from any thread; only the environment may call the other methods.

    Args:
        real_time: Use real time in seconds instead of counting steps.

    Attributes:
        random: The generator of random arrivals, seeded with each episode.
    """

    def __init__(self, *, real_time: bool = False) -> None:
        self.random = random.Random()  # nosec B311  # a simulation's
        self._is_real = real_time
        self._began = time.monotonic()
        self._now = 0.0
        self._scheduled: list[tuple[float, int, Event]] = []
        self._following: dict[int, Iterator[Event]] = {}  # draws the next event, by event number
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def use_real_time(self) -> None:
        """Switch to real time, in seconds from now."""
        self._is_real, self._began = True, time.monotonic()

    @property
    def now(self) -> float:
        """The time: steps since the episode began, or seconds since the environment was made."""
        return time.monotonic() - self._began if self._is_real else self._now

    def __len__(self) -> int:
        return len(self._scheduled)

    def push(self, kind: str, data: dict[str, Any] | None = None) -> None:
        """Add an event that has happened outside.

        Raises:
            OverflowError: `MAX_WAITING` events wait already.
        """
        self._add(Event(kind=kind, data=data or {}, at=self.now))

    def schedule(self, kind: str, data: dict[str, Any] | None = None, *, after: float) -> None:
        """Schedule an event.

        Args:
            kind: The kind of event.
            data: The details.
            after: The time from now, in steps or seconds.

        Raises:
            ValueError: `after` is negative, infinite or NaN.
            OverflowError: `MAX_WAITING` events wait already.
        """
        if not 0 <= after < math.inf:
            raise ValueError(f"after={after!r}; it must be a number of units of time from 0")
        self._add(Event(kind=kind, data=data or {}, at=self.now + after))

    def arrivals(
        self,
        kind: str,
        *,
        per_unit: float,
        data: Callable[[random.Random], dict[str, Any]] | None = None,
    ) -> None:
        """Schedule random arrivals, as a Poisson process.

        Args:
            kind: The kind of event.
            per_unit: The average number of events per step or second.
            data: Function that draws the details of an event from the given generator. Default: no
                details.

        Raises:
            ValueError: `per_unit` is not positive and finite.
            OverflowError: `MAX_WAITING` events wait already.
        """
        if not 0 < per_unit < math.inf:
            raise ValueError(f"per_unit={per_unit!r}; it must be a positive number")
        # Each process has a generator of its own, so that it does not depend on the others' draws.
        drawn = random.Random(self.random.getrandbits(64))  # nosec B311

        def events() -> Iterator[Event]:
            at = self.now
            while True:
                at += drawn.expovariate(per_unit)
                yield Event(kind=kind, data=data(drawn) if data is not None else {}, at=at)

        source = events()
        self._add(next(source), source)

    def begin(self, seed: int | None) -> None:
        """Begin an episode at time 0 with an empty queue. In real time this does nothing."""
        if self._is_real:
            return
        with self._lock:
            self._scheduled.clear()
            self._following.clear()
            self._now = 0.0
        self.random.seed(seed)

    def advance(self, units: float = 1.0) -> None:
        """Advance the time in simulation; real time advances by itself."""
        self._now += units

    def due(self) -> list[Event]:
        """Remove and return the events that have happened, in order of time."""
        taken: list[Event] = []
        now = self.now
        while True:
            with self._lock:
                if not self._scheduled or self._scheduled[0][0] > now:
                    return taken
                _, number, event = heapq.heappop(self._scheduled)
                source = self._following.pop(number, None)
            taken.append(event)
            if source is not None:
                self._add(next(source), source)

    def _add(self, event: Event, source: Iterator[Event] | None = None) -> None:
        with self._lock:
            if len(self._scheduled) >= MAX_WAITING:
                raise OverflowError(
                    f"{MAX_WAITING:,} events wait already; does the environment take steps?"
                )
            number = next(self._numbers)
            heapq.heappush(self._scheduled, (event.at, number, event))
            if source is not None:
                self._following[number] = source
