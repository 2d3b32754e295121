"""Samplers: which tasks the next groups of rollouts are of.

The protocol is that of RFC 013 ("Task Sampling and In-Training Evaluation", a draft of OpenEnv's).
A sampler runs beside the trainer, never in an environment, so no agent has a say in what it is
given.

    sampler = CurriculumSampler(load_tasks("tasks.jsonl"), group_size=8)
    while training:
        for task in sampler.sample(16):
            rewards = [play(task) for _ in range(8)]
            sampler.update(task, rewards)
        save(sampler.state_dict())

What a sampler gives depends on nothing but its arguments and what it was told, so that one which
is given the state of another goes on exactly where that was; see `TaskSampler.state_dict`.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
import math
import threading
from abc import abstractmethod
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from openenv.tasks.errors import TasksetError
from openenv.tasks.load import load_tasks
from openenv.tasks.permutation import Permutation
from openenv.tasks.rows import digest_of_parts
from openenv.tasks.task import Task
from openenv.tasks.taskset import Taskset

__all__ = [
    "Sampler",
    "SamplerCounters",
    "SequentialSampler",
    "ShuffledSampler",
    "TaskSampler",
    "UniformSampler",
    "WeightedSampler",
]

STATE_VERSION = 1


class TaskSampler(Protocol):
    """Chooses tasks. Only for typing: having the methods is enough.

    The methods may be called from any thread.
    """

    def sample(self, n: int) -> list[Task]:
        """Choose the tasks of the next `n` groups; fewer, or none, where there are no more."""
        ...

    def update(
        self, task: Task, rewards: Sequence[float | None], costs: Sequence[Any] | None = None
    ) -> None:
        """Tell what became of a group: all rollouts of one task.

        Args:
            task: The task.
            rewards: Of each rollout; None where it could not be scored, which is no failure.
            costs: What each rollout cost, in the trainer's unit: generated tokens, say.

        Raises:
            ValueError: A reward is not finite, or there are more costs than rewards, or fewer.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """What another sampler of the same tasks and arguments needs to go on from here, as values
        that JSON can carry.
        """
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another sampler was.

        Raises:
            TasksetError: It is of other tasks, or of a sampler with other arguments.
        """
        ...


class SamplerCounters:
    """What a sampler was told of the groups that it has given, in numbers.

    A group has signal where its rewards are not all the same: the advantage of GRPO (Shao et al.
    2024) is 0 throughout any other, and it teaches nothing.

    Attributes:
        groups: Groups with a reward.
        signal_groups: Those of them that have signal.
        unscored_groups: Groups of which no rollout could be scored.
        episodes: Rollouts.
        unscored_episodes: Those of them that could not be scored.
        cost: What they cost, in the trainer's unit; 1 each where it says nothing.
    """

    COUNTED = (
        "groups",
        "signal_groups",
        "unscored_groups",
        "episodes",
        "unscored_episodes",
        "cost",
    )

    def __init__(self) -> None:
        self.groups = self.signal_groups = self.unscored_groups = 0
        self.episodes = self.unscored_episodes = 0
        self.cost = 0.0

    def count(self, rewards: Sequence[float | None], costs: Sequence[float] | None) -> None:
        """Count a group."""
        scored = [reward for reward in rewards if reward is not None]
        self.episodes += len(rewards)
        self.unscored_episodes += len(rewards) - len(scored)
        self.cost += len(rewards) if costs is None else math.fsum(costs)
        if not scored:
            self.unscored_groups += 1
            return
        self.groups += 1
        self.signal_groups += min(scored) != max(scored)

    @property
    def zero_signal_fraction(self) -> float | None:
        """The share of groups without signal; None before the first."""
        return 1 - self.signal_groups / self.groups if self.groups else None

    @property
    def signal_groups_per_episode(self) -> float | None:
        """Groups with signal by rollouts; None before the first."""
        return self.signal_groups / self.episodes if self.episodes else None

    @property
    def signal_groups_per_cost(self) -> float | None:
        """Groups with signal by what everything has cost; None while that is nothing."""
        return self.signal_groups / self.cost if self.cost else None


class Sampler(SamplerCounters):
    """What all samplers have. Subclass it and write `_draw`.

    Args:
        tasks: The tasks, or whatever `load_tasks` takes.

    Attributes:
        tasks: The tasks.
    """

    needs_length: ClassVar[bool] = True

    def __init__(self, tasks: Any) -> None:
        super().__init__()
        self.tasks: Taskset = tasks if isinstance(tasks, Taskset) else load_tasks(tasks)
        self._turn = threading.RLock()
        if self.needs_length and len(self.tasks) == 0:
            raise TasksetError(self.tasks.name, None, f"has no tasks for a {type(self).__name__}")

    # ------------------------------------------------------------------ what a subclass writes

    @abstractmethod
    def _draw(self) -> Task | None:
        """The next task; None where there are no more. It is called in turn."""

    def _settings(self) -> dict[str, Any]:
        """The arguments that decide what it gives."""
        return {}

    def _position(self) -> dict[str, Any]:
        """Where it stands, as values that JSON can carry."""
        return {}

    def _go_to(self, position: Mapping[str, Any]) -> None:
        """Stand where `_position` says."""

    def _learn(self, task: Task, rewards: Sequence[float], costs: Sequence[float] | None) -> None:
        """Take in the rewards of those rollouts of a task that were scored."""

    def _costs(self, task: Task, costs: Sequence[Any] | None) -> list[float] | None:
        return None if costs is None else [_cost(one) for one in costs]

    # ------------------------------------------------------------------ what callers see

    def sample(self, n: int) -> list[Task]:
        """Choose the tasks of the next `n` groups; fewer, or none, where there are no more."""
        if n < 0:
            raise ValueError(f"n={n}; expected a number of tasks from 0")
        with self._turn:
            drawn = (self._draw() for _ in range(n))
            return list(itertools.takewhile(lambda task: task is not None, drawn))  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Task]:
        """The tasks one after the other, as `sample` gives them."""
        while found := self.sample(1):
            yield found[0]

    def update(
        self, task: Task, rewards: Sequence[float | None], costs: Sequence[Any] | None = None
    ) -> None:
        """Tell what became of a group: all rollouts of one task; see `TaskSampler.update`."""
        for reward in rewards:
            if reward is not None and not math.isfinite(reward):
                why = f"a reward of task {task.id!r} is {reward}"
                raise ValueError(f"{why}; expected a finite number, or None for not scored")
        if costs is not None and len(costs) != len(rewards):
            raise ValueError(f"{len(costs)} costs for {len(rewards)} rewards of task {task.id!r}")
        numbers = self._costs(task, costs)
        with self._turn:
            scored = [float(reward) for reward in rewards if reward is not None]
            self._learn(task, scored, numbers)
            self.count(rewards, numbers)

    def state_dict(self) -> dict[str, Any]:
        """What another sampler of the same tasks and arguments needs to go on from here, as values
        that JSON can carry. It may be taken at any time.
        """
        with self._turn:
            return {
                "version": STATE_VERSION,
                "sampler": type(self).__name__,
                "taskset": self.tasks.fingerprint,
                "settings": self._settings(),
                "position": self._position(),
                "counters": {name: getattr(self, name) for name in self.COUNTED},
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another sampler was; see `TaskSampler.load_state_dict`."""
        expected = {
            "version": STATE_VERSION,
            "sampler": type(self).__name__,
            "taskset": self.tasks.fingerprint,
            "settings": self._settings(),
        }
        for name, mine in expected.items():
            if state.get(name) != mine:
                given = f"{state.get(name)!r:.200}"
                why = f"the state is of another {name}: {given}, and this is {mine!r:.200}"
                raise TasksetError(self.tasks.name, None, why)
        with self._turn:
            self._go_to(state["position"])
            for name in self.COUNTED:
                setattr(self, name, state["counters"][name])

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.tasks!r}>"


