"""Tests of the task set: every puzzle has one solution, and every endgame can be won."""

from __future__ import annotations

from pathlib import Path
from random import Random

import chess
import pytest

from openenv import Refused

from .. import ChessAction, ChessObservation, ChessTask
from ..server.chess_environment import ChessEnvironment
from ..server.compose import _SEED, puzzles
from ..server.mates import mating_moves
from ..server.search import best_move
from ..server.tasks import SPLITS, ComposedTask, composed_tasks
from ..server.uci import UciEngine

STOCKFISH = "/usr/games/stockfish"
PUZZLES = [task for task in composed_tasks() if task.solution]
ENDGAMES = [task for task in composed_tasks() if not task.solution]


def named(task: ComposedTask) -> str:
    return task.id


def move(env: ChessEnvironment, uci: str) -> ChessObservation:
    return env.step(ChessAction(move=uci))


# ------------------------------------------------------------------------- the positions


def test_the_splits_share_no_position() -> None:
    positions = {
        split: {chess.Board(t.fen).epd() for t in composed_tasks() if t.split == split}
        for split in SPLITS
    }
    assert positions["train"] and positions["test"]
    assert not positions["train"] & positions["test"]
    assert sum(map(len, positions.values())) == len(composed_tasks())
    assert len({task.id for task in composed_tasks()}) == len(composed_tasks())


def test_each_split_has_every_kind_and_both_colours() -> None:
    kinds = {task.kind for task in composed_tasks()}
    assert kinds == {"mate_in_1", "mate_in_2", "mate_in_3", "endgame"}
    for split in SPLITS:
        tasks = [task for task in composed_tasks() if task.split == split]
        assert {task.kind for task in tasks} == kinds
        assert {chess.Board(task.fen).turn for task in tasks} == set(chess.COLORS)


@pytest.mark.parametrize("task", [t for t in PUZZLES if t.moves == 1], ids=named)
def test_one_move_mates_at_once(task: ComposedTask) -> None:
    has_one_solution(task)


@pytest.mark.slow
@pytest.mark.parametrize("task", [t for t in PUZZLES if t.moves > 1], ids=named)
def test_one_first_move_forces_mate_and_none_does_sooner(task: ComposedTask) -> None:
    """Verify each puzzle by an exhaustive search, independent of the built-in player's."""
    has_one_solution(task)


def has_one_solution(task: ComposedTask) -> None:
    board = chess.Board(task.fen)
    assert board.is_valid()
    assert [m.uci() for m in mating_moves(board, task.moves)] == [task.solution]
    assert task.moves == 1 or not mating_moves(board, task.moves - 1)


@pytest.mark.slow
def test_the_file_is_what_is_composed() -> None:
    mates = [task for task in composed_tasks() if task.kind == "mate_in_1"]
    composed = puzzles(1, Random(_SEED + 1))
    for task in mates[:10]:
        board, solution = next(composed)
        assert (task.fen, task.solution) == (board.fen(), solution.uci())


# ------------------------------------------------------------------------- solving them


def agent(env: ChessEnvironment, depth: int, observation: ChessObservation) -> ChessObservation:
    """Solve the rest of a task by looking ahead."""
    while not observation.done:
        board = chess.Board(observation.fen)
        observation = move(env, best_move(board, depth).move.uci())
    return observation


@pytest.mark.slow
@pytest.mark.parametrize("task", PUZZLES, ids=named)
def test_a_puzzle_is_solved_by_its_solution(task: ComposedTask) -> None:
    env = ChessEnvironment("random")
    env.reset(task=task.id)
    last = agent(env, 2 * task.moves - 1, move(env, task.solution))
    assert (last.reward, last.metadata["solved"]) == (1.0, True)
    assert env.state.step_count == 2 * task.moves - 1  # the defense holds out to the end


