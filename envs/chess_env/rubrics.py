"""How a game of chess is scored as a whole, and what each move's share in it is."""

from __future__ import annotations

from openenv.rewards import ExponentialDiscountingTrajectoryRubric

from .models import ChessAction, ChessObservation

__all__ = ["ChessWinLossRubric"]

Trajectory = list[tuple[ChessAction, ChessObservation]]


class ChessWinLossRubric(ExponentialDiscountingTrajectoryRubric):
    """Won 1, lost -1, drawn or cut off 0; earlier moves have a smaller share in it.

    The environment calls it for every move that the agent has made (an illegal one is none), and
    tells its step rewards at the end.
    """

    def score_trajectory(self, trajectory: Trajectory) -> float:
        """Score a game by its last observation; 0 while it goes on."""
        if not trajectory or not trajectory[-1][1].done:
            return 0.0
        return float(trajectory[-1][1].reward or 0.0)

    def components(self) -> dict[str, float]:
        """What the result has brought, as ``game``; nothing else is scored here."""
        return {"game": self.last_score} if self.last_score else {}
