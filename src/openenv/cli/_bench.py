"""Measurements of a served environment, and what limits them.

`measure` plays a number of sessions against a server for some seconds. The server's own metrics
give its CPU time and the time spent in the environment's code, so the same works for a server that
somebody else has started. `find_limit` names the part that keeps the figure from being higher.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from openenv import VectorEnv
from openenv.cli._readings import MetricsReading, MetricsUnreadable, read_metrics
from openenv.errors import ExecutionFailed, OpenEnvError, refusal
from openenv.providers import ProcessProvider
from openenv.rollouts.policies.base import EpisodeOpening, Policy, PolicyTurn
from openenv.rollouts.sessions import Sessions, sessions_of

WARM_UP_S = 0.5
LOOK_S = 0.3
FAILURES = 20  # episodes, without a single step
COLD_STEPS = 10
REFUSALS_IN_A_ROW = 1000
BUSY = 0.8  # of a core
UNLIMITED = 1_000_000


class CannotBenchError(OpenEnvError, RuntimeError):
    """An environment cannot be measured as asked."""


@dataclass(frozen=True)
class Measurement:
    """The result of one workload. Times are in seconds.

    Attributes:
        client: ``EnvClient`` or ``VectorEnv``; ``cold`` for episodes on a fresh server.
        sessions: Number of sessions at once.
        steps: Number of steps in the measured time.
        episodes: Number of episodes that ended in that time.
        refused: Number of actions that the environment refused in that time.
        seconds: The measured time.
        p50_s: Median time from a client's request to its answer; for a `VectorEnv` that of a batch.
        p99_s: 99th percentile of the same.
        client_cpu_s: CPU time of this process, without the policy's time.
        server_cpu_s: CPU time of the server's process; None if the server does not tell.
        environment_s: Time of the steps in the environment's code, waiting included; None likewise.
        reset_s: Median time of a reset; None of a `VectorEnv`, which resets within its steps.
    """

    client: str
    sessions: int
    steps: int
    episodes: int
    refused: int
    seconds: float
    p50_s: float
    p99_s: float
    client_cpu_s: float
    server_cpu_s: float | None = None
    environment_s: float | None = None
    reset_s: float | None = None

    @property
    def steps_per_s(self) -> float:
        """Steps per second of all sessions together."""
        return self.steps / self.seconds

    @property
    def episodes_per_s(self) -> float:
        """Episodes per second of all sessions together."""
        return self.episodes / self.seconds

    def per_step(self, seconds: float | None) -> float | None:
        """Divide a time by the number of steps; refused ones cost the same, and count."""
        return None if seconds is None or not self.steps else seconds / (self.steps + self.refused)


@dataclass(frozen=True)
class Limit:
    """The part that keeps a figure from being higher, in a word and in words, and what to do."""

    part: str
    words: str
    advice: str


CODE = Limit(
    "environment", "the environment's code on one core", "serve it with --workers N, for N cores"
)
SERVER = Limit(
    "server",
    "the server's CPU",
    "declare SUPPORTS_ANY_THREAD or NEVER_BLOCKS if that is true (check_environment gives "
    "advice), or start more servers",
)
CLIENTS = Limit("client", "this client's CPU", "step many sessions with VectorEnv")
CLIENT = Limit("client", "this client's CPU", "use VectorEnv.send and recv, or several processes")
WAITING = Limit("waiting", "waits in the environment's code", "open more sessions at once")
TURNS = Limit("turns", "client and server, which take turns", "use VectorEnv.send and recv")
TRIPS = Limit("round trips", "the time of a round trip", "open more sessions at once")
OTHERS = Limit("other programs", "other programs on this machine", "measure again without them")


def find_limit(found: Measurement, step_s: float | None, *, is_loaded: bool = False) -> Limit:
    """Name the part that limits a measurement.

    Args:
        found: The measurement.
        step_s: Seconds that a step takes in the environment's code if no other session runs. With
            many sessions that time holds waits for the interpreter too.
        is_loaded: Other programs used the machine.
    """
    server = (found.server_cpu_s or 0.0) / found.seconds
    client = found.client_cpu_s / found.seconds
    code_s = (step_s or 0.0) * (found.steps + found.refused)
    if server >= BUSY and server >= client:
        return CODE if code_s > (found.server_cpu_s or 0.0) / 2 else SERVER
    if client >= BUSY:
        return CLIENT if found.client == "VectorEnv" else CLIENTS
    if code_s > found.seconds * found.sessions / 2:
        return WAITING
    if is_loaded:
        return OTHERS
    return TURNS if server + client >= BUSY else TRIPS


# ------------------------------------------------------------------ a server


@contextmanager
def served(target: str, sessions: int) -> Iterator[tuple[str, str | None]]:
    """Serve a target from a fresh process; yield its address and its key."""
    provider = ProcessProvider(target, env_vars={"MAX_CONCURRENT_ENVS": str(sessions)})
    with provider.launch() as server:
        server.wait_for_ready()
        yield server.url, server.api_key


@dataclass
class _Gauge:
    """Reads the metrics of a server; a server without metrics gives none."""

    url: str
    key: str | None
    is_readable: bool = True

    def read(self) -> MetricsReading | None:
        if not self.is_readable:
            return None
        try:
            return read_metrics(self.url, self.key)
        except MetricsUnreadable:
            self.is_readable = False
            return None


def read_slots(url: str, key: str | None) -> int | None:
    """Return the number of sessions that a server holds; None if the server does not tell."""
    reading = _Gauge(url, key).read()
    return None if reading is None else int(reading.values["openenv_slots"])


def read_memory(url: str, key: str | None) -> float | None:
    """Return the resident memory of a server in bytes; None if the server does not tell."""
    reading = _Gauge(url, key).read()
    return None if reading is None else reading.values["process_resident_memory_bytes"] or None


# ------------------------------------------------------------------ workloads


@dataclass
class _Tally:
    """Counts what the players do; the policy's CPU time is left out of the client's."""

    steps: int = 0
    episodes: int = 0
    refused: int = 0
    failed: int = 0
    failure: str = ""  # the last one
    policy_s: float = 0.0
    latencies: list[float] = field(default_factory=list)
    resets: list[float] = field(default_factory=list)


@dataclass
class _Mark:
    """The state of all counters at a moment."""

    at: float
    cpu_s: float
    policy_s: float
    steps: int
    episodes: int
    refused: int
    latencies: int
    reading: MetricsReading | None

    @classmethod
    def of(cls, tally: _Tally, reading: MetricsReading | None) -> _Mark:
        return cls(
            time.perf_counter(),
            time.process_time(),
            tally.policy_s,
            tally.steps,
            tally.episodes,
            tally.refused,
            len(tally.latencies),
            reading,
        )


def _between(client: str, sessions: int, tally: _Tally, before: _Mark, after: _Mark) -> Measurement:
    latencies = sorted(tally.latencies[before.latencies : after.latencies])
    if not latencies:
        seconds = after.at - before.at
        why = f"no step was answered within {seconds:.1f} s; measure for longer: --seconds"
        if tally.failed:
            why = f"every episode failed, at last: {tally.failure}"
        elif tally.episodes:
            why = "every episode was over at its reset"
        raise CannotBenchError(f"{_count(sessions, 'session')}: {why}")
    server_cpu_s = environment_s = None
    if before.reading is not None and after.reading is not None:
        change = after.reading.values - before.reading.values
        server_cpu_s = float(change["process_cpu_seconds_total"])
        environment_s = float(change["openenv_environment_seconds_sum step"])
    return Measurement(
        client,
        sessions,
        after.steps - before.steps,
        after.episodes - before.episodes,
        after.refused - before.refused,
        after.at - before.at,
        latencies[len(latencies) // 2],
        latencies[int(len(latencies) * 0.99)],
        max(0.0, after.cpu_s - before.cpu_s - (after.policy_s - before.policy_s)),
        server_cpu_s,
        environment_s,
        statistics.median(tally.resets) if tally.resets else None,
    )


class _Player:
    """Plays episodes in one session."""

    def __init__(self, client: Any, policy: Policy, opening: EpisodeOpening, tally: _Tally) -> None:
        self._client, self._policy, self._opening = client, policy, opening
        self._tally = tally

    async def play(self, most_steps: int = UNLIMITED) -> None:
        """Play an episode until it ends or has `most_steps` steps."""
        try:
            await self._play(most_steps)
        except ExecutionFailed as error:  # the environment raised; the session survives
            self._tally.failed += 1
            self._tally.failure = str(error)
            if not self._tally.steps and self._tally.failed >= FAILURES:
                raise

    async def _play(self, most_steps: int) -> None:
        tally = self._tally
        began = time.perf_counter()
        result = await self._client.reset()
        tally.resets.append(time.perf_counter() - began)
        player = await _finished(self._policy.begin(self._opening))
        steps = refused = 0
        while not result.done and steps < most_steps:
            turn = PolicyTurn(result.observation, steps, result=result)
            began = time.thread_time()
            decision = player.act(turn)
            tally.policy_s += time.thread_time() - began
            action = (await _finished(decision)).action
            acted = time.perf_counter()
            try:
                result = await self._client.step(action)
            except OpenEnvError as error:
                why = refusal(error)
                if why is None:
                    raise
                refused, tally.refused = refused + 1, tally.refused + 1
                if refused >= REFUSALS_IN_A_ROW:
                    raise CannotBenchError(
                        f"the environment refused {refused:,} actions in a row, at last: {why}; "
                        "name a policy that knows how to act: --policy module:name"
                    ) from error
                continue
            tally.latencies.append(time.perf_counter() - acted)
            steps, refused = steps + 1, 0
            tally.steps += 1
        tally.episodes += 1


async def _finished(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def _open(found: Sessions, count: int) -> list[Any]:
    return list(await asyncio.gather(*(found.open() for _ in range(count))))


async def measure(
    url: str,
    key: str | None,
    policy: Policy,
    sessions: int,
    seconds: float,
    note: Callable[[_Tally], None],
) -> Measurement:
    """Play with an `EnvClient` for each session, all on one event loop."""
    found = await sessions_of(url, lambda _: None)
    tally, gauge = _Tally(), _Gauge(url, key)
    try:
        clients = await _open(found, sessions)
        interface = await found.interface(clients[0])
        players = [
            _Player(client, policy, EpisodeOpening(seed=seed, interface=interface), tally)
            for seed, client in enumerate(clients)
        ]

        async def play_on(player: _Player) -> None:
            while True:
                await player.play()

        async def watch() -> Measurement:
            await asyncio.sleep(WARM_UP_S)
            before = _Mark.of(tally, await asyncio.to_thread(gauge.read))
            await asyncio.sleep(seconds)
            after = _Mark.of(tally, await asyncio.to_thread(gauge.read))
            return _between("EnvClient", sessions, tally, before, after)

        playing = [asyncio.ensure_future(play_on(player)) for player in players]
        watching = asyncio.ensure_future(watch())
        try:
            await asyncio.wait([watching, *playing], return_when=asyncio.FIRST_COMPLETED)
            for ended in playing:
                if ended.done():  # they end by an error only
                    ended.result()
            return await watching
        finally:  # a session that hangs is not waited for
            for one in (watching, *playing):
                one.cancel()
            await asyncio.wait([watching, *playing], timeout=1.0)
            note(tally)
    finally:
        await found.aclose()


async def measure_cold(
    url: str, key: str | None, policy: Policy, sessions: int, note: Callable[[_Tally], None]
) -> Measurement:
    """Open sessions on a fresh server all at once, and play `COLD_STEPS` steps in each."""
    found = await sessions_of(url, lambda _: None)
    tally, gauge = _Tally(), _Gauge(url, key)
    try:
        interface = await found.look_up_interface()
        before = _Mark.of(tally, await asyncio.to_thread(gauge.read))

        async def play(seed: int) -> None:
            client = await found.open()
            opening = EpisodeOpening(seed=seed, interface=interface)
            await _Player(client, policy, opening, tally).play(COLD_STEPS)
            await found.close(client)

        await asyncio.gather(*map(play, range(sessions)))
        after = _Mark.of(tally, await asyncio.to_thread(gauge.read))
        note(tally)
        return _between("cold", sessions, tally, before, after)
    finally:
        await found.aclose()


def measure_vector(
    url: str, key: str | None, policy: Policy, interface: Any, sessions: int, seconds: float
) -> Measurement:
    """Play with one `VectorEnv`, a batch at a time."""
    tally, gauge = _Tally(), _Gauge(url, key)
    openings = [EpisodeOpening(seed=seed, interface=interface) for seed in range(sessions)]
    players = [_at_once(policy.begin(opening)) for opening in openings]
    before, over = None, 0
    with VectorEnv(url, num_envs=sessions, stack=False) as envs:
        observations, _ = envs.reset()
        began = time.perf_counter()
        while True:
            now = time.perf_counter()
            if before is None and now - began >= WARM_UP_S:
                before = _Mark.of(tally, gauge.read())
            elif before is not None and now - before.at >= seconds:
                return _between("VectorEnv", sessions, tally, before, _Mark.of(tally, gauge.read()))
            began_acting = time.thread_time()
            actions = [
                _at_once(player.act(PolicyTurn(one))).action
                for player, one in zip(players, observations, strict=True)
            ]
            tally.policy_s += time.thread_time() - began_acting
            acted = time.perf_counter()
            observations, _, terminated, truncated, _ = envs.step(actions)
            tally.latencies.append(time.perf_counter() - acted)
            tally.steps += sessions - over  # an episode that is over is only reset
            over = 0
            for number, (one, other) in enumerate(zip(terminated, truncated, strict=True)):
                if one or other:
                    tally.episodes += 1
                    over += 1
                    players[number] = _at_once(policy.begin(openings[number]))


def _at_once(value: Any) -> Any:
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        raise CannotBenchError("a VectorEnv is played by policies that need no await")
    return value


# ------------------------------------------------------------------ all workloads


@dataclass
class BenchReport:
    """All measurements of an environment.

    Attributes:
        target: The environment.
        measurements: One for each workload.
        slots: Number of sessions that the server holds; None if unknown.
        base_bytes: Memory of a server without sessions; None if unknown.
        session_bytes: Memory of a session in the server, on average; None if unknown.
        notes: What could not be measured, and why.
        is_loaded: Other programs used the machine.
    """

    target: str
    measurements: list[Measurement] = field(default_factory=list)
    slots: int | None = None
    base_bytes: float | None = None
    session_bytes: float | None = None
    notes: list[str] = field(default_factory=list)
    is_loaded: bool = False

    def as_data(self) -> dict[str, Any]:
        """Return the report with JSON types."""
        rows = []
        for one in self.measurements:
            limit = self.limit_of(one)
            rates = {"steps_per_s": one.steps_per_s, "episodes_per_s": one.episodes_per_s}
            rows.append({**asdict(one), **rates, "limit": limit.part, "advice": limit.advice})
        return {**asdict(self), "step_s": self.step_s, "measurements": rows}

    def note(self, tally: _Tally) -> None:
        """Note what a workload could not count as steps."""
        answered = tally.steps + tally.refused
        if tally.refused > answered / 20:
            self.notes.append(f"{tally.refused / answered:.0%} of the actions were refused")
        if tally.failed:
            episodes = _count(tally.failed, "episode")
            self.notes.append(f"{episodes} failed, the last: {tally.failure}")

    def limit_of(self, found: Measurement) -> Limit:
        """Name the part that limits one of the measurements."""
        return find_limit(found, self.step_s, is_loaded=self.is_loaded)

    @property
    def step_s(self) -> float | None:
        """Seconds of a step in the environment's code if few sessions run; None if unknown."""
        warm = [one for one in self.measurements if one.client == "EnvClient"]
        fewest = min(warm, key=lambda one: one.sessions)
        return fewest.per_step(fewest.environment_s)

    @property
    def fastest(self) -> Measurement:
        """The measurement with the most steps per second, cold ones left out."""
        warm = [one for one in self.measurements if one.client != "cold"]
        return max(warm, key=lambda one: one.steps_per_s)


