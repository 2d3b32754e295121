"""A word game as an OpenEnv environment: guess five letters, see which are right."""

from .client import WordleEnv
from .models import (
    Mark,
    MarkedGuess,
    WordleAction,
    WordleObservation,
    WordleState,
    WordleTask,
)

__all__ = [
    "Mark",
    "MarkedGuess",
    "WordleAction",
    "WordleEnv",
    "WordleObservation",
    "WordleState",
    "WordleTask",
]
