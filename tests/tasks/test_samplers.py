"""Samplers, and going on exactly where one was."""

from __future__ import annotations

import itertools
import json
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.zygote import run_python

from openenv.tasks import (
    CurriculumSampler,
    Sampler,
    SequentialSampler,
    ShuffledSampler,
    Task,
    TaskSampler,
    Taskset,
    TasksetError,
    UniformSampler,
    WeightedSampler,
    load_tasks,
)
from openenv.tasks.permutation import Permutation


def taskset(count: int = 10) -> Taskset:
    return load_tasks(
        [{"id": f"t{i}", "difficulty": i % 5, "group": f"g{i % 2}"} for i in range(count)]
    )


def ids(tasks: Sequence[Task]) -> list[str]:
    return [task.id for task in tasks]


def by_place(task: Task) -> float:
    return float(task.index or 0)


def parity(task: Task) -> int:
    return (task.index or 0) % 2


SAMPLERS: dict[str, Callable[[Any], Sampler]] = {
    "sequential": lambda tasks: SequentialSampler(tasks, seeds=[1, 2], epochs=None),
    "shuffled": lambda tasks: ShuffledSampler(tasks, seed=3),
    "weighted": lambda tasks: WeightedSampler(tasks, by_place, seed=3),
    "curriculum": lambda tasks: CurriculumSampler(tasks, 4, seed=3),
    "curriculum of ids": lambda tasks: CurriculumSampler(tasks, 4, "id", cost="tokens", seed=3),
    "curriculum of parities": lambda tasks: CurriculumSampler(tasks, 4, parity, seed=3),
}


def play(sampler: TaskSampler, groups: int, luck: random.Random) -> list[tuple[str, Any]]:
    """Sample and report; what was given, in order."""
    given: list[tuple[str, Any]] = []
    while len(given) < groups:
        for task in sampler.sample(3):
            given.append((task.id, task.reset.get("seed")))
            rewards = [luck.choice([0.0, 1.0, None]) for _ in range(4)]
            sampler.update(task, rewards, [luck.uniform(1, 9) for _ in rewards])
    return given


# ------------------------------------------------------------------ each of them


def test_the_sequential_one_gives_all_once_in_order() -> None:
    sampler = SequentialSampler(taskset(4))
    assert ids(sampler.sample(3)) == ["t0", "t1", "t2"]
    assert ids(sampler.sample(3)) == ["t3"]
    assert sampler.sample(3) == []
    assert ids(list(SequentialSampler(taskset(2), epochs=2))) == ["t0", "t1", "t0", "t1"]


def test_the_sequential_one_crosses_tasks_with_seeds() -> None:
    given = SequentialSampler(taskset(2), seeds=[7, 8]).sample(9)
    assert [(t.id, t.reset) for t in given] == [
        ("t0", {"seed": 7}),
        ("t0", {"seed": 8}),
        ("t1", {"seed": 7}),
        ("t1", {"seed": 8}),
    ]
    fixed = load_tasks([{"id": "a", "reset": {"seed": 1}}])
    assert len(SequentialSampler(fixed, seeds=[1]).sample(2)) == 1
    with pytest.raises(TasksetError, match="fixes the seed 1"):
        SequentialSampler(fixed, seeds=[2]).sample(1)


def test_the_sequential_one_takes_a_stream() -> None:
    endless = SequentialSampler("tasks.sources:endless")
    assert ids(endless.sample(2) + endless.sample(2)) == [f"train/{i}" for i in range(4)]
    ends = SequentialSampler("tasks.sources:four", epochs=2)
    assert ids(ends.sample(99)) == [f"train/{i % 4}" for i in range(8)]
    empty = load_tasks("tasks.sources:four").filter(lambda task: False)
    assert SequentialSampler(empty, epochs=None).sample(2) == []
    with pytest.raises(TypeError):
        ShuffledSampler("tasks.sources:endless")


@pytest.mark.parametrize("kind", [ShuffledSampler, UniformSampler])
def test_the_shuffled_one_gives_each_once_an_epoch(kind: type[ShuffledSampler]) -> None:
    sampler = kind(taskset(50), seed=1, epochs=2)
    first, second = ids(sampler.sample(50)), ids(sampler.sample(99))
    assert set(first) == set(second) == set(ids(list(taskset(50))))
    assert len(second) == 50
    assert first != second and first != sorted(first)
    assert sampler.sample(1) == []
    assert ids(kind(taskset(50), seed=1).sample(50)) == first
    assert ids(kind(taskset(50), seed=2).sample(50)) != first


def test_the_weighted_one_draws_by_the_weights() -> None:
    sampler = WeightedSampler(taskset(4), [0.0, 1.0, 3.0, 0.0], seed=5)
    drawn = Counter(ids(sampler.sample(4000)))
    assert set(drawn) == {"t1", "t2"}
    assert abs(drawn["t2"] - 3000) < 150  # five standard deviations
    assert len(WeightedSampler(taskset(4), by_place, num_samples=5).sample(9)) == 5


@pytest.mark.parametrize("weights", [[1.0], [1.0, -1.0], [0.0, 0.0], [1.0, float("nan")]])
def test_weights_that_say_nothing_are_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weights"):
        WeightedSampler(taskset(2), weights)


