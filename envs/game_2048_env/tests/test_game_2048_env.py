"""Tests of the 2048 environment, with OpenSpiel's 2048 as the reference."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pyspiel
import pytest
from support import rewards
from support.servers import serving

from game_2048_env import (
    Game2048Action,
    Game2048Env,
    Game2048Observation,
    Move,
)
from game_2048_env.server.app import app
from game_2048_env.server.board import Board, add_tile, legal_moves, rows, slide, slide_board
from game_2048_env.server.game_2048_environment import Game2048Environment
from openenv import Refused
from openenv.auto import AutoEnv
from openenv.errors import ServerError
from openenv.testing import check_environment

HERE = Path(__file__).parent
MOVES: tuple[Move, ...] = get_args(Move)
UNLIMITED = 2**17


def move(env: Game2048Environment, name: Move) -> Game2048Observation:
    return env.step(Game2048Action(move=name))


def first_legal(seen: Game2048Observation) -> Game2048Action:
    return Game2048Action(move=(seen.legal_actions or ["up"])[0])


def play(env: Game2048Environment, limit: int = 10_000, **reset: Any) -> list[Game2048Observation]:
    """Play at random, with the same choices each time."""
    choices = random.Random(7)
    seen = [env.reset(**reset)]
    while not seen[-1].done and len(seen) <= limit:
        seen.append(move(env, choices.choice(seen[-1].legal_actions)))
    return seen


def on_board(env: Game2048Environment, board: list[int], **changes: Any) -> None:
    """Put tiles on the board by restoring a snapshot."""
    env.reset(seed=0)
    env.restore(json.dumps({**json.loads(env.snapshot()), "board": board, **changes}).encode())


# ------------------------------------------------------------------ the contract


@pytest.mark.parametrize("options", [{}, {"goal": 32}, {"max_moves": 9}])
def test_it_keeps_the_contract(options: dict[str, int]) -> None:
    check_environment(partial(Game2048Environment, **options), actions=first_legal)


def test_its_rewards_are_as_they_are_declared() -> None:
    choices = random.Random(3)
    with Game2048Env.local(Game2048Environment).sync() as env:
        game = rewards.played(
            env, lambda seen: Game2048Action(move=choices.choice(seen.legal_actions)), seed=3
        )
        score = env.state().score
    assert game[-1].done and rewards.worth(game) == score > 0
    assert rewards.parts(game) == {"merged": score}


def test_it_is_played_over_a_socket() -> None:
    with serving(app) as url, Game2048Env(base_url=url).sync() as env:
        result = env.reset(seed=4, goal=16)
        assert result.reward is None
        total = 0.0
        while not result.done:
            result = env.step(first_legal(result.observation))
            total += result.reward or 0.0
        assert result.observation.goal_reached and result.observation.best_tile == 16
        assert total == result.observation.score == env.state().score
        with pytest.raises(ServerError, match="call reset"):
            env.step(Game2048Action(move="up"))


def test_it_is_found_by_its_short_name() -> None:
    assert AutoEnv.get_env_class("2048") is Game2048Env


def test_the_client_side_imports_no_server() -> None:
    code = (
        "import sys, game_2048_env; "
        "assert not any(name.startswith('game_2048_env.server') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# ------------------------------------------------------------------ comparison with OpenSpiel


def tiles_of(state: Any) -> list[int]:
    return [int(tile) for tile in str(state).split()]


def flat(board: list[list[int]]) -> list[int]:
    return [tile for row in board for tile in row]


def after_adding(state: Any, board: list[int]) -> Any:
    """Return OpenSpiel's position after the one tile that gives this board."""
    children = [state.child(action) for action, _ in state.chance_outcomes()]
    (leading,) = [child for child in children if tiles_of(child) == board]
    return leading


def begun_like(board: list[int]) -> Any:
    """Return OpenSpiel's position with the two tiles of this board."""
    game = pyspiel.load_game(f"2048(max_tile={UNLIMITED})")
    first = next(cell for cell, tile in enumerate(board) if tile)
    one = [tile if cell == first else 0 for cell, tile in enumerate(board)]
    return after_adding(after_adding(game.new_initial_state(), one), board)


