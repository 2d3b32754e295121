"""Two runs held against each other: task by task, and refused where they are not alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.amounts import examples
from support.runs import FAILED, HEADER, header, rollout, run_of

from openenv.evals import Comparison, ComparisonError, Evaluation, compare, evaluate


def evaluated(rewards: dict[str, Any], **changes: Any) -> Evaluation:
    return evaluate(run_of(rewards), header(**changes))


def differences(compared: Comparison) -> dict[str, float | None]:
    return {one.name: one.difference for one in compared.differences}


def test_a_run_does_not_differ_from_itself() -> None:
    run = evaluated({"a": [1.0, 0.0], "b": [0.5, 0.0]})
    compared = compare(run, run)
    assert set(differences(compared).values()) == {0.0}
    assert compared.fixed == compared.regressed == compared.warnings == []
    assert [one.p_value for one in compared.differences[:2]] == [1.0, 1.0]
    assert compared.mcnemar_p_value == 1.0


def test_tasks_are_compared_each_with_itself() -> None:
    """Of five tasks of very different rewards, all are a little better: chance does that in 2 of
    32 cases.
    """
    levels = [0.0, 0.2, 0.4, 0.6, 0.8]
    before = evaluated({f"t{i}": [level] for i, level in enumerate(levels)})
    after = evaluated({f"t{i}": [level + 0.1] for i, level in enumerate(levels)})
    reward = compare(before, after).differences[1]
    assert reward.name == "reward" and reward.tasks == 5
    assert reward.difference == pytest.approx(0.1)
    assert reward.p_value == pytest.approx(2 / 32)


def test_what_is_rounding_is_no_difference() -> None:
    """Of the tasks one differs, and so the test knows nothing: chance does that in each case."""
    before = evaluated({"a": [0.1 + 0.2], "b": [0.5], "c": [0.25], "d": [1.0]})
    after = evaluated({"a": [0.3], "b": [0.5], "c": [0.75], "d": [1.0]})
    reward = compare(before, after).differences[1]
    assert 0.1 + 0.2 != 0.3
    assert reward.difference == pytest.approx(0.125)
    assert reward.p_value == 1.0


def test_what_is_solved_now_and_what_no_more_is_named() -> None:
    before = evaluated({"a": [0.0, 0.0], "b": [1.0, 1.0], "c": [1.0, 0.0], "d": [0.0, 0.0]})
    after = evaluated({"a": [1.0, 0.0], "b": [0.0, 0.0], "c": [1.0, 1.0], "d": [0.5, 0.0]})
    compared = compare(before, after)
    assert (compared.fixed, compared.regressed) == (["a"], ["b"])
    assert (compared.solved_in_both, compared.solved_in_neither) == (1, 1)


def test_several_figures_are_tested_and_so_their_p_values_are_adjusted() -> None:
    """A declared component makes a third test."""

    def run(better: float) -> Evaluation:
        return evaluate(
            [
                rollout(f"t{i}", reward=0.1 * i + better, components={"x": 0.1 * i + better})
                for i in range(6)
            ],
            HEADER,
        )

    tested = [one for one in compare(run(0.0), run(0.1)).differences if one.p_value is not None]
    assert [one.name for one in tested] == ["success", "reward", "component/x"]
    assert tested[1].p_value == pytest.approx(2 / 64)
    assert tested[1].p_adjusted == pytest.approx(3 * 2 / 64)


def test_what_a_sample_takes_is_told_and_not_tested() -> None:
    run = evaluated({"a": [1.0], "b": [1.0]})
    steps = next(one for one in compare(run, run).differences if one.name == "steps")
    assert (steps.before, steps.after, steps.p_value) == (2.0, 2.0, None)


# ------------------------------------------------------------------ runs that are not alike


def test_runs_without_a_common_task_are_refused() -> None:
    with pytest.raises(ComparisonError, match="a in the one, b in the other"):
        compare(evaluated({"a": [1.0]}), evaluated({"b": [1.0]}))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"kind": "per_step", "range": [0, 1]}, "kind"),
        ({"kind": "terminal", "range": [-1, 1]}, "range"),
    ],
)
def test_rewards_that_mean_other_things_are_refused(changes: Any, named: str) -> None:
    one = evaluated({"a": [1.0]})
    with pytest.raises(ComparisonError, match=f"their {named} is"):
        compare(one, evaluated({"a": [1.0]}, reward=changes))


def test_other_thresholds_and_other_treatments_are_refused() -> None:
    rollouts = run_of({"a": [1.0]})
    one = evaluate(rollouts, HEADER)
    with pytest.raises(ComparisonError, match=r"from 1 on, the other from 0\.5"):
        compare(one, evaluate(rollouts, HEADER, threshold=0.5))
    with pytest.raises(ComparisonError, match="'fail' in one run, 'skip' in the other"):
        compare(one, evaluate(rollouts, HEADER, unscored="skip"))


def test_what_a_policy_gave_up_has_to_mean_the_same_in_both_runs() -> None:
    stopped = rollout("b", reward=None, outcome="stopped", unscored=None)
    one = evaluate([rollout("a"), stopped], HEADER)
    other = evaluate([rollout("a"), stopped], HEADER, lowest=-1.0)
    with pytest.raises(ComparisonError, match=r"a reward of 0\.0 in one run, of -1\.0"):
        compare(one, other)
    old = one.model_copy(update={"counts": {**one.counts}})
    del old.counts["given_up"]
    with pytest.raises(ComparisonError, match="evaluate its rollouts anew"):
        compare(old, one)


def test_rewards_are_not_compared_where_nobody_says_what_giving_up_is_worth() -> None:
    unknown = header(reward=None)
    tried = evaluate([rollout("a"), rollout("b", reward=-1.0)], unknown)
    folded = evaluate(
        [rollout("a"), rollout("b", reward=None, outcome="stopped", unscored=None)], unknown
    )
    compared = compare(tried, folded)
    reward = next(one for one in compared.differences if one.name == "reward")
    assert reward.difference is None and reward.tasks == 0
    assert any("Rewards are not compared" in warning for warning in compared.warnings)


def test_tasks_that_one_run_has_alone_are_left_out_and_named() -> None:
    compared = compare(evaluated({"a": [1.0], "x": [0.0]}), evaluated({"a": [1.0], "y": [1.0]}))
    assert (compared.tasks, compared.only_before, compared.only_after) == (1, ["x"], ["y"])
    assert differences(compared)["reward"] == 0.0
    assert [text.partition(" tasks")[0] for text in compared.warnings] == ["1", "1"]


def test_seeds_that_one_run_has_alone_are_left_out() -> None:
    both = [rollout("a", 0, 1.0, seed=1), rollout("a", 1, 0.0, seed=2)]
    compared = compare(evaluate(both[:1], HEADER), evaluate(both, HEADER))
    assert differences(compared)["reward"] == 0.0
    assert "seeds in one run only" in compared.warnings[0]


def test_other_seeds_are_warned_of() -> None:
    one, other = (evaluate([rollout("a", seed=seed)], HEADER) for seed in (1, 2))
    (warning,) = compare(one, other).warnings
    assert "other seeds" in warning


def test_another_number_of_samples_is_warned_of() -> None:
    (warning,) = compare(evaluated({"a": [1.0]}), evaluated({"a": [1.0, 0.0]})).warnings
    assert "more samples in one run" in warning


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"environment": "other_env"}, "'dice_env' in one run, and 'other_env'"),
        ({"settings": {"n": 4, "seed": 1}}, "seed 0 and 1"),
        ({"reward": None}, "Only one of the runs"),
    ],
)
def test_other_environments_and_settings_are_warned_of(changes: Any, named: str) -> None:
    compared = compare(evaluated({"a": [1.0]}), evaluated({"a": [1.0]}, **changes))
    assert [named in warning for warning in compared.warnings] == [True]


def test_a_run_that_is_not_reproducible_is_warned_of() -> None:
    run = evaluated({"a": [1.0]})
    other = run.model_copy(update={"reproducible": False})
    assert "same twice" in compare(run, other).warnings[0]


def test_tasks_without_a_known_reward_are_left_out_and_said() -> None:
    before = evaluated({"a": [1.0], "b": [None], "c": [0.0]})
    after = evaluated({"a": [1.0], "b": [1.0], "c": [FAILED]})
    compared = compare(before, after)
    assert next(one for one in compared.differences if one.name == "reward").tasks == 1
    assert compared.fixed == compared.regressed == []
    assert "2 tasks have no sample with a known reward" in compared.warnings[0]


def test_what_was_left_out_of_tasks_that_have_rewards_is_said() -> None:
    """The samples that have none may be the hard ones."""
    compared = compare(evaluated({"a": [1.0, 0.0]}), evaluated({"a": [1.0, None]}))
    assert compared.warnings == [
        "Samples without a known reward, which are in no mean of rewards: 0 of 2 of before; "
        "1 of 2 of after."
    ]


@pytest.mark.parametrize("options", [{"level": 1.0}, {"resamples": 0}, {"permutations": 0}])
def test_options_out_of_range_are_refused(options: Any) -> None:
    run = evaluated({"a": [1.0]})
    with pytest.raises(ValueError, match=f"{next(iter(options))}="):
        compare(run, run, **options)


def test_runs_without_any_common_reward_have_no_difference() -> None:
    compared = compare(evaluated({"a": [None]}), evaluated({"a": [1.0]}))
    success = compared.differences[0]
    assert (success.difference, success.p_value, success.tasks) == (None, None, 0)


# ------------------------------------------------------------------ names, and figures at large


def test_runs_are_called_by_their_policies_where_these_differ() -> None:
    one, other = evaluated({"a": [1.0]}), evaluated({"a": [1.0]}, policy="gpt")
    named = [compare(one, other), compare(one, one), compare(one, other, names=("x", "y"))]
    assert [(one.before, one.after) for one in named] == [
        ("random", "gpt"),
        ("before", "after"),
        ("x", "y"),
    ]


@pytest.mark.extended("evaluates thousands of tasks")
@pytest.mark.slow("resamples thousands of comparisons")
def test_the_interval_of_the_difference_has_the_truth_in_it() -> None:
    """Two hundred pairs of runs of 30 tasks, whose chances differ by 0.1."""
    generator = np.random.default_rng(4)
    hits = 0
    for _ in range(200):
        chances = generator.uniform(0.1, 0.8, 30)
        runs = [
            evaluated(
                {
                    f"t{i}": (generator.random(4) < chance + better).astype(float).tolist()
                    for i, chance in enumerate(chances)
                }
            )
            for better in (0.0, 0.1)
        ]
        reward = compare(*runs, resamples=300).differences[1]
        assert reward.low is not None and reward.high is not None
        hits += reward.low <= 0.1 <= reward.high
    assert hits / 200 >= 0.95 - 0.047  # three standard errors


REWARDS = st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=3)


@pytest.mark.slow
@examples(25)
@given(st.dictionaries(st.sampled_from("abcdefgh"), st.tuples(REWARDS, REWARDS), min_size=1))
def test_the_other_way_round_all_signs_are_changed(
    drawn: dict[str, tuple[list[float], list[float]]],
) -> None:
    one, other = (evaluated({name: pair[i] for name, pair in drawn.items()}) for i in (0, 1))
    there, back = compare(one, other, resamples=100), compare(other, one, resamples=100)
    assert (there.fixed, there.regressed) == (back.regressed, back.fixed)
    for forth, reverse in zip(there.differences, back.differences, strict=True):
        assert forth.difference == pytest.approx(-(reverse.difference or 0.0))
        assert forth.p_value == reverse.p_value
    solved = there.solved_in_both + there.solved_in_neither
    assert solved + len(there.fixed) + len(there.regressed) == there.tasks
