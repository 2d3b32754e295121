"""The opponents of the agent: a random player, the built-in player, and UCI engines."""

from __future__ import annotations

import difflib
from random import Random
from typing import Protocol

import chess

from openenv.errors import Refused

from .search import best_move
from .uci import UciEngine

__all__ = [
    "ALIASES",
    "ALPHABETA",
    "RANDOM",
    "SELF",
    "AlphaBeta",
    "Engine",
    "Opponent",
    "RandomMover",
    "resolve_opponent",
]

ALPHABETA, RANDOM, SELF = "alphabeta", "random", "self"

ALIASES = {"moonfish": ALPHABETA, "none": SELF}
"""Other names of opponents. The first is the public package's default."""


class Opponent(Protocol):
    """A player of the other side."""

    def move(self, board: chess.Board, rng: Random) -> chess.Move:
        """Choose a move in a position with a legal move, without changing `board`.

        Raises:
            OpponentFailed: The opponent cannot move.
        """
        ...


class RandomMover:
    """A player that makes any legal move, all equally likely."""

    def move(self, board: chess.Board, rng: Random) -> chess.Move:
        moves = sorted(board.legal_moves, key=chess.Move.uci)
        return moves[rng.randrange(len(moves))]


class AlphaBeta:
    """The built-in player, with one reply to each position; `depth` is in half-moves."""

    def __init__(self, depth: int) -> None:
        self.depth = depth

    def move(self, board: chess.Board, rng: Random) -> chess.Move:
        return best_move(board, self.depth).move


class Engine:
    """A UCI engine that searches to a depth, in half-moves."""

    def __init__(self, engine: UciEngine, depth: int) -> None:
        self.engine = engine
        self.depth = depth

    def move(self, board: chess.Board, rng: Random) -> chess.Move:
        return self.engine.move(board, self.depth)


def resolve_opponent(asked: str | None, engine: str | None = None) -> str:
    """Return the canonical name of an opponent: a name of this module, or the engine's.

    Args:
        asked: A name, an alias, or None for no opponent.
        engine: The name of the environment's UCI engine, if it has one.

    Raises:
        Refused: No opponent has this name.
    """
    name = SELF if asked is None else ALIASES.get(asked, asked)
    known = [ALPHABETA, RANDOM, SELF, *([engine] if engine else [])]
    if name in known:
        return name
    near = difflib.get_close_matches(str(asked), [*known, *ALIASES], n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
    raise Refused(f"unknown opponent {asked!r:.80}; {hint}")
