"""A small chess player: alpha-beta search with quiescence, the same answer every time.

Iterative deepening over negamax with alpha-beta pruning (Knuth and Moore 1975, "An Analysis of
Alpha-Beta Pruning"). Good moves are looked at first: the best one of the previous iteration,
captures by victim and attacker, killers, then what has cut off elsewhere. At the horizon captures
and promotions are played out, so that nothing is counted that is about to be taken.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import chess

from .evaluation import PIECE_VALUES, evaluate

__all__ = ["MATE", "MOST_NODES", "Found", "best_move"]

MATE = 100_000
"""Score of a mate on the board, in centipawns; one that is n half-moves away scores n less."""

MOST_NODES = 200_000
"""How many positions a search looks at before it takes the best move so far: half a minute or so.

Only positions with many queens need as many; without a bound, some would take hours.
"""

_INFINITE = MATE + 1
_DRAW = 0
# A capture that leaves a side this much short of what it has already is not played out.
_HOPELESS = 200
# Checks in a row that are answered beyond the horizon; some could go on for ever.
_LONGEST_PURSUIT = 6

_FIRST, _GAIN, _KILLER = 3_000_000, 2_000_000, 1_000_000


class Found(NamedTuple):
    """What a search came to.

    Attributes:
        move: The best move.
        score: What the position is worth to the side to move, in centipawns; see `MATE`.
        nodes: Positions that were looked at.
    """

    move: chess.Move
    score: int
    nodes: int


def best_move(board: chess.Board, depth: int) -> Found:
    """Choose a move by looking `depth` half-moves ahead, and further where pieces are taken.

    Deterministic: the moves that led here count (for repetitions), nothing else does. `board` is
    not changed.

    Args:
        board: A position in which there is a move.
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
                break  # a mate within the horizon: looking further finds none that is shorter
    return Found(search.best, search.score, search.nodes)


class _Exhausted(Exception):
    """A search has looked at as many positions as it may."""


