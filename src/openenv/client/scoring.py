"""Client-side scoring of whole episodes, for environments that give no reward."""

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
        scorer: The scorer; see `openenv.rewards.delayed`.
        credit: How the score is shared; see `openenv.rewards.credit`.

    Raises:
        ValueError: The credit assignment is unknown.

    Attributes:
        options: Options that make another client score in the same way.
    """

    def __init__(self, scorer: TrajectoryScorer, credit: str | Credit) -> None:
        self.options: dict[str, Any] = {"trajectory_scorer": scorer, "credit": credit}
        self._episode = EpisodeScorer(scorer, credit)

    def begin(self, result: StepResult[Any], task: Any = None) -> None:
        """Note that an episode has begun, and its task."""
        self._episode.begin(_checked(result).observation, task)

    def lose(self, why: str) -> None:
        """Note that the running episode is not known as a whole, and why."""
        self._episode.lose(why)

    async def step(self, action: Any, result: StepResult[Any]) -> StepResult[Any]:
        """Note a step. The result of the last step gets the reward of the episode."""
        _checked(result)
        score = self._episode.step(action, result.observation, result.reward, result.done)
        return await self._scored(score, result)

    async def repeat(self, result: StepResult[Any]) -> StepResult[Any]:
        """Return the result of a step that was noted before."""
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
