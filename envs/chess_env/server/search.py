"""A small, deterministic chess player: alpha-beta search with quiescence.

The search is iterative deepening over negamax with alpha-beta pruning (Knuth and Moore 1975, "An
Analysis of Alpha-Beta Pruning"). It tries good moves first: the best move of the previous
iteration, captures by victim and attacker, killer moves, and moves that caused cutoffs elsewhere.
At the horizon it plays captures and promotions out, so that it does not count a piece that is about
to be taken.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import chess

from .evaluation import PIECE_VALUES, evaluate

__all__ = ["MATE", "MAX_NODES", "Found", "best_move"]

MATE = 100_000
"""The score of a mate on the board, in centipawns. A mate in n half-moves scores n less."""

MAX_NODES = 200_000
"""Maximum number of positions that a search looks at, in about half a minute.

Only positions with many queens need this many; without a limit, some would take hours.
"""

_INFINITE = MATE + 1
_DRAW = 0
# The quiescence search skips a capture that leaves the score this much below alpha.
_HOPELESS = 200
# Maximum number of checks in a row beyond the horizon; some series have no end.
_MAX_CHECKS = 6

_FIRST, _GAIN, _KILLER = 3_000_000, 2_000_000, 1_000_000


class Found(NamedTuple):
    """The result of a search.

    Attributes:
        move: The best move.
        score: The value of the position for the side to move, in centipawns; see `MATE`.
        nodes: The number of positions that the search looked at.
    """

    move: chess.Move
    score: int
    nodes: int


def best_move(board: chess.Board, depth: int) -> Found:
    """Choose a move by looking `depth` half-moves ahead, and further after captures.

    The choice is deterministic. It depends on the position and on the moves that led there, which
    count for repetitions.

    Args:
        board: A position with a legal move; the search does not change it.
        depth: Half-moves, at least 1.

    Raises:
        ValueError: There is no legal move, or the depth is below 1.
    """
    if depth < 1:
        raise ValueError(f"depth must be at least 1, not {depth}")
    if not any(board.generate_legal_moves()):
        raise ValueError(f"there is no legal move in {board.fen()}")
    search = _Search(board)
    with contextlib.suppress(_Exhausted):
        for each in range(1, depth + 1):
            search.look_ahead(each)
            if abs(search.score) >= MATE - each:
                break  # a mate within the horizon: a deeper search finds no shorter one
    return Found(search.best, search.score, search.nodes)


class _Exhausted(Exception):
    """The search has reached `MAX_NODES` positions."""


class _Search:
    """A search from one position, with its statistics about good moves."""

    def __init__(self, board: chess.Board) -> None:
        self.board = board.copy()
        self.nodes = 0
        self.killers: defaultdict[int, list[chess.Move]] = defaultdict(list)
        self.cutoffs: defaultdict[chess.Move, int] = defaultdict(int)
        # An interrupted search still has a best move and a score.
        self.best = self._order_moves(self.board.generate_legal_moves(), 0)[0]
        self.score = evaluate(board) if board.turn else -evaluate(board)

    def look_ahead(self, depth: int) -> None:
        """Find the best move and its score, trying the best one so far first."""
        alpha = -_INFINITE
        for move in self._order_moves(self.board.generate_legal_moves(), 0, self.best):
            doubted = alpha > -_INFINITE
            score = self._score_move(move, depth, 0, alpha, _INFINITE, doubted)
            if score > alpha:
                self.best, self.score = move, score
                alpha = score

    def _count_node(self) -> None:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise _Exhausted

    def _score_move(
        self, move: chess.Move, depth: int, ply: int, alpha: int, beta: int, doubted: bool
    ) -> int:
        """Return the score of a move.

        A `doubted` move is searched with a zero window first, which quickly shows that it does not
        beat alpha (principal variation search: Marsland and Campbell 1982).
        """
        self.board.push(move)
        try:
            if doubted and beta - alpha > 1:
                score = -self._search_depth(depth - 1, ply + 1, -alpha - 1, -alpha)
                if not alpha < score < beta:
                    return score
            return -self._search_depth(depth - 1, ply + 1, -beta, -alpha)
        finally:
            self.board.pop()

    def _search_depth(self, depth: int, ply: int, alpha: int, beta: int) -> int:
        """Return the value for the side to move, looking `depth` half-moves ahead."""
        if self._is_drawn():
            self._count_node()
            return _DRAW
        if depth <= 0:
            return self._search_horizon(ply, alpha, beta)
        self._count_node()
        best = -_INFINITE
        for move in self._order_moves(self.board.generate_legal_moves(), ply):
            score = self._score_move(move, depth, ply, alpha, beta, best > -_INFINITE)
            best = max(best, score)
            alpha = max(alpha, score)
            if alpha >= beta:
                self._remember(move, depth, ply)
                break
        if best == -_INFINITE:
            return ply - MATE if self.board.is_check() else _DRAW
        return best

    def _is_drawn(self) -> bool:
        """Return whether the position is a draw by rule, counting the first repetition as one."""
        board = self.board
        clock = board.halfmove_clock
        if clock >= 100 and board.is_fifty_moves():
            return True
        return board.is_insufficient_material() or (clock >= 4 and board.is_repetition(2))

    def _search_horizon(self, ply: int, alpha: int, beta: int) -> int:
        if not any(self.board.generate_legal_moves()):
            self._count_node()
            return ply - MATE if self.board.is_check() else _DRAW
        return self._search_captures(ply, alpha, beta, 0)

    def _search_captures(self, ply: int, alpha: int, beta: int, pursued: int) -> int:
        """Play captures and promotions out; a side may also pass, unless it is in check."""
        self._count_node()
        board = self.board
        if board.is_check() and pursued < _MAX_CHECKS:
            return self._search_evasions(ply, alpha, beta, pursued)
        standing = evaluate(board) if board.turn else -evaluate(board)
        if standing >= beta:
            return standing
        best, alpha = standing, max(alpha, standing)
        for move in self._order_moves(self._list_captures(), ply):
            if standing + self._gain(move) + _HOPELESS <= alpha or self._is_losing_capture(move):
                continue
            score = self._score_capture(move, ply, alpha, beta, pursued)
            best, alpha = max(best, score), max(alpha, score)
            if alpha >= beta:
                break
        return best

    def _search_evasions(self, ply: int, alpha: int, beta: int, pursued: int) -> int:
        best = ply - MATE
        for move in self._order_moves(self.board.generate_legal_moves(), ply):
            score = self._score_capture(move, ply, alpha, beta, pursued + 1)
            best, alpha = max(best, score), max(alpha, score)
            if alpha >= beta:
                break
        return best

    def _score_capture(
        self, move: chess.Move, ply: int, alpha: int, beta: int, pursued: int
    ) -> int:
        self.board.push(move)
        try:
            return -self._search_captures(ply + 1, -beta, -alpha, pursued)
        finally:
            self.board.pop()

    def _list_captures(self) -> Iterable[chess.Move]:
        """Yield captures and promotions to a queen."""
        board = self.board
        yield from board.generate_legal_captures()
        last = chess.BB_RANK_8 if board.turn else chess.BB_RANK_1
        pawns = board.pawns & board.occupied_co[board.turn]
        for move in board.generate_legal_moves(pawns, last & ~board.occupied):
            if move.promotion == chess.QUEEN:
                yield move

    def _is_losing_capture(self, move: chess.Move) -> bool:
        """Return whether a capture gives a piece for a protected piece of less value."""
        board = self.board
        attacker = board.piece_type_at(move.from_square) or chess.PAWN
        return (
            attacker != chess.KING
            and PIECE_VALUES[attacker] > self._gain(move) + _HOPELESS
            and board.is_attacked_by(not board.turn, move.to_square)
        )

    def _gain(self, move: chess.Move) -> int:
        """Return the centipawns that a move wins at once."""
        victim = self.board.piece_type_at(move.to_square)
        if victim is not None:
            won = PIECE_VALUES[victim]
        else:
            won = PIECE_VALUES[chess.PAWN] if self.board.is_en_passant(move) else 0
        if move.promotion is not None:
            won += PIECE_VALUES[move.promotion] - PIECE_VALUES[chess.PAWN]
        return won

    def _order_moves(
        self, moves: Iterable[chess.Move], ply: int, first: chess.Move | None = None
    ) -> list[chess.Move]:
        """Sort moves, likely the best ones first. Equal ones keep their order."""
        killers = self.killers[ply]

        def promise(move: chess.Move) -> int:
            if move == first:
                return _FIRST
            gain = self._gain(move)
            if gain:
                attacker = self.board.piece_type_at(move.from_square) or chess.PAWN
                return _GAIN + 16 * gain - attacker
            return _KILLER if move in killers else self.cutoffs[move]

        return sorted(moves, key=promise, reverse=True)

    def _remember(self, move: chess.Move, depth: int, ply: int) -> None:
        """Remember a quiet move that caused a cutoff, since it may refute similar moves."""
        if self._gain(move):
            return
        self.cutoffs[move] = min(self.cutoffs[move] + depth * depth, _KILLER - 1)
        killers = self.killers[ply]
        if move not in killers:
            self.killers[ply] = [move, *killers[:1]]
