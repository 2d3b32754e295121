"""The program that composes the task set: ``python -m chess_env.server.compose`` writes tasks.json.

The puzzles come from games of the built-in player against a random player, and from random
positions with few pieces. A search over all moves keeps a position if exactly one first move mates
in time. The endgames are won by theory, against any defense. The program takes some minutes, and
writes the same file every time.
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
_TEST_SHARE = 5  # one task in this many belongs to `test`

_MAX_GAME_PLIES = 160
_AHEAD = 700  # centipawns; a side that is this far ahead counts as winning
_STRENGTH = 0.7  # the share of moves for which the stronger side of a game searches
# Pieces besides the two kings. With each of these sets the side to move often has a quick mate.
_FEW_PIECES = ("QRp", "QNp", "QBpp", "RRp", "RRnp", "RBNp", "QPp", "RNPp", "RBPp", "QNrp", "QBrp")
# Pieces that win besides the two kings, and the limit of moves: twice as many as the win takes.
_ENDGAMES = {"Q": 20, "R": 32, "RR": 14, "QR": 12}


def compose() -> list[ComposedTask]:
    """Make the whole task set."""
    tasks: list[ComposedTask] = []
    for moves, (kind, count) in enumerate(_PUZZLES.items(), start=1):
        found = islice(puzzles(moves, _make_generator(_SEED + moves)), count)
        tasks += [
            _make_task(kind, number, board, moves, solution.uci())
            for number, (board, solution) in enumerate(found)
        ]
    lone_kings = [
        (board, moves)
        for pieces, moves in _ENDGAMES.items()
        for board in islice(endgames(pieces, _make_generator(f"{_SEED} {pieces}")), _EACH_ENDGAME)
    ]
    tasks += [_make_task("endgame", n, board, moves) for n, (board, moves) in enumerate(lone_kings)]
    return tasks


def _make_generator(seed: int | str) -> Random:
    return Random(seed)  # nosec B311  # positions need be no secret


def _make_task(
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
    """Yield positions in which exactly one move forces mate in `moves` moves, without end.

    No move mates sooner, and no two positions come from the same game.
    """
    for game in _play_games(rng) if moves < 3 else _make_small_positions(rng):
        for board in game:
            if not _is_winning(board) or (moves > 1 and mating_moves(board, moves - 1)):
                continue
            solutions = mating_moves(board, moves)
            if len(solutions) == 1:
                yield board, solutions[0]
                break


def _is_winning(board: chess.Board) -> bool:
    """Return whether the side to move is far ahead; other positions seldom have a mate."""
    return (evaluate(board) if board.turn == chess.WHITE else -evaluate(board)) >= _AHEAD


def _play_games(rng: Random) -> Iterator[Iterator[chess.Board]]:
    while True:
        yield _play_game(rng)


def _play_game(rng: Random) -> Iterator[chess.Board]:
    """Play a game, and yield the positions in which the stronger side is to move."""
    board, strong = chess.Board(), rng.choice(chess.COLORS)
    while not board.is_game_over() and board.ply() < _MAX_GAME_PLIES:
        if board.turn == strong:
            yield _drop_history(board)
        if board.turn == strong and rng.random() < _STRENGTH:
            board.push(best_move(board, 1).move)
        else:
            board.push(rng.choice(list(board.legal_moves)))


def _drop_history(board: chess.Board) -> chess.Board:
    """Return a position without its history, and with the half-move clock at 0."""
    alone = board.copy(stack=False)
    alone.halfmove_clock = 0
    return alone


def _make_small_positions(rng: Random) -> Iterator[Iterator[chess.Board]]:
    while True:
        yield iter([_set_up(f"Kk{rng.choice(_FEW_PIECES)}", rng)])


def endgames(pieces: str, rng: Random) -> Iterator[chess.Board]:
    """Yield positions with `pieces` against a lone king that is not in check, without end.

    The king cannot take a piece at once, and no piece mates at once.
    """
    while True:
        board = _set_up(f"Kk{pieces}", rng)
        if not mating_moves(board, 1) and not _can_capture(board):
            yield board


def _can_capture(board: chess.Board) -> bool:
    mine = board.occupied_co[board.turn]
    return any(board.is_attacked_by(not board.turn, s) for s in chess.scan_forward(mine))


def _set_up(symbols: str, rng: Random) -> chess.Board:
    """Put pieces on the board at random for White to move, and mirror half of the positions."""
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
