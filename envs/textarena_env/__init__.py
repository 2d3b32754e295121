"""TextArena's games as an OpenEnv environment. The client side never imports TextArena."""

from .client import TextArenaEnv
from .models import (
    Opponent,
    TextArenaAction,
    TextArenaMessage,
    TextArenaObservation,
    TextArenaState,
    TextArenaTask,
)

__all__ = [
    "Opponent",
    "TextArenaAction",
    "TextArenaEnv",
    "TextArenaMessage",
    "TextArenaObservation",
    "TextArenaState",
    "TextArenaTask",
]
