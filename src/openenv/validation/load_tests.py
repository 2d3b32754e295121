"""Load tests: a subject's latency, alone and under load, and the growth of the server's memory."""

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

from openenv.validation.evidence import Transcript
from openenv.validation.probes import Policy
from openenv.validation.wire import Budget, RawSession, play_alone, play_episode

SESSIONS_UNDER_LOAD = 8
STEPS_ALONE, STEPS_UNDER_LOAD = 60, 200
LATENCY_SECONDS = 4.0  # duration of each of the two measurements

WARM_UP_EPISODES, EPISODES_A_READING, READINGS = 20, 20, 6
# Time limits for slow environments, which then play fewer episodes per reading.
WARM_UP_SECONDS, READING_SECONDS = 10.0, 5.0

CAPACITY = "CAPACITY_REACHED"

NewPolicy = Callable[[], Policy]


@dataclass(frozen=True)
class Latencies:
    """Step latencies of some sessions in milliseconds, measured by the client."""

    steps: int  # number of answered steps
    failed: int  # number of steps without an answer or with an error
    p50_ms: float
    p95_ms: float
    p99_ms: float

    @classmethod
    def of(cls, transcripts: Sequence[Transcript]) -> Latencies:
        """Compute the latencies of all steps in transcripts. Without steps the times are 0."""
        asked = [e for t in transcripts for e in t.exchanges if e.message["type"] == "step"]
        took = sorted(1e3 * e.seconds for e in asked if e.kind == "observation")
        times = [nearest_rank(took, share) if took else 0.0 for share in (0.5, 0.95, 0.99)]
        return cls(len(took), len(asked) - len(took), *times)

    @property
    def percentiles(self) -> dict[str, float]:
        """The percentiles as JSON data."""
        return {"p50_ms": self.p50_ms, "p95_ms": self.p95_ms, "p99_ms": self.p99_ms}


def nearest_rank(ascending: Sequence[float], share: float) -> float:
    """Return the percentile of ascending values by the nearest-rank method."""
    return ascending[max(0, math.ceil(share * len(ascending)) - 1)]


@dataclass(frozen=True)
class LoadReport:
    """Latencies of a single session, and of several concurrent sessions."""

    alone: Latencies
    loaded: Latencies
    sessions: int  # number of concurrent sessions; 1 if the server holds no more
    lost: str | None = None  # why a session was lost; None if no session was


async def measure_latency(
    url: str,
    reset: Mapping[str, Any],
    new_policy: NewPolicy,
    *,
    budget: Budget,
    sessions: int = SESSIONS_UNDER_LOAD,
) -> LoadReport:
    """Play episodes in a single session, and then in several, as many as the server allows.

    Raises:
        BudgetSpent: The time or space is used up.
    """
    budget = budget.without_size_limit()
    async with _open_sessions(url, 1, budget) as one:
        alone = await _play_until(one, reset, new_policy, STEPS_ALONE)
    async with _open_sessions(url, sessions, budget) as many:
        loaded = await _play_until(many, reset, new_policy, STEPS_UNDER_LOAD)
    lost = next((one.stopped for one in (*alone, *loaded) if one.stopped is not None), None)
    return LoadReport(Latencies.of(alone), Latencies.of(loaded), len(many), lost)


@contextlib.asynccontextmanager
async def _open_sessions(url: str, count: int, budget: Budget) -> AsyncIterator[list[RawSession]]:
    """Open up to `count` sessions, fewer if the server is full."""
    async with contextlib.AsyncExitStack() as stack:
        opened: list[RawSession] = []
        for _ in range(count):
            session = await stack.enter_async_context(RawSession(url, budget))
            first = await session.ask("state")
            if opened and (session.is_over or CAPACITY in (first.error or "")):
                break
            opened.append(session)
        yield opened


async def _play_until(
    sessions: Sequence[RawSession], reset: Mapping[str, Any], new_policy: NewPolicy, steps: int
) -> list[Transcript]:
    """Play episodes concurrently in all sessions, for enough steps or until the time is up."""
    until = time.monotonic() + LATENCY_SECONDS
    played: list[Transcript] = []

    async def keep_playing(session: RawSession) -> None:
        while time.monotonic() < until and not session.is_over:
            episode = await play_episode(session, reset, new_policy(), reads_state=False)
            played.append(episode)
            if sum(len(one.steps) for one in played) >= steps or not episode.steps:
                return

    await asyncio.gather(*(keep_playing(session) for session in sessions))
    return played


