"""Composes the task set: ``python -m chess_env.server.compose`` writes tasks.json anew.

The puzzles are taken from games of the built-in player against one that plays at random, and from
positions set up at random with few pieces. One is kept if exactly one first move mates in time,
which is found by trying everything. The endgames are won by theory, whoever defends. It takes some
minutes, and comes to the same file every time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from random import Random

import chess

from ..models import Kind
from .evaluation import evaluate
from .mates import mating_moves
from .search import best_move
from .tasks import SPLITS, TASKS_FILE, ComposedTask

__all__ = ["compose", "endgames", "puzzles"]

_SEED = 20
_PUZZLES: dict[Kind, int] = {"mate_in_1": 40, "mate_in_2": 40, "mate_in_3": 20}
_EACH_ENDGAME = 5
_TEST_SHARE = 5  # one in so many

_LONGEST_GAME = 160
_AHEAD = 700  # centipawns
_STRENGTH = 0.7  # how often the stronger side of a game looks before it moves
# Beside the two kings. From all of them the side to move has a good chance of a quick mate.
_FEW_PIECES = ("QRp", "QNp", "QBpp", "RRp", "RRnp", "RBNp", "QPp", "RNPp", "RBPp", "QNrp", "QBrp")
# What is won beside the two kings, and in how many moves at leisure: twice as many as it takes.
_ENDGAMES = {"Q": 20, "R": 32, "RR": 14, "QR": 12}


def compose() -> list[ComposedTask]:
    """Make the whole task set."""
    tasks: list[ComposedTask] = []
    for moves, (kind, count) in enumerate(_PUZZLES.items(), start=1):
        found = islice(puzzles(moves, _generator(_SEED + moves)), count)
        tasks += [
            _task(kind, number, board, moves, solution.uci())
            for number, (board, solution) in enumerate(found)
        ]
    lone_kings = [
        (board, moves)
        for pieces, moves in _ENDGAMES.items()
        for board in islice(endgames(pieces, _generator(f"{_SEED} {pieces}")), _EACH_ENDGAME)
    ]
    tasks += [_task("endgame", n, board, moves) for n, (board, moves) in enumerate(lone_kings)]
    return tasks


def _generator(seed: int | str) -> Random:
    return Random(seed)  # nosec B311  # positions need be no secret


def _task(
    kind: Kind, number: int, board: chess.Board, moves: int, solution: str = ""
) -> ComposedTask:
    return ComposedTask(
        id=f"{kind}-{number:03}",
        kind=kind,
        split=SPLITS[number % _TEST_SHARE == _TEST_SHARE - 1],
        fen=board.fen(),
        moves=moves,
        solution=solution,
    )


def puzzles(moves: int, rng: Random) -> Iterator[tuple[chess.Board, chess.Move]]:
    """Give positions without end in which one move, and no other, forces mate in `moves` moves.

    None mates sooner, and no two are of the same game.
    """
    for game in _games(rng) if moves < 3 else _small_positions(rng):
        for board in game:
            if not _is_winning(board) or (moves > 1 and mating_moves(board, moves - 1)):
                continue
            solutions = mating_moves(board, moves)
            if len(solutions) == 1:
                yield board, solutions[0]
                break


def _is_winning(board: chess.Board) -> bool:
    """Whether the side to move is far ahead, without which a mate is seldom worth looking for."""
    return (evaluate(board) if board.turn == chess.WHITE else -evaluate(board)) >= _AHEAD


def _games(rng: Random) -> Iterator[Iterator[chess.Board]]:
    while True:
        yield _game(rng)


def _game(rng: Random) -> Iterator[chess.Board]:
    """The positions of one game in which the stronger side is to move."""
    board, strong = chess.Board(), rng.choice(chess.COLORS)
    while not board.is_game_over() and board.ply() < _LONGEST_GAME:
        if board.turn == strong:
            yield _alone(board)
        if board.turn == strong and rng.random() < _STRENGTH:
            board.push(best_move(board, 1).move)
        else:
            board.push(rng.choice(list(board.legal_moves)))


def _alone(board: chess.Board) -> chess.Board:
    """A position without its past, and as if a pawn had just moved."""
    alone = board.copy(stack=False)
    alone.halfmove_clock = 0
    return alone


def _small_positions(rng: Random) -> Iterator[Iterator[chess.Board]]:
    while True:
        yield iter([_set_up(f"Kk{rng.choice(_FEW_PIECES)}", rng)])


def endgames(pieces: str, rng: Random) -> Iterator[chess.Board]:
    """Give positions without end with `pieces` against a lone king that is not in check.

    None of the pieces can be taken at once, and none gives mate at once.
    """
    while True:
        board = _set_up(f"Kk{pieces}", rng)
        if not mating_moves(board, 1) and not _attacked_by_the_weaker(board):
            yield board


def _attacked_by_the_weaker(board: chess.Board) -> bool:
    mine = board.occupied_co[board.turn]
    return any(board.is_attacked_by(not board.turn, s) for s in chess.scan_forward(mine))


def _set_up(symbols: str, rng: Random) -> chess.Board:
    """Put pieces on the board at random, such that White could be to move; then perhaps mirror."""
    while True:
        board = chess.Board(None)
        squares = rng.sample(chess.SQUARES, len(symbols))
        for square, symbol in zip(squares, symbols, strict=True):
            board.set_piece_at(square, chess.Piece.from_symbol(symbol))
        if board.is_valid() and not board.is_check():
            return board.mirror() if rng.random() < 0.5 else board


if __name__ == "__main__":
    lines = ",\n".join(json.dumps(task.model_dump()) for task in compose())
    TASKS_FILE.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