def moves_that_move(state: Any) -> list[Move]:
    """Return the moves that change OpenSpiel's board.

    OpenSpiel's own `legal_actions` omits some moves that only merge tiles.
    """
    moving = [
        name
        for action, name in enumerate(MOVES)
        if tiles_of(state.child(action)) != tiles_of(state)
    ]
    assert {MOVES[action] for action in state.legal_actions()} <= set(moving)
    return moving  # pyright: ignore[reportReturnType]


@pytest.mark.parametrize("seed", range(6))
def test_every_game_goes_as_in_openspiel(seed: int) -> None:
    env = Game2048Environment()
    seen = env.reset(seed=seed)
    theirs = begun_like(flat(seen.board))
    choices = random.Random(seed)
    while not seen.done:
        assert seen.legal_actions == moves_that_move(theirs)
        chosen = choices.choice(seen.legal_actions)
        before = theirs.returns()[0]
        theirs.apply_action(MOVES.index(chosen))
        seen = move(env, chosen)
        theirs = after_adding(theirs, flat(seen.board))
        assert seen.reward == theirs.returns()[0] - before
        assert seen.score == theirs.returns()[0]
    assert theirs.is_terminal()
    assert not seen.goal_reached and not seen.truncated


def test_tiles_are_added_as_often_as_in_openspiel() -> None:
    board: Board = (2, 0, 4, 0, 8, 0, 2, 0, 16, 0, 4, 0, 2, 4, 2, 0)
    state = pyspiel.load_game("2048").new_initial_state()
    theirs = [probability for _, probability in state.chance_outcomes()]
    assert theirs == pytest.approx([0.9 / 16, 0.1 / 16] * 16)
    rng, added = random.Random(0), Counter[tuple[int, int]]()
    draws = 20_000
    for _ in range(draws):
        after = add_tile(board, rng)
        ((cell, tile),) = [
            (i, a) for i, (a, b) in enumerate(zip(after, board, strict=True)) if a != b
        ]
        added[cell, tile] += 1
    empty = [cell for cell, tile in enumerate(board) if not tile]
    for tile, share in ((2, 0.9), (4, 0.1)):
        for cell in empty:
            expected = draws * share / len(empty)
            assert abs(added[cell, tile] - expected) < 5 * math.sqrt(expected)
    assert sum(added.values()) == draws and len(added) == 2 * len(empty)


# ------------------------------------------------------------------ single rules


@pytest.mark.parametrize(
    ("line", "after", "score"),
    [
        ((0, 0, 0, 0), (0, 0, 0, 0), 0),
        ((0, 0, 0, 2), (2, 0, 0, 0), 0),
        ((2, 0, 0, 2), (4, 0, 0, 0), 4),
        ((2, 2, 2, 0), (4, 2, 0, 0), 4),
        ((2, 2, 2, 2), (4, 4, 0, 0), 8),
        ((4, 2, 2, 0), (4, 4, 0, 0), 4),  # the new 4 does not merge again
        ((2, 2, 4, 8), (4, 4, 8, 0), 4),
        ((2, 4, 2, 4), (2, 4, 2, 4), 0),
        ((65536, 65536, 0, 2), (131072, 2, 0, 0), 131072),
    ],
)
def test_a_line_slides_and_merges_once(
    line: tuple[int, int, int, int], after: tuple[int, ...], score: int
) -> None:
    assert slide(line) == (after, score)


def test_the_four_moves_slide_to_their_edges() -> None:
    board: Board = (0, 0, 0, 0, 0, 2, 2, 0, 0, 2, 0, 0, 0, 0, 0, 0)
    assert rows(slide_board(board, "up")[0])[0] == [0, 4, 2, 0]
    assert rows(slide_board(board, "down")[0])[3] == [0, 4, 2, 0]
    assert [row[0] for row in rows(slide_board(board, "left")[0])] == [0, 4, 2, 0]
    assert [row[3] for row in rows(slide_board(board, "right")[0])] == [0, 4, 2, 0]