def bench(
    target: str,
    policy: Policy,
    counts: Sequence[int],
    seconds: float,
    *,
    url: str | None = None,
    key: str | None = None,
    room: int = 1,
    tell: Callable[[int, str], None] = lambda done, what: None,
) -> BenchReport:
    """Measure every workload.

    Args:
        target: What ``openenv serve`` takes; served from processes of its own without `url`.
        policy: The policy that acts.
        counts: Numbers of sessions at once.
        seconds: Seconds for each warm workload.
        url: The address of a server that runs already.
        key: The key of that server.
        room: Number of sessions that the server holds at least, if it is served here.
        tell: Called with the number of finished workloads and the next one.

    Raises:
        CannotBenchError: No workload can be measured.
        OpenEnvError: The environment cannot be served or played.
    """
    report = BenchReport(target)
    busy = busy_share()
    report.is_loaded = busy > 0.25
    if report.is_loaded:
        report.notes.append(
            f"other programs used {busy:.0%} of the processors, so that all figures are too low"
        )
    if url is not None:
        report.notes.append("the server was running already: no cold figures, and no memory")
        _measure_warm(report, url, key, policy, counts, seconds, tell)
        return report
    with served(target, max(*counts, room)) as (started, its_key):
        report.slots = read_slots(started, its_key)
        asyncio.run(_weigh(report, started, its_key, max(_held(report, counts))))
        _measure_warm(report, started, its_key, policy, counts, seconds, tell)
    sessions = max(_held(report, counts))
    tell(len(report.measurements), f"cold, {sessions} sessions")
    with served(target, max(*counts, room)) as (started, its_key):
        try:
            cold = asyncio.run(measure_cold(started, its_key, policy, sessions, report.note))
        except OpenEnvError as error:
            report.notes.append(f"cold episodes could not be measured: {error}")
        else:
            report.measurements.append(cold)
    return report


