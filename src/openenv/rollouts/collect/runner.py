"""Collecting episodes of harness sessions: any number at once, gone on with where it was left."""

from __future__ import annotations

import logging
import math
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json

from openenv._internal.redaction import redact
from openenv.errors import words
from openenv.rollouts.collect.records import EpisodeRecord
from openenv.rollouts.collect.serializer import (
    FAILURES_FILENAME,
    RolloutSerializer,
    set_aside,
)
from openenv.rollouts.failures import is_passing
from openenv.rollouts.harness.loops import HarnessAdapter
from openenv.rollouts.harness.results import HarnessRolloutResult, HarnessRunLimits, ModelStep
from openenv.rollouts.harness.sessions import ResourceSession, ResourceSessionFactory
from openenv.rollouts.lines import LineFile
from openenv.rollouts.records import Failure

__all__ = ["CollectResult", "CollectRunner"]

logger = logging.getLogger(__name__)

RETRY_S, LONGEST_RETRY_S = 0.1, 30.0
MAX_MESSAGE = 2000

ShouldKeep = Callable[[EpisodeRecord], bool]
OnEpisode = Callable[["CollectResult"], object]


@dataclass
class CollectResult:
    """What a run came to.

    Attributes:
        num_collected: Episodes that it has written.
        num_skipped: Episodes of it that were there before.
        num_dropped: Episodes that were not to be kept.
        num_failed: Episodes of which no attempt came to a reward; ``failures.jsonl`` says why.
        episode_ids: The ids of all of these, in their order.
        avg_reward: Of the episodes of this run that are in the file; NaN where there are none.
        success_rate: The share of them whose reward is above 0; NaN where there are none.
    """

    num_collected: int
    num_skipped: int
    num_dropped: int
    num_failed: int
    episode_ids: list[str]
    avg_reward: float
    success_rate: float


@dataclass
class _Tally:
    collected: int = 0
    skipped: int = 0
    dropped: int = 0
    failed: int = 0
    rewards: list[float] = field(default_factory=list)

    def result(self, ids: list[str]) -> CollectResult:
        count = len(self.rewards)
        mean = math.fsum(self.rewards) / count if count else math.nan
        wins = sum(reward > 0 for reward in self.rewards) / count if count else math.nan
        return CollectResult(
            self.collected, self.skipped, self.dropped, self.failed, list(ids), mean, wins
        )