def _cost(value: Any) -> float:
    number = float(value)
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"a cost is {value!r}; expected a finite number from 0")
    return number


def chance(seed: int, *counts: Any) -> float:
    """A number from 0 to below 1 that depends on the seed and what it is the chance of."""
    text = ":".join(map(str, (seed, *counts))).encode()
    bits = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
    return (bits >> 11) / 2**53


# ------------------------------------------------------------------ in order


class SequentialSampler(Sampler):
    """Gives every task in its order, and with every seed where there are seeds; for evaluation.

    Args:
        tasks: The tasks, or whatever `load_tasks` takes. They may be a `TaskStream`.
        seeds: Each task is given once with each of them: its `reset` then has the argument `seed`.
        epochs: How often all of it is given; None is without end.

    Raises:
        ValueError: There are no seeds in `seeds`, or `epochs` is below 1.
        TasksetError: A task fixes a seed of its own, and there are others in `seeds`.
    """

    needs_length = False

    def __init__(
        self, tasks: Any, seeds: Sequence[int] | None = None, *, epochs: int | None = 1
    ) -> None:
        super().__init__(tasks)
        if seeds is not None and not seeds:
            raise ValueError("seeds=[]: expected at least one, or None")
        self._seeds = None if seeds is None else [int(seed) for seed in seeds]
        self._epochs = _checked_epochs(epochs)
        self._drawn = 0  # of the tasks of this epoch, each with each seed
        self._epoch = 0

    def _draw(self) -> Task | None:
        while self._epochs is None or self._epoch < self._epochs:
            position, which = divmod(self._drawn, len(self._seeds or (None,)))
            task = self.tasks.at(position)
            if task is None:
                if self._drawn == 0:  # there is not even a first one
                    return None
                self._epoch, self._drawn = self._epoch + 1, 0
                continue
            self._drawn += 1
            return task if self._seeds is None else self._seeded(task, self._seeds[which])
        return None

    def _seeded(self, task: Task, seed: int) -> Task:
        own = task.reset.get("seed")
        if own not in (None, seed):
            why = f"task {task.id!r} fixes the seed {own}, so it cannot be given with {seed}"
            raise TasksetError(self.tasks.name, None, why)
        return task.model_copy(update={"reset": {**task.reset, "seed": seed}})

    def _settings(self) -> dict[str, Any]:
        return {"seeds": self._seeds, "epochs": self._epochs}

    def _position(self) -> dict[str, Any]:
        return {"epoch": self._epoch, "drawn": self._drawn}

    def _go_to(self, position: Mapping[str, Any]) -> None:
        self._epoch, self._drawn = position["epoch"], position["drawn"]


