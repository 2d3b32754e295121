"""Collecting the episodes of a harness: a run of rollouts in sessions of the harness.

The run uses `openenv.rollouts.runs`: several episodes at once, retries, and fewer episodes at once
under pressure. Only the player differs: `HarnessEpisodes` begins a session of the factory for each
episode, in a thread, and lets the harness play it there.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from openenv.rollouts.calls import UserCodeCaller
from openenv.rollouts.collect.records import EpisodeRecord, episode_id_of
from openenv.rollouts.collect.serializer import (
    FAILURES_FILENAME,
    RolloutSerializer,
    set_aside,
)
from openenv.rollouts.episodes import EpisodeConfig
from openenv.rollouts.failures import AttemptFailed, Place
from openenv.rollouts.harness.loops import HarnessAdapter
from openenv.rollouts.harness.results import HarnessRunLimits, ModelStep
from openenv.rollouts.harness.rollout_func import play_session
from openenv.rollouts.harness.sessions import ResourceSessionFactory
from openenv.rollouts.jobs import RolloutJob
from openenv.rollouts.lines import LineFile
from openenv.rollouts.policies.base import EpisodeOpening, PolicyPlayer
from openenv.rollouts.records import Rollout
from openenv.rollouts.runs import RolloutOptions, RolloutRunner, run_to_end
from openenv.rollouts.sessions import EpisodeSource
from openenv.tasks.task import Task

logger = logging.getLogger(__name__)

ShouldKeep = Callable[[EpisodeRecord], bool]
OnEpisode = Callable[["CollectResult"], object]


@dataclass
class CollectResult:
    """The counts of a run.

    Attributes:
        num_collected: Number of episodes that the run has written.
        num_skipped: Number of episodes that were in the dataset before.
        num_dropped: Number of episodes that `should_keep` has rejected.
        num_failed: Number of episodes without a reward after all attempts; ``failures.jsonl`` has
            the reasons.
        episode_ids: The ids of all these episodes, in order.
        avg_reward: The mean reward of the run's episodes in the file; NaN if there are none.
        success_rate: The share of these episodes with a reward above 0; NaN if there are none.
    """

    num_collected: int
    num_skipped: int
    num_dropped: int
    num_failed: int
    episode_ids: list[str]
    avg_reward: float
    success_rate: float


class CollectRunner:
    """Plays episodes in sessions of a factory, and writes those that are worth keeping.

    A failed episode does not count as an episode with reward 0. Passing failures are retried; if
    no attempt succeeds, the failure is counted and its reason is written to ``failures.jsonl``.

    Args:
        session_factory: Begins a session for each episode; called from several threads if
            `concurrency` is above 1.
        harness_adapter: Plays an episode.
        serializer: Writes the episodes.
        tasks: One task for each episode, in order. A continued run needs the same tasks in the same
            order. Episodes after the last task have the task None.
        limits: Limits that end an episode.
        concurrency: Number of episodes at once, each in a thread; the model step must be
            thread-safe if it is above 1.
        retries: Further attempts after a passing failure.
        on_episode: Called with the counts after each episode, in a thread.

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
            num_episodes: Number of episodes that the dataset is to have, existing ones included.
            episode_id_prefix: Prefix of the episodes' ids.
            resume: Do not play again what is in the dataset; its tasks count as used. If False, the
                existing files are renamed and kept.
            should_keep: Called with each episode; returns whether to write it. Default: all are
                written. A continued run plays rejected episodes again.

        Raises:
            OSError: A file cannot be written, for example on a full disk. Written episodes stay,
                and the run can be continued.
            RolloutFileError: Another writer has the folder open, or a file in it is damaged.
            ValueError: `num_episodes` is below 0.
        """
        if num_episodes < 0:
            raise ValueError(f"num_episodes={num_episodes}: expected at least 0")
        failures = self._serializer.output_dir / FAILURES_FILENAME
        if not resume:
            self._serializer.interrupt()
            for name in (self._serializer.results_path, failures):
                aside = set_aside(name)
                if aside is not None:
                    told = f"resume=False: {name} is set aside as {aside.name}"
                    warnings.warn(told, RuntimeWarning, stacklevel=2)
        self._serializer.open()
        try:
            ids = [f"{episode_id_prefix}-{number:06d}" for number in range(num_episodes)]
            rewards = {one.episode_id: one.reward for one in self._serializer.records()}
            episodes = HarnessEpisodes(
                self._factory, self._adapter, model_step, self._limits, self._concurrency
            )
            counts = _Counts(ids, [rewards[one] for one in ids if one in rewards])
            counts.skipped = len(counts.rewards)

            def note(rollout: Rollout) -> None:
                self._note(rollout, episodes.records.pop(rollout.id, None), counts, should_keep)

            options = RolloutOptions(
                concurrency=self._concurrency,
                retries=self._retries,
                error_budget=1.0,
                on_rollout=note,
                remembers=False,
            )
            given = () if self._tasks is None else self._tasks
            tasks = itertools.chain(given, itertools.repeat(None))
            left = episodes.tasks_of(zip(ids, tasks, strict=False), without=rewards)
            run_to_end(RolloutRunner(episodes, left, options).run(episodes))
            return counts.result()
        finally:
            self._serializer.close()

    def _note(
        self,
        rollout: Rollout,
        record: EpisodeRecord | None,
        counts: _Counts,
        should_keep: ShouldKeep | None,
    ) -> None:
        if record is None:
            counts.failed += 1
            _write_failure(self._serializer.output_dir / FAILURES_FILENAME, rollout)
        elif should_keep is not None and not should_keep(record):
            counts.dropped += 1
        else:
            self._serializer.write_episode(record)
            counts.collected += 1
            counts.rewards.append(record.reward)
        if self._on_episode is not None:
            self._on_episode(counts.result())


class HarnessEpisodes(EpisodeSource):
    """Episodes that a harness plays, each in a session that the factory begins.

    This class is both the source of episodes and the policy that plays them, since a harness brings
    its own loop.

    Attributes:
        records: The records of episodes with a reward, by rollout id, until they are taken.
    """

    name = "harness sessions"
    needs_interface = False
    wants_refusals = False

    def __init__(
        self,
        factory: ResourceSessionFactory[Any],
        adapter: HarnessAdapter,
        model_step: ModelStep | None,
        limits: HarnessRunLimits | None,
        concurrency: int,
    ) -> None:
        self.records: dict[str, EpisodeRecord] = {}
        self._factory = factory
        self._adapter = adapter
        self._model_step = model_step
        self._limits = limits
        self._tasks: dict[str, Any] = {}
        self._caller = UserCodeCaller(concurrency)

    def tasks_of(self, paired: Iterable[tuple[str, Any]], without: Iterable[str]) -> Iterator[Task]:
        """Yield a task for each missing episode; the harness is given the task of the pair."""
        for episode_id, task in paired:
            if episode_id not in without:
                self._tasks[episode_id] = task
                yield Task(id=episode_id)

    def begin(self, opening: EpisodeOpening) -> PolicyPlayer:
        """Refuse to play in a session of an environment."""
        raise TypeError(f"{self.name} play themselves: there is no player for {opening.rollout_id}")

    async def open(self) -> HarnessEpisodes:
        """Return a placeholder; a session begins only once its task is known."""
        return self

    async def close(self, session: HarnessEpisodes) -> None:
        """Do nothing: a session is closed after the episode."""

    async def play(
        self, session: Any, job: RolloutJob, config: EpisodeConfig, press: Callable[[str], None]
    ) -> tuple[Rollout, bool]:
        rollout = Rollout(id=job.id, group=job.group.key, failures=list(job.failures))
        attempt = _HarnessAttempt(episode_id_of(job.id), self._tasks[job.group.key])
        try:
            record = await self._caller(self._attempt, attempt)
        except Exception as error:
            failure = AttemptFailed(error, attempt.at, rollout)
            told = failure.record(is_retried=False)
            logger.warning("episode %s: %s: %s", attempt.episode_id, told.type, told.message)
            raise failure from error
        self.records[job.id] = record
        rollout.reward = record.reward
        return rollout, True

    def _attempt(self, attempt: _HarnessAttempt) -> EpisodeRecord:
        session = self._factory.create(attempt.task, episode_id=attempt.episode_id)
        attempt.at = "step"
        step = self._model_step
        build_step = None if step is None else lambda _: step
        rollout, verdict = play_session(session, self._adapter, build_step, self._limits)
        attempt.at = "score"
        return EpisodeRecord.from_rollout(attempt.episode_id, rollout, verdict, attempt.task)

    async def aclose(self) -> None:
        await asyncio.to_thread(self._caller.close, wait=True)


@dataclass
class _HarnessAttempt:
    episode_id: str
    task: Any
    at: Place = "open"


@dataclass
class _Counts:
    ids: list[str]
    rewards: list[float]
    collected: int = 0
    skipped: int = 0
    dropped: int = 0
    failed: int = 0

    def result(self) -> CollectResult:
        count = len(self.rewards)
        mean = math.fsum(self.rewards) / count if count else math.nan
        wins = sum(reward > 0 for reward in self.rewards) / count if count else math.nan
        return CollectResult(
            self.collected, self.skipped, self.dropped, self.failed, list(self.ids), mean, wins
        )


def _write_failure(path: Path, rollout: Rollout) -> None:
    told = {
        "episode_id": episode_id_of(rollout.id),
        "time": time.time(),
        "failures": [one.model_dump() for one in rollout.failures],
    }
    file = LineFile(path)
    try:
        file.cut_torn_line()
        file.append(to_json(told) + b"\n")
    finally:
        file.close()