class CollectRunner:
    """Plays episodes in sessions of a factory, and writes those that are worth keeping.

    An episode that fails is no episode with a reward of 0: it is counted, and why it failed is
    written to ``failures.jsonl``. What failed for a cause that may pass is tried anew before.

    Args:
        session_factory: Begins a session for each episode; called from several threads where there
            are several episodes at once.
        harness_adapter: Plays an episode.
        serializer: Where they are written.
        tasks: What is to be done, one of them an episode, in their order; the same ones in the same
            order where a run is gone on with. Beyond their end, the task is None.
        limits: Where an episode ends at the latest.
        concurrency: Episodes at once, each in a thread; the model step has to allow it.
        retries: Attempts anew after a passing failure.
        on_episode: Told what it has come to after each episode.

    Raises:
        ValueError: `concurrency` is below 1, or `retries` below 0.
    """

    def __init__(
        self,
        *,
        session_factory: ResourceSessionFactory[Any],
        harness_adapter: HarnessAdapter,
        serializer: RolloutSerializer,
        tasks: Iterable[Any] | None = None,
        limits: HarnessRunLimits | None = None,
        concurrency: int = 1,
        retries: int = 2,
        on_episode: OnEpisode | None = None,
    ) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency={concurrency}: expected at least 1")
        if retries < 0:
            raise ValueError(f"retries={retries}: expected at least 0")
        self._factory = session_factory
        self._adapter = harness_adapter
        self._serializer = serializer
        self._tasks = tasks
        self._limits = limits
        self._concurrency = concurrency
        self._retries = retries
        self._on_episode = on_episode
        self._stopped = threading.Event()

    def run(
        self,
        *,
        model_step: ModelStep | None,
        num_episodes: int,
        episode_id_prefix: str = "ep",
        resume: bool = True,
        should_keep: ShouldKeep | None = None,
    ) -> CollectResult:
        """Collect episodes ``PREFIX-000000`` and so on.

        Args:
            model_step: Samples the turns; None for a harness that samples them itself.
            num_episodes: How many there are to be, those that are there included.
            episode_id_prefix: What their ids begin with.
            resume: What is there is not played again, though its task is used up. Otherwise what
                is there is set aside under another name.
            should_keep: Asked of each episode; by default all are kept. Those that are not are
                played again where the run is gone on with.

        Raises:
            OSError: The disk is full, say. What was written stays, and can be gone on with.
            RolloutFileError: Somebody else writes to the folder, or what is there is damaged.
            ValueError: `num_episodes` is below 0.
        """
        if num_episodes < 0:
            raise ValueError(f"num_episodes={num_episodes}: expected at least 0")
        if not resume:
            self._serializer.interrupt()
            for name in (self._serializer.results_path, self._failures_path):
                aside = set_aside(name)
                if aside is not None:
                    told = f"resume=False: {name} is set aside as {aside.name}"
                    warnings.warn(told, RuntimeWarning, stacklevel=2)
        self._stopped.clear()
        self._serializer.open()
        try:
            return self._run(model_step, num_episodes, episode_id_prefix, should_keep)
        finally:
            self._serializer.close()

    @property
    def _failures_path(self) -> Any:
        return self._serializer.output_dir / FAILURES_FILENAME

    def _run(
        self,
        model_step: ModelStep | None,
        num_episodes: int,
        prefix: str,
        should_keep: ShouldKeep | None,
    ) -> CollectResult:
        ids = [f"{prefix}-{number:06d}" for number in range(num_episodes)]
        rewards = {one.episode_id: one.reward for one in self._serializer.records()}
        tally = _Tally()
        there = [rewards[episode_id] for episode_id in ids if episode_id in rewards]
        tally.skipped, tally.rewards = len(there), there
        left = ((i, task) for i, task in self._paired(ids) if i not in rewards)
        pool = ThreadPoolExecutor(self._concurrency, thread_name_prefix="openenv-collect")
        running: dict[Future[EpisodeRecord | None], str] = {}
        try:
            self._begin(pool, running, left, model_step)
            while running:
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for one in done:
                    del running[one]
                    self._note(one.result(), should_keep, tally)
                    if self._on_episode is not None:
                        self._on_episode(tally.result(ids))
                self._begin(pool, running, left, model_step)
        finally:
            self._stopped.set()
            pool.shutdown(wait=True, cancel_futures=True)
        return tally.result(ids)

    def _paired(self, ids: list[str]) -> Iterator[tuple[str, Any]]:
        tasks = iter(self._tasks if self._tasks is not None else ())
        for episode_id in ids:
            yield episode_id, next(tasks, None)

    def _begin(
        self,
        pool: ThreadPoolExecutor,
        running: dict[Future[EpisodeRecord | None], str],
        left: Iterator[tuple[str, Any]],
        model_step: ModelStep | None,
    ) -> None:
        """Have as many episodes running as there may be; tasks are taken as places become free."""
        while len(running) < self._concurrency:
            following = next(left, None)
            if following is None:
                return
            running[pool.submit(self._episode, *following, model_step)] = following[0]

    def _note(
        self, record: EpisodeRecord | None, should_keep: ShouldKeep | None, tally: _Tally
    ) -> None:
        if record is None:
            tally.failed += 1
        elif should_keep is not None and not should_keep(record):
            tally.dropped += 1
        else:
            self._serializer.write_episode(record)
            tally.collected += 1
            tally.rewards.append(record.reward)

    # ------------------------------------------------------------------ one episode

    def _episode(
        self, episode_id: str, task: Any, model_step: ModelStep | None
    ) -> EpisodeRecord | None:
        """Play an episode, several times if need be; None where it failed."""
        failures: list[Failure] = []
        while True:
            try:
                return self._attempt(episode_id, task, model_step)
            except Exception as error:
                again = is_passing(error) and len(failures) < self._retries
                again = again and not self._stopped.is_set()
                message = redact(words(error))[:MAX_MESSAGE]
                failures.append(
                    Failure(type=type(error).__name__, message=message, is_retried=again)
                )
                logger.warning("episode %s: %s: %s", episode_id, type(error).__name__, message)
            if not again:
                self._note_failed(episode_id, failures)
                return None
            self._stopped.wait(min(LONGEST_RETRY_S, RETRY_S * 2.0 ** (len(failures) - 1)))

    def _attempt(self, episode_id: str, task: Any, model_step: ModelStep | None) -> EpisodeRecord:
        session = self._factory.create(task, episode_id=episode_id)
        try:
            rollout = self._played(session, model_step)
            verdict = session.verify(rollout.messages)
        finally:
            session.close()
        return EpisodeRecord.from_rollout(episode_id, rollout, verdict, task)

    def _played(
        self, session: ResourceSession, model_step: ModelStep | None
    ) -> HarnessRolloutResult:
        if model_step is None:
            return self._adapter.run_black_box(session, self._limits)
        return self._adapter.run_white_box(model_step, session, self._limits)

    def _note_failed(self, episode_id: str, failures: list[Failure]) -> None:
        path = self._failures_path
        told = {"episode_id": episode_id, "time": time.time()}
        line = to_json({**told, "failures": [one.model_dump() for one in failures]}) + b"\n"
        with _FAILURES:
            file = LineFile(path)
            try:
                file.cut_torn_line()
                file.append(line)
            finally:
                file.close()


# Threads of one process would find the file locked by each other.
_FAILURES = threading.Lock()
