"""Who plays the seats that the agent does not have."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

from openenv.errors import Refused

from ..models import TextArenaMessage

__all__ = ["OwnMoves", "listed_moves", "random_move"]

# Games that say what may be done do so as in "Available Moves: '[0]', '[1]'".
_LIST = re.compile(
    r"(?:available|valid|legal|possible)\s+(?:moves|actions|columns)[^:\n]*:(.*)", re.IGNORECASE
)
_MOVE = re.compile(r"\[[^\[\]\n]+\]")


def listed_moves(messages: Sequence[TextArenaMessage]) -> list[str]:
    """The moves that the latest list of the game's offers; empty if there is none."""
    for message in reversed(messages):
        lists = _LIST.findall(message.content)
        if lists and message.category != "PROMPT":
            return list(dict.fromkeys(_MOVE.findall(lists[-1])))
    return []


def random_move(seen: Sequence[TextArenaMessage], rng: Random, env_id: str) -> str:
    """One of the moves that the game offers, by chance.

    Raises:
        Refused: It offers none.
    """
    moves = listed_moves(seen)
    if not moves:
        raise Refused(
            f"{env_id} does not list the moves that may be made, so nobody can play it at random; "
            "choose opponent='scripted' with opponent_messages, or opponent='none'"
        )
    return moves[rng.randrange(len(moves))]


class OwnMoves:
    """Messages that are said one after another, over and over, each seat by itself."""

    def __init__(self, messages: Sequence[str]) -> None:
        self._messages = tuple(messages)
        self._said: dict[int, int] = {}

    def next_of(self, player: int) -> str:
        """What a player says now."""
        said = self._said.get(player, 0)
        self._said[player] = said + 1
        return self._messages[said % len(self._messages)]
