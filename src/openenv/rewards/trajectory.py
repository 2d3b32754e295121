"""Rubrics that score whole episodes at the end."""

from __future__ import annotations

import asyncio
import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from openenv.errors import Unscored
from openenv.rewards.credit import discounted
from openenv.rewards.rubric import Rubric, Steps, await_if_pending, is_pending, run_steps

Trajectory = list[tuple[Any, Any]]

MAX_STEPS = 100_000
"""Default for the maximum number of steps to keep: more than an Atari game has."""


class TrajectoryRubric(Rubric):
    """A rubric that keeps the steps of an episode and scores them at the end.

    Args:
        intermediate_reward: The score of each step before the last.
        max_steps: Maximum number of steps to keep; None for no limit. Default: 100,000. A longer
            episode is unscored, because the score of a part would be wrong.
        keep: Function that reduces a large observation to the data that `score_trajectory` needs.
            By default observations are kept whole.
    """

    def __init__(
        self,
        intermediate_reward: float = 0.0,
        *,
        max_steps: int | None = MAX_STEPS,
        keep: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__()
        self.intermediate_reward = intermediate_reward
        self.max_steps = max_steps
        self.keep = keep
        self._forget()

    def _forget(self) -> None:
        self._trajectory: Trajectory = []
        self._too_many = 0  # number of steps, if more than `max_steps`; otherwise 0
        self._final: float | None = None

    def forward(self, action: Any, observation: Any) -> Any:
        """Keep a step, and score the episode if the step is the last.

        Raises:
            Unscored: The episode has more than `max_steps` steps.
        """
        return run_steps(self._scoring(action, observation))

    def _scoring(self, action: Any, observation: Any) -> Steps[Any]:
        self._add(action, observation)
        if not getattr(observation, "done", False):
            return self.intermediate_reward
        self._final = yield from await_if_pending(self.score_trajectory(self._trajectory))
        return self._final

    def _add(self, action: Any, observation: Any) -> None:
        self._final = None
        steps = (self._too_many or len(self._trajectory)) + 1
        if self.max_steps is not None and steps > self.max_steps:
            self._too_many, self._trajectory = steps, []
            raise Unscored(
                f"the episode has had {steps} steps, and {type(self).__name__} keeps "
                f"max_steps={self.max_steps}"
            )
        kept = observation if self.keep is None else self.keep(observation)
        self._trajectory.append((action, kept))

    @abstractmethod
    def score_trajectory(self, trajectory: Trajectory) -> Any:
        """Score an episode; may be ``async def``.

        Args:
            trajectory: The steps in order: pairs of the action and the kept observation. Do not
                modify the list.

        Raises:
            Unscored: The episode cannot be scored.
        """

    @abstractmethod
    def compute_step_rewards(self) -> list[float]:
        """Return each step's share of the score, in order.

        `openenv.rewards.credit` has functions for common ways to share a score.
        """

    def reset(self) -> Any:
        self._forget()
        return super().reset()

    @property
    def trajectory(self) -> Trajectory:
        """Return a copy of the steps so far."""
        return list(self._trajectory)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "intermediate_reward": self.intermediate_reward}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.intermediate_reward = state.get("intermediate_reward", self.intermediate_reward)


class ExponentialDiscountingTrajectoryRubric(TrajectoryRubric):
    """A rubric that gives step t of T ``gamma**(T - 1 - t)`` times the score.

    Args:
        gamma: Discount factor, from 0 to 1.
        intermediate_reward: The score of each step before the last.
        max_steps: See `TrajectoryRubric`.
        keep: See `TrajectoryRubric`.

    Raises:
        ValueError: `gamma` is not between 0 and 1.
    """

    def __init__(
        self,
        gamma: float = 0.99,
        intermediate_reward: float = 0.0,
        *,
        max_steps: int | None = MAX_STEPS,
        keep: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(intermediate_reward, max_steps=max_steps, keep=keep)
        discounted(gamma)
        self.gamma = gamma

    def compute_step_rewards(self) -> list[float]:
        """Return each step's share of the score, or of the score so far if the episode goes on.

        Raises:
            Unscored: The episode has no score, or has more than `max_steps` steps, or goes on and
                the score so far would have to be awaited.
        """
        if self._too_many:
            raise Unscored(f"not all of the {self._too_many} steps of the episode were kept")
        if not self._trajectory:
            return []
        outcome: Any = self._final
        if outcome is None:
            outcome = self.score_trajectory(self._trajectory)
        if is_pending(outcome):
            if asyncio.iscoroutine(outcome):
                outcome.close()
            raise Unscored("the episode goes on, and its score has to be awaited")
        if outcome is None or not math.isfinite(outcome):
            raise Unscored(f"the score of the episode is {outcome}")
        return list(discounted(self.gamma)(outcome, len(self._trajectory)))

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "gamma": self.gamma}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        gamma = state.get("gamma", self.gamma)
        discounted(gamma)
        super().load_state_dict(state)
        self.gamma = gamma
