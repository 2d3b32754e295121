"""Decisions of a pool: how many servers, concurrent starts, and sessions on each server.

This module has no clock, server or event loop: events go in, and decisions come out. So the same
code controls a pool and its simulation.

Limits rise by one at a time and fall by a factor after a failure: additive increase, multiplicative
decrease (AIMD; Chiu and Jain 1989), the way in which TCP shares a line of unknown capacity.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field

from openenv._internal.timing import backoff_s

__all__ = ["LONGEST_RETRY_S", "RETRY_S", "Load", "Scaler", "Starts", "Window"]

RETRY_S, LONGEST_RETRY_S = 0.5, 30.0
SLOW_START = 4.0  # a start is slow if it takes this many times as long as the quickest


class Window:
    """A limit of concurrent work that adapts by AIMD.

    Args:
        start: Initial limit.
        lowest: Lowest limit.
        highest: Highest limit.
        factor: Factor that the limit is multiplied by after a failure.
        rest_s: Seconds after a failure during which other failures do not lower the limit again,
            since they come from work that began earlier.

    Attributes:
        highest: The highest limit.
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
        """The current limit."""
        return int(self._size)

    def widen(self, by: float = 1.0) -> None:
        """Raise the limit after a success."""
        self._size = min(self._size + by, self.highest)

    def narrow(self, now: float) -> None:
        """Lower the limit after a failure."""
        if now >= self._rests_until:
            self._size = max(self._size * self._factor, self._lowest)
            self._rests_until = now + self._rest_s


class Starts:
    """The limit of concurrent server starts, which shrinks while starts are slow or fail.

    Args:
        at_once: Initial limit.
        most: Highest limit.

    Attributes:
        failures: Failed starts since the last success; concurrent failures count once.
    """

    def __init__(self, at_once: int = 8, most: int = 64) -> None:
        self.failures = 0
        self._window = Window(at_once, highest=most)
        self._quickest_s: float | None = None
        self._retry_at = -math.inf

    def allowed(self, starting: int, now: float) -> int:
        """Return how many more servers may be started now.

        Args:
            starting: Number of servers that are being started.
            now: Time in seconds, of any monotonic clock.
        """
        return 0 if now < self._retry_at else max(self._window.size - starting, 0)

    def succeeded(self, took_s: float, now: float) -> None:
        """Record a successful start."""
        self.failures = 0
        self._quickest_s = min(took_s, self._quickest_s or took_s)
        if took_s > SLOW_START * self._quickest_s:  # the engine is overloaded
            self._window.narrow(now)
        else:
            self._window.widen()

    def failed(self, now: float) -> None:
        """Record a failed start; the wait before the next start doubles each time."""
        self._window.narrow(now)
        if now >= self._retry_at:
            self.failures += 1
            self._retry_at = now + backoff_s(self.failures, RETRY_S, LONGEST_RETRY_S)


@dataclass(frozen=True)
class Load:
    """The state of a pool, and the demand.

    Attributes:
        leased: Number of leased sessions.
        waiting: Number of sessions that clients wait for.
        servers: Number of ready servers.
        slots: Number of sessions that the ready servers can hold, leased ones included.
        starting: Number of servers that are being started.
    """

    leased: int
    waiting: int
    servers: int
    slots: int
    starting: int


@dataclass(eq=False)
class Scaler:
    """Decides how many servers a pool should have.

    The scaler adds servers at once, since a trainer waits. It removes servers slowly, a share of
    those that were idle for a while, since demand often returns.

    Args:
        lowest: Minimum number of servers.
        highest: Maximum number of servers.
        spare: Number of sessions to keep free.
        sessions_per_server: Sessions of a server, until a server has reported its number.
        idle_s: Seconds for which a server must be unneeded before it is ended.
        factor: Share of the unneeded servers that is kept each time.
    """

    lowest: int
    highest: int
    _: KW_ONLY
    spare: int = 0
    sessions_per_server: int = 1
    idle_s: float = 60.0
    factor: float = 0.5
    _since: float | None = field(default=None, init=False)  # when some servers became unneeded
    _needed: int = field(default=0, init=False)  # the most servers that were needed since then

    def wanted(self, load: Load, now: float) -> int:
        """Return how many servers there should be, including those being started.

        Args:
            load: The state of the pool.
            now: Time in seconds, of any monotonic clock.
        """
        sessions = load.leased + load.waiting + self.spare
        is_known = load.servers and load.slots
        each = load.slots / load.servers if is_known else self.sessions_per_server
        needed = min(max(math.ceil(sessions / each), self.lowest), self.highest)
        there = load.servers + load.starting
        if needed >= there:
            self._since = None
            return needed
        if self._since is None:
            self._since, self._needed = now, needed
        self._needed = max(self._needed, needed)
        if now - self._since < self.idle_s:
            return there
        # The next share is ended after another `idle_s`.
        surplus = there - self._needed
        self._since, kept = now, int(surplus * self.factor)
        wanted, self._needed = self._needed + kept, needed
        return wanted
