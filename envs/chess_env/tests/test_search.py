"""Tests of the built-in player's search and evaluation."""

from __future__ import annotations

import random

import chess
import pytest

from ..server.evaluation import evaluate
from ..server.mates import mating_moves
from ..server.search import _INFINITE, MATE, _Search, best_move

OPENING = "r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5N2/PPPP1PPP/RNBQK2R b KQkq - 3 3"
MIDDLEGAME = "r1bq1rk1/pp2bppp/2n1pn2/2pp4/3P1B2/2PBPN2/PP1N1PPP/R2Q1RK1 w - - 0 9"
TACTICS = "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1"
ROOK_ENDING = "8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - - 0 1"
POSITIONS = [chess.STARTING_FEN, OPENING, MIDDLEGAME, TACTICS, ROOK_ENDING]

BACK_RANK = "6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1"
SMOTHERED = "r6k/6pp/7N/8/8/1Q6/6PP/6K1 w - - 0 1"


def found(fen: str, depth: int) -> str:
    board = chess.Board(fen)
    return board.san(best_move(board, depth).move)


def game(white_depth: int | None, black_depth: int | None, seed: int) -> chess.Board:
    """Play a game of two players that look `depth` half-moves ahead, or (None) move at random."""
    board, rng = chess.Board(), random.Random(seed)
    while not board.is_game_over(claim_draw=True) and board.ply() < 160:
        depth = white_depth if board.turn == chess.WHITE else black_depth
        moves = list(board.legal_moves)
        board.push(rng.choice(moves) if depth is None else best_move(board, depth).move)
    return board


# ------------------------------------------------------------------------- evaluation


@pytest.mark.parametrize("fen", POSITIONS)
def test_a_mirrored_position_has_the_mirrored_value(fen: str) -> None:
    board = chess.Board(fen)
    assert evaluate(board.mirror()) == -evaluate(board)


def test_the_start_of_a_game_is_even() -> None:
    assert evaluate(chess.Board()) == 0


@pytest.mark.parametrize("piece", chess.PIECE_TYPES[:-1])
def test_a_piece_less_is_worth_less(piece: chess.PieceType) -> None:
    board = chess.Board()
    board.remove_piece_at(board.pieces(piece, chess.BLACK).pop())
    assert evaluate(board) > 50


def test_a_lone_king_is_worse_off_in_the_corner() -> None:
    middle, corner = "8/8/8/4k3/8/8/8/KQ6 w - - 0 1", "k7/8/8/8/8/8/8/KQ6 w - - 0 1"
    assert evaluate(chess.Board(corner)) > evaluate(chess.Board(middle))


# ------------------------------------------------------------------------- search


@pytest.mark.parametrize(
    ("fen", "depth", "move"),
    [
        (BACK_RANK, 1, "Ra8#"),
        (BACK_RANK, 3, "Ra8#"),
        (SMOTHERED, 3, "Qg8+"),
        ("4k3/8/8/3q4/4P3/8/8/4K3 w - - 0 1", 1, "exd5"),
        ("4k3/8/2p5/3q4/8/5Q2/8/4K3 b - - 0 1", 2, "Qxf3"),
        ("8/P6k/8/8/8/8/8/K7 w - - 0 1", 1, "a8=Q"),
    ],
)
def test_the_best_move_is_found(fen: str, depth: int, move: str) -> None:
    assert found(fen, depth) == move


def test_a_protected_pawn_is_not_taken_by_the_queen() -> None:
    assert found("4k3/8/2p5/3p4/8/8/3Q4/4K3 w - - 0 1", 1) != "Qxd5"


def test_a_mate_is_scored_by_how_soon_it_comes() -> None:
    assert best_move(chess.Board(BACK_RANK), 3).score == MATE - 1
    assert best_move(chess.Board("7k/8/5K2/8/8/8/8/6Q1 b - - 0 1"), 2).score == 2 - MATE


