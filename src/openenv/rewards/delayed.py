"""Delayed rewards: scoring of whole episodes at the end, later, or in another process.

A trajectory scorer is a function, plain or ``async def``, that takes the whole sequence of (action,
observation) pairs. Environments (`Environment.trajectory_scorer`), clients, rollouts and ``openenv
score``, which scores recorded episodes, accept a trajectory scorer:

    def solved(trajectory):
        return 1.0 if trajectory[-1][1].board == GOAL else 0.0

A scorer returns one of

- a number, which `credit` spreads over the steps (`openenv.rewards.credit`);
- a list with one number per step, whose sum is the reward of the episode;
- a `Score`, which may have components and rewards of steps;
- None, if there is nothing to score.

A scorer raises `Unscored` if it cannot score. Any other exception also leaves the episode unscored:
the reward is None, the reason names the class of the exception, and the log has the traceback.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from openenv.errors import Unscored
from openenv.reward import Score
from openenv.rewards.credit import Credit, resolve_credit, terminal

__all__ = [
    "EpisodeScorer",
    "Trajectory",
    "TrajectoryScorer",
    "apply_score",
    "score_of_failure",
    "score_trajectory",
    "score_trajectory_async",
]

logger = logging.getLogger(__name__)

ActT = TypeVar("ActT")
ObsT = TypeVar("ObsT")


class Trajectory(list[tuple[ActT, ObsT]], Generic[ActT, ObsT]):
    """The steps of an episode: pairs of an action and the observation after that action.

    Attributes:
        first: The observation that `reset` returned; None if unknown.
        rewards: The reward that each step had by itself; None for a step without a reward.
        task: The task of the episode, or None.
    """

    def __init__(
        self,
        steps: Iterable[tuple[ActT, ObsT]] = (),
        *,
        first: Any = None,
        rewards: Iterable[float | None] = (),
        task: Any = None,
    ) -> None:
        super().__init__(steps)
        self.first = first
        self.rewards = list(rewards)
        self.task = task

    def add(self, action: ActT, observation: ObsT, reward: float | None = None) -> None:
        """Append a step."""
        self.append((action, observation))
        self.rewards.append(reward)


TrajectoryScorer = Callable[[Any], Any]
"""A function that takes a `Trajectory`; the module's docstring lists the possible results."""


def score_trajectory(
    scorer: TrajectoryScorer, trajectory: Trajectory[Any, Any], credit: str | Credit = terminal
) -> Score | Awaitable[Score]:
    """Score an episode. A scorer that fails leaves the episode unscored; nothing is raised.

    Args:
        scorer: The scorer, which may be ``async def``.
        trajectory: The episode.
        credit: Credit assignment for a scorer that returns no rewards of steps.

    Returns:
        The score, with `step_rewards`; an awaitable of the score if the scorer returns an
        awaitable.
    """
    try:
        outcome = scorer(trajectory)
    except Exception as error:
        return _score_of_scorer_failure(scorer, error)
    if not hasattr(outcome, "__await__"):
        return _finish_score(scorer, outcome, len(trajectory), credit)

    async def awaited() -> Score:
        try:
            found = await outcome
        except Exception as error:
            return _score_of_scorer_failure(scorer, error)
        return _finish_score(scorer, found, len(trajectory), credit)

    return awaited()


async def score_trajectory_async(
    scorer: TrajectoryScorer, trajectory: Trajectory[Any, Any], credit: str | Credit = terminal
) -> Score:
    """Score an episode as `score_trajectory` does, and await the result."""
    score = score_trajectory(scorer, trajectory, credit)
    return score if isinstance(score, Score) else await score


def _finish_score(
    scorer: TrajectoryScorer, outcome: Any, steps: int, credit: str | Credit
) -> Score:
    try:
        return _score(outcome, steps, resolve_credit(credit))
    except Exception as error:
        return _score_of_scorer_failure(scorer, error)


def _score(outcome: Any, steps: int, credit: Credit) -> Score:
    if outcome is None:
        return Score()
    score = outcome if isinstance(outcome, Score) else _score_from_numbers(outcome, steps)
    if score.step_rewards is not None and len(score.step_rewards) != steps:
        raise ValueError(f"the scorer gave {len(score.step_rewards)} rewards for {steps} steps")
    if score.value is None or score.step_rewards is not None:
        return score
    shares = [float(share) for share in credit(score.value, steps)]
    if len(shares) != steps:
        raise ValueError(f"the credit assignment gave {len(shares)} rewards for {steps} steps")
    return Score(score.value, score.components, step_rewards=shares)