@pytest.mark.slow
@pytest.mark.timeout(300)  # the longest takes a minute on a busy machine
@pytest.mark.skipif(not Path(STOCKFISH).exists(), reason="Debian's stockfish is not installed")
@pytest.mark.parametrize("task", ENDGAMES, ids=named)
def test_an_endgame_can_be_won_in_time(task: ComposedTask) -> None:
    env = ChessEnvironment()
    engine = UciEngine(STOCKFISH, timeout_s=20)
    observation = env.reset(task=task.id)
    while not observation.done:
        best = engine.move(chess.Board(observation.fen), 14)  # at depth 11 it makes no progress
        observation = move(env, best.uci())
    assert observation.metadata["solved"] and observation.reward == 1.0
    engine.close()


def test_a_task_that_is_not_solved_in_time_is_over_and_pays_nothing() -> None:
    task = next(t for t in PUZZLES if t.moves == 1)
    env = ChessEnvironment()
    first = env.reset(task=task.id)
    wrong = next(m for m in first.legal_moves if m != task.solution)
    last = move(env, wrong)
    assert (last.done, last.reward, last.truncated, last.result) == (True, 0.0, False, None)
    assert (last.metadata["solved"], last.metadata["termination"]) == (False, "task failed")
    with pytest.raises(Refused, match="after done"):
        move(env, wrong)


def test_a_wrong_move_in_a_task_costs_a_tenth_and_no_time() -> None:
    task = next(t for t in PUZZLES if t.moves == 1)
    env = ChessEnvironment()
    env.reset(task=task.id)
    assert move(env, "a1a1").reward == -0.1
    assert move(env, task.solution).metadata["solved"]


# ------------------------------------------------------------------------- listing them


def test_a_task_says_what_is_to_be_done_and_not_how() -> None:
    env = ChessEnvironment()
    assert env.list_splits() == ["train", "test"]
    for split in env.list_splits():
        tasks = env.list_tasks(split)
        assert len(tasks) == env.num_tasks(split) > 0
        assert env.get_task_range(split, 1, 3) == tasks[1:3]
        assert env.get_task_range(split) == tasks
        assert env.get_task(split, 0) == tasks[0]
        for task in tasks:
            assert set(task.model_dump()) == {
                *("id", "kind", "goal", "fen", "max_moves", "opponent_depth")
            }
            assert "mate within" in task.goal


@pytest.mark.parametrize("index", [-1, 10_000])
def test_a_task_beyond_the_split_is_an_index_error(index: int) -> None:
    with pytest.raises(IndexError):
        ChessEnvironment().get_task("train", index)


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(Refused, match="train and test"):
        ChessEnvironment().list_tasks("valid")


def test_a_task_goes_by_its_id_or_by_itself() -> None:
    env = ChessEnvironment("random", agent_color="black")
    task = env.get_task("train", 3)
    for given in (task.id, task, task.model_dump()):
        first = env.reset(task=given)
        assert first.fen == task.fen and not first.done
        assert first.metadata["task"] == {"id": task.id, "goal": task.goal}
        state = env.state
        assert (state.task_id, state.max_moves) == (task.id, task.max_moves)
        assert (state.opponent, state.opponent_depth) == ("alphabeta", task.opponent_depth)
        assert state.agent_color == state.current_player
    env.reset()
    assert env.state.task_id is None and env.state.opponent == "random"


def test_another_opponent_may_defend() -> None:
    env = ChessEnvironment()
    env.reset(task="mate_in_2-000", opponent="random")
    assert env.state.opponent == "random"


def test_a_stored_task_goes_on_as_one() -> None:
    task = next(t for t in PUZZLES if t.moves == 2)
    env, elsewhere = ChessEnvironment(), ChessEnvironment()
    env.reset(task=task.id)
    seen = move(env, task.solution)
    elsewhere.restore(env.snapshot())
    assert elsewhere.state == env.state
    assert agent(elsewhere, 1, seen).metadata["solved"]


def test_a_task_that_is_passed_is_a_value() -> None:
    task = ChessEnvironment().get_task("test", 0)
    assert isinstance(task, ChessTask)
    assert ChessTask.model_validate_json(task.model_dump_json()) == task
