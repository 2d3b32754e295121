"""Metrics of rollouts: what counts, what is left out, and that it is said."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.amounts import examples
from support.runs import FAILED, HEADER, header, rollout, run_of

from openenv.evals import Evaluation, evaluate
from openenv.evals.metrics import EvaluationError
from openenv.evals.statistics import pass_at_k, wilson
from openenv.rollouts.endings import NOT_BEGUN, why_unscored
from openenv.rollouts.records import Failure, Rollout, RolloutUsage, StepRecord


def evaluated(rewards: dict[str, Any], **options: Any) -> Evaluation:
    return evaluate(run_of(rewards), HEADER, **options)


# ------------------------------------------------------------------ figures


def test_the_figures_of_a_run_are_those_of_its_samples() -> None:
    found = evaluated({"a": [1.0, 1.0], "b": [0.0, 1.0], "c": [0.5, 0.0]})
    assert found.counts == {
        "tasks": 3,
        "samples": 6,
        "scored": 6,
        "unscored": 0,
        "failed": 0,
        "given_up": 0,
        "done": 6,
        "truncated": 0,
        "limit": 0,
    }
    assert found.success.value == 0.5
    assert found.mean_reward.value == pytest.approx(3.5 / 6)
    assert found.median_reward == 0.75
    assert {k: one.value for k, one in found.pass_at_k.items()} == {
        1: pytest.approx(0.5),
        2: pytest.approx(2 / 3),
    }
    assert found.costs["steps"].value == 2.0
    assert found.costs["completion_tokens"].value == 10.0
    assert found.notes == []


def test_one_sample_a_task_has_the_interval_of_wilson() -> None:
    found = evaluated({f"t{i}": [float(i % 4 == 0)] for i in range(40)})
    assert (found.success.low, found.success.high) == pytest.approx(wilson(0.25, 40))
    assert found.success.method == "wilson"
    assert found.mean_reward.method == "bootstrap"
    assert found.mean_reward.stderr == found.success.stderr


def test_of_few_tasks_the_intervals_are_wide_and_chances_stay_chances() -> None:
    """A bootstrap of three tasks is too narrow, and Student's interval knows no bounds."""
    found = evaluated({"a": [1.0, 1.0], "b": [1.0, 0.0], "c": [1.0, 1.0]})
    assert found.mean_reward.method == found.pass_at_k[1].method == "student"
    assert found.mean_reward.high is not None and found.mean_reward.high > 1.0
    assert found.pass_at_k[1].high == 1.0


def test_samples_of_one_task_are_drawn_together() -> None:
    """Ten tasks that are solved always or never tell as much with one sample as with eight."""
    once = evaluated({f"t{i}": [float(i % 2)] for i in range(10)})
    often = evaluated({f"t{i}": [float(i % 2)] * 8 for i in range(10)})
    for name in ("success", "mean_reward"):
        one, other = getattr(once, name), getattr(often, name)
        assert (one.low, one.high) == pytest.approx((other.low, other.high))


def test_tasks_may_have_different_numbers_of_samples() -> None:
    found = evaluated({"a": [1.0, 0.0, 0.0], "b": [1.0]})
    assert found.success.value == 0.5
    assert found.pass_at_k[1].value == pytest.approx((1 / 3 + 1) / 2)
    assert found.pass_at_k[3].tasks == 1
    assert "pass@2 of 1, pass@3 of 1" in " ".join(found.notes)


def test_samples_of_two_seeds_are_two_things_to_solve() -> None:
    """Of pass@2, two tries are two tries at one thing."""
    rollouts = [
        rollout(
            "a", seed * 2 + sample, reward, id=f"a.{seed}#{sample}", group=f"a.{seed}", seed=seed
        )
        for seed, rewards in enumerate([[1.0, 1.0], [0.0, 0.0]])
        for sample, reward in enumerate(rewards)
    ]
    found = evaluate([*rollouts, rollout("b", 0), rollout("b", 1)], HEADER)
    assert list(found.pass_at_k) == [1, 2]
    assert found.pass_at_k[2].value == pytest.approx((0.5 + 1.0) / 2)


