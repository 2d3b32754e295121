"""Rubrics as scorers of episodes, and scorers as rubrics."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from openenv.environment import Environment, termination, transition
from openenv.errors import Unscored
from openenv.reward import REWARD_INFO, Score
from openenv.rewards.containers import RubricList, WeightedSum
from openenv.rewards.delayed import Trajectory
from openenv.rewards.external import bounded, from_rubric, limits, to_rubric
from openenv.rewards.external.fields import Fields
from openenv.rewards.rubric import Rubric
from openenv.rewards.trajectory import ExponentialDiscountingTrajectoryRubric
from openenv.types import Action, Observation, State

Episode = Trajectory[Any, Any]


class Count(Rubric):
    """Gives what was shown; counts the steps of the episode."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def forward(self, action: Any, observation: Any) -> Any:
        self.steps += 1
        if observation.shown is None:
            raise Unscored("nothing was shown")
        return observation.shown

    def reset(self) -> Any:
        self.steps = 0
        return super().reset()


class Later(Count):
    def forward(self, action: Any, observation: Any) -> Any:
        return self.later(super().forward(action, observation))

    async def later(self, value: float) -> float:
        await asyncio.sleep(0)
        return value


class Won(ExponentialDiscountingTrajectoryRubric):
    def __init__(self) -> None:
        super().__init__(gamma=0.5)

    def score_trajectory(self, trajectory: Any) -> Any:
        return trajectory[-1][1].shown


def episode(*shown: Any, done: bool = True) -> Episode:
    last = len(shown) - 1
    return Trajectory(
        [("act", Fields(shown=one, done=done and at == last)) for at, one in enumerate(shown)]
    )


def score(scorer: Any, trajectory: Episode) -> Score:
    found: Score = asyncio.run(scorer(trajectory))
    return found


@pytest.mark.parametrize("rubric", [Count, Later], ids=["plain", "awaited"])
@pytest.mark.parametrize("make", [lambda cls: cls, lambda cls: cls()], ids=["class", "instance"])
def test_a_rubric_is_shown_the_episode_step_by_step(rubric: Any, make: Any) -> None:
    scorer = from_rubric(make(rubric))
    for _ in range(2):
        found = score(scorer, episode(0.25, 0.5))
        assert (found.value, found.step_rewards) == (0.75, [0.25, 0.5])
        assert found.components == {rubric.__name__.lower(): 0.75}
    if isinstance(scorer.rubric, Count):
        assert scorer.rubric.steps == 2  # and not 4: it was reset


def test_the_parts_of_a_sum_are_the_components_of_the_episode() -> None:
    rubric = WeightedSum([Count(), Later()], [0.5, 0.5])
    found = score(from_rubric(rubric), episode(1.0, 2.0))
    assert found.value == 3.0
    assert sum(found.components.values()) == 3.0 and len(found.components) == 2


def test_a_step_that_cannot_be_scored_leaves_the_episode_unscored() -> None:
    for rubric in (Count(), Later()):
        with pytest.raises(Unscored, match="step 2: nothing was shown"):
            score(from_rubric(rubric), episode(1.0, None, 1.0))
    assert score(from_rubric(rubric), episode(1.0)).value == 1.0


def test_a_function_is_a_rubric_too() -> None:
    def sometimes(action: Any, observation: Any) -> float | None:
        return observation.shown or None

    found = score(from_rubric(sometimes), episode(0.0, 2.0))
    assert found == Score(2.0, step_rewards=[0.0, 2.0])
    assert score(from_rubric(sometimes), episode(0.0)) == Score()
    with pytest.raises(Unscored, match="step 1: the rubric gave nan"):
        score(from_rubric(sometimes), episode(float("nan")))


def test_a_rubric_of_the_whole_episode_is_asked_at_its_end() -> None:
    found = score(from_rubric(Won), episode(None, None, 1.0))
    assert (found.value, found.step_rewards) == (1.0, [0.25, 0.5, 1.0])
    assert found.components == {"won": 1.0}


def test_one_of_an_episode_that_was_cut_off_is_asked_all_the_same() -> None:
    assert score(from_rubric(Won), episode(None, 3.0, done=False)).value == 3.0


def test_an_instance_scores_one_episode_at_a_time_and_classes_many() -> None:
    inside = threading.Semaphore(1)

    class Alone(Rubric):
        def forward(self, action: Any, observation: Any) -> float:
            assert inside.acquire(blocking=False), "two episodes at a time"
            inside.release()
            return 1.0

    async def ask(scorer: Any) -> list[Score]:
        return list(await asyncio.gather(*(scorer(episode(1.0, 1.0)) for _ in range(8))))

    for scorer in (from_rubric(Alone()), bounded(from_rubric(Alone()))):
        assert [one.value for one in asyncio.run(ask(scorer))] == [2.0] * 8
    assert limits.bounded(from_rubric(Alone()))._slots.count == 1
    assert limits.bounded(from_rubric(Alone))._slots.count > 1