def test_a_move_that_moves_nothing_is_refused_and_adds_no_tile() -> None:
    env = Game2048Environment()
    on_board(env, [2, 4, 0, 0] + [0] * 12)
    before = env.snapshot()
    for blocked in ("left", "up"):
        with pytest.raises(Refused, match="right, down"):
            move(env, blocked)
    assert env.snapshot() == before
    assert env.state.step_count == 0


def test_a_game_ends_when_no_move_is_left() -> None:
    env = Game2048Environment()
    *before, last = play(env, seed=3)
    assert last.done and not last.truncated and last.legal_actions == []
    assert all(seen.legal_actions and not seen.done for seen in before)
    assert legal_moves(tuple(flat(last.board))) == []
    assert last.score == sum(seen.reward or 0 for seen in before) + (last.reward or 0)
    assert "No move is left" in last.text


def test_the_goal_ends_a_game_and_may_be_set_for_one_game_only() -> None:
    env = Game2048Environment(max_moves=1000)
    last = play(env, seed=3, goal=64)[-1]
    assert last.done and last.goal_reached and last.best_tile == 64 and not last.truncated
    assert play(env, seed=3)[-1].best_tile >= 64
    assert env.state.goal is None


def test_a_limit_on_moves_cuts_a_game_off() -> None:
    env = Game2048Environment(max_moves=5)
    *before, last = play(env, seed=3)
    assert len(before) == 5 and last.done and last.truncated and not last.goal_reached
    assert "cut off" in last.text
    with pytest.raises(Refused, match="after done"):
        move(env, "up")
    assert len(play(env, seed=3, max_moves=7)) == 8


def test_a_goal_that_is_reached_with_the_last_move_is_no_truncation() -> None:
    env = Game2048Environment()
    on_board(env, [4, 4] + [0] * 14, goal=8, max_moves=1)
    last = move(env, "left")
    assert last.done and last.goal_reached and not last.truncated and last.reward == 8.0


def test_the_highest_tile_can_be_made_and_drawn() -> None:
    env = Game2048Environment()
    on_board(env, [65536, 65536] + [0] * 14)
    assert move(env, "left").best_tile == 131072
    assert ">131072</text>" in env.render()


# ------------------------------------------------------------------ seeds and tasks


def test_the_seed_determines_the_game_in_another_process_too() -> None:
    env = Game2048Environment()
    seeds = [0, 1, -1, 2**70]
    expected = [str(play(env, seed=seed)[-1].board) for seed in seeds]
    code = (
        "import random\n"
        "from game_2048_env.server.game_2048_environment import Game2048Environment as E\n"
        "from game_2048_env import Game2048Action as A\n"
        "env = E()\n"
        "for seed in (0, 1, -1, 2**70):\n"
        "    choices, seen = random.Random(7), env.reset(seed=seed)\n"
        "    while not seen.done:\n"
        "        seen = env.step(A(move=choices.choice(seen.legal_actions)))\n"
        "    print(seen.board)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.splitlines() == expected
    assert len(set(expected)) == len(seeds)


def test_without_a_seed_games_differ_and_no_other_generator_is_touched() -> None:
    random.seed(0)
    before = random.getstate()
    env = Game2048Environment()
    assert len({env.reset().text for _ in range(50)}) > 30
    assert random.getstate() == before


def test_the_splits_have_no_opening_in_common() -> None:
    env = Game2048Environment()
    splits = {split: env.list_tasks(split) for split in env.list_splits()}
    ids = [task.id for tasks in splits.values() for task in tasks]
    assert len(ids) == len(set(ids)) == 480  # 120 pairs of cells, each tile a 2 or a 4
    assert env.num_tasks("train") > 3 * env.num_tasks("test") > 180
    assert env.get_task_range("test", 2, 5) == splits["test"][2:5]


def test_a_task_fixes_the_opening_and_the_seed_the_rest() -> None:
    env = Game2048Environment()
    for split in env.list_splits():
        for task in env.list_tasks(split):
            first = env.reset(task=task.id, seed=1)
            assert tuple(map(tuple, first.board)) == task.board
            assert env.state.task == task.id
            assert env.reset(task=task.model_dump(mode="json"), seed=1) == first
    assert play(env, seed=1, task="2@0-4@11") == play(env, seed=1, task="2@0-4@11")
    assert play(env, seed=1, task="2@0-4@11") != play(env, seed=2, task="2@0-4@11")


@pytest.mark.parametrize("index", [-1, 480])
def test_a_task_that_is_not_there_is_an_index_error(index: int) -> None:
    with pytest.raises(IndexError):
        Game2048Environment().get_task("train", index)


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"task": "2@0"}, "2@0"),
        ({"task": {}}, "task"),
        ({"goal": 100}, "goal"),
        ({"goal": 4}, "goal"),
        ({"goal": 2**18}, "goal"),
        ({"goal": "64"}, "goal"),
        ({"max_moves": 0}, "max_moves"),
        ({"max_moves": True}, "max_moves"),
        ({"seed": "1"}, "seed"),
    ],
)
def test_a_wrong_argument_of_reset_is_refused_and_changes_nothing(
    options: dict[str, Any], field: str
) -> None:
    env = Game2048Environment()
    play(env, limit=3, seed=1)
    before = env.snapshot()
    with pytest.raises(Refused, match=field):
        env.reset(**options)
    assert env.snapshot() == before


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(Refused, match="validation"):
        Game2048Environment().list_tasks("validation")