def test_of_many_samples_pass_at_k_is_had_of_powers_of_two() -> None:
    found = evaluated({"a": [float(i % 3 == 0) for i in range(100)], "b": [0.0] * 100})
    assert list(found.pass_at_k) == [*range(1, 17), 32, 64, 100]
    assert found.pass_at_k[32].value == pytest.approx(pass_at_k(100, 34, 32) / 2)


def test_where_every_task_is_certain_pass_at_k_is_not() -> None:
    found = evaluated({f"t{i}": [1.0, 1.0] for i in range(8)})
    best = found.pass_at_k[2]
    assert (best.value, best.method, best.high) == (1.0, "wilson", 1.0)
    assert best.low == pytest.approx(wilson(1.0, 8)[0])
    assert found.mean_reward.low is None


def test_components_are_means_of_the_samples_that_have_them() -> None:
    rollouts = [
        rollout("a", components={"correct": 0.8, "format": 0.2}),
        rollout("b", reward=0.2, components={"format": 0.2}),
    ]
    declared = {"kind": "terminal", "range": [0, 1], "components": ["format", "correct", "never"]}
    found = evaluate(rollouts, header(reward=declared))
    assert {name: (one.value, one.samples) for name, one in found.components.items()} == {
        "format": (0.2, 2),
        "correct": (0.8, 1),
    }
    assert list(found.components) == ["format", "correct"]


def test_ends_other_than_done_are_rates() -> None:
    rollouts = [
        rollout("a"),
        rollout("b", outcome="truncated"),
        rollout("c", outcome="limit", limit="steps"),
        rollout("d", reward=FAILED),
    ]
    found = evaluate(rollouts, HEADER)
    rates = {name: rate.value for name, rate in found.rates.items()}
    assert rates == {
        "error": 0.25,
        "unscored": 0.0,
        "truncation": 0.25,
        "limit": 0.25,
        "given_up": 0.0,
    }


# ------------------------------------------------------------------ what has no reward


def test_what_could_not_be_scored_is_not_0() -> None:
    found = evaluated({"a": [1.0, None], "b": [1.0, FAILED], "c": [None, FAILED]})
    assert found.success.value == 1.0 and found.success.samples == 2
    assert found.mean_reward.value == 1.0 and found.mean_reward.samples == 2
    assert found.pass_at_k[1].tasks == 2
    assert (found.counts["unscored"], found.counts["failed"], found.counts["scored"]) == (2, 2, 2)
    assert found.rates["error"].value == pytest.approx(1 / 3)
    assert found.per_task["c"].success is None and found.per_task["c"].reward is None
    notes = " ".join(found.notes)
    assert "4 of 6 samples have no known reward: 2 failed, 2 could not be scored" in notes
    assert "the judge did not answer (2)" in notes
    assert "reset: ConnectError: no server answers (2)" in notes


def test_if_asked_for_they_count_as_not_solved_and_still_in_no_mean() -> None:
    found = evaluated({"a": [1.0, None], "b": [1.0, FAILED]}, unscored="fail-all")
    assert found.success.value == 0.5 and found.success.samples == 4
    assert found.pass_at_k[2].value == 1.0
    assert found.mean_reward.value == 1.0 and found.mean_reward.samples == 2
    assert "count as not solved, as asked for" in found.notes[0]


def by_policy(**more: Any) -> Failure:
    return Failure(type="ValueError", message="no", at="policy", is_by_policy=True, **more)