def _held(report: BenchReport, counts: Sequence[int]) -> list[int]:
    """Return the counts that the server holds; all that it holds in the place of larger ones."""
    slots = report.slots
    return sorted({count if slots is None else min(count, slots) for count in counts})


def _measure_warm(
    report: BenchReport,
    url: str,
    key: str | None,
    policy: Policy,
    counts: Sequence[int],
    seconds: float,
    tell: Callable[[int, str], None],
) -> None:
    report.slots = read_slots(url, key)
    if report.slots is None:
        report.notes.append("the server has no readable metrics: nothing of its CPU is known")
    held = _held(report, counts)
    if held != sorted(set(counts)):
        report.notes.append(
            f"the server holds {_count(report.slots or 0, 'session')} at once, and no more"
        )
    for count in held:
        tell(len(report.measurements), _count(count, "EnvClient"))
        gc.collect()
        try:
            found = asyncio.run(measure(url, key, policy, count, seconds, report.note))
        except OpenEnvError as error:
            if not report.measurements:
                raise
            report.notes.append(f"{_count(count, 'EnvClient')} could not be measured: {error}")
        else:
            report.measurements.append(found)
    interface = asyncio.run(_interface(url))
    tell(len(report.measurements), f"VectorEnv of {held[-1]}")
    try:
        report.measurements.append(measure_vector(url, key, policy, interface, held[-1], seconds))
    except OpenEnvError as error:
        report.notes.append(f"a VectorEnv could not be measured: {error}")


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def busy_share() -> float:
    """Return the share of the processors' time that programs use now, from 0 to 1."""
    before, after = _processor_times(), [0.0, 0.0]
    if before:
        time.sleep(LOOK_S)
        after = _processor_times()
    total = after[1] - before[1] if before else 0.0
    if total <= 0:  # not on Linux
        return min(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    return (after[0] - before[0]) / total


def _processor_times() -> list[float]:
    """Return the busy and the total time of all processors in ticks; empty if unknown."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            ticks = [float(one) for one in file.readline().split()[1:9]]
    except (OSError, ValueError):
        return []
    return [sum(ticks) - ticks[3] - ticks[4], sum(ticks)]


async def _interface(url: str) -> Any:
    found = await sessions_of(url, lambda _: None)
    try:
        return await found.look_up_interface()
    finally:
        await found.aclose()


async def _weigh(report: BenchReport, url: str, key: str | None, sessions: int) -> None:
    """Measure the memory of a fresh server, and what each session adds to it."""
    found = await sessions_of(url, lambda _: None)
    try:
        await (await found.open()).reset()  # what the first session loads is the server's
        report.base_bytes = await asyncio.to_thread(read_memory, url, key)
        if report.base_bytes is None or sessions < 2:
            return
        clients = await _open(found, sessions - 1)
        await asyncio.gather(*(client.reset() for client in clients))
        after = await asyncio.to_thread(read_memory, url, key)
        if after is not None:
            report.session_bytes = max(0.0, after - report.base_bytes) / len(clients)
    finally:
        await found.aclose()


# ------------------------------------------------------------------ a training run


@dataclass(frozen=True)
class TrainingShape:
    """The shape of a training run.

    Attributes:
        rollouts: Number of rollouts at once: prompts times group size.
        turns: Number of steps in an episode.
        reply_s: Seconds that the model takes for a reply.
    """

    rollouts: int
    turns: int
    reply_s: float


@dataclass(frozen=True)
class TrainingEstimate:
    """The servers that a training run needs.

    Attributes:
        steps_per_s: Steps per second of all rollouts together.
        servers: Number of servers.
        because: What decides that number: ``sessions`` or ``steps``. If it is unknown how many
            sessions a server holds, only steps count.
        memory_bytes: Memory of all servers; None if unknown.
        share: The environment's share of a rollout's time, from 0 to 1.
    """

    steps_per_s: float
    servers: int
    because: str
    memory_bytes: float | None
    share: float


ROOM = 0.7  # a server is planned with at most this share of its measured rate


def estimate(report: BenchReport, shape: TrainingShape) -> TrainingEstimate:
    """Estimate the servers of a training run from the measurements of one server.

    The model's replies decide how often a rollout steps; `ROOM` leaves room for bursts.
    """
    fastest = report.fastest
    played = [one for one in report.measurements if one.reset_s is not None]
    one = min(played, key=lambda found: found.sessions)
    in_environment_s = (one.reset_s or 0.0) + shape.turns * one.p50_s
    episode_s = in_environment_s + shape.turns * shape.reply_s
    wanted = shape.rollouts * shape.turns / episode_s
    by_steps = -(-wanted // (fastest.steps_per_s * ROOM))
    by_slots = -(-shape.rollouts // report.slots) if report.slots else 0
    servers = int(max(by_steps, by_slots, 1))
    memory = None
    if report.base_bytes is not None and report.session_bytes is not None:
        memory = servers * report.base_bytes + shape.rollouts * report.session_bytes
    because = "sessions" if by_slots >= by_steps else "steps"
    return TrainingEstimate(wanted, servers, because, memory, in_environment_s / episode_s)