@pytest.mark.parametrize("make", SAMPLERS.values(), ids=SAMPLERS)
def test_no_tasks_are_refused_or_given(make: Callable[[Any], Sampler]) -> None:
    try:
        sampler = make(load_tasks([]))
    except TasksetError:
        return
    assert sampler.sample(3) == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: SequentialSampler(taskset(), seeds=[]),
        lambda: SequentialSampler(taskset(), epochs=0),
        lambda: ShuffledSampler(taskset(), epochs=0),
        lambda: CurriculumSampler(taskset(), 1),
        lambda: CurriculumSampler(taskset(), 4, decay=2),
        lambda: CurriculumSampler(taskset(), 4, epsilon=0),
        lambda: CurriculumSampler(taskset(), 4, key="colour"),
        lambda: SequentialSampler(taskset()).sample(-1),
    ],
)
def test_arguments_out_of_range_are_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        make()


# ------------------------------------------------------------------ counters


def test_counters_tell_groups_with_signal_from_others() -> None:
    sampler = SequentialSampler(taskset())
    assert sampler.zero_signal_fraction is None and sampler.signal_groups_per_cost is None
    (task,) = sampler.sample(1)
    sampler.update(task, [1.0, 0.0, None], costs=[10, 20, 30])
    sampler.update(task, [1.0, 1.0])
    sampler.update(task, [None, None])
    assert (sampler.groups, sampler.signal_groups, sampler.unscored_groups) == (2, 1, 1)
    assert (sampler.episodes, sampler.unscored_episodes, sampler.cost) == (7, 3, 64.0)
    assert sampler.zero_signal_fraction == 0.5
    assert sampler.signal_groups_per_episode == 1 / 7
    assert sampler.signal_groups_per_cost == 1 / 64


@pytest.mark.parametrize(
    ("rewards", "costs"),
    [([float("nan")], None), ([1.0], [1, 2]), ([1.0], [-1]), ([1.0], [float("inf")])],
)
def test_reports_that_cannot_be_are_refused(rewards: list[Any], costs: list[Any] | None) -> None:
    sampler = SequentialSampler(taskset())
    with pytest.raises(ValueError, match=r"expected|costs"):
        sampler.update(sampler.sample(1)[0], rewards, costs)
    assert sampler.episodes == 0


# ------------------------------------------------------------------ going on


@pytest.mark.parametrize("make", SAMPLERS.values(), ids=SAMPLERS)
@pytest.mark.parametrize("groups", [0, 1, 7, 23])
def test_one_goes_on_exactly_where_another_was(make: Callable[[Any], Sampler], groups: int) -> None:
    one, luck = make(taskset()), random.Random(0)
    play(one, groups, luck)
    state = json.loads(json.dumps(one.state_dict()))
    other, same_luck = make(taskset()), random.Random()
    other.load_state_dict(state)
    same_luck.setstate(luck.getstate())
    assert play(one, 60, luck) == play(other, 60, same_luck)
    assert one.state_dict() == other.state_dict()
    assert other.groups == one.groups and other.cost == one.cost


RESUMED = """
import json, sys
from tasks.test_samplers import SAMPLERS, ids, taskset
sampler = SAMPLERS[sys.argv[1]](taskset())
sampler.load_state_dict(json.load(sys.stdin))
print(*ids(sampler.sample(40)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["shuffled", "curriculum"])
def test_one_goes_on_in_another_process(name: str) -> None:
    sampler = SAMPLERS[name](taskset())
    play(sampler, 17, random.Random(1))
    done = run_python(
        [sys.executable, "-c", RESUMED, name],
        input=json.dumps(sampler.state_dict()),
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == ids(sampler.sample(40)), done.stderr


@pytest.mark.parametrize("make", SAMPLERS.values(), ids=SAMPLERS)
def test_a_state_of_other_tasks_or_arguments_is_refused(make: Callable[[Any], Sampler]) -> None:
    state = make(taskset()).state_dict()
    for other in (make(taskset(11)), ShuffledSampler(taskset(), seed=9)):
        before = other.state_dict()
        with pytest.raises(TasksetError, match="another"):
            other.load_state_dict(state)
        assert other.state_dict() == before


def test_the_state_of_a_long_shuffle_is_short() -> None:
    sampler = ShuffledSampler(load_tasks([{"id": str(i)} for i in range(5000)]))
    sampler.sample(4321)
    assert len(json.dumps(sampler.state_dict())) < 500


def test_threads_share_a_sampler() -> None:
    sampler = ShuffledSampler(taskset(200), epochs=1)
    given: list[list[str]] = [[] for _ in range(6)]

    def take(mine: list[str]) -> None:
        while found := sampler.sample(3):
            mine.extend(ids(found))
            sampler.update(found[0], [0.0, 1.0])

    threads = [threading.Thread(target=take, args=[mine]) for mine in given]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(itertools.chain.from_iterable(given)) == sorted(ids(list(taskset(200))))


# ------------------------------------------------------------------ the order


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 65, 1000])
def test_a_permutation_has_every_place_once(size: int) -> None:
    order = Permutation(size, "seed")
    assert sorted(order[place] for place in range(size)) == list(range(size))
    with pytest.raises(IndexError):
        order[size]


def test_a_permutation_is_as_good_as_any() -> None:
    """Where each of eight places goes, over many seeds: chi-squared with 49 degrees of freedom,
    of which 99.99% are below 97.
    """
    seeds, size = 4000, 8
    counts = Counter(
        (place, order[place])
        for seed in range(seeds)
        for order in [Permutation(size, str(seed))]
        for place in range(size)
    )
    expected = seeds / size
    spread = sum(
        (counts[(a, b)] - expected) ** 2 / expected for a in range(size) for b in range(size)
    )
    assert spread < 97
