"""Episodes that are scored as a whole, by a function."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from openenv.errors import Unscored
from openenv.reward import Score
from openenv.rewards.credit import uniform
from openenv.rewards.delayed import (
    EpisodeScorer,
    Trajectory,
    apply_score,
    score_trajectory,
    score_trajectory_async,
)

EPISODE = Trajectory([("a", 1), ("b", 2)], first=0, rewards=[None, 0.5], task="t")


def scored(scorer: Any, credit: Any = "terminal") -> Score:
    """The score of a scorer, and that it is the same when it is a coroutine function."""

    async def later(trajectory: Any) -> Any:
        return scorer(trajectory)

    score = score_trajectory(scorer, EPISODE, credit)
    assert isinstance(score, Score)
    again = asyncio.run(score_trajectory_async(later, EPISODE, credit))
    assert (again.value, again.step_rewards) == (score.value, score.step_rewards)
    assert bool(again.unscored) == bool(score.unscored)
    return score


# ------------------------------------------------------------------ what a scorer returns


def test_a_scorer_sees_the_whole_episode() -> None:
    seen: list[Any] = []
    scored(lambda t: seen.append((list(t), t.first, t.rewards, t.task)))
    assert seen[0] == ([("a", 1), ("b", 2)], 0, [None, 0.5], "t")


def test_a_number_is_spread_over_the_steps() -> None:
    assert scored(lambda t: 1).step_rewards == [0.0, 1.0]
    assert scored(lambda t: 1.0, uniform).step_rewards == [0.5, 0.5]
    assert scored(lambda t: True, "discounted:0.5").step_rewards == [0.5, 1.0]


def test_numbers_are_the_shares_and_their_sum_the_reward() -> None:
    score = scored(lambda t: [0.25, 0.5])
    assert (score.value, score.step_rewards) == (0.75, [0.25, 0.5])


def test_a_score_is_taken_as_it_is() -> None:
    parts = {"x": 0.5, "y": 0.5}
    score = scored(lambda t: Score(1.0, parts))
    assert (score.components, score.step_rewards) == (parts, [0.0, 1.0])
    assert scored(lambda t: Score(1.0, step_rewards=[1.0, 0.0])).step_rewards == [1.0, 0.0]
    assert scored(lambda t: Score(unscored="why")).unscored == "why"


def test_none_says_that_there_is_nothing_to_score() -> None:
    assert scored(lambda t: None) == Score()


def raising(error: Exception) -> Any:
    def scorer(trajectory: Any) -> Any:
        raise error

    return scorer


def test_a_scorer_that_cannot_score_says_why() -> None:
    assert scored(raising(Unscored("the judge is gone"))).unscored == "the judge is gone"


@pytest.mark.parametrize(
    ("scorer", "named"),
    [
        (raising(KeyError("secret")), "KeyError"),
        (lambda t: [0.5], "ValueError"),
        (lambda t: "much", "ValueError"),
        (lambda t: Score(1.0, {"x": 0.5}), "ValueError"),
    ],
)
def test_a_scorer_that_fails_gives_no_score_and_the_log_has_all_of_it(
    scorer: Any, named: str, caplog: pytest.LogCaptureFixture
) -> None:
    score = scored(scorer)
    assert score.value is None and score.unscored is not None
    assert named in score.unscored and "secret" not in score.unscored
    assert {record.levelno for record in caplog.records} == {logging.ERROR}
    assert all(record.exc_info for record in caplog.records)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_score_that_is_not_finite_is_none(value: float) -> None:
    assert scored(lambda t: value).unscored == f"the score is {value}"


def test_a_credit_that_forgets_a_step_is_no_credit() -> None:
    assert "ValueError" in str(scored(lambda t: 1.0, lambda reward, steps: [reward]).unscored)


# ------------------------------------------------------------------ one episode after the other


def played(scorer: EpisodeScorer, steps: int, **given: Any) -> Any:
    scorer.begin("first", **given)
    outcomes = [scorer.step(i, f"seen {i}", None, i == steps) for i in range(1, steps + 1)]
    assert outcomes[:-1] == [None] * (steps - 1)
    return outcomes[-1]


def test_each_episode_is_scored_at_its_end() -> None:
    seen: list[Any] = []

    def scorer(trajectory: Any) -> float:
        seen.append((list(trajectory), trajectory.first, trajectory.task))
        return float(len(trajectory))

    episodes = EpisodeScorer(scorer, "uniform")
    assert played(episodes, 2, task="t") == Score(2.0, step_rewards=[1.0, 1.0])
    assert played(episodes, 1) == Score(1.0, step_rewards=[1.0])
    assert seen[0] == ([(1, "seen 1"), (2, "seen 2")], "first", "t")
    assert seen[1] == ([(1, "seen 1")], "first", None)


def test_a_scorer_that_is_a_coroutine_function_is_awaited_by_whoever_asks() -> None:
    async def scorer(trajectory: Any) -> float:
        return float(len(trajectory))

    assert asyncio.run(played(EpisodeScorer(scorer), 2)).value == 2.0


def test_of_an_observation_only_what_the_scorer_needs_is_kept() -> None:
    class Last:
        def keep(self, seen: str) -> str:
            return seen[-1]

        def __call__(self, trajectory: Any) -> float:
            assert trajectory.first == "t"
            return float(trajectory[-1][1])

    assert played(EpisodeScorer(Last()), 3).value == 3.0


@pytest.mark.parametrize("broken", ["first", "seen 2"])
def test_an_observation_that_cannot_be_reduced_costs_the_score_and_not_the_step(
    broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Picky:
        def keep(self, seen: str) -> str:
            if seen == broken:
                raise KeyError("secret")
            return seen

        def __call__(self, trajectory: Any) -> float:
            return float(len(trajectory))

    episodes = EpisodeScorer(Picky())
    score = played(episodes, 3)
    assert score.value is None and "keep" in score.unscored and "KeyError" in score.unscored
    assert "secret" not in score.unscored and "secret" in caplog.text
    if broken != "first":
        assert played(episodes, 1).value == 1.0


def test_an_episode_that_is_not_known_as_a_whole_has_no_score() -> None:
    episodes = EpisodeScorer(lambda t: 1.0, max_steps=2)
    assert episodes.step(1, 1, None, True).unscored  # type: ignore[union-attr]
    assert "2 steps" in played(episodes, 3).unscored
    assert played(episodes, 2).value == 1.0
    assert "over before" in episodes.step(3, 3, None, True).unscored  # type: ignore[union-attr,operator]
    episodes.begin("first")
    episodes.lose("it was forked")
    assert episodes.step(1, 1, None, True) == Score(unscored="it was forked")


def test_a_credit_assignment_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="did you mean"):
        EpisodeScorer(lambda t: 1.0, "unifrom")


# ------------------------------------------------------------------ what is told with the last step


def test_the_score_of_an_episode_takes_the_place_of_that_of_its_last_step() -> None:
    before = {"spec": {"kind": "terminal"}, "components": {"x": 0.5}}
    reward, info = apply_score(Score(1.0, step_rewards=[1.0]), 0.5, before)
    assert (reward, info) == (1.0, {"spec": {"kind": "terminal"}, "step_rewards": [1.0]})
    assert apply_score(Score(unscored="why"), 0.5, None) == (None, {"unscored": "why"})
    assert apply_score(Score(1.0), 0.5, {"components": {"x": 0.5}}) == (1.0, None)


def test_a_scorer_that_says_nothing_changes_nothing() -> None:
    before = {"components": {"x": 0.5}}
    assert apply_score(Score(), 0.5, before) == (0.5, before)