def test_a_rubric_that_blocks_is_left_behind_and_its_turn_ends_with_it() -> None:
    gate, entered = threading.Event(), []

    class Blocks(Rubric):
        def forward(self, action: Any, observation: Any) -> float:
            entered.append(observation.shown)
            assert gate.wait(20)
            return 1.0

    async def ask() -> tuple[Any, float | None]:
        scorer = from_rubric(Blocks())
        (late,) = await asyncio.gather(
            bounded(scorer, timeout_s=0.05, retries=0)(episode(1.0)), return_exceptions=True
        )
        waits = asyncio.ensure_future(scorer(episode(2.0)))
        await asyncio.wait({waits}, timeout=0.05)
        assert entered == [1.0], "the thread of before is still in the rubric"
        gate.set()
        return late, (await asyncio.wait_for(waits, 10)).value

    late, value = asyncio.run(ask())
    assert isinstance(late, Unscored) and value == 1.0


# ------------------------------------------------------------------ the other way


def halves(trajectory: Any) -> Score:
    shown = trajectory[-1][1].shown
    if shown is None:
        raise Unscored("nothing was shown")
    return Score(shown, {"a": shown / 2, "b": shown / 2})


async def halves_later(trajectory: Any) -> Score:
    await asyncio.sleep(0)
    return halves(trajectory)


async def awaited(outcome: Any) -> Any:
    return await outcome if hasattr(outcome, "__await__") else outcome


@pytest.mark.parametrize("scorer", [halves, halves_later])
def test_a_scorer_is_a_rubric_of_each_step(scorer: Any) -> None:
    rubric = to_rubric(scorer)
    assert asyncio.run(awaited(rubric("act", Fields(shown=1.0)))) == 1.0
    assert rubric.components() == {"a": 0.5, "b": 0.5}
    with pytest.raises(Unscored, match="nothing was shown"):
        asyncio.run(awaited(rubric("act", Fields(shown=None))))


@pytest.mark.parametrize("scorer", [halves, halves_later])
def test_a_scorer_is_a_rubric_of_the_whole_episode(scorer: Any) -> None:
    rubric = to_rubric(scorer, whole=True, name="judge")
    found = score(from_rubric(rubric), episode(9.0, 2.0))
    assert (found.value, found.step_rewards) == (2.0, [0.0, 2.0])
    assert found.components == {"a": 1.0, "b": 1.0}


def test_no_step_gets_a_share_of_an_earlier_episodes_score() -> None:
    rubric = to_rubric(halves, whole=True)
    last = Fields(shown=2.0, done=True)
    assert rubric("act", last) == 2.0 and rubric.compute_step_rewards() == [2.0]  # type: ignore[union-attr]
    rubric.reset()
    for begin in (lambda: None, lambda: rubric("act", Fields(shown=1.0, done=False))):
        begin()
        with pytest.raises(Unscored, match="no score"):
            rubric.compute_step_rewards()  # type: ignore[union-attr]
    with pytest.raises(Unscored, match="nothing was shown"):
        rubric("act", Fields(shown=None, done=True))
    with pytest.raises(Unscored, match="no score"):
        rubric.compute_step_rewards()  # type: ignore[union-attr]


def test_it_stands_among_others() -> None:
    rubric = WeightedSum([Count(), to_rubric(halves)], [0.5, 0.5])
    assert rubric("act", Fields(shown=2.0)) == 2.0


class Say(Action):
    word: str


class Heard(Observation):
    shown: float = 0.0


class Judged(Environment[Say, Heard, State]):
    """Scores each step by a rubric that was a scorer."""

    def __init__(self) -> None:
        super().__init__(rubric=to_rubric(halves))

    def reset(self, **kwargs: Any) -> Heard:  # type: ignore[override]
        self._reset_rubric()
        return transition(Heard())

    def step(self, action: Say) -> Heard:  # type: ignore[override]
        heard = termination(Heard(shown=1.0))
        return heard.model_copy(update={"reward": self._apply_rubric(action, heard)})

    @property
    def state(self) -> State:
        return State()


def test_an_environment_scores_its_steps_by_it() -> None:
    env = Judged()
    env.reset()
    heard = env.step(Say(word="x"))
    assert heard.reward == 1.0
    assert heard.metadata[REWARD_INFO]["components"] == {"a": 0.5, "b": 0.5}


class Named(Count):
    """A program of old, in which `components` is another thing."""

    def __init__(self, components: Any) -> None:
        super().__init__()
        self.components = components  # type: ignore[method-assign]


class Listing(Count):
    @property
    def components(self) -> Any:
        return [self]


@pytest.mark.parametrize(
    "make",
    [lambda: Named([Count()]), lambda: Named(RubricList([Count()])), Listing],
    ids=["a list", "rubrics", "a property"],
)
def test_a_rubric_may_call_something_else_its_components(make: Any) -> None:
    found = score(from_rubric(make()), episode(1.0, 2.0))
    assert (found.value, found.components) == (3.0, {})
    env = Judged()
    env.rubric = make()
    env.reset()
    assert env.step(Say(word="x")).reward == 1.0
    above = WeightedSum({"old": make()}, {"old": 1.0})
    assert above("act", Fields(shown=2.0)) == 2.0 and above.components() == {"old": 2.0}
