"""Which moves force mate, found by trying everything."""

from __future__ import annotations

import chess

__all__ = ["mating_moves"]


def mating_moves(board: chess.Board, moves: int) -> list[chess.Move]:
    """Give the moves after which mate cannot be avoided, in at most `moves` moves of this side.

    Each further move makes it about a thousand times slower: 2 can be had for any position, 3 where
    there are few pieces. Draws by repetition and by the fifty-move rule are left out of account.

    Args:
        board: The position; it is not changed.
        moves: Moves of the side whose turn it is, the mate itself among them; at least 1.
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
        return moves > 1 and all(_loses(board, reply, moves - 1) for reply in replies)
    finally:
        board.pop()


def _loses(board: chess.Board, reply: chess.Move, moves: int) -> bool:
    """Whether the other side can force mate after a reply."""
    board.push(reply)
    try:
        return any(_forces_mate(board, move, moves) for move in board.generate_legal_moves())
    finally:
        board.pop()
