"""The curriculum: fewer groups that teach nothing."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from openenv.tasks import (
    CurriculumSampler,
    Sampler,
    ShuffledSampler,
    Task,
    Taskset,
    TasksetError,
    load_tasks,
)
from openenv.tasks.curriculum import signal_probability

GROUP = 8


def tiers(count: int = 200, levels: int = 10) -> Taskset:
    return load_tasks([{"id": f"t{i}", "difficulty": i % levels} for i in range(count)])


def success_of(task: Task, skill: float) -> float:
    """A policy that mostly solves what is below its skill, and rarely what is above."""
    return 1 / (1 + 10 ** ((task.difficulty or 0) - skill))


def train(sampler: Sampler, groups: int, luck: random.Random, skills: Sequence[float]) -> None:
    for number in range(groups):
        (task,) = sampler.sample(1)
        chance = success_of(task, skills[number * len(skills) // groups])
        sampler.update(task, [float(luck.random() < chance) for _ in range(GROUP)])


@pytest.mark.slow
@pytest.mark.parametrize(("key", "count"), [("difficulty", 200), ("id", 40)])
def test_groups_without_signal_are_rarer_than_with_uniform_sampling(key: str, count: int) -> None:
    """By a policy whose skill grows from 2 to 6, of 10 tiers: most are too easy or too hard."""
    tasks = tiers(count)
    fractions: dict[str, list[float]] = {"curriculum": [], "uniform": []}
    for seed in range(5):
        samplers: dict[str, Sampler] = {
            "curriculum": CurriculumSampler(tasks, GROUP, key, seed=seed),
            "uniform": ShuffledSampler(tasks, seed=seed),
        }
        for name, sampler in samplers.items():
            train(sampler, 1500, random.Random(seed), [2.0, 4.0, 6.0])
            fraction = sampler.zero_signal_fraction
            assert fraction is not None
            fractions[name].append(fraction)
    assert max(fractions["curriculum"]) < min(fractions["uniform"]) - 0.1


def test_probability_of_signal_is_that_of_rfc_013() -> None:
    assert signal_probability(0.5, 2) == 0.5
    assert signal_probability(0.0, 8) == signal_probability(1.0, 8) == 0
    assert signal_probability(0.5, 8) == 1 - 2 * 0.5**8


def test_keys_are_drawn_in_proportion_to_their_signal() -> None:
    sampler = CurriculumSampler(tiers(20, 2), 4, epsilon=0.05, decay=1.0)
    easy, even = tiers(20, 2)[0], tiers(20, 2)[1]
    for _ in range(50):
        sampler.update(easy, [1.0] * 4)
        sampler.update(even, [1.0, 0.0, 1.0, 0.0])
    rates = sampler.rates()
    weights = {key: signal_probability(rate, 4) + 0.05 for key, rate in rates.items()}
    drawn = Counter(task.difficulty for task in sampler.sample(4000))
    share = weights[1] / sum(weights.values())
    assert abs(drawn[1] / 4000 - share) < 5 * (share * (1 - share) / 4000) ** 0.5


def test_what_is_dear_is_drawn_less_often() -> None:
    sampler = CurriculumSampler(tiers(20, 2), 4, cost="tokens")
    for task, cost in ((tiers(20, 2)[0], 100), (tiers(20, 2)[1], 900)):
        sampler.update(task, [1.0, 0.0, 1.0, 0.0], [cost] * 4)
    drawn = Counter(task.difficulty for task in sampler.sample(2000))
    assert abs(drawn[0] / 2000 - 0.9) < 0.04
    assert sampler.cost == 4000


def test_costs_may_be_made_of_rollouts() -> None:
    sampler = CurriculumSampler(tiers(), 2, cost=lambda task, rollout: rollout["seconds"])
    sampler.update(tiers()[0], [1.0, 0.0], [{"seconds": 3}, {"seconds": 4}])
    assert sampler.cost == 7


def test_costs_that_decide_have_to_be_told() -> None:
    costs: list[Any] = ["tokens", lambda task, rollout: 1.0]
    for cost in costs:
        with pytest.raises(ValueError, match="costs"):
            CurriculumSampler(tiers(), 2, cost=cost).update(tiers()[0], [1.0])


def test_what_could_not_be_scored_is_no_failure() -> None:
    sampler = CurriculumSampler(tiers(), GROUP)
    task = tiers()[0]
    sampler.update(task, [None] * GROUP)
    assert sampler.rates() == {}
    sampler.update(task, [1.0, None, 1.0, None])
    assert sampler.rates() == {0: (2 + 1) / (2 + 2)}


def test_a_graded_reward_succeeds_from_the_threshold_on() -> None:
    sampler = CurriculumSampler(tiers(), GROUP, success_threshold=0.5, decay=1.0)
    sampler.update(tiers()[0], [0.4, 0.5, 0.9, 0.0])
    assert sampler.rates() == {0: (2 + 1) / (4 + 2)}


def test_older_evidence_decays() -> None:
    sampler = CurriculumSampler(tiers(), GROUP, decay=0.5)
    for rewards in ([0.0, 0.0], [1.0, 1.0]):
        sampler.update(tiers()[0], rewards)
    assert sampler.rates() == {0: (2 + 1) / (1 + 2 + 2)}


def test_every_key_is_tried_and_every_task_of_it_before_any_again() -> None:
    sampler = CurriculumSampler(tiers(30, 3), GROUP)
    given = sampler.sample(300)
    for level in range(3):
        mine = [task.id for task in given if task.difficulty == level]
        assert len(mine) > 20
        assert len(set(mine[:10])) == 10 and set(mine[10:20]) == set(mine[:10])
        assert mine[10:20] != mine[:10]


def test_the_key_is_the_first_that_every_task_has() -> None:
    def kind(rows: list[dict[str, Any]]) -> Any:
        return CurriculumSampler(rows, 2).state_dict()["settings"]["key"]

    assert kind([{"difficulty": 1, "group": "a"}, {"difficulty": 2, "group": "b"}]) == "difficulty"
    assert kind([{"difficulty": 1, "group": "a"}, {"group": "b"}]) == "group"
    assert kind([{"difficulty": 1}, {"group": "b"}]) == "id"
    with pytest.raises(TasksetError, match="train/1"):
        CurriculumSampler([{"difficulty": 1}, {"group": "b"}], 2, "difficulty")


def test_a_task_of_another_taskset_is_refused() -> None:
    sampler = CurriculumSampler(tiers(), GROUP)
    with pytest.raises(TasksetError):
        sampler.update(Task(id="x", difficulty=99), [1.0])
    with pytest.raises(TasksetError):
        CurriculumSampler(tiers(), GROUP, "id").update(Task(id="x"), [1.0])
