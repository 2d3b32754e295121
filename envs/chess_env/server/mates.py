"""An exhaustive search for moves that force mate."""

from __future__ import annotations

import chess

__all__ = ["mating_moves"]


def mating_moves(board: chess.Board, moves: int) -> list[chess.Move]:
    """Return the moves that force mate in at most `moves` moves of the side to move.

    Each further move makes the search about a thousand times slower. A search of 2 is practical in
    any position, of 3 with few pieces. Draws by repetition and by the fifty-move rule are ignored.

    Args:
        board: The position; the search does not change it.
        moves: The moves of the side to move, including the mate; at least 1.
    """
    position = board.copy(stack=False)
    return [move for move in position.legal_moves if _forces_mate(position, move, moves)]


def _forces_mate(board: chess.Board, move: chess.Move, moves: int) -> bool:
    if moves == 1 and not board.gives_check(move):
        return False
    board.push(move)
    try:
        replies = list(board.generate_legal_moves())
        if not replies:
            return board.is_check()
        return moves > 1 and all(_loses_to_mate(board, reply, moves - 1) for reply in replies)
    finally:
        board.pop()


def _loses_to_mate(board: chess.Board, reply: chess.Move, moves: int) -> bool:
    """Return whether the other side can force mate after a reply."""
    board.push(reply)
    try:
        return any(_forces_mate(board, move, moves) for move in board.generate_legal_moves())
    finally:
        board.pop()
