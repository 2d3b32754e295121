"""The work of the league: the same for every contender, with the standard library alone.

A client program of the league gives its contender's sessions to `play`, or its batches of sessions
to `play_batches`. It gets an order as JSON in its only argument, and prints one JSON object.

Every answer is checked: a step must return the text that was sent, and the reward 1.0. The texts
have ten characters, because the bare server rewards a tenth for each character.

CPU time of the server is that of its processes, read from `/proc`: each process has the time of its
ended children. A contender without a server works in child processes of the client, or in the
client's own process; the time of the children counts as the server's.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

__all__ = [
    "COLD_STEPS",
    "EPISODE_STEPS",
    "WARM_UP_STEPS",
    "Batch",
    "Meter",
    "Order",
    "Session",
    "check",
    "play",
    "play_batches",
    "tell",
    "texts",
    "tree_cpu",
]

COLD_STEPS, EPISODE_STEPS, WARM_UP_STEPS = 10, 5, 10
TICKS = os.sysconf("SC_CLK_TCK")
PARENT, TIMES = 1, slice(11, 15)  # fields of /proc/PID/stat after the name
QUIET_WITHIN_S, QUIET_S = 20, 0.2

Result = dict[str, Any]


@dataclass(frozen=True)
class Order:
    """The order for a client program.

    Attributes:
        url: The server's address; empty for a contender without one.
        workload: `cold`, `churn`, `warm` or `kept`.
        sessions: Number of sessions that are open at once.
        episodes: Number of episodes of `churn`.
        seconds: Length of the window of `warm` and `kept`.
        server: Process id of the server; None for a contender without one.
        how: The contender's variant of the client.
    """

    url: str
    workload: str
    sessions: int
    episodes: int
    seconds: float
    server: int | None
    how: str

    @classmethod
    def given(cls) -> Order:
        """Return the order in this program's argument."""
        return cls(**json.loads(sys.argv[1]))


class Session(Protocol):
    """A session of a contender's client; it connects on entry and closes on exit."""

    async def __aenter__(self) -> Session: ...

    async def __aexit__(self, *error: object) -> None: ...

    async def reset(self) -> None: ...

    async def step(self, text: str) -> tuple[str, float]:
        """Return the echoed text and the reward."""
        ...

    async def finish(self) -> None:
        """End an episode, for a contender that scores it there."""
        ...


class Batch(Protocol):
    """Sessions that are stepped together; they are open once this exists."""

    def reset(self) -> None: ...

    def step(self, texts: list[str]) -> tuple[Sequence[str], Sequence[float]]: ...

    def close(self) -> None: ...


# ------------------------------------------------------------------ measuring


def _stat(pid: int | str) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def tree_cpu(root: int) -> dict[int, float]:
    """Return the CPU time of a process and its descendants, each with that of ended children."""
    children: dict[int, list[int]] = {}
    used: dict[int, float] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # the process has ended meanwhile
            fields = _stat(name)
            used[int(name)] = sum(map(int, fields[TIMES])) / TICKS
            children.setdefault(int(fields[PARENT]), []).append(int(name))
    tree = [root]
    for pid in tree:
        tree += children.get(pid, [])
    return {pid: used.get(pid, 0.0) for pid in tree}


@dataclass
class Meter:
    """Wall time and CPU time of both sides, from the construction on.

    Attributes:
        server: Process id of the server; None for a contender without one.
        waits: How long steps took, in seconds.
        lost: CPU time of processes that end without anybody waiting for them, by process id.
    """

    server: int | None
    waits: list[float] = field(default_factory=list)
    lost: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._before = self._server_cpu()
        self._cpu = time.process_time()
        self._wall = time.perf_counter()

    def _server_cpu(self) -> float:
        used = tree_cpu(self.server or os.getpid())
        lost = sum(seconds for pid, seconds in self.lost.items() if pid not in used)
        own = 0.0 if self.server is not None else time.process_time()
        return sum(used.values()) + lost - own

    def note(self) -> None:
        """Note the CPU time of all processes, some of which end next."""
        self.lost |= tree_cpu(self.server or os.getpid())

    def result(self, steps: int, episodes: int, *, ends_all: bool) -> Result:
        """Return the figures; with `ends_all` the server's remaining work is waited for."""
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        server = self._server_cpu()
        until = time.monotonic() + QUIET_WITHIN_S
        while ends_all and self.server is not None and time.monotonic() < until:
            time.sleep(QUIET_S)
            earlier, server = server, self._server_cpu()
            if server - earlier <= 1 / TICKS:
                break
        found = {
            "steps": steps,
            "episodes": episodes,
            "wall_s": wall,
            "client_cpu_s": cpu,
            "server_cpu_s": max(0.0, server - self._before),
        }
        return {**found, "p50_us": statistics.median(self.waits) * 1e6 if self.waits else None}


def texts() -> Iterator[str]:
    """Yield texts of ten characters, each of them once."""
    number = int(time.time() * 1000) % 10**9
    while True:
        number += 1
        yield f"{number % 10**10:010d}"


def check(sent: str, answer: str, reward: float) -> None:
    """Check the answer to a step.

    Raises:
        ValueError: The text or the reward is not as expected.
    """
    if answer != sent or reward != 1.0:
        raise ValueError(f"sent {sent!r}, and was answered {answer!r} with reward {reward!r}")


# ------------------------------------------------------------------ sessions, one by one


async def play(order: Order, connect: Callable[[], Session]) -> Result:
    """Do the work of an order with sessions of their own, concurrently."""
    if order.workload == "cold":
        return await _cold(order, connect)
    if order.workload == "churn":
        return await _churn(order, connect)
    return await _held(order, connect)