def _score_from_numbers(outcome: Any, steps: int) -> Score:
    if not isinstance(outcome, Sequence) or isinstance(outcome, str):
        value = float(outcome)
        return Score(value) if math.isfinite(value) else Score(unscored=f"the score is {value}")
    shares = [float(share) for share in outcome]
    if len(shares) != steps:
        raise ValueError(f"{len(shares)} rewards for {steps} steps")
    return Score(math.fsum(shares), step_rewards=shares)


def _score_of_scorer_failure(scorer: TrajectoryScorer, error: Exception) -> Score:
    return score_of_failure(error, f"the trajectory scorer {_name(scorer)}")


def _name(scorer: TrajectoryScorer) -> str:
    return str(getattr(scorer, "__qualname__", type(scorer).__name__))


def score_of_failure(error: Exception, who: str) -> Score:
    """Return an unscored `Score` that gives the reason for an exception.

    For an `Unscored` the reason is its message. For any other exception the reason names only the
    class, because the message may hold text that the peer must not see; the log has the traceback.
    """
    if isinstance(error, Unscored):
        return Score(unscored=str(error))
    logger.error("%s failed", who, exc_info=error)
    return Score(unscored=f"{who} raised {type(error).__name__}")


MAX_STEPS = 100_000


class EpisodeScorer:
    """A recorder that collects the steps of an episode and scores the whole at the end.

    Args:
        scorer: The scorer of an episode. If the scorer has an attribute `keep`, that function
            reduces each observation to the data that the scorer needs.
        credit: Credit assignment for a scorer that returns no rewards of steps.
        max_steps: Maximum number of steps of an episode; a longer episode is unscored. Default:
            100,000.

    Raises:
        ValueError: The name of the credit assignment is unknown.
    """

    def __init__(
        self,
        scorer: TrajectoryScorer,
        credit: str | Credit = terminal,
        *,
        max_steps: int = MAX_STEPS,
    ) -> None:
        self.scorer = scorer
        self.credit = resolve_credit(credit)
        self.max_steps = max_steps
        self._keep: Callable[[Any], Any] | None = getattr(scorer, "keep", None)
        self._trajectory: Trajectory[Any, Any] | None = None
        self._why_lost = "the episode was not seen from its reset"
        self._ended: Trajectory[Any, Any] | None = None  # the latest complete episode
        self._unscored = self._why_lost  # the reason if there is no complete episode

    def begin(self, first: Any, task: Any = None) -> None:
        """Start recording a new episode with the observation of `reset`."""
        self._ended = None
        trajectory: Trajectory[Any, Any] = Trajectory(task=task)
        self._trajectory = trajectory
        with self._keeping():
            trajectory.first = self._keep_observation(first)

    def lose(self, why: str) -> None:
        """Stop recording the running episode, which then ends unscored for the given reason."""
        self._trajectory, self._why_lost = None, why

    def step(
        self, action: Any, observation: Any, reward: float | None, done: bool
    ) -> Score | Awaitable[Score] | None:
        """Record a step.

        Returns:
            The score of the episode, or an awaitable of the score, if this step ended the episode;
            otherwise None.
        """
        trajectory = self._trajectory
        if trajectory is not None:
            if len(trajectory) >= self.max_steps:
                self.lose(f"the episode has more than {self.max_steps} steps")
            else:
                with self._keeping():
                    trajectory.add(action, self._keep_observation(observation), reward)
        if not done:
            return None
        self._ended, self._trajectory = self._trajectory, None
        if self._ended is None:
            self._unscored = self._why_lost
        else:
            self._why_lost = "the episode was over before this step"
        return self.repeat(done)

    def repeat(self, done: bool) -> Score | Awaitable[Score] | None:
        """Score the latest episode again, for a caller that missed the result of `step`."""
        if not done:
            return None
        if self._ended is None:
            return Score(unscored=self._unscored)
        return score_trajectory(self.scorer, self._ended, self.credit)

    def _keep_observation(self, observation: Any) -> Any:
        return observation if self._keep is None else self._keep(observation)

    @contextlib.contextmanager
    def _keeping(self) -> Iterator[None]:
        """Turn an error in the scorer's `keep` into an unscored episode, not a failed step."""
        try:
            yield
        except Exception as error:
            why = score_of_failure(
                error, f"keep of the trajectory scorer {_name(self.scorer)}"
            ).unscored
            self.lose(why or "keep failed")


def apply_score(
    score: Score, reward: float | None, info: dict[str, Any] | None
) -> tuple[float | None, dict[str, Any] | None]:
    """Return the reward and info of the last step after the whole episode was scored.

    Both are returned unchanged if the scorer had nothing to score.
    """
    if score.value is None and score.unscored is None:
        return reward, info
    spec = {"spec": info["spec"]} if info and "spec" in info else {}
    return score.value, {**spec, **score.as_info()} or None
