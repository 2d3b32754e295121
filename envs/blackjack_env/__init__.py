"""Blackjack as an OpenEnv environment: hit or stand."""

from .client import BlackjackEnv
from .models import (
    BlackjackAction,
    BlackjackObservation,
    BlackjackState,
    BlackjackTask,
    Move,
    Rank,
)

__all__ = [
    "BlackjackAction",
    "BlackjackEnv",
    "BlackjackObservation",
    "BlackjackState",
    "BlackjackTask",
    "Move",
    "Rank",
]
