"""Episodes that a client scores as a whole, where the environment does not."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from openenv.reward import Score
from openenv.rewards.credit import Credit
from openenv.rewards.delayed import EpisodeScorer, TrajectoryScorer, apply_score
from openenv.types import Observation, StepResult

__all__ = ["EpisodeScoring"]


class EpisodeScoring:
    """Gathers a client's actions and observations, and scores an episode at the end.

    Args:
        scorer: See `openenv.rewards.delayed`.
        credit: See `openenv.rewards.credit`.

    Raises:
        ValueError: There is no such credit assignment.

    Attributes:
        options: What makes a client's sibling score likewise.
    """

    def __init__(self, scorer: TrajectoryScorer, credit: str | Credit) -> None:
        self.options: dict[str, Any] = {"trajectory_scorer": scorer, "credit": credit}
        self._episode = EpisodeScorer(scorer, credit)

    def begin(self, result: StepResult[Any], task: Any = None) -> None:
        """Note that an episode has begun, and the task of the episode."""
        self._episode.begin(_checked(result).observation, task)

    def lose(self, why: str) -> None:
        """Note that the running episode is not known as a whole."""
        self._episode.lose(why)

    async def step(self, action: Any, result: StepResult[Any]) -> StepResult[Any]:
        """Note a step; the result of the last one gets the reward of the episode."""
        _checked(result)
        score = self._episode.step(action, result.observation, result.reward, result.done)
        return await self._scored(score, result)

    async def repeat(self, result: StepResult[Any]) -> StepResult[Any]:
        """Return again the result of a step that was noted before."""
        return await self._scored(self._episode.repeat(result.done), result)

    async def _scored(
        self, score: Score | Awaitable[Score] | None, result: StepResult[Any]
    ) -> StepResult[Any]:
        if score is None:
            return result
        if not isinstance(score, Score):
            score = await score
        result.reward, result.reward_info = apply_score(score, result.reward, result.reward_info)
        if isinstance(result.observation, Observation):
            result.observation = result.observation.model_copy(update={"reward": result.reward})
        return result


def _checked(result: Any) -> StepResult[Any]:
    if not isinstance(result, StepResult):
        raise TypeError(
            "a client with a trajectory_scorer needs a _parse_result that gives a StepResult, not "
            f"{type(result).__name__}"
        )
    return result