GIVEN_UP: dict[str, dict[str, Any]] = {
    "stopped": {"outcome": "stopped"},
    "steps": {"outcome": "limit", "limit": "steps"},
    "tokens": {"outcome": "limit", "limit": "tokens"},
    "time": {"outcome": "limit", "limit": "wall_clock"},
    "invalid replies": {"outcome": "limit", "limit": "invalid_actions"},
    "the environment's own limit": {"outcome": "truncated"},
    "raised": {"outcome": "failed", "failures": [by_policy()]},
}
OTHERS: dict[str, dict[str, Any]] = {
    "no reward": {"outcome": "done"},
    "judge, after a limit": {"outcome": "limit", "limit": "steps", "unscored": "the judge is late"},
    "judge, after a stop": {"outcome": "stopped", "unscored": "the judge is late"},
    "reset too slow": {"outcome": "limit", "limit": "wall_clock", "unscored": NOT_BEGUN},
    "lost": {
        "outcome": "failed",
        "failures": [by_policy(is_retried=True), Failure(type="X", message="gone", at="step")],
    },
}


def without_reward(name: str, how: dict[str, Any]) -> Rollout:
    made = rollout(name, reward=None, **{"unscored": None, **how})
    if made.unscored is None:
        made.unscored = why_unscored(made)
    return made


@pytest.mark.parametrize("how", GIVEN_UP)
def test_what_the_policy_gave_up_counts_as_the_lowest_reward(how: str) -> None:
    declared = header(reward={"kind": "terminal", "range": [-1.0, 1.0]})
    run = [rollout("a"), without_reward("b", GIVEN_UP[how])]
    found = evaluate(run, declared)
    assert (found.success.value, found.mean_reward.value) == (0.5, 0.0)
    assert (found.counts["given_up"], found.counts["scored"], found.lowest) == (1, 1, -1.0)
    assert "1 of 2 samples were given up by the policy" in found.notes[0]
    assert "a reward of -1." in found.notes[0]
    assert evaluate(run, declared, unscored="skip").mean_reward.value == 1.0
    assert evaluate(run, declared, lowest=-3).mean_reward.value == -1.0


@pytest.mark.parametrize("how", OTHERS)
def test_what_the_environment_or_a_grader_is_to_blame_for_is_left_out(how: str) -> None:
    found = evaluate([rollout("a"), without_reward("b", OTHERS[how])], HEADER)
    assert (found.success.value, found.mean_reward.value, found.mean_reward.samples) == (
        1.0,
        1.0,
        1,
    )
    assert found.counts["given_up"] == 0
    assert "1 of 2 samples have no known reward" in found.notes[0]


def test_without_a_range_no_mean_is_given_of_what_the_policy_gave_up() -> None:
    """0, or leaving them out, would say that giving up is worth more than losing."""
    unknown = header(reward={"kind": "terminal", "range": None})
    run = [
        rollout("a", reward=-1.0),
        rollout("b", reward=-1.0),
        without_reward("c", GIVEN_UP["stopped"]),
    ]
    found = evaluate(run, unknown)
    assert (found.mean_reward.value, found.median_reward) == (None, None)
    assert found.per_task["c"].reward is None and found.success.samples == 3
    assert "declare the range of rewards" in found.notes[0] and "--lowest" in found.notes[0]
    assert evaluate(run, unknown, lowest=-1.0).mean_reward.value == -1.0


def test_a_range_of_the_episode_counts_before_that_of_all() -> None:
    how = {**GIVEN_UP["stopped"], "reward_range": (-3.0, 1.0)}
    found = evaluate([rollout("a", reward=1.0), without_reward("b", how)], header(reward=None))
    assert found.mean_reward.value == -1.0 and "a reward of -3." in found.notes[0]
    given = evaluate([without_reward("b", how)], header(reward=None), lowest=-5.0)
    assert given.mean_reward.value == -5.0


def test_what_giving_up_costs_is_added_to_what_a_sample_has_earned() -> None:
    left: dict[str, Any] = {"outcome": "limit", "limit": "steps", "reward_unfinished": -1.0}
    run = [rollout("a", reward=0.0, **left), rollout("b", reward=-1.0, reward_unfinished=-1.0)]
    found = evaluate(run, HEADER, threshold=0.0)
    assert found.per_task["a"].reward == found.per_task["b"].reward == -1.0
    assert (found.success.value, found.counts["scored"], found.counts["given_up"]) == (0.0, 2, 0)
    assert "1 of 2 samples were left by the policy" in found.notes[0]
    assert evaluate(run, HEADER, unscored="skip").per_task["a"].reward == 0.0
    truncated = rollout("a", reward=0.0, outcome="truncated", reward_unfinished=-1.0)
    assert evaluate([truncated], HEADER).mean_reward.value == 0.0


