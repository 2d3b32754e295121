"""Rollouts: episodes of many tasks, with several samples each, many at once.

    run = openenv.rollout("echo_env", "random", tasks, n=4, concurrency=64, output="runs/x.jsonl")
    print(run.summary().mean_reward)

Each of `concurrency` places has one session of the environment, which is reset from episode to
episode. A place takes a rollout only once it has a session, so that no rollout waits in the queue
of a full server. If a server or a model pushes back, fewer places play for a while (see
`openenv.rollouts.pace`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from openenv._internal.timing import backoff_s
from openenv._internal.version import version
from openenv.client import background
from openenv.errors import (
    AuthenticationError,
    CapacityError,
    ConnectError,
    OpenEnvError,
    PermissionRefused,
    SessionLost,
)
from openenv.protocol.v1.messages import Queued
from openenv.reward import RewardSpec
from openenv.rewards.credit import Credit, TokenCredit, resolve_credit
from openenv.rewards.delayed import TrajectoryScorer
from openenv.rewards.external.names import resolve_token_credit
from openenv.rollouts.calls import UserCodeCaller
from openenv.rollouts.episode_sessions import CURE
from openenv.rollouts.episodes import LONG, EpisodeConfig, RolloutScoring
from openenv.rollouts.failures import (
    FIRST_DELAY_S,
    LONGEST_DELAY_S,
    AttemptFailed,
    RolloutsFailed,
    is_passing,
    pressure,
    retry_delay_s,
)
from openenv.rollouts.files import (
    PARQUET,
    RolloutWriter,
    check_table,
    read_header,
    read_rollouts,
    write_parquet,
)
from openenv.rollouts.jobs import RolloutJob, RolloutPlan, RolloutQueue
from openenv.rollouts.limits import RolloutLimits
from openenv.rollouts.pace import Pace
from openenv.rollouts.policies.base import Policy
from openenv.rollouts.policies.functions import as_policy
from openenv.rollouts.records import Rollout, RolloutHeader
from openenv.rollouts.samplers import feed_of
from openenv.rollouts.sessions import EpisodeSource, sessions_of
from openenv.rollouts.summary import Groups, RolloutProgress, RolloutTally, Summary

logger = logging.getLogger(__name__)

T = TypeVar("T")
P = ParamSpec("P")

OPENED_AT_ONCE = 64
# If no session can be had any more, how long to keep trying.
PATIENCE_S = 60.0
RETRY_TOLD_EVERY_S = 10.0
TICK_S = 0.2
SYNC_EVERY_S = 5.0
END_GRACE_S = 10.0
# Number of ended rollouts before the share of failed ones counts.
FEWEST_ENDED = 20
# Maximum number of tasks whose failing resets are logged.
TOLD_TASKS = 20


class RolloutRun:
    """The rollouts of a run.

    Attributes:
        header: The header of the run's file.
        output: The file of JSON lines with the rollouts; None if they are in memory.

    Example:
        >>> from blackjack_env.server.blackjack_environment import BlackjackEnvironment
        >>> from openenv import RolloutRun, rollout
        >>> run: RolloutRun = rollout(BlackjackEnvironment, "random", n=4, seed=0)
        >>> len(run), {record.outcome for record in run}
        (4, {'done'})
    """

    def __init__(
        self, header: RolloutHeader, output: Path | None, tally: RolloutTally, pace: Pace
    ) -> None:
        self.header = header
        self.output = output
        self._tally = tally
        self._pace = pace
        self._kept: list[Rollout] = []

    @property
    def rollouts(self) -> list[Rollout]:
        """All rollouts in the order in which they ended; read from the output file, if any."""
        return list(self)

    def __iter__(self) -> Iterator[Rollout]:
        return iter(self._kept) if self.output is None else read_rollouts(self.output)

    def __len__(self) -> int:
        return self._tally.ended

    def summary(self) -> Summary:
        """Return the counts and means of the run."""
        return self._tally.summary(list(self._pace.trace))


@dataclass
class RolloutOptions:
    """The options of a run; see `rollout`."""

    n: int = 1
    num_tasks: int | None = None
    concurrency: int = 16
    output: str | os.PathLike[str] | None = None
    resume: bool = False
    seed: int | None = None
    limits: RolloutLimits = field(default_factory=RolloutLimits)
    retries: int = 2
    error_budget: float = 0.1
    trajectory_scorer: TrajectoryScorer | None = None
    credit: str | Credit = "terminal"
    token_credit: str | TokenCredit | None = None
    keep: Callable[[Rollout], Any] | None = None
    on_rollout: Callable[[Rollout], Any] | None = None
    progress: Callable[[RolloutProgress], Any] | None = None
    remembers: bool = True  # keep rollouts in memory if no file is written

    def __post_init__(self) -> None:
        for name, least in (("n", 1), ("concurrency", 1), ("retries", 0), ("num_tasks", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name}={value!r} of a rollout; it must be at least {least}")
        is_share = not isinstance(self.error_budget, int)
        if not self.error_budget >= 0 or (is_share and self.error_budget > 1):
            raise ValueError(
                f"error_budget={self.error_budget!r}; expected a share from 0.0 to 1.0, or a count"
            )

    @property
    def lines(self) -> Path | None:
        """The file of JSON lines."""
        if self.output is None:
            return None
        path = Path(self.output)
        return path if self.table is None else path.with_suffix(".jsonl")

    @property
    def table(self) -> Path | None:
        """The Parquet file to write at the end; None if the output is not one."""
        path = None if self.output is None else Path(self.output)
        return path if path is not None and path.suffix == PARQUET else None

    def scoring(self) -> RolloutScoring:
        """Return the rules by which episodes are scored."""
        token_credit = self.token_credit
        if isinstance(token_credit, str):
            token_credit = resolve_token_credit(token_credit)
        return RolloutScoring(self.trajectory_scorer, resolve_credit(self.credit), token_credit)

    def settings(self, seed: int) -> dict[str, Any]:
        """Return the settings that a resumed run must match."""
        return {
            "n": self.n,
            "seed": seed,
            "limits": asdict(self.limits),
            "trajectory_scorer": _name(self.trajectory_scorer),
            "credit": _name(self.credit),
            "token_credit": _name(self.token_credit),
        }

    def drawn_seed(self) -> int:
        """Return the given seed, else the seed of the file that is resumed, else a random seed."""
        if self.seed is not None:
            return self.seed
        path = self.lines
        if self.resume and path is not None and path.exists() and path.stat().st_size:
            with contextlib.suppress(ValueError):  # the writer gives a better error
                known = read_header(path).settings.get("seed")
                if isinstance(known, int):
                    return known
        return int.from_bytes(os.urandom(4), "big") >> 1


def _name(given: Any) -> str | None:
    if given is None or isinstance(given, str):
        return given
    named = getattr(given, "__qualname__", type(given).__qualname__)
    return f"{getattr(given, '__module__', '?')}:{named}"


async def rollout_async(
    env: Any,
    policy: Any,
    tasks: Any = None,
    *,
    n: int = 1,
    num_tasks: int | None = None,
    concurrency: int = 16,
    output: str | os.PathLike[str] | None = None,
    resume: bool = False,
    seed: int | None = None,
    limits: RolloutLimits = RolloutLimits(),  # noqa: B008  # it is frozen
    retries: int = 2,
    error_budget: float = 0.1,
    trajectory_scorer: TrajectoryScorer | None = None,
    credit: str | Credit = "terminal",
    token_credit: str | TokenCredit | None = None,
    keep: Callable[[Rollout], Any] | None = None,
    on_rollout: Callable[[Rollout], Any] | None = None,
    progress: Callable[[RolloutProgress], Any] | None = None,
) -> RolloutRun:
    """Play episodes and record each. May be called from any thread.

    Args:
        env: The environment: the address of a server; a target of `openenv serve` or the name of an
            installed environment, which runs in this process, as does an environment class; a
            client, whose server is used, or a function that creates clients; or an `EnvPool`.
        policy: The policy: a name, such as ``random`` or ``openai:MODEL`` (see
            `openenv.rollouts.policies`), or an object as in `openenv.rollouts.policies.base`.
        tasks: The tasks: a taskset, or any iterable of tasks, which must yield the same tasks in
            the same order when a run is resumed; or a sampler, which learns from the rewards.
            Default: no tasks, but `n` episodes, each with its own seed.
        n: Number of rollouts of each task. They form a group and have the same seed.
        num_tasks: Maximum number of groups; None for all tasks.
        concurrency: Maximum number of episodes at once. Under pressure there are fewer.
        output: The file to write: JSON lines (see `openenv.rollouts.files`), which stay intact
            even if the program is killed; or a Parquet file, which is made at the end from a file
            of JSON lines beside it. Default: keep the rollouts in memory.
        resume: Continue an existing file: play only rollouts that are missing or have failed.
        seed: The seed from which all seeds are derived. Default: random. The header records it.
        limits: Limits that end an episode.
        retries: Further attempts at a rollout after a passing failure: a lost session, a timeout,
            an overloaded server or model. The record lists each failure.
        error_budget: The rollouts that may fail: a share as a float, or a number as an int. A share
            above 0 is not spent by the rollouts of a single failing task, if others can be
            played.
        trajectory_scorer: Scores each episode as a whole; see `openenv.rewards.delayed`. Default:
            the environment's rewards, by its declaration of rewards.
        credit: Assigns an episode's reward to its steps: ``terminal``, ``uniform``,
            ``discounted:0.95``, or a function; see `openenv.rewards.credit`.
        token_credit: Assigns the reward of a step to its tokens: ``last``, ``spread``, or a
            function. Default: none.
        keep: Called with each rollout. If it returns a false value, the rollout's record stays, but
            without steps, messages and observations.
        on_rollout: Called with each rollout, once it is written. Like `keep`, it is ``async def``,
            or a plain function that is called in a thread, one call at a time.
        progress: Called with the progress now and then, and at the end.

    Returns:
        The rollouts.

    Raises:
        RolloutsFailed: More rollouts have failed than the error budget allows. Written ones stay.
        FileExistsError: The output exists, and `resume` is False.
        RolloutFileError: The output cannot be resumed.
        MissingPackage: A package that the Parquet output or the policy needs is not installed.
        PolicyError: There is no such policy.
        ConnectError: No server answers.
        OSError: A file cannot be written, for example on a full disk. Written rollouts stay.

    Example:
        >>> from blackjack_env.server.blackjack_environment import BlackjackEnvironment
        >>> from openenv import rollout
        >>> run = rollout(BlackjackEnvironment, "random", n=20, seed=0)
        >>> run.summary().outcomes
        {'done': 20}
    """
    options = RolloutOptions(
        n=n,
        num_tasks=num_tasks,
        concurrency=concurrency,
        output=output,
        resume=resume,
        seed=seed,
        limits=limits,
        retries=retries,
        error_budget=error_budget,
        trajectory_scorer=trajectory_scorer,
        credit=credit,
        token_credit=token_credit,
        keep=keep,
        on_rollout=on_rollout,
        progress=progress,
    )
    # In a thread, since this may load a model, or import code that calls a server.
    run = await asyncio.to_thread(RolloutRunner, policy, tasks, options)
    return await run.run(env)


def synchronous(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Wrap a coroutine function for synchronous callers; it runs on the shared event loop."""

    @wraps(function)
    def waited(*args: P.args, **kwargs: P.kwargs) -> T:
        return run_to_end(function(*args, **kwargs))

    return waited


