"""A curriculum sampler, which prefers tasks that the policy solves sometimes, not always or never.

Invariant: samplers with equal histories draw equal tasks. Weights are therefore whole numbers,
whose sums do not depend on the order of addition, and a draw hashes the seed and a counter instead
of using a random generator. Drawing and updating take O(log keys) with two Fenwick trees: one holds
the weights of known keys, the other counts the unknown keys.
"""

from __future__ import annotations

import hashlib
import math
from array import array
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from openenv.tasks.permutation import Permutation
from openenv.tasks.rows import digest_of_parts
from openenv.tasks.samplers import Sampler
from openenv.tasks.task import Task, TasksetError

# A weight of 1.0 as a whole number. Sums of whole numbers do not depend on the order of addition,
# so a sampler that continues from a state draws the tasks that the original would have drawn.
UNIT = 2**40
PRIOR = 1.0  # Beta(1, 1), the uniform distribution


def signal_probability(success: float, group_size: int) -> float:
    """Return the probability that the rewards of a group differ: ``1 - p^G - (1 - p)^G`` (RFC 013).

    Args:
        success: The probability p that a rollout succeeds.
        group_size: The number G of rollouts in the group.
    """
    return float(1 - success**group_size - (1 - success) ** group_size)


class CurriculumSampler(Sampler):
    """A sampler that draws tasks in proportion to expected signal per cost.

    If all rollouts of a group succeed, or all fail, GRPO's advantages are 0. DAPO (Yu et al. 2025,
    arXiv:2503.14476, section 3.2) discards such groups and samples further groups. This sampler
    draws tasks that lead to such groups less often. For each `key` of tasks the sampler keeps a
    Beta posterior of the success rate, and the mean cost of a rollout, both decayed so that they
    follow the policy as it learns. A key is drawn in proportion to

        (1 - p^G - (1 - p)^G + epsilon) / cost

    and within a key, every task is drawn once before any is repeated. A key without results has p =
    0.5 and the mean cost of the other keys, so that every key is tried early. The formula is from
    RFC 013 ("Task Sampling and In-Training Evaluation"), section "CurriculumSampler".

    Args:
        tasks: A taskset, or any source that `load_tasks` accepts.
        group_size: The number G of rollouts in a group, at least 2.
        key: How tasks are grouped: ``difficulty``, ``group`` or ``id``, or a function that returns
            a task's key. By default the first of these fields that every task has.
        cost: ``episodes`` if every rollout costs the same. Otherwise the unit of the costs that
            `update` must receive, such as ``tokens``; or a function that computes a cost from a
            task and the value that `update` received.
        success_threshold: Minimum reward of a successful rollout. Default: 1.0.
        decay: Share of older evidence that remains after each group of a key, from 0 to 1.
        epsilon: Weight added to every key, so that keys without expected signal are still drawn;
            greater than 0.
        seed: Seed of the draws.

    Raises:
        ValueError: An argument is out of range or `key` is unknown.
        TasksetError: There are no tasks, or a task lacks the `key`.
    """

    def __init__(
        self,
        tasks: Any,
        group_size: int,
        key: str | Callable[[Task], Hashable] | None = None,
        cost: str | Callable[[Task, Any], float] = "episodes",
        *,
        success_threshold: float = 1.0,
        decay: float = 0.9,
        epsilon: float = 0.05,
        seed: int = 0,
    ) -> None:
        super().__init__(tasks)
        if group_size < 2:
            raise ValueError(f"group_size={group_size}; expected 2 or more rollouts of a task")
        if not 0 <= decay <= 1:
            raise ValueError(f"decay={decay}; expected a number from 0 to 1")
        if not (math.isfinite(epsilon) and epsilon > 0):
            raise ValueError(f"epsilon={epsilon}; expected a number above 0")
        self._group_size = group_size
        self._cost = cost
        self._success_threshold = success_threshold
        self._decay = decay
        self._epsilon = epsilon
        self._seed = seed
        self._keys = _TaskKeys(self.tasks, key)
        self._go_to({"drawn": 0, "keys": {}})

    # ------------------------------------------------------------------ drawing

    def _draw(self) -> Task | None:
        unknown = self._weight(0.5, self._mean_cost())
        known, total = self._known.total, self._known.total + unknown * self._unknown.total
        point = _random_below(self._seed, self._drawn, total)
        if point < known:
            key = self._known.at(point)
        else:
            key = self._unknown.at((point - known) // unknown)
        self._drawn += 1
        return self.tasks[self._next_task_of(key)]

    def _next_task_of(self, key: int) -> int:
        """Return the position of the key's next task, and count the draw."""
        taken = self._taken.get(key, 0)
        self._taken[key] = taken + 1
        count = self._keys.count(key)
        times, place = divmod(taken, count)
        order = Permutation(count, f"{self._seed}:{key}:{times}")
        return self._keys.task(key, order[place])

    def _weight(self, success: float, cost: float) -> int:
        promise = signal_probability(success, self._group_size) + self._epsilon
        return max(1, round(promise / cost * UNIT))

    def _mean_cost(self) -> float:
        return self._cost_sum / len(self._costs_known) / UNIT if self._costs_known else 1.0

    # ------------------------------------------------------------------ learning

    def _costs(self, task: Task, costs: Sequence[Any] | None) -> list[float] | None:
        if callable(self._cost):
            if costs is None:
                raise ValueError("costs: expected a value for the function `cost` for each rollout")
            costs = [self._cost(task, one) for one in costs]
        elif self._cost != "episodes" and costs is None:
            raise ValueError(f"costs: expected a number of {self._cost} for each rollout")
        return super()._costs(task, costs)

    def _learn(self, task: Task, rewards: Sequence[float], costs: Sequence[float] | None) -> None:
        key = self._keys.key_of(task)
        if costs and self._cost != "episodes":
            self._learn_cost(key, math.fsum(costs) / len(costs))
        if rewards:
            won = sum(reward >= self._success_threshold for reward in rewards)
            wins, losses = self._record.get(key, (0.0, 0.0))
            self._record[key] = (
                self._decay * wins + won,
                self._decay * losses + len(rewards) - won,
            )
        self._update_weight(key)

    def _learn_cost(self, key: int, cost: float) -> None:
        if cost == 0:  # for example, nothing was generated: says nothing about the usual cost
            return
        before = self._costs_known.get(key)
        after = cost if before is None else self._decay * before + (1 - self._decay) * cost
        self._costs_known[key] = after
        self._cost_sum += round(after * UNIT) - (0 if before is None else round(before * UNIT))

    def _update_weight(self, key: int) -> None:
        """Set a key's weight from its results; a key without results stays unknown."""
        if key not in self._record:
            return
        # The cost is unknown if all rollouts of the key cost 0, or if costs are not counted.
        cost = self._costs_known.get(key) or self._mean_cost()
        self._known.set(key, self._weight(self.success_rate(key), cost))
        self._unknown.set(key, 0)

    def success_rate(self, key: int) -> float:
        """Return the posterior mean of a key's success rate."""
        wins, losses = self._record.get(key, (0.0, 0.0))
        return (wins + PRIOR) / (wins + losses + 2 * PRIOR)

    def rates(self) -> dict[Any, float]:
        """Return the estimated success rate of every key with results."""
        with self._turn:
            return {self._keys.name(key): self.success_rate(key) for key in sorted(self._record)}

    # ------------------------------------------------------------------ state

    def _settings(self) -> dict[str, Any]:
        return {
            "group_size": self._group_size,
            "key": self._keys.kind,
            "keys": self._keys.digest,
            "cost": "function" if callable(self._cost) else self._cost,
            "success_threshold": self._success_threshold,
            "decay": self._decay,
            "epsilon": self._epsilon,
            "seed": self._seed,
        }

    def _position(self) -> dict[str, Any]:
        seen = sorted({*self._taken, *self._record, *self._costs_known})
        return {
            "drawn": self._drawn,
            "keys": {
                str(key): [
                    self._taken.get(key, 0),
                    *(self._record.get(key) or (None, None)),
                    self._costs_known.get(key),
                    self._known.get(key) or None,
                ]
                for key in seen
            },
        }

    def _go_to(self, position: Mapping[str, Any]) -> None:
        self._drawn: int = position["drawn"]
        self._taken: dict[int, int] = {}
        self._record: dict[int, tuple[float, float]] = {}
        self._costs_known: dict[int, float] = {}
        self._cost_sum = 0
        self._known = _FenwickTree(len(self._keys))
        self._unknown = _FenwickTree(len(self._keys), each=1)
        for name, (taken, wins, losses, cost, weight) in position["keys"].items():
            key = int(name)
            self._taken[key] = taken
            if cost is not None:
                self._costs_known[key] = cost
                self._cost_sum += round(cost * UNIT)
            if wins is not None:
                self._record[key] = (wins, losses)
                self._known.set(key, weight)
                self._unknown.set(key, 0)


def _random_below(seed: int, count: int, below: int) -> int:
    """Return a pseudorandom whole number from 0 to `below` - 1, given by the seed and the count."""
    digest = hashlib.blake2b(f"{seed}:{count}".encode(), digest_size=32).digest()
    return int.from_bytes(digest, "little") * below >> 256


# ------------------------------------------------------------------ keys


class _TaskKeys:
    """The keys of a taskset's tasks, numbered in order of appearance.

    Attributes:
        kind: ``difficulty``, ``group``, ``id`` or ``function``.
        digest: A digest of the key of every task; None if the key is the id.
    """

    def __init__(self, tasks: Any, key: str | Callable[[Task], Hashable] | None) -> None:
        self._tasks = tasks
        self._function: Callable[[Task], Hashable] | None = None
        self._numbers: dict[Hashable, int] = {}
        self._begins, self._order = array("Q"), array("Q")
        self.digest: str | None = None
        found = None
        if key is None:  # use the first field that every task has
            key, found = _find_common_key(tasks)
        self.kind = "function" if callable(key) else key
        if self.kind == "id":
            return
        self._function = key if callable(key) else _attribute(tasks, self.kind)
        names = map(self._function, tasks) if found is None else found
        numbers = [self._numbers.setdefault(name, len(self._numbers)) for name in names]
        self._order = array("Q", sorted(range(len(numbers)), key=numbers.__getitem__))
        counts = [0] * (len(self._numbers) + 1)
        for number in numbers:
            counts[number + 1] += 1
        for number in range(len(self._numbers)):
            counts[number + 1] += counts[number]
        self._begins = array("Q", counts)
        self.digest = digest_of_parts([str(name) for name in self._numbers], numbers)

    def __len__(self) -> int:
        return len(self._tasks) if self._function is None else len(self._numbers)

    def count(self, key: int) -> int:
        """Return the number of tasks with this key."""
        return 1 if self._function is None else self._begins[key + 1] - self._begins[key]

    def task(self, key: int, place: int) -> int:
        """Return the position in the taskset of a key's task at `place`."""
        return key if self._function is None else self._order[self._begins[key] + place]

    def key_of(self, task: Task) -> int:
        """Return the number of a task's key.

        Raises:
            TasksetError: No task of the taskset has this key.
        """
        if self._function is None:
            return int(self._tasks.find(task.id))
        name = self._function(task)
        if name not in self._numbers:
            why = f"no task has the key {name!r:.200} of task {task.id!r}"
            raise TasksetError(self._tasks.name, None, why)
        return self._numbers[name]

    def name(self, key: int) -> Any:
        """Return the key with this number."""
        return self._tasks[key].id if self._function is None else list(self._numbers)[key]


def _find_common_key(tasks: Any) -> tuple[str, list[Hashable]]:
    """Return the first of the usual keys that every task has, and each task's value.

    For ``id`` the values are left out.
    """
    kinds: dict[str, list[Hashable]] = {"difficulty": [], "group": []}
    for task in tasks:
        for kind in list(kinds):
            value = getattr(task, kind)
            kinds[kind].append(value)
            if value is None:
                del kinds[kind]
        if not kinds:
            return "id", []
    return next(iter(kinds.items()))


def _attribute(tasks: Any, kind: str) -> Callable[[Task], Hashable]:
    if kind not in ("difficulty", "group"):
        raise ValueError(f"key={kind!r}; expected difficulty, group, id, or a function of a task")

    def read(task: Task) -> Hashable:
        value: Hashable = getattr(task, kind)
        if value is None:
            raise TasksetError(tasks.name, None, f"task {task.id!r} has no {kind}")
        return value

    return read


class _FenwickTree:
    """Whole numbers with prefix sums in O(log n): a binary indexed tree (Fenwick 1994)."""

    def __init__(self, count: int, each: int = 0) -> None:
        self._values: dict[int, int] = {}
        self._each = each
        self._tree = [(place & -place) * each for place in range(count + 1)]
        self.total = count * each

    def get(self, place: int) -> int:
        return self._values.get(place, self._each)

    def set(self, place: int, value: int) -> None:
        difference = value - self.get(place)
        self._values[place] = value
        self.total += difference
        place += 1
        while place < len(self._tree):
            self._tree[place] += difference
            place += place & -place

    def at(self, point: int) -> int:
        """Return the first position at which the running sum exceeds `point`."""
        place, step = 0, 1 << (len(self._tree) - 1).bit_length()
        while step:
            after = place + step
            if after < len(self._tree) and self._tree[after] <= point:
                place, point = after, point - self._tree[after]
            step >>= 1
        return place