async def _episode(session: Session, steps: int, waits: list[float] | None = None) -> None:
    await session.reset()
    await _steps(session, steps, waits)
    await session.finish()


async def _steps(session: Session, steps: int, waits: list[float] | None = None) -> None:
    sent = texts()
    for text in (next(sent) for _ in range(steps)):
        began = time.perf_counter()
        answer, reward = await session.step(text)
        if waits is not None:
            waits.append(time.perf_counter() - began)
        check(text, answer, reward)


async def _cold(order: Order, connect: Callable[[], Session]) -> Result:
    async def one() -> None:
        async with connect() as session:
            await _episode(session, COLD_STEPS)

    meter = Meter(order.server)
    await asyncio.gather(*(one() for _ in range(order.sessions)))
    return meter.result(order.sessions * COLD_STEPS, order.sessions, ends_all=True)


async def _churn(order: Order, connect: Callable[[], Session]) -> Result:
    episodes = iter(range(order.episodes))

    async def slot() -> None:
        for _ in episodes:
            async with connect() as session:
                await _episode(session, EPISODE_STEPS)

    meter = Meter(order.server)
    await asyncio.gather(*(slot() for _ in range(order.sessions)))
    return meter.result(order.episodes * EPISODE_STEPS, order.episodes, ends_all=True)


async def _held(order: Order, connect: Callable[[], Session]) -> Result:
    """Step kept sessions for some seconds; `kept` begins an episode every few steps."""
    async with AsyncExitStack() as stack:
        sessions = [connect() for _ in range(order.sessions)]
        opened = await asyncio.gather(*(stack.enter_async_context(one) for one in sessions))
        await asyncio.gather(*(session.reset() for session in opened))
        await asyncio.gather(*(_steps(session, WARM_UP_STEPS) for session in opened))
        meter = Meter(order.server)
        until = time.perf_counter() + order.seconds

        async def drive(session: Session) -> int:
            turns = 0
            while time.perf_counter() < until:
                if order.workload == "kept":
                    await _episode(session, EPISODE_STEPS, meter.waits)
                else:
                    await _steps(session, 1, meter.waits)
                turns += 1
            return turns

        turns = sum(await asyncio.gather(*(drive(session) for session in opened)))
        if order.workload == "kept":
            return meter.result(turns * EPISODE_STEPS, turns, ends_all=False)
        return meter.result(turns, 0, ends_all=False)


# ------------------------------------------------------------------ sessions, in batches


def play_batches(
    order: Order, open_batch: Callable[[int], Batch], *, notes_ended: bool = False
) -> Result:
    """Do the work of an order with batches of sessions that are stepped together.

    Args:
        order: The order.
        open_batch: Opens a batch of a number of sessions.
        notes_ended: The contender's parent processes ignore the end of their children, so that
            the system forgets their CPU time; it is noted before a batch closes.
    """
    sent = texts()

    def step(batch: Batch, count: int, waits: list[float] | None = None) -> None:
        wanted = [next(sent) for _ in range(count)]
        began = time.perf_counter()
        answers, rewards = batch.step(wanted)
        if waits is not None:
            waits.append(time.perf_counter() - began)
        for text, answer, reward in zip(wanted, answers, rewards, strict=True):
            check(text, answer, reward)

    def episode(batch: Batch, count: int, steps: int, waits: list[float] | None = None) -> None:
        batch.reset()
        for _ in range(steps):
            step(batch, count, waits)

    if order.workload in ("cold", "churn"):
        is_cold = order.workload == "cold"
        steps = COLD_STEPS if is_cold else EPISODE_STEPS
        left = episodes = order.sessions if is_cold else order.episodes
        meter = Meter(order.server)
        while left:
            count = min(left, order.sessions)
            batch = open_batch(count)
            episode(batch, count, steps)
            if notes_ended:
                meter.note()
            batch.close()
            left -= count
        return meter.result(episodes * steps, episodes, ends_all=True)
    batch = open_batch(order.sessions)
    episode(batch, order.sessions, WARM_UP_STEPS)
    meter, turns = Meter(order.server), 0
    until = time.perf_counter() + order.seconds
    while time.perf_counter() < until:
        if order.workload == "kept":
            episode(batch, order.sessions, EPISODE_STEPS, meter.waits)
        else:
            step(batch, order.sessions, meter.waits)
        turns += order.sessions
    is_kept = order.workload == "kept"
    found = meter.result(
        turns * (EPISODE_STEPS if is_kept else 1), turns if is_kept else 0, ends_all=False
    )
    batch.close()
    return found


class ClientSession:
    """A session by the `EnvClient` of either package, with the models of the program."""

    CONNECT_TIMEOUT_S = 120  # all sessions connect at once

    def __init__(self, client: Callable[..., Any], action: Callable[..., Any], url: str) -> None:
        self._env = client(base_url=url, connect_timeout_s=self.CONNECT_TIMEOUT_S)
        self._action = action

    async def __aenter__(self) -> ClientSession:
        await self._env.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._env.__aexit__(None, None, None)

    async def reset(self) -> None:
        result = await self._env.reset()
        assert result.observation.text == ""

    async def step(self, text: str) -> tuple[str, float | None]:
        result = await self._env.step(self._action(text=text))
        return result.observation.text, result.reward

    async def finish(self) -> None:
        pass


def tell(found: Result) -> None:
    """Print the result of an order."""
    print(json.dumps(found), flush=True)
