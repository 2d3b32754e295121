"""How many servers a pool has, how many it starts at once, and how much it asks of each.

There is no clock here, no server and no loop: what has happened goes in, and what shall be done
comes out. So the same code controls a pool and its simulation.

Limits go up by one at a time while all is well and down by a factor when it is not: additive
increase, multiplicative decrease (AIMD; Chiu and Jain 1989), which is how TCP shares a line that
nobody knows the capacity of.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from openenv._internal.timing import backoff_s

__all__ = ["LONGEST_RETRY_S", "RETRY_S", "Load", "Scaler", "Starts", "Window"]

RETRY_S, LONGEST_RETRY_S = 0.5, 30.0
SLOW_START = 4.0  # times as long as the quickest


class Window:
    """How much may be under way at once: AIMD.

    Args:
        start: What it begins with.
        lowest: What it never falls below.
        highest: What it never rises above.
        factor: What it is multiplied by when something went wrong.
        rest_s: Seconds after that in which nothing makes it smaller: what is under way then was
            begun before, and says the same once more.

    Attributes:
        highest: What it never rises above.
    """

    def __init__(
        self,
        start: float,
        *,
        lowest: float = 1.0,
        highest: float = math.inf,
        factor: float = 0.5,
        rest_s: float = 1.0,
    ) -> None:
        self.highest = highest
        self._lowest = lowest
        self._factor = factor
        self._rest_s = rest_s
        self._size = min(max(start, lowest), highest)
        self._rests_until = -math.inf

    @property
    def size(self) -> int:
        """How much may be under way."""
        return int(self._size)

    def widen(self, by: float = 1.0) -> None:
        """Something went well."""
        self._size = min(self._size + by, self.highest)

    def narrow(self, now: float) -> None:
        """Something went badly."""
        if now >= self._rests_until:
            self._size = max(self._size * self._factor, self._lowest)
            self._rests_until = now + self._rest_s


class Starts:
    """How many servers may be started now: as many at once as the engine bears, and fewer and
    later while starts fail.

    Args:
        at_once: What it begins with.
        most: Starts at once at most.

    Attributes:
        failures: Starts that have failed since one succeeded; of many at once, one counts.
    """

    def __init__(self, at_once: int = 8, most: int = 64) -> None:
        self.failures = 0
        self._window = Window(at_once, highest=most)
        self._quickest_s: float | None = None
        self._retry_at = -math.inf

    def allowed(self, starting: int, now: float) -> int:
        """How many more may be started.

        Args:
            starting: How many are being started.
            now: Seconds, by any clock that does not go back.
        """
        return 0 if now < self._retry_at else max(self._window.size - starting, 0)

    def succeeded(self, took_s: float, now: float) -> None:
        """One is ready."""
        self.failures = 0
        self._quickest_s = min(took_s, self._quickest_s or took_s)
        if took_s > SLOW_START * self._quickest_s:  # the engine has too much to do
            self._window.narrow(now)
        else:
            self._window.widen()

    def failed(self, now: float) -> None:
        """One could not be started: the next is tried after a while, twice as long each time."""
        self._window.narrow(now)
        if now >= self._retry_at:
            self.failures += 1
            self._retry_at = now + backoff_s(self.failures, RETRY_S, LONGEST_RETRY_S)


@dataclass(frozen=True)
class Load:
    """What a pool has and what is wanted of it.

    Attributes:
        leased: Sessions that are leased.
        waiting: Sessions that are waited for.
        servers: Servers that are ready.
        slots: Sessions that those can take together, leased ones included.
        starting: Servers that are being started.
    """

    leased: int
    waiting: int
    servers: int
    slots: int
    starting: int


class Scaler:
    """Says how many servers there shall be.

    Up at once, to what is wanted: a trainer waits for it. Down slowly, by a share of what nobody
    has needed for a while: what was wanted a moment ago is often wanted again.

    Args:
        lowest: Servers that there always are.
        highest: Servers that there are at most.
        spare: Sessions that are kept free for whoever comes next.
        sessions_per_server: What a server takes, as long as none has said so.
        idle_s: Seconds for which a server must have been too many before it is ended.
        factor: The share of what is too many that is kept each time.
    """

    def __init__(
        self,
        lowest: int,
        highest: int,
        *,
        spare: int = 0,
        sessions_per_server: int = 1,
        idle_s: float = 60.0,
        factor: float = 0.5,
    ) -> None:
        self.lowest = lowest
        self.highest = highest
        self.spare = spare
        self._sessions = sessions_per_server
        self._idle_s = idle_s
        self._factor = factor
        self._since: float | None = None  # when there began to be too many
        self._needed = 0  # the most that was needed since then

    def wanted(self, load: Load, now: float) -> int:
        """How many servers there shall be, those that are being started included.

        Args:
            load: How things stand.
            now: Seconds, by any clock that does not go back.
        """
        needed = self._needed_for(load)
        there = load.servers + load.starting
        if needed >= there:
            self._since = None
            return needed
        if self._since is None:
            self._since, self._needed = now, needed
        self._needed = max(self._needed, needed)
        if now - self._since < self._idle_s:
            return there
        # The next share goes after as long again.
        surplus = there - self._needed
        self._since, kept = now, int(surplus * self._factor)
        wanted, self._needed = self._needed + kept, needed
        return wanted

    def _needed_for(self, load: Load) -> int:
        sessions = load.leased + load.waiting + self.spare
        each = load.slots / load.servers if load.servers and load.slots else self._sessions
        return min(max(math.ceil(sessions / each), self.lowest), self.highest)