rollout = synchronous(rollout_async)
rollout.__name__ = rollout.__qualname__ = "rollout"
rollout_async.__doc__ = """Do what `rollout` does, on the running event loop.

Example:
    >>> import asyncio
    >>> from blackjack_env.server.blackjack_environment import BlackjackEnvironment
    >>> from openenv import rollout_async
    >>> async def main() -> None:
    ...     run = await rollout_async(BlackjackEnvironment, "random", n=20, seed=0)
    ...     print(run.summary().outcomes)
    >>> asyncio.run(main())
    {'done': 20}
"""


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the shared loop; after an interrupt, wait up to 10 s for its cleanup."""
    ended = threading.Event()

    async def running() -> T:
        try:
            return await work
        finally:
            ended.set()

    try:
        return background.run(running())
    except (KeyboardInterrupt, SystemExit):
        ended.wait(END_GRACE_S)
        raise


class RolloutRunner:
    """Plays the episodes of one run: places, retries, files and error budget.

    Design notes. Everything here runs on one event loop. Each of `concurrency` places is a task
    that holds a session and plays one episode after another in it; a place takes a rollout only
    once it has a session. User code runs in threads, one call at a time for each kind of code
    (`UserCodeCaller`). `run` can be called once.
    """

    def __init__(self, policy: Any, tasks: Any, options: RolloutOptions) -> None:
        self._policy: Policy = as_policy(policy, concurrency=options.concurrency)
        most = getattr(self._policy, "max_concurrency", options.concurrency)
        options.concurrency = min(options.concurrency, most)
        self._tasks = tasks
        self._options = options
        self._scoring = options.scoring()
        self._pace = Pace(options.concurrency)
        self._tally = RolloutTally()
        self._caller = UserCodeCaller(1)
        self._door = asyncio.Semaphore(OPENED_AT_ONCE)
        self._opening = self._open = 0
        self._has_opened = self._is_queued = self._is_long = False
        self._alive_at, self._told_of_retry_at = time.monotonic(), -math.inf
        self._config: EpisodeConfig | None = None
        self._learning = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()
        self._spent: RolloutsFailed | None = None
        self._told: set[str] = set()  # tasks whose resets were said to fail

    async def run(self, env: Any) -> RolloutRun:
        options = self._options
        lines, table = options.lines, options.table
        if lines is not None and table is not None:
            await asyncio.to_thread(check_table, lines, table, resume=options.resume)
        async with contextlib.AsyncExitStack() as stack:
            self._source: EpisodeSource = (
                env if isinstance(env, EpisodeSource) else await sessions_of(env, self._note_queue)
            )
            stack.push_async_callback(self._source.aclose)
            stack.push_async_callback(self._policy.aclose)
            stack.push_async_callback(self._all_closed)
            stack.callback(self._scoring.caller.close)
            stack.callback(self._caller.close)
            files = contextlib.ExitStack()
            stack.push_async_callback(_wholly, files.close)  # flushing to a disk may take a while
            await _wholly(partial(self._begin, files, await self._source.reward()))
            try:
                await self._play()
            finally:
                self._tell()
            self._note_budget(is_over=True)
            if self._spent is not None:
                raise self._spent
        if lines is not None and table is not None:
            await asyncio.to_thread(write_parquet, lines, table)
        return self.result

    def _begin(self, files: contextlib.ExitStack, spec: RewardSpec | None) -> None:
        """Open the file, and determine which rollouts are missing."""
        options = self._options
        seed, lines = options.drawn_seed(), options.lines
        self._feed = feed_of(self._tasks, options.n, lines)
        files.callback(self._feed.close)
        header = RolloutHeader(
            environment=self._source.name,
            policy=self._policy.name,
            reward=None if spec is None else spec.as_data(),
            openenv=version(),
            started_at=time.time(),
            settings={**options.settings(seed), **self._feed.settings},
        )
        samples = 1 if self._tasks is None else options.n
        self._groups = Groups(samples)
        self._writer: RolloutWriter | None = None
        if lines is not None:
            self._writer = files.enter_context(
                RolloutWriter(
                    lines,
                    header,
                    resume=options.resume,
                    sync_every_s=None,
                    on_found=self._note_found,
                )
            )
            header = self._writer.header
        done = set() if self._writer is None else self._writer.done
        failures = {} if self._writer is None else self._writer.failed
        self._feed.open(is_resumed=bool(done or failures))
        plan = RolloutPlan(self._feed, samples, seed, options.num_tasks, done)
        self._tally.total = plan.total
        self._jobs = RolloutQueue(plan, failures)
        files.callback(self._jobs.close)
        self.result = RolloutRun(header, lines, self._tally, self._pace)

    def _note_found(self, rollout: Rollout) -> None:
        self._tally.add_found(rollout)
        if rollout.outcome != "failed" and (group := self._groups.add(rollout)) is not None:
            self._tally.note_group(group.rewards)
            self._feed.found_group(rollout.group, group.rewards, group.costs)

    # ------------------------------------------------------------------ places

    async def _play(self) -> None:
        self._tally.begin()
        places = [asyncio.ensure_future(self._place()) for _ in range(self._options.concurrency)]
        watching = asyncio.ensure_future(self._watch())
        everything: list[asyncio.Future[None]] = [*places, watching]
        try:
            left: set[asyncio.Future[None]] = set(places)
            while left:
                done, _ = await asyncio.wait({*left, watching}, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    one.result()
                left -= done
        finally:
            for one in everything:
                one.cancel()
            await asyncio.gather(*everything, return_exceptions=True)

    async def _watch(self) -> None:
        synced = time.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            self._tell()
            if self._writer is not None and time.monotonic() - synced > SYNC_EVERY_S:
                await asyncio.to_thread(self._writer.sync)
                synced = time.monotonic()

    def _tell(self) -> None:
        if self._options.progress is not None:
            running = getattr(self, "_jobs", None)
            self._options.progress(
                self._tally.progress(running.running if running else 0, self._pace.limit)
            )

    async def _place(self) -> None:
        """Hold a session, and play one episode after another."""
        session: Any = None
        waited, is_fresh = 0, True
        try:
            while True:
                if session is None:
                    if not await self._jobs.wanted(lambda: self._opening):
                        return
                    session = await self._opened(waited)
                    waited = 0 if session is not None else waited + 1
                    is_fresh = True
                    continue
                job = await self._jobs.take()
                if job is None:
                    if not await self._jobs.wanted(lambda: 0):
                        return
                    continue
                if not await self._attempt(session, job, is_fresh=is_fresh):
                    self._close(session)
                    session = None
                is_fresh = False
        finally:
            if session is not None:
                self._close(session)

    async def _opened(self, waited: int) -> Any:
        """Open a session; return None to try again, or if no session is needed any more."""
        self._opening += 1
        try:
            async with self._door:
                session: Any = await self._unless_over(self._source.open())
            if session is None:
                return None
            self._open += 1
            self._note_room()
            try:
                await self._learn(session)
            except BaseException:
                self._close(session)
                raise
            # Counts as opened only if its interface was learned; otherwise retries never end.
            self._has_opened = True
            self._alive_at = time.monotonic()
            return session
        except Exception as error:
            self._check_worth_waiting(error)
            self._tell_of_retry(error)
        finally:
            self._opening -= 1
        pause = asyncio.sleep(backoff_s(waited + 1, FIRST_DELAY_S, LONGEST_DELAY_S))
        await self._unless_over(pause)
        return None

    def _check_worth_waiting(self, error: Exception) -> None:
        """Raise an error of opening a session, unless waiting may help."""
        if not is_passing(error) or isinstance(error, AuthenticationError | PermissionRefused):
            raise error
        if not self._has_opened and not isinstance(error, CapacityError):
            raise error
        if not self._open and time.monotonic() - self._alive_at > PATIENCE_S:
            raise error

    def _tell_of_retry(self, error: Exception) -> None:
        """Log why no session can be opened, at once and then every 10 s."""
        now = time.monotonic()
        if now - self._told_of_retry_at < RETRY_TOLD_EVERY_S:
            logger.debug("no session could be opened: %s", error)
            return
        self._told_of_retry_at = now
        for_s = "while others play"
        if not self._open:
            for_s = f"for {max(0.0, PATIENCE_S - (now - self._alive_at)):.0f} s"
        logger.warning("no session could be opened; it is tried again %s: %s", for_s, error)

    def _note_long(self) -> None:
        """Log once that episodes may never end, if no limit ends them."""
        limits = self._options.limits
        is_bounded = any(one is not None for one in (limits.steps, limits.seconds, limits.tokens))
        if is_bounded or self._is_long or self._tally.ended:
            return
        self._is_long = True
        logger.warning(
            "no episode has ended within %d steps. Those of an environment without an end go on "
            "for ever, unless a limit ends them: --max-steps NUMBER (of openenv collect "
            "--max-turns; in Python limits=RolloutLimits(steps=NUMBER))",
            LONG,
        )

    async def _learn(self, session: Any) -> None:
        """Look up the environment's interface, if the policy needs it."""
        async with self._learning:
            if self._config is None:
                needed = self._policy.needs_interface
                interface = await self._source.interface(session) if needed else None
                self._config = EpisodeConfig(
                    self._policy,
                    self._options.limits,
                    self._scoring,
                    interface,
                    note_long=self._note_long,
                )

    async def _unless_over(self, work: Any) -> Any:
        """Await a result; give up and return None once no rollout is left."""
        doing = asyncio.ensure_future(work)
        over = asyncio.ensure_future(self._jobs.over.wait())
        try:
            await asyncio.wait({doing, over}, return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                return doing.result()
            return None
        finally:
            over.cancel()
            if not doing.done():
                doing.cancel()
                await asyncio.gather(doing, return_exceptions=True)

    def _close(self, session: Any) -> None:
        """Close a session in the background, since a hanging step delays the closing."""
        self._open -= 1
        closing = asyncio.ensure_future(self._closed(session))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def _all_closed(self) -> None:
        while self._closing:
            await asyncio.wait(self._closing)

    async def _closed(self, session: Any) -> None:
        try:
            await self._source.close(session)
        except (OpenEnvError, OSError) as error:
            logger.info("a session could not be closed: %s", error)

    def _note_room(self) -> None:
        """Log once that the server holds fewer sessions than the run could use."""
        room, wanted = self._source.room, self._options.concurrency
        if self._tally.total is not None:
            wanted = min(wanted, self._tally.total)
        if room is not None and room < wanted and not self._is_queued:
            self._is_queued = True
            logger.warning(
                "the server is full with %d sessions, and %d rollouts are to be played at the same "
                "time: the others wait. %s",
                room,
                wanted,
                CURE,
            )

    def _note_queue(self, queued: Queued) -> None:
        """Log once that the server is full; open sessions continue."""
        self._note_room()
        if not self._is_queued:
            self._is_queued = True
            logger.warning(
                "the server is full: %d of %d sessions are open, the others wait",
                self._open,
                self._options.concurrency,
            )

    # ------------------------------------------------------------------ rollouts

    async def _attempt(self, session: Any, job: RolloutJob, *, is_fresh: bool) -> bool:
        """Play an episode; return whether the session may be used again."""
        assert self._config is not None
        ticket = await self._pace.enter()
        try:
            press = partial(self._pace.press, ticket)
            done, plays_on = await self._source.play(session, job, self._config, press)
        except AttemptFailed as failure:
            if (why := pressure(failure.cause)) is not None:
                self._pace.press(ticket, why)
            self._pace.leave()
            await self._failed(job, failure, is_fresh=is_fresh)
            return failure.at == "policy"
        except BaseException:
            self._pace.leave()
            raise
        self._pace.ease()
        self._pace.leave()
        self._alive_at = time.monotonic()
        if not plays_on:
            await self._jobs.stop()
        await self._ended(job, done)
        return done.limit != "wall_clock"

    async def _failed(self, job: RolloutJob, failure: AttemptFailed, *, is_fresh: bool) -> None:
        # A session lost between two episodes does not count as an attempt at the rollout.
        is_lost = isinstance(failure.cause, ConnectError | SessionLost)
        if not (is_lost and failure.at == "reset" and not is_fresh):
            job.attempts += 1
        delay_s = retry_delay_s(failure.cause, job.attempts, self._options.retries)
        job.failures.append(failure.record(is_retried=delay_s is not None))
        if delay_s is not None:
            await asyncio.sleep(delay_s)
            await self._jobs.put_back(job)
            return
        self._tell_of_task(job, failure)
        failed = failure.rollout
        failed.outcome, failed.reward, failed.failures = "failed", None, job.failures
        failed.unscored = job.failures[-1].message
        await self._ended(job, failed)
        if self._spent is not None:
            raise self._spent

    def _tell_of_task(self, job: RolloutJob, failure: AttemptFailed) -> None:
        logger.debug("rollout %s failed", job.id, exc_info=failure.cause)
        name = job.group.key if job.task is None else job.task.id
        if failure.at == "reset" and name not in self._told and len(self._told) < TOLD_TASKS:
            self._told.add(name)
            why = job.failures[-1]
            logger.warning(
                "the reset of %s %s fails, and its rollouts count as failed: %s: %s",
                "seed" if job.task is None else "task",
                repr(name) if job.task is not None else name,
                why.type,
                why.message,
            )

    async def _ended(self, job: RolloutJob, done: Rollout) -> None:
        options = self._options
        if options.keep is not None and not await self._caller(options.keep, done):
            lists: dict[str, Any] = {name: [] for name in ("steps", "messages", "refused")}
            left_out = {"is_kept": False, "first": None, "metadata": None, **lists}
            done = done.model_copy(update=left_out)
        self._tally.add(done)
        if self._writer is not None:
            self._writer.write(done)
        elif options.remembers:
            self.result._kept.append(done)
        self._note_budget()
        if (group := self._groups.add(done)) is not None:
            self._tally.note_group(group.rewards)
            await self._jobs.learn(self._feed.ended, job.group, group.rewards, group.costs)
        if options.on_rollout is not None:
            await self._caller(options.on_rollout, done)
        await self._jobs.end()

    def _note_budget(self, *, is_over: bool = False) -> None:
        """Store the error once more rollouts have failed than the budget allows. Nothing is awaited
        between the count and this call, so that later failures are not included.
        """
        tally, budget = self._tally, self._options.error_budget
        is_hopeless = False
        if isinstance(budget, int):
            allowed = float(budget)
        elif budget and tally.is_one_task_failing and (tally.failed < tally.ended or not is_over):
            return  # a single broken task says nothing about the others, however few they are
        elif is_over:
            allowed = budget * tally.ended
        else:
            allowed = budget * (tally.total or max(tally.ended, FEWEST_ENDED))
            fewest = max(FEWEST_ENDED, 2 * self._options.concurrency)
            is_hopeless = budget < 1 and tally.failed == tally.ended >= fewest
        if self._spent is None and (tally.failed > allowed or is_hopeless):
            self._spent = RolloutsFailed(tally.failed, tally.ended, tally.causes, self.result)


async def _wholly(work: Callable[[], object]) -> None:
    """Call a function in a thread; if cancelled, wait until the call has returned."""
    doing = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait({doing})
        raise
