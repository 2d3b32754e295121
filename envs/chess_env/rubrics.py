"""How a game of chess is scored as a whole, and what each move's share in it is."""

from __future__ import annotations

from typing import Any

from .models import ChessAction, ChessObservation

__all__ = ["ChessWinLossRubric"]

Trajectory = list[tuple[ChessAction, ChessObservation]]


class ChessWinLossRubric:
    """Won 1, lost -1, drawn or cut off 0; earlier moves have a smaller share in it.

    It accumulates the moves of one game, in the manner of `torch.nn.Module`: call it with each
    action and what came of it. The environment calls it for every move that the agent has made
    (an illegal one is none), and tells its step rewards at the end.

    Args:
        gamma: The share of a move is `gamma` to the power of the number of the agent's moves after
            it; from 0 to 1.

    Raises:
        ValueError: `gamma` is not from 0 to 1.
    """

    def __init__(self, gamma: float = 0.99) -> None:
        if not 0.0 <= gamma <= 1.0:
            raise ValueError(f"gamma must be from 0 to 1, not {gamma}")
        self.gamma = gamma
        self.last_score: float | None = None
        self._trajectory: Trajectory = []

    def __call__(self, action: ChessAction, observation: ChessObservation) -> float:
        """Take in a move; see `forward`."""
        self.last_score = score = self.forward(action, observation)
        return score

    def forward(self, action: ChessAction, observation: ChessObservation) -> float:
        """Take in a move: 0 until the game is over, then its score."""
        self._trajectory.append((action, observation))
        return self.score_trajectory(self._trajectory) if observation.done else 0.0

    def score_trajectory(self, trajectory: Trajectory) -> float:
        """Score a game by its last observation; 0 while it goes on."""
        if not trajectory or not trajectory[-1][1].done:
            return 0.0
        return float(trajectory[-1][1].reward or 0.0)

    def compute_step_rewards(self) -> list[float]:
        """The share of each move, the first one first: `gamma**(T - 1 - t)` times the score."""
        score, length = self.score_trajectory(self._trajectory), len(self._trajectory)
        return [self.gamma ** (length - 1 - t) * score for t in range(length)]

    def reset(self) -> None:
        """Forget the game."""
        self._trajectory = []
        self.last_score = None

    @property
    def trajectory(self) -> Trajectory:
        """The moves so far, each with what came of it; a copy."""
        return list(self._trajectory)

    def state_dict(self) -> dict[str, Any]:
        """The settings."""
        return {"gamma": self.gamma}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over settings that `state_dict` gave.

        Raises:
            ValueError: `gamma` is not from 0 to 1.
        """
        self.gamma = ChessWinLossRubric(state["gamma"]).gamma
