"""What is counted of the sessions of one manager: plain numbers, read when somebody asks.

Counting costs a step a quarter of a microsecond, so nothing is counted here that follows from
something else. `openenv.server.metrics` gives the numbers their names and their forms.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

from openenv.errors import outward
from openenv.sessions.host import GetState, Reset, Step

__all__ = ["BOUNDS_S", "Histogram", "Latency", "Tally"]

# Upper bounds in seconds, from a step of blackjack to one that calls a language model.
BOUNDS_S = (
    *(0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)


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

    def observe(self, seconds: float) -> None:
        """Count a duration."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_s += seconds

    @property
    def count(self) -> int:
        """How many durations there are."""
        return sum(self.counts)


class Latency:
    """How long the calls of one method took.

    Attributes:
        whole: From the arrival of a request to its answer.
        inside: On its lane: decoding the action, the environment itself, encoding the reply.
    """

    __slots__ = ("inside", "whole")

    def __init__(self) -> None:
        self.whole = Histogram()
        self.inside = Histogram()

    def observe(self, whole_s: float, inside_s: float) -> None:
        """Count a call; as `Histogram.observe`, written out, since every step comes by here."""
        whole, inside = self.whole, self.inside
        whole.counts[bisect_left(BOUNDS_S, whole_s)] += 1
        whole.sum_s += whole_s
        inside.counts[bisect_left(BOUNDS_S, inside_s)] += 1
        inside.sum_s += inside_s


class Tally:
    """The numbers of one manager. Whoever makes something happen counts it: ``tally.resumes += 1``.

    Attributes:
        opened: Sessions that were begun, those included whose environment could not be made.
        closed: Sessions that have ended, by the reason: ``client`` (it left, or said so), ``idle``,
            ``evicted`` (to make room), ``shutdown``, ``failed`` (no environment could be made),
            ``abandoned`` (the client left before there was one), ``crashed``, and ``request`` for
            those that served a single HTTP request.
        latencies: By the class of the command.
        errors: Errors that were answered, by their code.
        bytes_in: What clients have sent in WebSocket messages; of text, its characters.
        bytes_out: What was sent to them.
        frames_in: Messages that clients have sent.
        frames_out: Messages that were sent to them.
        resumes: Sessions that a client has come back to.
        refused_resumes: Those that it could not come back to.
        detached: Sessions that wait for their client to come back, now.
        queue_length: Clients that wait for a slot, now.
        queue_wait: How long those waited that wait no more.
        queue_timeouts: Those that waited in vain.
        step_timeouts: Calls that were not done by their deadline.
        overdue: Calls that still run past their deadline, now.
        slow_readers_cut: Clients that were cut off since they did not read.
    """

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "closed",
        "detached",
        "errors",
        "frames_in",
        "frames_out",
        "latencies",
        "opened",
        "overdue",
        "queue_length",
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
        self.latencies: dict[type, Latency] = {c: Latency() for c in (Reset, Step, GetState)}
        self.errors: Counter[str] = Counter()
        self.bytes_in = self.bytes_out = self.frames_in = self.frames_out = 0
        self.resumes = self.refused_resumes = self.detached = 0
        self.queue_length = self.queue_timeouts = 0
        self.queue_wait = Histogram()
        self.step_timeouts = self.overdue = self.slow_readers_cut = 0

    def failed(self, error: BaseException) -> None:
        """Count an error that is answered."""
        self.errors[outward(error).code.value] += 1