class _Search:
    """One search from one position, and what it has learnt about moves so far."""

    def __init__(self, board: chess.Board) -> None:
        self.board = board.copy()
        self.nodes = 0
        self.killers: defaultdict[int, list[chess.Move]] = defaultdict(list)
        self.cutoffs: defaultdict[chess.Move, int] = defaultdict(int)
        # What is found is never worse for having been interrupted.
        self.best = self._ordered(self.board.generate_legal_moves(), 0)[0]
        self.score = evaluate(board) if board.turn else -evaluate(board)

    def look_ahead(self, depth: int) -> None:
        """Find the best move and its score; the best one so far is looked at before the others."""
        alpha = -_INFINITE
        for move in self._ordered(self.board.generate_legal_moves(), 0, self.best):
            doubted = alpha > -_INFINITE
            score = self._after(move, depth, 0, alpha, _INFINITE, doubted)
            if score > alpha:
                self.best, self.score = move, score
                alpha = score

    def _count(self) -> None:
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise _Exhausted

    def _after(
        self, move: chess.Move, depth: int, ply: int, alpha: int, beta: int, doubted: bool
    ) -> int:
        """The score of a move. One that is `doubted` is asked first whether it beats alpha at all
        (principal variation search: Marsland and Campbell 1982), which is quickly denied.
        """
        self.board.push(move)
        try:
            if doubted and beta - alpha > 1:
                score = -self._worth(depth - 1, ply + 1, -alpha - 1, -alpha)
                if not alpha < score < beta:
                    return score
            return -self._worth(depth - 1, ply + 1, -beta, -alpha)
        finally:
            self.board.pop()

    def _worth(self, depth: int, ply: int, alpha: int, beta: int) -> int:
        """What the position is worth to the side to move, looking `depth` half-moves ahead."""
        if self._is_drawn():
            self._count()
            return _DRAW
        if depth <= 0:
            return self._at_horizon(ply, alpha, beta)
        self._count()
        best = -_INFINITE
        for move in self._ordered(self.board.generate_legal_moves(), ply):
            score = self._after(move, depth, ply, alpha, beta, best > -_INFINITE)
            best = max(best, score)
            alpha = max(alpha, score)
            if alpha >= beta:
                self._remember(move, depth, ply)
                break
        if best == -_INFINITE:
            return ply - MATE if self.board.is_check() else _DRAW
        return best

    def _is_drawn(self) -> bool:
        """Drawn by rule. A repetition counts the first time: what was good once will be again."""
        board = self.board
        clock = board.halfmove_clock
        if clock >= 100 and board.is_fifty_moves():
            return True
        return board.is_insufficient_material() or (clock >= 4 and board.is_repetition(2))

    def _at_horizon(self, ply: int, alpha: int, beta: int) -> int:
        if not any(self.board.generate_legal_moves()):
            self._count()
            return ply - MATE if self.board.is_check() else _DRAW
        return self._quiet(ply, alpha, beta, 0)

    def _quiet(self, ply: int, alpha: int, beta: int, pursued: int) -> int:
        """Play captures and promotions out; a side need not take, unless it is in check."""
        self._count()
        board = self.board
        if board.is_check() and pursued < _LONGEST_PURSUIT:
            return self._out_of_check(ply, alpha, beta, pursued)
        standing = evaluate(board) if board.turn else -evaluate(board)
        if standing >= beta:
            return standing
        best, alpha = standing, max(alpha, standing)
        for move in self._ordered(self._gains(), ply):
            if standing + self._gain(move) + _HOPELESS <= alpha or self._loses(move):
                continue
            score = self._after_gain(move, ply, alpha, beta, pursued)
            best, alpha = max(best, score), max(alpha, score)
            if alpha >= beta:
                break
        return best

    def _out_of_check(self, ply: int, alpha: int, beta: int, pursued: int) -> int:
        best = ply - MATE
        for move in self._ordered(self.board.generate_legal_moves(), ply):
            score = self._after_gain(move, ply, alpha, beta, pursued + 1)
            best, alpha = max(best, score), max(alpha, score)
            if alpha >= beta:
                break
        return best

    def _after_gain(self, move: chess.Move, ply: int, alpha: int, beta: int, pursued: int) -> int:
        self.board.push(move)
        try:
            return -self._quiet(ply + 1, -beta, -alpha, pursued)
        finally:
            self.board.pop()

    def _gains(self) -> Iterable[chess.Move]:
        """Captures, and pawns that become a queen."""
        board = self.board
        yield from board.generate_legal_captures()
        last = chess.BB_RANK_8 if board.turn else chess.BB_RANK_1
        pawns = board.pawns & board.occupied_co[board.turn]
        for move in board.generate_legal_moves(pawns, last & ~board.occupied):
            if move.promotion == chess.QUEEN:
                yield move

    def _loses(self, move: chess.Move) -> bool:
        """Whether a capture gives a piece for a lesser one that is protected."""
        board = self.board
        attacker = board.piece_type_at(move.from_square) or chess.PAWN
        return (
            attacker != chess.KING
            and PIECE_VALUES[attacker] > self._gain(move) + _HOPELESS
            and board.is_attacked_by(not board.turn, move.to_square)
        )

    def _gain(self, move: chess.Move) -> int:
        """Centipawns that a move wins at once."""
        victim = self.board.piece_type_at(move.to_square)
        if victim is not None:
            won = PIECE_VALUES[victim]
        else:
            won = PIECE_VALUES[chess.PAWN] if self.board.is_en_passant(move) else 0
        if move.promotion is not None:
            won += PIECE_VALUES[move.promotion] - PIECE_VALUES[chess.PAWN]
        return won

    def _ordered(
        self, moves: Iterable[chess.Move], ply: int, first: chess.Move | None = None
    ) -> list[chess.Move]:
        """The moves, those first that are likely to be best. Equals stay in their order."""
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
        """A quiet move that refuted what came before it may refute its siblings, too."""
        if self._gain(move):
            return
        self.cutoffs[move] = min(self.cutoffs[move] + depth * depth, _KILLER - 1)
        killers = self.killers[ply]
        if move not in killers:
            self.killers[ply] = [move, *killers[:1]]