def test_a_run_without_any_reward_has_no_figures_and_says_so() -> None:
    found = evaluated({"a": [None, FAILED]})
    assert found.success.value is None and found.mean_reward.value is None
    assert found.median_reward is None and found.pass_at_k == {}
    assert found.scores()["success_rate"] is None
    assert found.rates["error"].value == 0.5


def test_what_a_failed_attempt_took_is_in_no_mean() -> None:
    failed = rollout("b", reward=FAILED, usage=RolloutUsage(seconds=900.0))
    found = evaluate([rollout("a"), failed], HEADER)
    assert found.costs["seconds"].value == 0.5 and found.costs["seconds"].samples == 1


def test_an_unscored_sample_with_steps_counts_in_what_a_sample_takes() -> None:
    found = evaluate([rollout("a", reward=None, steps=[StepRecord()] * 6)], HEADER)
    assert found.costs["steps"].value == 6.0


# ------------------------------------------------------------------ the threshold


@pytest.mark.parametrize(
    ("declared", "given", "expected", "said"),
    [
        ({"kind": "terminal", "range": [-1, 5]}, None, 5.0, "the highest reward that is declared"),
        ({"kind": "terminal", "range": None}, None, 1.0, "no range of rewards is declared"),
        (None, None, 1.0, "no range of rewards is declared"),
        ({"kind": "terminal", "range": [-1, 5]}, 0.0, 0.0, "as asked for"),
    ],
)
def test_the_threshold_is_the_highest_reward_unless_it_is_given(
    declared: Any, given: float | None, expected: float, said: str
) -> None:
    found = evaluate(run_of({"a": [1.0]}), header(reward=declared), threshold=given)
    assert (found.threshold, found.threshold_from) == (expected, said)


def test_rewards_of_single_steps_ask_for_a_threshold() -> None:
    per_step = header(reward={"kind": "per_step", "range": [0, 1]})
    assert "give the threshold" in " ".join(evaluate(run_of({"a": [1.0]}), per_step).notes)
    asked = evaluate(run_of({"a": [1.0]}), per_step, threshold=3)
    assert asked.notes == [
        "There is one task only: intervals of rates are of more samples of it, not of others."
    ]


def test_rounding_does_not_make_a_task_unsolved() -> None:
    rounded = math.nextafter(1.0, 0.0)  # what ten tenths come to, added one by one
    found = evaluated({"a": [rounded, 0.99999]})
    assert [sample.solved for sample in found.per_task["a"].samples] == [True, False]


# ------------------------------------------------------------------ parts of the tasks


def test_families_and_difficulties_are_told_apart() -> None:
    rollouts = [
        rollout(
            f"t{i}",
            reward=float(i < 2),
            task={"id": f"t{i}", "group": "ab"[i % 2], "difficulty": i},
        )
        for i in range(4)
    ]
    found = evaluate(rollouts, HEADER)
    assert {part.name: part.success.value for part in found.by_group} == {"a": 0.5, "b": 0.5}
    assert found.scores()["by_difficulty"] == {"0": 1.0, "1": 1.0, "2": 0.0, "3": 0.0}


def test_many_difficulties_are_put_together_without_losing_a_task() -> None:
    rollouts = [rollout(f"t{i}", task={"difficulty": math.sqrt(i)}) for i in range(97)]
    parts = evaluate(rollouts, HEADER).by_difficulty
    assert len(parts) == 10
    assert sum(part.tasks for part in parts) == 97
    assert {part.tasks for part in parts} <= {9, 10}
    assert parts[0].name.startswith("0 to ")


