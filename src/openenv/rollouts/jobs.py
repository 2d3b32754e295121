"""The queue of a run: rollouts of tasks, in groups of samples.

Tasks are taken from their source as places become free, so there may be any number of tasks. The
ids of a taskset are unique and need not be remembered. The ids from an iterator or a sampler are
remembered: if a task comes again, its rollouts get an epoch, as in ``train/3.1#0``.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field
from typing import Any

from openenv.rollouts.calls import UserCodeCaller
from openenv.rollouts.records import Failure
from openenv.tasks.task import Task

SEED_BITS = 31  # every random number generator accepts seeds of this size


def derived_seed(*of: Any) -> int:
    """Derive a seed from other seeds and names; it does not reveal them."""
    digest = hashlib.blake2b(json.dumps(of).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - SEED_BITS)


@dataclass
class RolloutJob:
    """A rollout to play.

    Attributes:
        failures: The failures so far, those of earlier runs included.
        attempts: Number of failed attempts in this run.
    """

    id: str
    group: SampleGroup
    sample: int
    policy_seed: int
    failures: list[Failure] = field(default_factory=list)
    attempts: int = 0

    @property
    def task(self) -> Task | None:
        """The task; None if the run has no tasks."""
        return self.group.task

    @property
    def seed(self) -> int | None:
        """The seed with which the environment is reset."""
        return self.group.seed


@dataclass(eq=False)
class SampleGroup:
    """The samples of one task and seed.

    Attributes:
        key: The task's id, followed by the epoch if it is above 0; without a task, the seed.
        epoch: How many times the task was played before.
    """

    key: str
    task: Task | None
    seed: int | None
    epoch: int = 0


class TaskFeed:
    """Supplies tasks one at a time, in the order of an iterable.

    Subclasses may learn from the rewards, as `openenv.rollouts.samplers.SamplerFeed` does.

    Attributes:
        total: Number of tasks; None if unknown.
        settings: Settings that a resumed run must match to have the same tasks.
        has_unique_ids: True if no task comes twice, so that ids need not be remembered.
    """

    def __init__(self, tasks: Iterable[Any]) -> None:
        is_counted = isinstance(tasks, Sized) and getattr(tasks, "is_finite", True)
        self.total: int | None = len(tasks) if is_counted else None  # type: ignore[arg-type]
        self.settings: Mapping[str, Any] = {}
        self.has_unique_ids = False
        self._tasks: Iterator[Any] = iter(tasks)
        self._taken = 0

    def open(self, *, is_resumed: bool) -> None:
        """Begin, once the run's file is locked; for a resumed run, once `found_group` has been
        called for the groups in the file.

        Raises:
            RolloutFileError: Data that the resumption needs is missing or damaged.
        """

    def take(self) -> Task | None:
        """Return the next task; None after the last."""
        for given in self._tasks:
            self._taken += 1
            return as_task(given, self._taken)
        return None

    def began(self, group: SampleGroup) -> None:
        """Note the group that was made from a task."""

    def found_group(self, key: str, rewards: list[float | None], costs: list[float] | None) -> None:
        """Note the results of a complete group that an earlier run has written."""

    def ended(
        self, group: SampleGroup, rewards: list[float | None], costs: list[float] | None
    ) -> None:
        """Learn from the results of a group."""

    def settle(self) -> None:
        """Note that no more tasks will be taken."""

    def close(self) -> None:
        """Close the files of the feed."""


class SeedFeed(TaskFeed):
    """A number of seeds without tasks; each is a group."""

    def __init__(self, count: int) -> None:
        super().__init__(())
        self.total = count


def as_task(given: Any, number: int) -> Task:
    """Return a task from a `Task` or from a mapping of its fields."""
    if isinstance(given, Task):
        return given
    if isinstance(given, Mapping):
        return Task.model_validate(dict(given))
    raise TypeError(f"task {number} is {given!r:.100}; expected a Task, or a mapping of its fields")


class RolloutPlan:
    """Creates the rollouts of each task.

    Args:
        feed: Supplies the tasks.
        samples: Number of rollouts of each task.
        seed: The seed from which all seeds are derived.
        most: Maximum number of groups; None for all.
        done: Ids of rollouts to skip; each id is removed once it has come.
    """

    def __init__(
        self, feed: TaskFeed, samples: int, seed: int, most: int | None, done: set[str]
    ) -> None:
        self._feed = feed
        self._samples = samples
        self._seed = seed
        self._most = most
        self._done = done
        self._times: Counter[str] = Counter()
        self._groups = 0
        self._ready: deque[RolloutJob] = deque()

    @property
    def total(self) -> int | None:
        """Number of rollouts, finished ones included; None if unknown."""
        groups = self._feed.total
        if self._most is not None:
            groups = self._most if groups is None else min(groups, self._most)
        return None if groups is None else groups * self._samples

    def take(self) -> RolloutJob | None:
        """Return the next rollout; None after the last."""
        while not self._ready:
            group = self._group()
            if group is None:
                return None
            self._feed.began(group)
            for sample in range(self._samples):
                name = f"{group.key}#{sample}"
                if name in self._done:
                    self._done.discard(name)  # to save memory: the id does not come again
                else:
                    chance = derived_seed(self._seed, "policy", name)
                    self._ready.append(RolloutJob(name, group, sample, chance))
        return self._ready.popleft()

    def _group(self) -> SampleGroup | None:
        if self._most is not None and self._groups >= self._most:
            self._feed.settle()
            return None
        number = self._groups
        if isinstance(self._feed, SeedFeed):
            if number >= (self._feed.total or 0):
                return None
            self._groups += 1
            seed = self._seed + number
            return SampleGroup(str(seed), None, seed)
        task = self._feed.take()
        if task is None:
            return None
        self._groups += 1
        epoch = self._times[task.id]
        if not self._feed.has_unique_ids:
            self._times[task.id] += 1
        key = task.id if not epoch else f"{task.id}.{epoch}"
        own = task.reset.get("seed")
        return SampleGroup(
            key, task, own if isinstance(own, int) else derived_seed(self._seed, key), epoch
        )


class RolloutQueue:
    """The rollouts of a run: taken, put back after a failed attempt, ended.

    Args:
        plan: Creates the rollouts.
        failures: The failures of earlier runs, by rollout id.

    Attributes:
        over: Set once no rollout is left, now or later.
    """

    def __init__(self, plan: RolloutPlan, failures: Mapping[str, list[Failure]]) -> None:
        self._plan = plan
        self._failures = dict(failures)
        self._ready: deque[RolloutJob] = deque()
        self._again: deque[RolloutJob] = deque()
        self._is_exhausted = self._is_stopped = False
        self._caller = UserCodeCaller(1)
        self._turn = asyncio.Lock()
        self._changed = asyncio.Condition()
        self.running = 0
        self.over = asyncio.Event()

    async def wanted(self, others: Callable[[], int]) -> bool:
        """Wait until more rollouts are ready than `others()`, the number about to be taken by
        others; return False if that will never be.
        """
        while not self.over.is_set():
            if len(self._ready) + len(self._again) > others():
                return True
            if await self._more():
                continue
            async with self._changed:
                is_ready = len(self._ready) + len(self._again) > others()
                if not (self.over.is_set() or is_ready):
                    await self._changed.wait()
        return False

    async def take(self) -> RolloutJob | None:
        """Take a rollout that is ready; return None if there is none now."""
        if self.over.is_set():
            return None
        if not self._again and not self._ready:
            await self._more()
        queue = self._again or self._ready
        if not queue:
            return None
        self.running += 1
        return queue.popleft()

    async def _more(self) -> bool:
        async with self._turn:
            if self._is_exhausted:
                return False
            job = await self._caller(self._plan.take)
            if self._is_stopped:  # meanwhile
                return False
            if job is None:
                self._is_exhausted = True
                await self._changed_now()
                return False
            job.failures = self._failures.pop(job.id, [])
            self._ready.append(job)
            return True

    async def learn(self, what: Callable[..., object], *arguments: Any) -> None:
        """Call a method of the feed while no task is taken from the plan."""
        async with self._turn:
            await self._caller(what, *arguments)

    async def put_back(self, job: RolloutJob) -> None:
        """Queue a rollout for another attempt. After a stop it is left to a resumed run."""
        self.running -= 1
        if not self._is_stopped:
            self._again.append(job)
        await self._changed_now()

    async def end(self) -> None:
        """Note that a rollout is over."""
        self.running -= 1
        if not self.running and self._is_exhausted:
            await self._changed_now()

    async def stop(self) -> None:
        """Let no more rollouts begin."""
        self._is_exhausted = self._is_stopped = True
        self._ready.clear()
        self._again.clear()
        await self._changed_now()

    async def _changed_now(self) -> None:
        if self._is_exhausted and not (self._ready or self._again or self.running):
            self.over.set()
        async with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """End the thread of the plan."""
        self._caller.close()
