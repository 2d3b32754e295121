"""The value of a chess position: material, and the places of the pieces.

Each piece has two tables, one for the middlegame and one for the endgame. The number of pieces that
are left weighs the two. A few simple rules below make the tables; they are not tuned.
"""

from __future__ import annotations

import chess

__all__ = ["PIECE_VALUES", "evaluate"]

Table = tuple[int, ...]
"""A value for each square, from A1 to H8 from White's side."""

PIECE_VALUES = {
    chess.PAWN: 100,
    chess.KNIGHT: 320,
    chess.BISHOP: 330,
    chess.ROOK: 500,
    chess.QUEEN: 900,
    chess.KING: 0,
}
"""The value of each piece in centipawns, on any square. Both sides always have a king."""

# The weight of each piece in the phase of the game; the pieces of the start add up to 24.
_PHASES = ((chess.KNIGHT, 1), (chess.BISHOP, 1), (chess.ROOK, 2), (chess.QUEEN, 4))
_FULL_PHASE = 24

_BISHOP_PAIR = 30
_PAWN_ADVANCE_MIDDLEGAME = (0, 0, 4, 10, 20, 38, 70, 0)
_PAWN_ADVANCE_ENDGAME = (0, 0, 8, 22, 45, 80, 130, 0)
_KING_SHELTER = (22, 30, 12, -12, -4, -8, 32, 22)  # by file, on the back rank
_KING_EXPOSED = -22  # for each rank between a king and its back rank in a middlegame
_LONE_KING_TO_EDGE = 12
_KINGS_TOGETHER = 8


def _centrality(square: chess.Square) -> int:
    """Return the nearness of a square to the center: 0 in a corner, 12 on the center's four."""
    file, rank = chess.square_file(square), chess.square_rank(square)
    return 14 - abs(2 * file - 7) - abs(2 * rank - 7)


def _is_central(square: chess.Square) -> bool:
    return chess.square_file(square) in (3, 4)


def _pawn_middlegame(square: chess.Square) -> int:
    rank = chess.square_rank(square)
    value = _PAWN_ADVANCE_MIDDLEGAME[rank]
    if _is_central(square):
        value += {1: -16, 2: 4, 3: 22, 4: 20}.get(rank, 0)
    return value


def _pawn_endgame(square: chess.Square) -> int:
    return _PAWN_ADVANCE_ENDGAME[chess.square_rank(square)]


def _knight(square: chess.Square) -> int:
    return 5 * _centrality(square) - 38


def _bishop(square: chess.Square) -> int:
    return 2 * _centrality(square) - (14 if chess.square_rank(square) == 0 else 6)


def _rook(square: chess.Square) -> int:
    on_seventh = 18 if chess.square_rank(square) == 6 else 0
    return on_seventh + (6 if _is_central(square) else 0)


def _queen(square: chess.Square) -> int:
    return _centrality(square) - 4


def _king_middlegame(square: chess.Square) -> int:
    rank = chess.square_rank(square)
    shelter = _KING_SHELTER[chess.square_file(square)]
    return shelter if rank == 0 else min(shelter, 0) + _KING_EXPOSED * rank


def _king_endgame(square: chess.Square) -> int:
    return 5 * _centrality(square) - 30


_RULES = {
    chess.PAWN: (_pawn_middlegame, _pawn_endgame),
    chess.KNIGHT: (_knight, _knight),
    chess.BISHOP: (_bishop, _bishop),
    chess.ROOK: (_rook, _rook),
    chess.QUEEN: (_queen, _queen),
    chess.KING: (_king_middlegame, _king_endgame),
}


def _make_tables(phase: int) -> dict[chess.Color, dict[chess.PieceType, Table]]:
    """Make the tables of every piece, for the middlegame (0) or the endgame (1)."""
    white = {
        piece: tuple(PIECE_VALUES[piece] + rules[phase](square) for square in chess.SQUARES)
        for piece, rules in _RULES.items()
    }
    black = {
        piece: tuple(-table[chess.square_mirror(square)] for square in chess.SQUARES)
        for piece, table in white.items()
    }
    return {chess.WHITE: white, chess.BLACK: black}


_MIDDLEGAME, _ENDGAME = _make_tables(0), _make_tables(1)
_PLACES = [
    (piece, color, _MIDDLEGAME[color][piece], _ENDGAME[color][piece])
    for color in chess.COLORS
    for piece in chess.PIECE_TYPES
]


def evaluate(board: chess.Board) -> int:
    """Return the value of a position for White, in centipawns, without looking ahead.

    The side to move has no effect, and neither has the end of a game: a mate is a position like any
    other. The value for Black is the negative one, and a mirrored position has the negative value.
    """
    middlegame = endgame = 0
    for piece, color, in_middlegame, in_endgame in _PLACES:
        for square in chess.scan_reversed(board.pieces_mask(piece, color)):
            middlegame += in_middlegame[square]
            endgame += in_endgame[square]
    phase = _phase(board)
    # This rounds towards 0; `//` would favor Black.
    value = int((middlegame * phase + endgame * (_FULL_PHASE - phase)) / _FULL_PHASE)
    for color, sign in ((chess.WHITE, 1), (chess.BLACK, -1)):
        if chess.popcount(board.pieces_mask(chess.BISHOP, color)) >= 2:
            value += sign * _BISHOP_PAIR
        if board.occupied_co[not color] == board.kings & board.occupied_co[not color]:
            value += sign * _lone_king_bonus(board, color)
    return value


def _phase(board: chess.Board) -> int:
    """Return the phase of the game: 24 at the start, 0 with only pawns and kings."""
    pieces = {
        chess.KNIGHT: board.knights,
        chess.BISHOP: board.bishops,
        chess.ROOK: board.rooks,
        chess.QUEEN: board.queens,
    }
    return min(sum(chess.popcount(pieces[piece]) * n for piece, n in _PHASES), _FULL_PHASE)


def _lone_king_bonus(board: chess.Board, color: chess.Color) -> int:
    """Return the bonus of `color` for a lone king near the edge and its own king close to that."""
    if not board.rooks | board.queens | board.bishops | board.knights:
        return 0  # with only pawns left, a pawn has to promote first
    king, other = board.king(color), board.king(not color)
    if king is None or other is None:
        return 0
    together = 7 - chess.square_distance(king, other)
    return _LONE_KING_TO_EDGE * (12 - _centrality(other)) + _KINGS_TOGETHER * together
