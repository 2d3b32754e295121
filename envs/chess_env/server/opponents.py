"""Who replies to the agent: at random, by looking ahead, a UCI engine, or nobody."""

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
    "opponent_name",
]

ALPHABETA, RANDOM, SELF = "alphabeta", "random", "self"

ALIASES = {"moonfish": ALPHABETA, "none": SELF}
"""Other names by which an opponent goes; the first is the public package's default."""


class Opponent(Protocol):
    """Whoever plays the other side."""

    def move(self, board: chess.Board, rng: Random) -> chess.Move:
        """Choose a legal move of a position in which there is one; `board` is not changed.

        Raises:
            OpponentFailed: It cannot.
        """
        ...


class RandomMover:
    """Any legal move, each as likely as the others."""

    def move(self, board: chess.Board, rng: Random) -> chess.Move:
        moves = sorted(board.legal_moves, key=chess.Move.uci)
        return moves[rng.randrange(len(moves))]


class AlphaBeta:
    """The built-in player; the same answer every time. `depth` is in half-moves."""

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


def opponent_name(asked: str | None, engine: str | None = None) -> str:
    """Say which opponent is meant: one of the names of this module, or the engine's.

    Args:
        asked: A name, an alias, or None for nobody.
        engine: The name of the UCI engine that may be had, if there is one.

    Raises:
        Refused: None has this name.
    """
    name = SELF if asked is None else ALIASES.get(asked, asked)
    known = [ALPHABETA, RANDOM, SELF, *([engine] if engine else [])]
    if name in known:
        return name
    near = difflib.get_close_matches(str(asked), [*known, *ALIASES], n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
    raise Refused(f"unknown opponent {asked!r:.80}; {hint}")
