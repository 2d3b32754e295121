"""Chess as an OpenEnv environment. The client side never imports a chess library."""

from .client import ChessEnv
from .models import ChessAction, ChessObservation, ChessState, ChessTask
from .rubrics import ChessWinLossRubric

__all__ = [
    "ChessAction",
    "ChessEnv",
    "ChessObservation",
    "ChessState",
    "ChessTask",
    "ChessWinLossRubric",
]