def test_tasks_without_a_family_are_in_none() -> None:
    found = evaluate([rollout("a", task={"group": "x"}), rollout("b")], HEADER)
    assert [(part.name, part.tasks) for part in found.by_group] == [("x", 1)]
    assert found.by_difficulty == []


def test_rollouts_without_tasks_are_told_apart_by_their_seeds() -> None:
    rollouts = [
        rollout("x", i % 2, id=f"{i // 2}#{i % 2}", task_id=None, group=str(i // 2), seed=i // 2)
        for i in range(6)
    ]
    assert list(evaluate(rollouts, HEADER).per_task) == ["0", "1", "2"]


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("rollouts", "named"),
    [
        ([], "no rollouts"),
        ([rollout("a"), rollout("a")], "'a#0'"),
        ([rollout("a", reward=math.nan)], "'a#0'"),
        ([rollout("a", task={"difficulty": "hard"})], "difficulty='hard'"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(rollouts: Any, named: str) -> None:
    with pytest.raises(EvaluationError, match=named):
        evaluate(rollouts, HEADER)


@pytest.mark.parametrize(
    "options",
    [{"unscored": "zero"}, {"level": 1.0}, {"resamples": 0}, {"threshold": math.inf}],
)
def test_options_out_of_range_are_refused(options: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        evaluated({"a": [1.0]}, **options)


# ------------------------------------------------------------------ scores


def test_scores_have_the_names_of_the_rfc() -> None:
    scores = evaluated({"a": [1.0, 0.0], "b": [1.0, FAILED]}).scores()
    names = "success_rate success_rate_stderr mean_reward mean_turns mean_completion_tokens pass@1"
    assert {*names.split(), "pass@2", "error_rate", "by_difficulty", "by_group"} <= set(scores)
    assert scores["error_rate"] == 0.25
    assert scores["per_task"] == {
        "a": {"success": 0.5, "reward": 0.5},
        "b": {"success": 1.0, "reward": 1.0},
    }


def test_an_evaluation_survives_json() -> None:
    found = evaluated({"a": [1.0, None], "b": [0.25, FAILED]})
    assert Evaluation.model_validate_json(found.model_dump_json()) == found


@pytest.mark.slow
@examples(40)
@given(
    st.dictionaries(
        st.text("abcdef", min_size=1, max_size=3),
        st.lists(st.sampled_from([0.0, 0.25, 1.0, None, FAILED]), min_size=1, max_size=5),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from(["skip", "fail", "fail-all"]),
    st.randoms(use_true_random=False),
)
def test_nothing_is_lost_and_order_does_not_matter(
    rewards: dict[str, list[Any]], unscored: Any, chance: random.Random
) -> None:
    rollouts = run_of(rewards)
    found = evaluate(rollouts, HEADER, unscored=unscored, resamples=50)
    counts = found.counts
    assert counts["scored"] + counts["unscored"] + counts["failed"] == counts["samples"]
    assert counts["samples"] == len(rollouts)
    everything = unscored == "fail-all"
    assert found.success.samples == (len(rollouts) if everything else counts["scored"])
    known = [one.reward for one in rollouts if one.reward is not None]
    if known:
        assert found.mean_reward.value == pytest.approx(math.fsum(known) / len(known))
    curve = found.pass_at_k
    assert all(0.0 <= (one.value or 0.0) <= 1.0 for one in curve.values())
    for one in (found.success, found.mean_reward, *curve.values(), *found.rates.values()):
        if one.low is not None and one.high is not None and one.method == "wilson":
            assert one.value is not None and one.low <= one.value <= one.high
    chance.shuffle(rollouts)
    again = evaluate(rollouts, HEADER, unscored=unscored, resamples=50)
    assert again == found


def test_tasks_are_in_the_order_in_which_people_count() -> None:
    found = evaluated({"t10": [1.0], "t2": [1.0], "a": [1.0], "t2b": [1.0]})
    assert list(found.per_task) == ["a", "t2", "t2b", "t10"]
