"""What is counted of the sessions of one manager: plain numbers, read when somebody asks.

Every step pays for what is counted of it, so nothing is counted here that follows from
something else. `openenv.server.metrics` gives the numbers their names and their forms.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter

from openenv.errors import outward
from openenv.execution.commands import GetState, Reset, Step

__all__ = ["BATCH", "BOUNDS_S", "Histogram", "CallLatency", "SessionCounters"]

# Upper bounds in seconds, from a step of blackjack to one that calls a language model.
BOUNDS_S = (
    *(0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)


BATCH = 128  # durations that are counted together


class Histogram:
    """How many durations lie between which bounds.

    Attributes:
        counts: How many there are up to each of `BOUNDS_S`, but not to the one before; and beyond.
        sum_s: All of them together, in seconds.
    """

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def observe(self, durations: list[float]) -> None:
        """Count durations; in order, as this brings them, they cost a third of one by one."""
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
        """How many durations there are."""
        return sum(self.counts)


class CallLatency:
    """How long the calls of one method took. They are kept for a moment and counted together.

    Attributes:
        whole: From the arrival of a request to its answer.
        inside: On its executor: decoding the action, the environment itself, encoding the reply.
    """

    __slots__ = ("_inside", "_new", "_whole")

    def __init__(self) -> None:
        self._whole = Histogram()
        self._inside = Histogram()
        self._new: list[float] = []  # two of each call: every step comes by here

    def observe(self, whole_s: float, inside_s: float) -> None:
        """Count a call."""
        self._new += (whole_s, inside_s)
        if len(self._new) >= 2 * BATCH:
            self._count()

    def _count(self) -> None:
        new, self._new = self._new, []
        self._whole.observe(new[::2])
        self._inside.observe(new[1::2])

    @property
    def whole(self) -> Histogram:
        self._count()
        return self._whole

    @property
    def inside(self) -> Histogram:
        self._count()
        return self._inside


class SessionCounters:
    """Counts what happens in one manager. The code that causes an event counts it:
    ``counters.resumes += 1``.

    Attributes:
        opened: Sessions that were begun, those included whose environment could not be made.
        closed: Sessions that have ended, by the reason: ``client`` (it left, or said so), ``lost``
            (it did not come back in time), ``idle``, ``evicted`` (to make room), ``replaced`` (a
            call of it did not come back), ``shutdown``, ``failed`` (no environment could be made),
            ``abandoned`` (the client left before there was one), ``crashed``, and ``request`` for
            those that served a single HTTP request.
        latencies: How long calls took, by the class of the command.
        errors: Errors that were answered, by their code.
        bytes_in: What clients have sent in WebSocket messages; of text, its characters.
        bytes_out: What was sent to them.
        frames_in: Messages that clients have sent.
        frames_out: Messages that were sent to them.
        resumes: Connections that a client has resumed.
        refused_resumes: Those that it could not resume.
        queue_wait: How long those waited that wait no more.
        queue_timeouts: Those that waited in vain.
        step_timeouts: Calls that were not done by their deadline.
        slow_readers_cut: Clients that were cut off since they did not read.
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
        """Count an error that is answered."""
        self.errors[outward(error).code.value] += 1
