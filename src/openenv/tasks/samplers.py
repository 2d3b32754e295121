"""Samplers, which decide the tasks that a trainer plays next.

The protocol follows RFC 013 ("Task Sampling and In-Training Evaluation", a draft of OpenEnv's). A
sampler runs in the trainer, never in an environment, so agents cannot influence the choice.

    sampler = CurriculumSampler(load_tasks("tasks.jsonl"), group_size=8)
    while training:
        for task in sampler.sample(16):
            rewards = [play(task) for _ in range(8)]
            sampler.update(task, rewards)
        save(sampler.state_dict())

A sampler's choices depend only on its arguments and on the results that `update` received. A
sampler that loads the state of another sampler therefore continues exactly where the other one
stopped; see `TaskSampler.state_dict`.
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
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Protocol

from openenv.tasks.load import load_tasks
from openenv.tasks.permutation import Permutation
from openenv.tasks.rows import digest_of_parts
from openenv.tasks.task import Task, TasksetError
from openenv.tasks.taskset import Taskset

STATE_VERSION = 1


class TaskSampler(Protocol):
    """A sampler of tasks. For typing only; a sampler need not inherit from it.

    The methods may be called from any thread.
    """

    def sample(self, n: int) -> list[Task]:
        """Return the tasks of the next `n` groups. At the end there are fewer or none."""
        ...

    def update(
        self, task: Task, rewards: Sequence[float | None], costs: Sequence[Any] | None = None
    ) -> None:
        """Report the result of a group, that is, of all rollouts of a task.

        Args:
            task: The task.
            rewards: The reward of each rollout; None if a rollout could not be scored, which does
                not count as a failure.
            costs: The cost of each rollout in the trainer's unit, such as generated tokens.

        Raises:
            ValueError: A reward is not finite, a cost is negative or not finite, or the number of
                costs differs from the number of rewards.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return the sampler's state as JSON data.

        A sampler with the same tasks and arguments can continue from the state.
        """
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of another sampler.

        Raises:
            TasksetError: The state belongs to other tasks, or to a sampler with other arguments.
        """
        ...


@dataclass(eq=False, repr=False)
class SamplerCounters:
    """Counters of the results that a sampler received.

    A group has signal if its rewards differ. In a group without signal GRPO's advantages (Shao et
    al. 2024) are 0, so the policy learns nothing from the group.

    Attributes:
        groups: Groups with at least one scored rollout.
        signal_groups: Groups with signal.
        unscored_groups: Groups without a scored rollout.
        episodes: Rollouts in all groups.
        unscored_episodes: Rollouts that could not be scored.
        cost: Total cost of the rollouts in the trainer's unit, or 1 per rollout if costs are not
            given.
    """

    groups: int = 0
    signal_groups: int = 0
    unscored_groups: int = 0
    episodes: int = 0
    unscored_episodes: int = 0
    cost: float = 0.0

    def count(self, rewards: Sequence[float | None], costs: Sequence[float] | None) -> None:
        """Count the results of a group."""
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
        """The share of scored groups without signal; None before the first scored group."""
        return 1 - self.signal_groups / self.groups if self.groups else None

    @property
    def signal_groups_per_episode(self) -> float | None:
        """Groups with signal per rollout; None before the first rollout."""
        return self.signal_groups / self.episodes if self.episodes else None

    @property
    def signal_groups_per_cost(self) -> float | None:
        """Groups with signal per unit of cost; None while the cost is 0."""
        return self.signal_groups / self.cost if self.cost else None


COUNTED = tuple(one.name for one in fields(SamplerCounters))


