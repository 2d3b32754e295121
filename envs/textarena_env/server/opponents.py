"""Opponents, which play the seats that the agent does not have."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

from openenv.errors import Refused

from ..models import TextArenaMessage

__all__ = ["ScriptedMoves", "find_listed_moves", "choose_random_move"]

# Games list moves in the form "Available Moves: '[0]', '[1]'".
_LIST = re.compile(
    r"(?:available|valid|legal|possible)\s+(?:moves|actions|columns)[^:\n]*:(.*)", re.IGNORECASE
)
_MOVE = re.compile(r"\[[^\[\]\n]+\]")


def find_listed_moves(messages: Sequence[TextArenaMessage]) -> list[str]:
    """Return the moves of the game's latest list, or an empty list."""
    for message in reversed(messages):
        lists = _LIST.findall(message.content)
        if lists and message.category != "PROMPT":
            return list(dict.fromkeys(_MOVE.findall(lists[-1])))
    return []


def choose_random_move(seen: Sequence[TextArenaMessage], rng: Random, env_id: str) -> str:
    """Choose one of the moves that the game lists at random.

    Raises:
        Refused: The game lists no moves.
    """
    moves = find_listed_moves(seen)
    if not moves:
        raise Refused(
            f"{env_id} does not list the moves that may be made, so opponent='random' is not "
            "possible; choose opponent='scripted' with opponent_messages, or opponent='none'"
        )
    return moves[rng.randrange(len(moves))]


class ScriptedMoves:
    """The messages of a scripted opponent, which each seat repeats in order."""

    def __init__(self, messages: Sequence[str]) -> None:
        self._messages = tuple(messages)
        self._said: dict[int, int] = {}

    def next_message(self, player: int) -> str:
        """Return the next message of a player."""
        said = self._said.get(player, 0)
        self._said[player] = said + 1
        return self._messages[said % len(self._messages)]