def test_stalemate_is_avoided_by_whoever_wins_and_sought_by_whoever_loses() -> None:
    queen_up = "7k/8/5K2/8/8/8/8/6Q1 w - - 0 1"
    board = chess.Board(queen_up)
    board.push(best_move(board, 1).move)
    assert not board.is_stalemate()
    losing = chess.Board("7k/5Q2/8/8/8/7r/8/6K1 b - - 0 1")
    losing.push(best_move(losing, 3).move)
    assert losing.move_stack[-1].uci() in {"h3h1", "h3g3"}  # a desperado: the rook must be taken


def test_whoever_is_ahead_does_not_repeat() -> None:
    board = chess.Board("6k1/5ppp/8/8/8/8/5PPP/1Q4K1 w - - 0 1")
    for uci in ("b1c1", "g8f8", "c1b1", "f8g8"):
        board.push_uci(uci)
    board.push(best_move(board, 2).move)
    assert not board.is_repetition(2)


@pytest.mark.parametrize("fen", POSITIONS)
def test_the_same_position_gives_the_same_answer_and_is_not_changed(fen: str) -> None:
    board = chess.Board(fen)
    assert best_move(board, 2) == best_move(chess.Board(fen), 2)
    assert board == chess.Board(fen)


def exhaustive(board: chess.Board, depth: int, ply: int) -> int:
    """Return the value of a position by an exhaustive search with the same quiescence."""
    if ply and (board.is_insufficient_material() or board.is_repetition(2)):
        return 0
    if not any(board.legal_moves):
        return ply - MATE if board.is_check() else 0
    if depth == 0:
        return quiet(board, ply)
    values = []
    for move in list(board.legal_moves):
        board.push(move)
        values.append(-exhaustive(board, depth - 1, ply + 1))
        board.pop()
    return max(values)


def quiet(board: chess.Board, ply: int) -> int:
    return _Search(board)._search_horizon(ply, -_INFINITE, _INFINITE)


@pytest.mark.slow
@pytest.mark.parametrize("fen", [OPENING, ROOK_ENDING, BACK_RANK, SMOTHERED])
def test_what_is_left_out_changes_nothing(fen: str) -> None:
    """Pruning, ordering and zero windows only affect speed."""
    board = chess.Board(fen)
    for depth in (1, 2):
        found = best_move(board, depth)
        assert found.score == exhaustive(board, depth, 0)


def test_a_search_without_end_is_ended_with_a_good_move(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(best_move.__module__ + ".MAX_NODES", 300)
    queens = "qqqqkqqq/qqqqqqqq/8/8/8/8/QQQQQQQQ/QQQQKQQQ w - - 0 1"
    board = chess.Board(queens)
    first = best_move(board, 4)
    assert first.nodes <= 301 and first.move in board.legal_moves
    assert best_move(board, 4) == first
    assert found(BACK_RANK, 4) == "Ra8#"


@pytest.mark.parametrize("depth", [0, -1])
def test_a_depth_below_one_is_an_error(depth: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        best_move(chess.Board(), depth)


def test_where_there_is_no_move_there_is_no_best_one() -> None:
    with pytest.raises(ValueError, match="no legal move"):
        best_move(chess.Board("7k/5KQ1/8/8/8/8/8/8 b - - 0 1"), 2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_it_beats_whoever_moves_at_random(seed: int) -> None:
    board = game(1, None, seed) if seed % 2 else game(None, 1, seed)
    outcome = board.outcome()
    assert outcome is not None
    assert outcome.winner is (chess.WHITE if seed % 2 else chess.BLACK)


# ------------------------------------------------------------------------- mates


@pytest.mark.parametrize(
    ("fen", "moves", "mating"),
    [
        (BACK_RANK, 1, ["a1a8"]),
        ("6k1/5ppp/8/8/8/8/8/1R4K1 b - - 0 1", 2, []),
        ("kbK5/pp6/1P6/8/8/8/8/R7 w - - 0 1", 2, ["a1a6"]),  # Paul Morphy's problem
        ("kbK5/pp6/1P6/8/8/8/8/R7 w - - 0 1", 1, []),
    ],
)
def test_the_mating_moves_are_all_found(fen: str, moves: int, mating: list[str]) -> None:
    board = chess.Board(fen)
    assert [move.uci() for move in mating_moves(board, moves)] == mating
    assert board.fen() == fen
