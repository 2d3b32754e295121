"""Rubrics that score an episode as a whole."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any

import pytest
from rewards.rubrics import Fixed

from openenv.errors import Unscored
from openenv.rewards import ExponentialDiscountingTrajectoryRubric, Sequential, TrajectoryRubric
from openenv.rewards.credit import uniform


@dataclass
class Seen:
    """An observation, with a frame that is large."""

    done: bool = False
    won: bool = False
    frame: bytes = b"..."


class Won(ExponentialDiscountingTrajectoryRubric):
    """1 for an episode that was won, and 0 for any other."""

    scored = 0

    def score_trajectory(self, trajectory: list[tuple[Any, Any]]) -> Any:
        self.scored += 1
        return float(trajectory[-1][1].won)


class WonLater(Won):
    async def score_trajectory(self, trajectory: list[tuple[Any, Any]]) -> float:
        await asyncio.sleep(0)
        return float(trajectory[-1][1].won)


class Shared(TrajectoryRubric):
    """The number of steps, which each of them has the same share in."""

    def score_trajectory(self, trajectory: list[tuple[Any, Any]]) -> float:
        return float(len(trajectory))

    def compute_step_rewards(self) -> list[float]:
        return uniform(self.score_trajectory(self.trajectory), len(self.trajectory))


END = Seen(done=True, won=True)


def test_an_episode_is_scored_when_it_is_done() -> None:
    rubric = Won(intermediate_reward=0.25)
    assert [rubric("a", Seen()), rubric("b", END)] == [0.25, 1.0]
    assert rubric.trajectory == [("a", Seen()), ("b", END)]
    assert rubric.components() == {"won": 1.0}


def test_what_is_read_of_an_episode_is_a_copy() -> None:
    rubric = Won()
    rubric("a", Seen())
    rubric.trajectory.clear()
    assert len(rubric.trajectory) == 1


def test_an_observation_that_does_not_say_that_it_is_done_is_not() -> None:
    assert Won(intermediate_reward=0.5)("a", object()) == 0.5


@pytest.mark.parametrize(
    ("gamma", "shares"),
    [(0.5, [0.25, 0.5, 1.0]), (1.0, [1.0] * 3), (0.0, [0.0, 0.0, 1.0])],
)
def test_earlier_steps_have_a_smaller_share(gamma: float, shares: list[float]) -> None:
    rubric = Won(gamma)
    for seen in (Seen(), Seen(), END):
        rubric("a", seen)
    assert rubric.compute_step_rewards() == shares
    assert rubric.scored == 1


def test_while_an_episode_goes_on_its_steps_share_what_it_has_come_to() -> None:
    rubric = Won(0.5)
    assert rubric.compute_step_rewards() == []
    rubric("a", Seen(won=True))
    assert rubric.compute_step_rewards() == [1.0]
    rubric("a", END)
    rubric("b", Seen())
    assert rubric.compute_step_rewards() == [0.0, 0.0, 0.0]


def test_shares_may_be_given_in_another_way() -> None:
    rubric = Shared()
    rubric("a", Seen())
    assert rubric("b", END) == 2.0 and rubric.compute_step_rewards() == [1.0, 1.0]


def test_an_episode_may_be_scored_by_a_coroutine() -> None:
    rubric = WonLater(0.5)
    assert rubric("a", Seen()) == 0.0
    with pytest.raises(Unscored, match="goes on"):
        rubric.compute_step_rewards()
    assert asyncio.run(rubric("b", END)) == 1.0 == rubric.last_score
    assert rubric.compute_step_rewards() == [0.5, 1.0]


@pytest.mark.parametrize("outcome", [None, float("nan")])
def test_an_episode_without_a_score_has_no_shares_of_it(outcome: Any) -> None:
    class Silent(Won):
        def score_trajectory(self, trajectory: list[tuple[Any, Any]]) -> Any:
            return outcome

    rubric = Silent()
    with contextlib.suppress(Unscored):  # what is no number is none
        assert rubric("a", END) is None
    with pytest.raises(Unscored, match="score of the episode"):
        rubric.compute_step_rewards()


def test_a_reset_forgets_the_episode_however_deep_the_rubric_is() -> None:
    inner = Won()
    rubric = Sequential(Fixed(1.0), inner)
    rubric("a", END)
    rubric.reset()
    assert inner.trajectory == [] == inner.compute_step_rewards()
    rubric("a", END)
    assert len(inner.trajectory) == 1


def test_a_reset_of_old_that_empties_the_list_itself_will_do() -> None:
    class Old(Won):
        def reset(self) -> None:
            self._trajectory = []

    rubric = Old(0.5)
    for _ in range(2):
        assert [rubric("a", Seen()), rubric("b", END)] == [0.0, 1.0]
        assert rubric.compute_step_rewards() == [0.5, 1.0]
        rubric.reset()


def test_rubrics_below_a_rubric_of_an_episode_are_reset_and_have_settings_too() -> None:
    class Both(Won):
        def __init__(self) -> None:
            super().__init__(0.5)
            self.inner = Won(0.25)

    rubric = Both()
    rubric.inner("a", END)
    rubric.reset()
    assert rubric.inner.trajectory == []
    state = rubric.state_dict()
    assert state["inner"] == {"intermediate_reward": 0.0, "gamma": 0.25}
    state["inner"]["gamma"] = 1.0
    rubric.load_state_dict(state)
    assert (rubric.gamma, rubric.inner.gamma) == (0.5, 1.0)


def test_of_an_observation_only_what_is_needed_is_kept() -> None:
    def won(seen: Seen) -> Seen:
        return Seen(won=seen.won, frame=b"")

    rubric = Won(0.5, keep=won)
    assert [rubric("a", Seen()), rubric("b", END)] == [0.0, 1.0]
    assert rubric.trajectory[-1] == ("b", Seen(won=True, frame=b""))
    assert rubric.compute_step_rewards() == [0.5, 1.0]


def test_an_episode_that_is_too_long_is_not_scored_by_a_part_of_it() -> None:
    rubric = Won(max_steps=2)
    assert [rubric("a", Seen()), rubric("a", Seen())] == [0.0, 0.0]
    for steps, seen in ((3, Seen()), (4, END)):
        with pytest.raises(Unscored, match=f"{steps} steps.*max_steps=2"):
            rubric("a", seen)
    assert rubric.trajectory == [] and rubric.last_score is None
    with pytest.raises(Unscored, match="4 steps"):
        rubric.compute_step_rewards()
    rubric.reset()
    assert rubric("a", END) == 1.0


def test_an_episode_may_be_of_any_length() -> None:
    rubric = Shared(max_steps=None)
    for _ in range(3):
        rubric("a", Seen())
    assert len(rubric.trajectory) == 3 and Shared().max_steps == 100_000


@pytest.mark.parametrize("gamma", [-0.1, 1.5, float("nan")])
def test_a_discount_outside_of_its_bounds_is_refused(gamma: float) -> None:
    with pytest.raises(ValueError, match="gamma"):
        Won(gamma)
    rubric = Won(0.5, 0.25)
    with pytest.raises(ValueError, match="gamma"):
        rubric.load_state_dict({"gamma": gamma, "intermediate_reward": 1.0})
    assert (rubric.gamma, rubric.intermediate_reward) == (0.5, 0.25)


def test_settings_are_told_and_taken_over() -> None:
    state = Won(0.9, 0.1).state_dict()
    assert state == {"intermediate_reward": 0.1, "gamma": 0.9}
    rubric = Won()
    rubric.load_state_dict(state)
    assert rubric.state_dict() == state
    rubric.load_state_dict({})
    assert rubric.state_dict() == state


def test_a_rubric_that_scores_no_trajectory_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="score_trajectory"):
        TrajectoryRubric()  # type: ignore[abstract]
