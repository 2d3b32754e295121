"""The puzzle 2048 as an OpenEnv environment: slide tiles, merge equal ones."""

from .client import Game2048Env
from .models import (
    Game2048Action,
    Game2048Observation,
    Game2048State,
    Game2048Task,
    Move,
)

__all__ = [
    "Game2048Action",
    "Game2048Env",
    "Game2048Observation",
    "Game2048State",
    "Game2048Task",
    "Move",
]
