"""How fast a subject answers, alone and under load, and whether its server grows."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from openenv.validation.collector import Budget, RawSession, play
from openenv.validation.evidence import Transcript
from openenv.validation.probes import Policy

__all__ = [
    "CAPACITY",
    "Latencies",
    "LoadReport",
    "MemoryReport",
    "cpu_seconds",
    "measure_latency",
    "measure_memory",
    "percentile",
    "resident_bytes",
]

SESSIONS_UNDER_LOAD = 8
STEPS_ALONE, STEPS_UNDER_LOAD = 60, 200
LATENCY_SECONDS = 4.0  # of each of the two

WARM_UP_EPISODES, EPISODES_A_READING, READINGS = 20, 20, 6
# What slow ones get; then there are fewer episodes to a reading.
WARM_UP_SECONDS, READING_SECONDS = 10.0, 5.0

CAPACITY = "CAPACITY_REACHED"

NewPolicy = Callable[[], Policy]


@dataclass(frozen=True)
class Latencies:
    """What the steps of some sessions took, in milliseconds, as their client saw it.

    Attributes:
        steps: How many were answered.
        failed: How many were not, or by an error.
    """

    steps: int
    failed: int
    p50_ms: float
    p95_ms: float
    p99_ms: float

    @classmethod
    def of(cls, transcripts: Sequence[Transcript]) -> Latencies:
        """Of all steps in some transcripts; without any the times are 0."""
        asked = [
            exchange
            for transcript in transcripts
            for exchange in transcript.exchanges
            if exchange.asked["type"] == "step"
        ]
        took = sorted(1e3 * e.seconds for e in asked if e.kind == "observation")
        times = [percentile(took, share) if took else 0.0 for share in (0.5, 0.95, 0.99)]
        return cls(len(took), len(asked) - len(took), *times)


def percentile(ascending: Sequence[float], share: float) -> float:
    """The value that so much of some ascending values is not above (nearest rank)."""
    return ascending[max(0, math.ceil(share * len(ascending)) - 1)]


@dataclass(frozen=True)
class LoadReport:
    """Latencies of one session alone, and of several at once.

    Attributes:
        sessions: How many there were at once; 1 where the server holds no more.
        lost: Why a session broke off; None where none did.
    """

    alone: Latencies
    loaded: Latencies
    sessions: int
    lost: str | None = None


async def measure_latency(
    url: str,
    reset: Mapping[str, Any],
    new_policy: NewPolicy,
    *,
    budget: Budget,
    sessions: int = SESSIONS_UNDER_LOAD,
) -> LoadReport:
    """Play episodes in one session, and then in several at once.

    Args:
        url: Where the server is.
        reset: The arguments of each reset.
        new_policy: Makes who plays an episode.
        budget: What it may take.
        sessions: How many there are to be at once; as many as the server holds, if those are fewer.

    Raises:
        BudgetSpent: There is no more time, or no more room.
    """
    budget = budget.of_time_alone()
    async with _opened(url, 1, budget) as one:
        alone = await _busy(one, reset, new_policy, STEPS_ALONE)
    async with _opened(url, sessions, budget) as many:
        loaded = await _busy(many, reset, new_policy, STEPS_UNDER_LOAD)
    lost = next((one.stopped for one in (*alone, *loaded) if one.stopped is not None), None)
    return LoadReport(Latencies.of(alone), Latencies.of(loaded), len(many), lost)


@contextlib.asynccontextmanager
async def _opened(url: str, count: int, budget: Budget) -> AsyncIterator[list[RawSession]]:
    """So many sessions, or as many of them as the server holds."""
    async with contextlib.AsyncExitStack() as stack:
        opened: list[RawSession] = []
        for _ in range(count):
            session = await stack.enter_async_context(RawSession(url, budget))
            first = await session.ask("state")
            if opened and (session.is_over or CAPACITY in (first.error or "")):
                break
            opened.append(session)
        yield opened


async def _busy(
    sessions: Sequence[RawSession], reset: Mapping[str, Any], new_policy: NewPolicy, steps: int
) -> list[Transcript]:
    """Play episodes in all sessions at once, until there are enough steps, or the time is over."""
    until = time.monotonic() + LATENCY_SECONDS
    played: list[Transcript] = []

    async def keep_playing(session: RawSession) -> None:
        while time.monotonic() < until and not session.is_over:
            episode = await play(session, reset, new_policy(), reads_state=False)
            played.append(episode)
            if sum(len(one.steps) for one in played) >= steps or not episode.steps:
                return

    await asyncio.gather(*(keep_playing(session) for session in sessions))
    return played


# ------------------------------------------------------------------ memory


@dataclass(frozen=True)
class MemoryReport:
    """What a server holds in memory, after the more and more episodes that it has served.

    Attributes:
        episodes: How many it had served at each reading, after those that warm it up.
        resident_bytes: What it held then, with those of its children that were there all the time:
            what comes and goes, such as sandboxes, is no growth.
        processes: How many there were then, those that come and go too.
        lost: Why a session broke off, which is where it ended; None where none did.
    """

    episodes: tuple[int, ...]
    resident_bytes: tuple[int, ...]
    processes: tuple[int, ...] = ()
    lost: str | None = None

    @property
    def peak_bytes(self) -> int:
        """The most that was read."""
        return max(self.resident_bytes, default=0)

    @property
    def grown_bytes(self) -> int:
        """From the first reading to the last."""
        return self.resident_bytes[-1] - self.resident_bytes[0] if self.resident_bytes else 0

    @property
    def bytes_an_episode(self) -> float:
        """The slope of the line through the readings, by least squares."""
        if len(self.episodes) < 2:
            return 0.0
        return statistics.linear_regression(self.episodes, self.resident_bytes).slope

    @property
    def leaves_processes(self) -> bool:
        """There were more processes at each reading than before, one for every four episodes."""
        if not self.episodes or not self.processes:
            return False
        always = all(b > a for a, b in pairwise(self.processes))
        return always and self.processes[-1] - self.processes[0] >= self.episodes[-1] / 4

    @property
    def is_still_growing(self) -> bool:
        """The second half of the readings has grown by a quarter of all growth, or more."""
        middle = self.resident_bytes[len(self.resident_bytes) // 2]
        return self.resident_bytes[-1] - middle >= self.grown_bytes / 4 > 0


async def measure_memory(
    url: str, pid: int, reset: Mapping[str, Any], new_policy: NewPolicy, *, budget: Budget
) -> MemoryReport:
    """Play episodes one after the other, each in a session of its own, and read what is held.

    Args:
        url: Where the server is.
        pid: Its process, on this machine.
        reset: The arguments of each reset.
        new_policy: Makes who plays an episode.
        budget: What it may take.

    Raises:
        BudgetSpent: There is no more time, or no more room.
    """
    budget = budget.of_time_alone()

    async def have_served(count: int, seconds: float) -> tuple[int, str | None]:
        until = time.monotonic() + seconds
        return await _episodes(url, count, until, reset, new_policy, budget)

    _, lost = await have_served(WARM_UP_EPISODES, WARM_UP_SECONDS)
    counts, readings = [0], [_held(pid)]
    while lost is None and len(readings) <= READINGS:
        played, lost = await have_served(EPISODES_A_READING, READING_SECONDS)
        if not played:
            break
        counts.append(counts[-1] + played)
        readings.append(_held(pid))
    stayed = set.intersection(*(set(reading) for reading in readings))
    return MemoryReport(
        tuple(counts),
        tuple(sum(reading[one] for one in stayed) for reading in readings),
        tuple(len(reading) for reading in readings),
        lost,
    )


async def _episodes(
    url: str,
    count: int,
    until: float,
    reset: Mapping[str, Any],
    new_policy: NewPolicy,
    budget: Budget,
) -> tuple[int, str | None]:
    """Play so many episodes, if there is time; gives how many, and why the last one broke off."""
    for played in range(count):
        if time.monotonic() >= until:
            return played, None
        async with RawSession(url, budget) as session:
            episode = await play(session, reset, new_policy(), reads_state=False)
        if episode.stopped is not None:
            return played, episode.stopped
    return count, None


def resident_bytes(pid: int) -> int:
    """What a process and those it has started hold in memory; 0 where nobody can tell (Linux)."""
    return sum(_held(pid).values())


def _held(pid: int) -> dict[int, int]:
    """What a process and those it has started hold in memory, each by itself."""
    page = os.sysconf("SC_PAGE_SIZE")
    sizes = ((one, _words(one, "statm")) for one in _family(pid))
    return {one: int(fields[1]) * page for one, fields in sizes if fields}


def cpu_seconds(pid: int) -> float:
    """The CPU time of a process and those it has started; 0 where nobody can tell (Linux)."""
    ticks = os.sysconf("SC_CLK_TCK")
    stats = (_words(one, "stat", after=")") for one in _family(pid))
    # Fields 14 and 15 of proc(5), of which the name and the pid are gone.
    return sum((int(fields[11]) + int(fields[12])) / ticks for fields in stats if fields)


def _family(pid: int) -> Iterator[int]:
    """A process, and all that it has started."""
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        yield one
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{one}/task").iterdir():
                waiting += map(int, (thread / "children").read_text().split())


def _words(pid: int, name: str, after: str = "") -> list[str]:
    """The words of a file of /proc, after the last of a mark; none where it cannot be read."""
    try:
        text = Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return []
    return (text.rpartition(after)[2] if after else text).split()