def test_nothing_happens_without_a_game() -> None:
    env = Game2048Environment()
    for call in (lambda: move(env, "up"), env.render, env.snapshot):
        with pytest.raises(Refused, match="before reset"):
            call()
    assert env.state.best_tile == 0


# ------------------------------------------------------------------ snapshots and pictures


def test_a_stored_game_goes_on_anywhere() -> None:
    env, elsewhere = Game2048Environment(goal=128), Game2048Environment()
    seen = play(env, limit=20, seed=5, task="2@0-4@11")[-1]
    elsewhere.restore(env.snapshot())
    assert elsewhere.state == env.state and elsewhere.render() == env.render()
    choices = random.Random(1)
    while not seen.done:
        chosen = choices.choice(seen.legal_actions)
        seen = move(env, chosen)
        assert move(elsewhere, chosen) == seen
    assert elsewhere.snapshot() == env.snapshot()


WRONG: list[dict[str, Any]] = [
    {"board": [0] * 16},
    {"board": [2] + [0] * 15},
    {"board": [2] * 15},
    {"board": [3, 2] + [0] * 14},
    {"board": [-2, 2] + [0] * 14},
    {"board": [1, 2] + [0] * 14},
    {"board": [2**18, 2] + [0] * 14},
    {"generator": [3, [], None]},
    {"generator": [3, [-1] * 625, None]},
    {"generator": [9, [0] * 625, None]},
    {"goal": 3},
    {"max_moves": -1},
    {"score": -1},
    {"task": "nothing"},
    {"more": 1},
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: str(wrong)[:40])
def test_wrong_bytes_are_refused_and_change_nothing(wrong: dict[str, Any]) -> None:
    env = Game2048Environment()
    env.reset(seed=1)
    before = env.snapshot()
    for data in (json.dumps({**json.loads(before), **wrong}).encode(), b"", b"\xff", b"[]"):
        with pytest.raises(ValueError):
            env.restore(data)
    assert env.snapshot() == before


def test_the_text_shows_the_board() -> None:
    env = Game2048Environment()
    seen = env.reset(seed=1)
    shown = [
        [0 if tile == "." else int(tile) for tile in line.split()]
        for line in seen.text.splitlines()[:4]
    ]
    assert shown == seen.board


def test_a_picture_of_the_board_changes_nothing() -> None:
    env = Game2048Environment()
    play(env, limit=30, seed=1)
    before = env.snapshot()
    svg = env.render()
    assert svg.startswith("<svg") and svg.count("<rect") == 17
    assert env.snapshot() == before


def test_the_picture_of_the_readme_is_drawn_by_render() -> None:
    env = Game2048Environment()
    play(env, limit=120, seed=2)
    assert (HERE.parent / "board.svg").read_text() == env.render()
