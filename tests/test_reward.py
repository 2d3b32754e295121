"""What a reward means, and how it is told."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openenv import Action, Environment, Observation, State
from openenv.environment import scored, termination, transition, truncation
from openenv.reward import REWARD_INFO, RewardSpec, Score, adds_up

numbers = st.floats(-1e6, 1e6)


@pytest.mark.parametrize(
    ("kind", "rewards", "total"),
    [
        ("per_step", [None, 1.0, 0.5], 1.5),
        ("per_step", [None, None], None),
        ("per_step", [0.1] * 10, 1.0),
        ("per_step", [], None),
        ("cumulative", [0.5, None, 2.0], 2.0),
        ("cumulative", [0.5, 2.0, None], 2.0),
        ("terminal", [0.0, 0.0, 1.0], 1.0),
        ("terminal", [None, None, -1.0], -1.0),
        ("terminal", [None], None),
    ],
)
def test_an_episode_adds_up_by_its_kind(kind: Any, rewards: Any, total: float | None) -> None:
    assert RewardSpec(kind).total(rewards) == total


@pytest.mark.parametrize(
    ("kind", "unscored", "total"),
    [
        ("per_step", [None, "lost", None], None),
        ("per_step", [None, None, None], 3.0),
        ("cumulative", [None, "lost", None], 2.0),
        ("cumulative", [None, None, "lost"], None),
        ("terminal", [None, "lost", None], 2.0),
        ("terminal", [None, None, "lost"], None),
    ],
)
def test_what_could_not_be_scored_is_worth_nothing_that_is_known(
    kind: Any, unscored: list[str | None], total: float | None
) -> None:
    assert RewardSpec(kind).total([0.5, 0.5, 2.0], unscored) == total


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"kind": "per step"}, "expected one of per_step, cumulative, terminal"),
        ({"range": (1.0, 0.0)}, "low <= high"),
        ({"range": (0.0, math.inf)}, "finite"),
        ({"range": (math.nan, 1.0)}, "finite"),
        ({"unfinished": -math.inf}, "unfinished=-inf of a reward; expected a finite number"),
    ],
)
def test_a_declaration_that_says_nothing_is_refused(arguments: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        RewardSpec(**arguments)


@given(
    st.sampled_from(["per_step", "cumulative", "terminal"]),
    st.none() | st.tuples(numbers, numbers).map(sorted).map(tuple),
    st.lists(st.text(max_size=5), max_size=4),
    st.none() | numbers,
)
def test_a_declaration_survives_the_way_there_and_back(
    kind: Any, span: Any, names: Any, unfinished: Any
) -> None:
    spec = RewardSpec(kind, span, tuple(names), unfinished)
    assert RewardSpec.from_data({**spec.as_data(), "later": 1}) == spec


@pytest.mark.parametrize(
    "data",
    [
        {"range": [1]},
        {"range": 3},
        {"kind": "x"},
        {"components": 3},
        {"range": {}},
        {"range": [0, 1, 2]},
        {"unfinished": "lost"},
    ],
)
def test_a_declaration_that_cannot_be_read_is_an_error(data: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        RewardSpec.from_data(data)


@given(st.dictionaries(st.text(max_size=3), numbers, min_size=1, max_size=8))
def test_components_add_up_whatever_is_rounded(components: dict[str, float]) -> None:
    total = sum(components.values())
    assert adds_up(total, components)
    assert Score(total, components).as_info() == {"components": components}
    off = total + 1e-3 * (1 + max(map(abs, components.values())))
    assert not adds_up(off, components)
    with pytest.raises(ValueError, match="add up to"):
        Score(off, components)


@pytest.mark.parametrize(
    "arguments",
    [
        {"value": math.nan},
        {"value": math.inf},
        {"value": 1.0, "unscored": "the judge is out"},
        {"components": {"a": 0.0}},
        {"value": 1.0, "step_rewards": [1.0, math.nan]},
    ],
)
def test_a_score_that_contradicts_itself_is_refused(arguments: Any) -> None:
    with pytest.raises(ValueError):
        Score(**arguments)


def test_numbers_of_numpy_are_plain_numbers_in_a_score() -> None:
    half = np.float32(0.5)
    score = Score(half, {"a": half}, step_rewards=[half])
    assert json.loads(json.dumps([score.value, score.as_info()])) == [
        0.5,
        {"components": {"a": 0.5}, "step_rewards": [0.5]},
    ]
    assert type(Score(1).value) is int


class Judged(Environment[Action, Observation, State]):
    def reset(self) -> Observation:  # type: ignore[override]
        return Observation()

    def step(self, action: Action) -> Observation:  # type: ignore[override]
        seen = Observation(done=True)
        seen.reward = self._apply_rubric(action, seen)
        return seen

    @property
    def state(self) -> State:
        return State()


@pytest.mark.parametrize(
    ("given", "reward", "told"),
    [
        (None, None, None),
        (0.5, 0.5, None),
        (True, True, None),
        (math.nan, None, {"unscored": "the rubric gave nan"}),
        (Score(1.0, {"a": 1.0}), 1.0, {"components": {"a": 1.0}}),
        (Score(unscored="late"), None, {"unscored": "late"}),
    ],
    ids=str,
)
def test_a_rubric_may_be_any_function(given: Any, reward: Any, told: Any) -> None:
    environment = Judged(rubric=lambda action, observation: given)
    seen = environment.step(Action())
    assert seen.reward == reward and type(seen.reward) is type(reward)
    assert seen.metadata.get(REWARD_INFO) == told


@pytest.mark.parametrize(
    ("fault", "is_said"),
    [(NotImplementedError(), False), (KeyError("why"), True), ([math.nan], True), (3, True)],
    ids=repr,
)
def test_a_rubric_that_cannot_share_its_score_scores_all_the_same(
    fault: Any, is_said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    class Old:
        def __call__(self, action: Action, observation: Observation) -> float:
            return 0.5

        def compute_step_rewards(self) -> Any:
            if isinstance(fault, Exception):
                raise fault
            return fault

    seen = Judged(rubric=Old()).step(Action())
    assert seen.reward == 0.5 and REWARD_INFO not in seen.metadata
    assert ("compute_step_rewards" in caplog.text) is is_said


def test_what_is_known_of_a_reward_is_that_of_the_last_one() -> None:
    given = iter([Score(1.0, {"a": 1.0}), 0.5])
    environment = Judged(rubric=lambda action, observation: next(given))
    shown = Observation()
    assert environment._apply_rubric(Action(), shown) == 1.0 and REWARD_INFO in shown.metadata
    assert environment._apply_rubric(Action(), shown) == 0.5 and REWARD_INFO not in shown.metadata


@pytest.mark.parametrize("mark", [transition, termination, truncation, scored])
def test_an_observation_is_scored_whichever_way_it_is_marked(mark: Any) -> None:
    before = Observation(metadata={"k": 1, REWARD_INFO: {"unscored": "stale"}})
    seen = mark(before, Score(1.0, {"a": 1.0}))
    assert seen.reward == 1.0
    assert seen.metadata == {"k": 1, REWARD_INFO: {"components": {"a": 1.0}}}
    assert before.metadata[REWARD_INFO] == {"unscored": "stale"}, "it is left as it was"
    assert mark(before, Score(unscored="late")).metadata[REWARD_INFO] == {"unscored": "late"}
    assert REWARD_INFO not in mark(before, Score(2.0)).metadata
    assert mark(Observation(), 0.5).reward == 0.5