class Sampler(SamplerCounters):
    """Base class of samplers. A subclass implements `_draw`.

    Args:
        tasks: A taskset, or any source that `load_tasks` accepts.

    Attributes:
        tasks: The taskset.
    """

    needs_length: ClassVar[bool] = True

    def __init__(self, tasks: Any) -> None:
        super().__init__()
        self.tasks: Taskset = tasks if isinstance(tasks, Taskset) else load_tasks(tasks)
        self._turn = threading.RLock()
        if self.needs_length and len(self.tasks) == 0:
            raise TasksetError(self.tasks.name, None, f"has no tasks for a {type(self).__name__}")

    # ------------------------------------------------------------------ overridden by subclasses

    @abstractmethod
    def _draw(self) -> Task | None:
        """Return the next task, or None at the end. The caller holds the sampler's lock."""

    def _settings(self) -> dict[str, Any]:
        """Return the arguments that affect the choices, as JSON data."""
        return {}

    def _position(self) -> dict[str, Any]:
        """Return the sampler's position, as JSON data."""
        return {}

    def _go_to(self, position: Mapping[str, Any]) -> None:
        """Move to a position that `_position` returned."""

    def _learn(self, task: Task, rewards: Sequence[float], costs: Sequence[float] | None) -> None:
        """Learn from the rewards of the scored rollouts of a task."""

    def _costs(self, task: Task, costs: Sequence[Any] | None) -> list[float] | None:
        return None if costs is None else [_cost(one) for one in costs]

    # ------------------------------------------------------------------ called by trainers

    def sample(self, n: int) -> list[Task]:
        """Return the tasks of the next `n` groups. At the end there are fewer or none."""
        if n < 0:
            raise ValueError(f"n={n}; expected a number of tasks from 0")
        with self._turn:
            drawn = (self._draw() for _ in range(n))
            return list(itertools.takewhile(lambda task: task is not None, drawn))  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Task]:
        """Iterate over the tasks that `sample` chooses, one at a time."""
        while found := self.sample(1):
            yield found[0]

    def update(
        self, task: Task, rewards: Sequence[float | None], costs: Sequence[Any] | None = None
    ) -> None:
        """Report the result of a group; see `TaskSampler.update`."""
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
        """Return the sampler's state as JSON data; see `TaskSampler.state_dict`.

        The method may be called at any time.
        """
        with self._turn:
            counters = {name: getattr(self, name) for name in COUNTED}
            return {**self._identity(), "position": self._position(), "counters": counters}

    def _identity(self) -> dict[str, Any]:
        """Return the part of a state that must be equal in a sampler that loads the state."""
        return {
            "version": STATE_VERSION,
            "sampler": type(self).__name__,
            "taskset": self.tasks.fingerprint,
            "settings": self._settings(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of another sampler; see `TaskSampler.load_state_dict`."""
        for name, mine in self._identity().items():
            if state.get(name) != mine:
                given = f"{state.get(name)!r:.200}"
                why = f"the state has another {name}: {given}, expected {mine!r:.200}"
                raise TasksetError(self.tasks.name, None, why)
        with self._turn:
            self._go_to(state["position"])
            for name in COUNTED:
                setattr(self, name, state["counters"][name])

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.tasks!r}>"


def _cost(value: Any) -> float:
    number = float(value)
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"a cost is {value!r}; expected a finite number from 0")
    return number


def _random_fraction(seed: int, *counts: Any) -> float:
    """Return a pseudorandom number in [0, 1), given by the seed and the counts."""
    text = ":".join(map(str, (seed, *counts))).encode()
    bits = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
    return (bits >> 11) / 2**53


# ------------------------------------------------------------------ in order


class SequentialSampler(Sampler):
    """A sampler for evaluation that returns every task in order, once for each seed.

    Args:
        tasks: A taskset, which may be a `TaskStream`, or any source that `load_tasks` accepts.
        seeds: Seeds to use for each task, as the argument `seed` of `reset`. By default each task
            is returned once, unchanged.
        epochs: Number of passes over the tasks; None repeats without end. Default: 1.

    Raises:
        ValueError: `seeds` is empty, or `epochs` is less than 1.
        TasksetError: A task fixes its own seed, and `seeds` has another one; raised by `sample`.
    """

    needs_length = False

    def __init__(
        self, tasks: Any, seeds: Sequence[int] | None = None, *, epochs: int | None = 1
    ) -> None:
        super().__init__(tasks)
        if seeds is not None and not seeds:
            raise ValueError("seeds=[]: expected at least one, or None")
        self._seeds = None if seeds is None else [int(seed) for seed in seeds]
        self._epochs = _check_epochs(epochs)
        self._drawn = 0  # draws in this epoch: tasks times seeds
        self._epoch = 0

    def _draw(self) -> Task | None:
        while self._epochs is None or self._epoch < self._epochs:
            position, which = divmod(self._drawn, len(self._seeds or (None,)))
            task = self.tasks.at(position)
            if task is None:
                if self._drawn == 0:  # no tasks at all
                    return None
                self._epoch, self._drawn = self._epoch + 1, 0
                continue
            self._drawn += 1
            return task if self._seeds is None else self._with_seed(task, self._seeds[which])
        return None

    def _with_seed(self, task: Task, seed: int) -> Task:
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


def _check_epochs(epochs: int | None) -> int | None:
    if epochs is not None and epochs < 1:
        raise ValueError(f"epochs={epochs}; expected a number from 1, or None for no end")
    return epochs


# ------------------------------------------------------------------ at random


class ShuffledSampler(Sampler):
    """A sampler that returns every task once per epoch, in a random order for each epoch.

    The seed and the epoch determine the order, which is computed position by position
    (`openenv.tasks.permutation`). Neither the sampler nor its state grows with the number of tasks.

    Args:
        tasks: A taskset, or any source that `load_tasks` accepts.
        seed: Seed of the order.
        epochs: Number of passes over the tasks; None, the default, repeats without end.

    Raises:
        ValueError: `epochs` is less than 1.
        TasksetError: There are no tasks.
    """

    def __init__(self, tasks: Any, seed: int = 0, *, epochs: int | None = None) -> None:
        super().__init__(tasks)
        self._seed = seed
        self._epochs = _check_epochs(epochs)
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
    """`ShuffledSampler` by the name of RFC 013, which draws without replacement in each epoch."""


class WeightedSampler(Sampler):
    """A sampler that draws tasks with replacement, in proportion to weights.

    Args:
        tasks: A taskset, or any source that `load_tasks` accepts.
        weights: A non-negative weight for each task, or a function that returns a task's weight.
        seed: Seed of the draws.
        num_samples: Number of draws; None draws without end.

    Raises:
        ValueError: The number of weights differs from the number of tasks, a weight is negative or
            not finite, or all weights are 0.
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
        point = _random_fraction(self._seed, self._drawn) * self._ends[-1]
        self._drawn += 1
        last = bisect.bisect_left(self._ends, self._ends[-1])  # tasks after it have weight 0
        return self.tasks[min(bisect.bisect_right(self._ends, point), last)]

    def _settings(self) -> dict[str, Any]:
        return {"seed": self._seed, "num_samples": self._num_samples, "weights": self._digest}

    def _position(self) -> dict[str, Any]:
        return {"drawn": self._drawn}

    def _go_to(self, position: Mapping[str, Any]) -> None:
        self._drawn = position["drawn"]