@dataclass(frozen=True)
class MemoryReport:
    """The memory of a server after increasing numbers of episodes."""

    episodes: tuple[int, ...]  # number of episodes at each reading, after the warm-up
    # Memory at each reading, of the server and of the children that were present at every reading.
    # Processes that come and go, such as sandboxes, are not growth.
    resident_bytes: tuple[int, ...]
    # Number of processes at each reading, including processes that come and go.
    processes: tuple[int, ...] = ()
    lost: str | None = None  # why a session was lost, which ended the test; None if none was

    @property
    def peak_bytes(self) -> int:
        """The largest reading."""
        return max(self.resident_bytes, default=0)

    @property
    def grown_bytes(self) -> int:
        """The growth from the first reading to the last."""
        return self.resident_bytes[-1] - self.resident_bytes[0] if self.resident_bytes else 0

    @property
    def bytes_an_episode(self) -> float:
        """The growth per episode: the slope of the least-squares line."""
        if len(self.episodes) < 2:
            return 0.0
        return statistics.linear_regression(self.episodes, self.resident_bytes).slope

    @property
    def leaves_processes(self) -> bool:
        """True if the processes grew at every reading, by at least 1 per four episodes in all."""
        if not self.episodes or not self.processes:
            return False
        always = all(b > a for a, b in pairwise(self.processes))
        return always and self.processes[-1] - self.processes[0] >= self.episodes[-1] / 4

    @property
    def is_still_growing(self) -> bool:
        """True if the second half of the readings has at least a quarter of all growth."""
        middle = self.resident_bytes[len(self.resident_bytes) // 2]
        return self.resident_bytes[-1] - middle >= self.grown_bytes / 4 > 0


async def measure_memory(
    url: str, pid: int, reset: Mapping[str, Any], new_policy: NewPolicy, *, budget: Budget
) -> MemoryReport:
    """Play episodes in sequence, each in a new session, and read the memory of the server `pid`.

    Raises:
        BudgetSpent: The time or space is used up.
    """
    budget = budget.without_size_limit()

    async def play(count: int, seconds: float) -> tuple[int, str | None]:
        """Play up to `count` episodes in time; return the number, and why a session was lost."""
        until = time.monotonic() + seconds
        for played in range(count):
            if time.monotonic() >= until:
                return played, None
            episode = await play_alone(url, budget, reset, new_policy(), reads_state=False)
            if episode.stopped is not None:
                return played, episode.stopped
        return count, None

    _, lost = await play(WARM_UP_EPISODES, WARM_UP_SECONDS)
    counts, readings = [0], [_resident_by_process(pid)]
    while lost is None and len(readings) <= READINGS:
        played, lost = await play(EPISODES_A_READING, READING_SECONDS)
        if not played:
            break
        counts.append(counts[-1] + played)
        readings.append(_resident_by_process(pid))
    stayed = set.intersection(*(set(reading) for reading in readings))
    return MemoryReport(
        tuple(counts),
        tuple(sum(reading[one] for one in stayed) for reading in readings),
        tuple(len(reading) for reading in readings),
        lost,
    )


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process and all descendants; 0 if unknown (Linux only)."""
    return sum(_resident_by_process(pid).values())


def _resident_by_process(pid: int) -> dict[int, int]:
    page = os.sysconf("SC_PAGE_SIZE")
    sizes = ((one, _read_proc_fields(one, "statm")) for one in _process_tree(pid))
    return {one: int(fields[1]) * page for one, fields in sizes if fields}


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and all descendants; 0 if unknown (Linux only)."""
    ticks = os.sysconf("SC_CLK_TCK")
    stats = (_read_proc_fields(one, "stat", after=")") for one in _process_tree(pid))
    # Fields 14 and 15 of proc(5), counted without the pid and the name.
    return sum((int(fields[11]) + int(fields[12])) / ticks for fields in stats if fields)


def _process_tree(pid: int) -> Iterator[int]:
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        yield one
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{one}/task").iterdir():
                waiting += map(int, (thread / "children").read_text().split())


def _read_proc_fields(pid: int, name: str, after: str = "") -> list[str]:
    """Return the fields of a file in /proc after the last `after`; empty if it is unreadable."""
    try:
        text = Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return []
    return (text.rpartition(after)[2] if after else text).split()
