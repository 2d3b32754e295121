"""Environments that tell what their rewards mean, in each of the forms that authors write."""

from __future__ import annotations

from typing import Any, ClassVar

from openenv import Environment, StepResult
from openenv.environment import scored
from openenv.errors import Unscored
from openenv.reward import RewardSpec, Score
from support.environments import AsyncCounter, Counter, Do, Seen

SPEC = RewardSpec("per_step", range=(0.0, 2.0), components=("work", "style"))


def score_of(action: Do) -> Score:
    """What an action is worth: its value, half of it for style; text is why it cannot be scored."""
    if isinstance(action.value, str):
        return Score(unscored=action.value)
    return Score(action.value, {"work": action.value / 2, "style": action.value / 2})


class Scorer(Counter):
    """Notes what a reward consists of beside the observation."""

    REWARD: ClassVar[RewardSpec | None] = SPEC

    def step(self, action: Do, timeout_s: float | None = None) -> Seen:  # type: ignore[override]
        return scored(super().step(Do()), score_of(action))


class AsyncScorer(AsyncCounter):
    """Gives it in the result."""

    REWARD: ClassVar[RewardSpec | None] = SPEC

    async def step(self, action: Do) -> StepResult[Seen]:  # type: ignore[override]
        result, score = await super().step(Do()), score_of(action)
        return StepResult(Seen(text=result.observation.text), score.value, **told(score))


def told(score: Score) -> dict[str, Any]:
    """What a result tells of a reward."""
    return {"reward_info": score.as_info()}


class Judge:
    """A rubric as it was written for the public package: a function of action and observation."""

    def __call__(self, action: Do, observation: Seen) -> float:
        if isinstance(action.value, str):
            raise Unscored(action.value)
        value: float = action.value
        return value

    def components(self) -> dict[str, float]:
        return {}

    def reset(self) -> None:
        pass


class RubricScorer(Counter):
    """Has a rubric score it."""

    REWARD: ClassVar[RewardSpec | None] = SPEC

    def __init__(self) -> None:
        super().__init__()
        self.rubric = Judge()

    def step(self, action: Do, timeout_s: float | None = None) -> Seen:  # type: ignore[override]
        observation = super().step(Do())
        observation.reward = self._apply_rubric(action, observation)
        return observation


def last_words(trajectory: Any) -> list[float]:
    """Score an episode: 1 for each step whose observation says where it stands."""
    assert trajectory.first.text == "ready"
    assert len(trajectory.rewards) == len(trajectory)
    if any(action.value == "odd" for action, _ in trajectory):
        raise Unscored("that is odd")
    if any(action.value == "broken" for action, _ in trajectory):
        raise KeyError("secret")
    return [float(observation.text.startswith("step")) for _, observation in trajectory]


async def last_words_async(trajectory: Any) -> list[float]:
    return last_words(trajectory)


class Delayed(Counter):
    """Its episodes are scored as a whole."""

    REWARD: ClassVar[RewardSpec | None] = RewardSpec("terminal")

    def __init__(self) -> None:
        super().__init__()
        self.trajectory_scorer = last_words


class DelayedByCoroutine(Counter):
    """By a coroutine function, though it is synchronous itself."""

    def __init__(self) -> None:
        super().__init__()
        self.trajectory_scorer = last_words_async


class AsyncDelayed(AsyncCounter):
    """An asynchronous one."""

    def __init__(self) -> None:
        super().__init__()
        self.trajectory_scorer = last_words_async


SCORERS: dict[str, type[Environment[Any, Any, Any]]] = {
    "sync": Scorer,
    "async": AsyncScorer,
    "rubric": RubricScorer,
}
DELAYED: dict[str, type[Environment[Any, Any, Any]]] = {
    "sync": Delayed,
    "by a coroutine": DelayedByCoroutine,
    "async": AsyncDelayed,
}