def _checked_epochs(epochs: int | None) -> int | None:
    if epochs is not None and epochs < 1:
        raise ValueError(f"epochs={epochs}; expected a number from 1, or None for no end")
    return epochs


# ------------------------------------------------------------------ by chance


class ShuffledSampler(Sampler):
    """Gives every task once an epoch, in an order that the seed and the epoch decide.

    The order is computed place by place (`openenv.tasks.permutation`), so that of a million tasks
    neither the sampler nor its state holds more than of ten.

    Args:
        tasks: The tasks, or whatever `load_tasks` takes.
        seed: Decides the order.
        epochs: How often every task is given; None is without end.

    Raises:
        ValueError: `epochs` is below 1.
        TasksetError: There are no tasks.
    """

    def __init__(self, tasks: Any, seed: int = 0, *, epochs: int | None = None) -> None:
        super().__init__(tasks)
        self._seed = seed
        self._epochs = _checked_epochs(epochs)
        self._go_to({"epoch": 0, "drawn": 0})

    def _draw(self) -> Task | None:
        if self._drawn == len(self.tasks):
            self._go_to({"epoch": self._epoch + 1, "drawn": 0})
        if self._epochs is not None and self._epoch >= self._epochs:
            return None
        task = self.tasks[self._order[self._drawn]]
        self._drawn += 1
        return task

    def _settings(self) -> dict[str, Any]:
        return {"seed": self._seed, "epochs": self._epochs}

    def _position(self) -> dict[str, Any]:
        return {"epoch": self._epoch, "drawn": self._drawn}

    def _go_to(self, position: Mapping[str, Any]) -> None:
        self._epoch: int = position["epoch"]
        self._drawn: int = position["drawn"]
        self._order = Permutation(len(self.tasks), f"{self._seed}:{self._epoch}")


class UniformSampler(ShuffledSampler):
    """The name that RFC 013 gives to `ShuffledSampler`: without replacement, by epochs."""


class WeightedSampler(Sampler):
    """Gives tasks by chance, each time from all of them, as their weights have it.

    Args:
        tasks: The tasks, or whatever `load_tasks` takes.
        weights: A number from 0 for each task; or a function that gives it for a task.
        seed: Decides what is drawn.
        num_samples: How many are given; None is without end.

    Raises:
        ValueError: There are not as many weights as tasks, one is negative or not finite, or all
            are 0.
        TasksetError: There are no tasks.
    """

    def __init__(
        self,
        tasks: Any,
        weights: Sequence[float] | Callable[[Task], float],
        seed: int = 0,
        *,
        num_samples: int | None = None,
    ) -> None:
        super().__init__(tasks)
        self._seed = seed
        self._num_samples = num_samples
        self._drawn = 0
        given = map(weights, self.tasks) if callable(weights) else iter(weights)
        numbers = array("d", given)
        self._ends = array("d", itertools.accumulate(numbers))
        if len(numbers) != len(self.tasks):
            raise ValueError(f"{len(numbers)} weights for {len(self.tasks)} tasks")
        if not all(weight >= 0 for weight in numbers) or not math.isfinite(self._ends[-1]):
            raise ValueError("weights: expected finite numbers from 0")
        if self._ends[-1] == 0:
            raise ValueError("weights: all are 0, so nothing can be drawn")
        self._digest = digest_of_parts(numbers.tolist())

    def _draw(self) -> Task | None:
        if self._num_samples is not None and self._drawn >= self._num_samples:
            return None
        point = chance(self._seed, self._drawn) * self._ends[-1]
        self._drawn += 1
        last = bisect.bisect_left(self._ends, self._ends[-1])  # those after it weigh nothing
        return self.tasks[min(bisect.bisect_right(self._ends, point), last)]

    def _settings(self) -> dict[str, Any]:
        return {"seed": self._seed, "num_samples": self._num_samples, "weights": self._digest}

    def _position(self) -> dict[str, Any]:
        return {"drawn": self._drawn}

    def _go_to(self, position: Mapping[str, Any]) -> None:
        self._drawn = position["drawn"]
