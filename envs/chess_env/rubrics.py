"""The score of a game of chess, and each move's share of the score."""

from __future__ import annotations

from openenv.rewards import ExponentialDiscountingTrajectoryRubric

from .models import ChessAction, ChessObservation

__all__ = ["ChessWinLossRubric"]

Trajectory = list[tuple[ChessAction, ChessObservation]]


class ChessWinLossRubric(ExponentialDiscountingTrajectoryRubric):
    """The result of a game: 1 if won, -1 if lost, 0 if drawn or truncated.

    Earlier moves have smaller shares. The environment calls the rubric after every legal move of
    the agent, and reports its step rewards at the end.
    """

    def score_trajectory(self, trajectory: Trajectory) -> float:
        """Score a game by its last observation; a running game scores 0."""
        if not trajectory or not trajectory[-1][1].done:
            return 0.0
        return float(trajectory[-1][1].reward or 0.0)

    def components(self) -> dict[str, float]:
        """Return the reward of the result as ``game``, the only component."""
        return {"game": self.last_score} if self.last_score else {}
