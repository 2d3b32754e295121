"""Counters of the sessions of a manager: plain numbers that are read on request.

Each step pays for these counters, so nothing is counted that can be derived from something else.
`openenv.server.metrics` exposes the numbers under their public names.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter

from openenv.errors import outward
from openenv.execution.commands import GetState, Reset, Step

# Upper bounds in seconds, from a step of blackjack to one that calls a language model.
BOUNDS_S = (
    *(0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)


UNCOUNTED = 256  # durations, two for each call


class Histogram:
    """A histogram of durations with the bounds `BOUNDS_S`.

    Attributes:
        counts: The number of durations in each bucket; the last one has no upper bound.
        sum_s: The sum of all durations, in seconds.
    """

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def observe(self, durations: list[float]) -> None:
        """Count durations. Sorts the list in place."""
        durations.sort()
        self.sum_s += sum(durations)
        counted = 0
        for index, bound in enumerate(BOUNDS_S):
            end = bisect_right(durations, bound, counted)
            self.counts[index] += end - counted
            counted = end
        self.counts[-1] += len(durations) - counted

    @property
    def count(self) -> int:
        """The number of durations."""
        return sum(self.counts)


class CallLatency:
    """The durations of the calls of a method.

    Every step adds to `uncounted`, and `Session.finish` calls `count` once there are `UNCOUNTED`:
    sorting and counting them together costs a third of counting them one by one.

    Attributes:
        uncounted: Durations that are not counted yet, in seconds, two for each call: from the
            arrival of the request to its reply, and on the executor.
    """

    __slots__ = ("_inside", "_whole", "uncounted")

    def __init__(self) -> None:
        self._whole = Histogram()
        self._inside = Histogram()
        self.uncounted: list[float] = []

    def count(self) -> None:
        """Count the durations that are not counted yet."""
        uncounted, self.uncounted = self.uncounted, []
        self._whole.observe(uncounted[::2])
        self._inside.observe(uncounted[1::2])

    @property
    def whole(self) -> Histogram:
        """The durations from the arrival of a request to its reply."""
        self.count()
        return self._whole

    @property
    def inside(self) -> Histogram:
        """The durations on the executor: decode the action, step, encode the reply."""
        self.count()
        return self._inside


class SessionCounters:
    """Counts events of a manager. The code that causes an event also counts it:
    ``counters.resumes += 1``.

    Attributes:
        opened: Sessions that were begun, including those whose environment could not be made.
        closed: Sessions that have ended, by reason: ``client`` (it left or closed the session),
            ``lost`` (the client did not come back in time), ``idle``, ``evicted`` (to make room),
            ``replaced`` (a call did not return), ``shutdown``, ``failed`` (the environment could
            not be made), ``abandoned`` (the client left before that), ``crashed``, and ``request``
            (the session served a single HTTP request).
        latencies: Durations of calls, by the class of the command.
        errors: Errors sent to clients, by code.
        bytes_in: Size of WebSocket messages received; for text, the number of characters.
        bytes_out: Size of WebSocket messages sent.
        frames_in: Number of WebSocket messages received.
        frames_out: Number of WebSocket messages sent.
        resumes: Connections that clients have resumed.
        refused_resumes: Connections that clients could not resume.
        queue_wait: Durations of ended waits in the queue.
        queue_timeouts: Waits that ended without a slot.
        step_timeouts: Calls that did not return by their deadline.
        slow_readers_cut: Clients that were cut off because they did not read.
    """

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "closed",
        "errors",
        "frames_in",
        "frames_out",
        "latencies",
        "opened",
        "queue_timeouts",
        "queue_wait",
        "refused_resumes",
        "resumes",
        "slow_readers_cut",
        "step_timeouts",
    )

    def __init__(self) -> None:
        self.opened = 0
        self.closed: Counter[str] = Counter()
        self.latencies: dict[type, CallLatency] = {
            cls: CallLatency() for cls in (Step, Reset, GetState)
        }
        self.errors: Counter[str] = Counter()
        self.bytes_in = self.bytes_out = self.frames_in = self.frames_out = 0
        self.resumes = self.refused_resumes = self.queue_timeouts = 0
        self.queue_wait = Histogram()
        self.step_timeouts = self.slow_readers_cut = 0

    def failed(self, error: BaseException) -> None:
        """Count an error that is sent to a client."""
        self.errors[outward(error).code.value] += 1
