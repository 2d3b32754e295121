"""Tests of the chess environment."""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import chess
import chess.pgn
import pytest
from support import rewards
from support.servers import serving

from openenv import Refused, create_app
from openenv.testing import check_environment

from .. import ChessAction, ChessEnv, ChessObservation, ChessState, ChessWinLossRubric
from ..server.chess_environment import ILLEGAL_MOVE_REWARD, ChessEnvironment
from ..server.settings import make_environment_factory, max_concurrent_envs

BACK_RANK = "6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1"
ONE_FROM_FIFTY = "7k/8/8/8/8/8/8/KQ6 w - - 99 80"
TO_STALEMATE = "7k/8/5K2/8/8/8/8/6Q1 w - - 0 1"
TO_BARE_KINGS = "8/8/8/3k4/3P4/8/8/K7 b - - 0 1"
PROMOTION = "8/P6k/8/8/8/8/8/K7 w - - 0 1"
CASTLING = "r3k2r/8/8/3pP3/8/8/8/R3K2R w KQkq d6 0 1"
SHUFFLE = ["g1f3", "g8f6", "f3g1", "f6g8"]

Env = ChessEnvironment


def alone(**options: Any) -> Env:
    return ChessEnvironment(None, **options)


def move(env: Env, uci: str) -> ChessObservation:
    return env.step(ChessAction(move=uci))


def moves(env: Env, ucis: list[str]) -> list[ChessObservation]:
    return [move(env, uci) for uci in ucis]


def episode(env: Env, seed: int | None, limit: int = 30, **options: Any) -> list[ChessObservation]:
    """Play at random, with the same choices each time, to the end or for `limit` moves."""
    choices = random.Random(7)
    seen = [env.reset(seed=seed, **options)]
    while not seen[-1].done and len(seen) < limit:
        seen.append(move(env, choices.choice(seen[-1].legal_moves)))
    return seen


def any_move(observation: ChessObservation) -> ChessAction:
    """Return any legal move, always the same one in a position."""
    legal = observation.legal_moves or ["e2e4"]
    return ChessAction(move=legal[len(observation.fen) % len(legal)])


def read_pgn(text: str) -> chess.pgn.Game:
    game = chess.pgn.read_game(io.StringIO(text))
    assert game is not None and not game.errors
    return game


@pytest.mark.parametrize(
    "factory",
    [
        partial(ChessEnvironment, opponent_depth=1, max_moves=8),
        partial(ChessEnvironment, "random", max_moves=12),
        partial(ChessEnvironment, "random", agent_color="black"),
        partial(ChessEnvironment, None, max_moves=10),
    ],
    ids=["alphabeta", "random", "black", "self"],
)
def test_every_opponent_keeps_the_contract(factory: Any) -> None:
    check_environment(factory, actions=any_move, max_steps=12)


# ------------------------------------------------------------------------- rewards and ends


@pytest.mark.parametrize(
    ("factory", "reset", "played", "brought"),
    [
        (partial(ChessEnvironment, "random"), {"fen": BACK_RANK}, ["a1a8"], {"game": 1.0}),
        (
            partial(ChessEnvironment, None),
            {},
            ["e2e5", "f2f3", "e7e5", "up", "g2g4", "d8h4"],
            {"game": -1.0, "illegal_move": -0.2},
        ),
        (partial(ChessEnvironment, None, max_moves=3), {}, ["e2e4", "e7e5", "g1f3"], {}),
    ],
    ids=["won", "lost", "cut off"],
)
def test_rewards_are_as_they_are_declared(
    factory: Any, reset: dict[str, Any], played: list[str], brought: dict[str, float]
) -> None:
    policy = rewards.in_turn(ChessAction(move=one) for one in played)
    with ChessEnv.local(factory).sync() as env:
        game = rewards.played(env, policy, agent_color="white", **reset)
    assert rewards.worth(game) == pytest.approx(sum(brought.values()))
    assert rewards.parts(game) == pytest.approx(brought)
    shares = None if "illegal_move" in brought else len(played)
    assert shares == (None if game[-1].step_rewards is None else len(game[-1].step_rewards))


def test_a_game_that_is_given_up_is_told_to_be_lost() -> None:
    """An abandoned game used to score 0, the reward of its last move, and a lost one -1."""
    with ChessEnv.local(partial(ChessEnvironment, "random")).sync() as env:
        env.reset(agent_color="white")
        assert env.reward_spec is not None
        assert env.reward_spec.range == (-1.0, 1.0) and env.reward_spec.unfinished == -1.0


def test_a_mate_by_the_agent_pays_one() -> None:
    env = ChessEnvironment("random")
    env.reset(fen=BACK_RANK, agent_color="white")
    last = move(env, "a1a8")
    assert (last.reward, last.done, last.truncated, last.result) == (1.0, True, False, "1-0")
    assert last.legal_moves == [] and last.is_check
    assert last.metadata["termination"] == "checkmate"


def test_a_mate_against_the_agent_costs_one() -> None:
    env = ChessEnvironment(opponent_depth=1, agent_color="white")
    env.reset(fen="1r4k1/7p/8/8/8/8/P4PPP/6K1 w - - 0 1")
    last = move(env, "a2a3")
    assert (last.reward, last.done, last.result) == (-1.0, True, "0-1")
    assert last.metadata["opponent_move"] == "b8b1"


def test_whoever_is_mated_by_the_first_reply_has_lost() -> None:
    env = ChessEnvironment(opponent_depth=1)
    first = env.reset(fen=BACK_RANK, agent_color="black")
    assert (first.done, first.reward, first.result) == (True, -1.0, "1-0")
    assert first.metadata["discounted_rewards"] == []
    with pytest.raises(Refused, match="after done"):
        move(env, "g8h8")


@pytest.mark.parametrize(
    ("fen", "last_move", "termination"),
    [
        (TO_STALEMATE, "g1g6", "stalemate"),
        (TO_BARE_KINGS, "d5d4", "insufficient material"),
        (ONE_FROM_FIFTY, "b1b2", "fifty moves"),
    ],
)
def test_a_draw_pays_nothing_and_ends_the_game(fen: str, last_move: str, termination: str) -> None:
    env = alone()
    env.reset(fen=fen)
    last = move(env, last_move)
    assert (last.done, last.reward, last.result) == (True, 0.0, "1/2-1/2")
    assert not last.truncated and last.legal_moves == []
    assert last.metadata["termination"] == termination


def test_the_third_time_of_a_position_is_a_draw() -> None:
    env = alone()
    env.reset()
    seen = moves(env, SHUFFLE * 2)
    assert [step.done for step in seen] == [False] * 7 + [True]
    assert seen[-1].result == "1/2-1/2"
    assert seen[-1].metadata["termination"] == "threefold repetition"


def test_a_mate_in_the_last_move_of_the_fifty_counts() -> None:
    env = alone()
    env.reset(fen=BACK_RANK.replace(" 0 1", " 99 80"))
    assert move(env, "a1a8").result == "1-0"


def test_the_limit_of_moves_cuts_off_and_says_so() -> None:
    env = ChessEnvironment("random", max_moves=5, agent_color="white")
    seen = episode(env, seed=3)
    assert [step.done for step in seen] == [False, False, False, True]
    last = seen[-1]
    assert (last.reward, last.truncated, last.result) == (0.0, True, "1/2-1/2")
    assert env.state.step_count == 5  # the opponent does not reply to the fifth
    assert 'Termination "adjudication"' in last.metadata["pgn"]


@pytest.mark.parametrize(
    "wrong", ["e2e5", "e7e5", "Nf3", "", "0000", "e2e4 ", "E2E4", "x" * 10_000]
)
def test_a_wrong_move_costs_a_tenth_and_changes_nothing(wrong: str) -> None:
    env = ChessEnvironment("random", agent_color="white")
    first = env.reset(seed=1)
    before = env.state
    seen = move(env, wrong)
    assert (seen.reward, seen.done) == (ILLEGAL_MOVE_REWARD, False) == (-0.1, False)
    assert (seen.fen, seen.legal_moves) == (first.fen, first.legal_moves)
    assert len(seen.metadata["error"]) < 200
    after = env.state
    assert after.illegal_moves == 1
    assert after.model_copy(update={"illegal_moves": 0}) == before

    undisturbed = ChessEnvironment("random", agent_color="white")
    undisturbed.reset(seed=1)
    assert move(env, "e2e4") == move(undisturbed, "e2e4")


def test_a_wrong_move_says_what_is_wrong_with_it() -> None:
    env = alone()
    env.reset()
    assert "not a move in UCI" in move(env, "Nf3").metadata["error"]
    assert "illegal here" in move(env, "e2e5").metadata["error"]


def test_a_pawn_has_to_say_what_it_becomes() -> None:
    env = alone()
    env.reset(fen=PROMOTION)
    assert move(env, "a7a8").reward == ILLEGAL_MOVE_REWARD
    assert move(env, "a7a8n").fen.startswith("N7/")


def test_castling_and_en_passant_are_moves_of_the_king_and_the_pawn() -> None:
    env = alone()
    legal = env.reset(fen=CASTLING).legal_moves
    assert {"e1g1", "e1c1", "e5d6"} <= set(legal)
    assert move(env, "e1h1").reward == ILLEGAL_MOVE_REWARD
    assert move(env, "e5d6").fen.split()[0] == "r3k2r/8/3P4/8/8/8/8/R3K2R"


@pytest.mark.parametrize(("color", "reward"), [("white", 1.0), ("black", -1.0), (None, 1.0)])
def test_who_plays_both_sides_is_paid_for_one(color: Any, reward: float) -> None:
    env = alone(agent_color=color)
    env.reset(fen=BACK_RANK, seed=4)
    assert move(env, "a1a8").reward == reward


# ------------------------------------------------------------------------- the rubric


def test_earlier_moves_have_a_smaller_share_in_the_result() -> None:
    env = alone(gamma=0.5)
    env.reset()
    move(env, "e2e5")  # illegal, so the move does not count
    last = moves(env, ["f2f3", "e7e5", "g2g4", "d8h4"])[-1]
    assert last.metadata["discounted_rewards"] == [-0.125, -0.25, -0.5, -1.0]
    assert last.metadata["gamma"] == 0.5
    assert [action.move for action, _ in env.rubric.trajectory] == ["f2f3", "e7e5", "g2g4", "d8h4"]
    env.reset()
    assert env.rubric.trajectory == []
    assert env.rubric.compute_step_rewards() == []


def test_only_the_agents_moves_share_in_the_result() -> None:
    env = ChessEnvironment("random", max_moves=6, agent_color="white")
    assert episode(env, 1)[-1].metadata["discounted_rewards"] == [0.0, 0.0, 0.0]


def test_the_rubric_scores_a_game_at_its_end() -> None:
    rubric = ChessWinLossRubric(0.9)
    action = ChessAction(move="e2e4")
    assert rubric(action, ChessObservation(reward=0.0)) == 0.0
    assert rubric.compute_step_rewards() == [0.0]
    assert rubric(action, ChessObservation(reward=-1.0, done=True)) == -1.0 == rubric.last_score
    assert rubric.compute_step_rewards() == [-0.9, -1.0]
    other = ChessWinLossRubric()
    other.load_state_dict(rubric.state_dict())
    assert other.gamma == 0.9


@pytest.mark.parametrize("gamma", [-0.1, 1.1, float("nan")])
def test_a_discount_outside_of_its_bounds_is_refused(gamma: float) -> None:
    with pytest.raises(ValueError, match="gamma"):
        ChessEnvironment(gamma=gamma)


# ------------------------------------------------------------------------- observations, state


def test_a_game_begins_where_chess_begins() -> None:
    env = ChessEnvironment("random", agent_color="white")
    assert env.state == ChessState(opponent="random")
    first = env.reset(episode_id="e")
    assert first.fen == chess.STARTING_FEN == env.state.fen
    assert len(first.legal_moves) == 20 and first.reward is None
    assert first.metadata == {"fullmove_number": 1, "halfmove_clock": 0}
    assert (env.state.episode_id, env.state.agent_color) == ("e", "white")


def test_the_opponent_moves_first_if_the_agent_is_black() -> None:
    env = ChessEnvironment(opponent_depth=1, agent_color="black")
    first = env.reset()
    state = env.state
    assert state.move_history == [first.metadata["opponent_move"]]
    assert (state.step_count, state.current_player) == (0, "black")
    assert isinstance(first.metadata["evaluation"], int)
    move(env, "e7e5")
    assert env.state.step_count == 2


@pytest.mark.parametrize("opponent", ["moonfish", "alphabeta"])
def test_the_public_packages_opponent_is_ours_by_another_name(opponent: str) -> None:
    env = ChessEnvironment(opponent)
    assert (env.state.opponent, env.state.opponent_depth) == ("alphabeta", 2)


def test_no_observation_has_a_field_that_the_public_clients_refuse() -> None:
    assert set(ChessObservation.model_fields) - {"truncated"} == {
        *("done", "reward", "metadata", "fen", "legal_moves", "is_check", "result")
    }


def test_the_game_can_be_read_in_portable_game_notation() -> None:
    env = alone()
    env.reset()
    last = moves(env, ["f2f3", "e7e5", "g2g4", "d8h4"])[-1]
    game = read_pgn(last.metadata["pgn"])
    assert [move.uci() for move in game.mainline_moves()] == env.state.move_history
    assert game.headers["Result"] == "0-1" and game.headers["Termination"] == "normal"
    assert env.state.pgn == last.metadata["pgn"]
    env.reset(fen=BACK_RANK)
    assert read_pgn(env.state.pgn).headers["FEN"] == BACK_RANK
    assert read_pgn(env.state.pgn).headers["Result"] == "*"


def test_state_may_be_read_and_written_to_without_harm() -> None:
    env = alone()
    first = env.reset()
    env.state.move_history.append("e2e4")
    env.state.step_count = 9
    first.legal_moves.clear()
    assert (env.state.step_count, env.state.move_history) == (0, [])
    assert move(env, "e2e4").reward == 0.0


# ------------------------------------------------------------------------- seeds


@pytest.mark.parametrize("opponent", ["random", "alphabeta"])
def test_the_seed_determines_the_episode(opponent: str) -> None:
    first, second = (ChessEnvironment(opponent, 1) for _ in range(2))
    for seed in (0, 1, -1, 2**70):
        expected = episode(first, seed, limit=6)
        assert episode(second, seed, limit=6) == expected
        assert episode(first, seed, limit=6) == expected


def test_the_colour_is_drawn_from_the_seed_and_not_from_the_id() -> None:
    env = ChessEnvironment("random")
    colors: list[str | None] = []
    for seed in range(20):
        drawn = set()
        for episode_id in ("a", "b", None):
            env.reset(seed=seed, episode_id=episode_id)
            drawn.add(env.state.agent_color)
        assert len(drawn) == 1
        colors += drawn
    assert set(colors) == {"white", "black"}


def test_a_colour_that_is_given_leaves_the_moves_of_a_seed_as_they_are() -> None:
    drawn, given = ChessEnvironment("random"), ChessEnvironment("random")
    first = drawn.reset(seed=5)
    color = drawn.state.agent_color
    assert given.reset(seed=5, agent_color=color) == first


def test_without_a_seed_episodes_differ() -> None:
    env = ChessEnvironment("random")
    assert len({repr(episode(env, None, limit=6)) for _ in range(10)}) > 1


def test_another_process_plays_the_same_game() -> None:
    code = (
        "from chess_env.server.chess_environment import ChessEnvironment as E\n"
        "from chess_env import ChessAction as A\n"
        "e = E('random'); o = e.reset(seed=11)\n"
        "for _ in range(10): o = e.step(A(move=o.legal_moves[-1]))\n"
        "print(o.model_dump_json())"
    )
    printed = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, check=True, timeout=60
        ).stdout
        for _ in range(2)
    ]
    assert printed[0] == printed[1] != b""


# ------------------------------------------------------------------------- refusals


def test_step_before_reset_is_refused() -> None:
    env = ChessEnvironment()
    with pytest.raises(Refused, match="before reset"):
        move(env, "e2e4")
    assert env.state.episode_id is None


def test_step_after_done_is_refused_and_changes_nothing() -> None:
    env = alone()
    env.reset(fen=BACK_RANK)
    move(env, "a1a8")
    before = env.state
    with pytest.raises(Refused, match="after done"):
        move(env, "g8h8")
    assert env.state == before


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"fen": "nonsense"}, "malformed"),
    ({"fen": ""}, "malformed"),
    ({"fen": 3}, "malformed"),
    ({"fen": "8/8/8/8/8/8/8/8 w - - 0 1"}, "no white king"),
    ({"fen": "4k3/8/8/8/8/8/8/4K2R w Q - 0 1"}, "bad castling rights"),
    ({"fen": "4k3/4R3/8/8/8/8/8/4K3 w - - 0 1"}, "opposite check"),
    ({"fen": "R5k1/5ppp/8/8/8/8/8/6K1 b - - 0 1"}, "end of a game: checkmate"),
    ({"fen": "8/8/8/3k4/8/8/8/K7 b - - 0 1"}, "end of a game: insufficient material"),
    ({"opponent": "ramdom"}, "did you mean 'random'"),
    ({"opponent": "/bin/sh"}, "unknown opponent"),
    ({"opponent_depth": 0}, "at least 1"),
    ({"opponent_depth": 5}, "from 1 to 4"),
    ({"opponent_depth": "2"}, "at least 1"),
    ({"agent_color": "red"}, "'white' or 'black'"),
    ({"agent_color": True}, "'white' or 'black'"),
    ({"seed": "r5k1/8/8/8/8/8/8/6K1 w - - 0 1"}, "pass a position as fen="),
    ({"task": "mate_in_9-000"}, "unknown task"),
    ({"task": "mate_in_1-000", "fen": BACK_RANK}, "leave them out"),
    ({"task": {"id": "mate_in_1-000", "fen": BACK_RANK}}, "another one here"),
]


@pytest.mark.parametrize(("options", "words"), REFUSED, ids=lambda value: str(value)[:50])
def test_a_refused_reset_leaves_the_running_game(options: dict[str, Any], words: str) -> None:
    env = alone()
    env.reset(seed=1, episode_id="kept")
    move(env, "e2e4")
    before = env.state
    with pytest.raises(Refused, match=words):
        env.reset(**options)
    assert env.state == before
    assert move(env, "e7e5").reward == 0.0


@pytest.mark.parametrize(
    "options",
    [{"opponent": "monfish"}, {"opponent_depth": 0}, {"max_moves": 0}, {"agent_color": "red"}],
)
def test_a_wrong_setting_is_an_error_of_the_constructor(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"moonfish|depth|max_moves|agent_color"):
        ChessEnvironment(**options)


# ------------------------------------------------------------------------- resuming


def test_a_game_goes_on_from_a_position() -> None:
    env = ChessEnvironment("random", agent_color="black")
    fen = "r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5N2/PPPP1PPP/RNBQK2R b KQkq - 3 3"
    first = env.reset(fen=fen)
    assert first.fen == fen and env.state.move_history == []
    assert first.metadata == {"fullmove_number": 3, "halfmove_clock": 3}


def test_a_repetition_counts_on_after_a_restore() -> None:
    env, elsewhere = alone(), alone()
    env.reset()
    moves(env, [*SHUFFLE, *SHUFFLE[:3]])
    elsewhere.restore(env.snapshot())
    for each in (env, elsewhere):
        last = move(each, SHUFFLE[3])
        assert last.done and last.metadata["termination"] == "threefold repetition"
    by_fen = alone()
    by_fen.reset(fen=env.state.fen)
    assert not move(by_fen, "g1f3").done


@pytest.mark.parametrize("opponent", ["random", "alphabeta", None])
def test_a_stored_game_goes_on_anywhere(opponent: str | None) -> None:
    env, elsewhere = (ChessEnvironment(opponent, 1, max_moves=14) for _ in range(2))
    seen = episode(env, 6, limit=4)[-1]
    move(env, "a1a1")
    stored, state = env.snapshot(), env.state
    elsewhere.restore(stored)
    assert elsewhere.state == state and elsewhere.snapshot() == stored
    assert elsewhere.rubric.trajectory == env.rubric.trajectory != []
    while not seen.done:
        uci = seen.legal_moves[-1]
        seen = move(env, uci)
        assert move(elsewhere, uci) == seen
    assert elsewhere.state == env.state
    elsewhere.restore(env.snapshot())
    assert elsewhere.rubric.compute_step_rewards() == seen.metadata["discounted_rewards"]


def test_before_the_first_reset_there_is_nothing_to_store() -> None:
    with pytest.raises(Refused, match="before reset"):
        ChessEnvironment().snapshot()


WRONG: list[dict[str, Any]] = [
    {"moves": ["e2e5"]},
    {"moves": ["e2e4"]},  # the opponent is to move
    {"moves": ["e2e4", "e7e5", 3]},
    {"moves": ["0000"]},
    {"fen": "8/8/8/8/8/8/8/8 w - - 0 1"},
    {"agent_color": "red"},
    {"agent_color": "black"},
    {"opponent": "/bin/sh"},
    {"opponent_depth": 99},
    {"opponent_depth": True},
    {"max_moves": 10**9},
    {"gamma": 2.0},
    {"task_id": "mate_in_1-000"},
    {"task_id": "nothing"},
    {"generator": [3, [], None]},
    {"generator": [3, [-1] * 625, None]},
    {"generator": [3, [2**80] * 625, None]},
    {"generator": [9, [0] * 625, None]},
    {"illegal_moves": -1},
    {"more": 1},
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: str(wrong)[:50])
def test_wrong_bytes_are_refused_and_change_nothing(wrong: dict[str, Any]) -> None:
    env = ChessEnvironment("random", agent_color="white")
    env.reset(seed=1)
    before = env.snapshot()
    with pytest.raises(ValueError):
        env.restore(json.dumps({**json.loads(before), **wrong}).encode())
    assert env.snapshot() == before
    assert move(env, "e2e4").reward == 0.0


def test_bytes_that_are_nothing_are_refused() -> None:
    env = ChessEnvironment("random")
    for data in (b"", b"\xff\x00", b"[]", b"null", b'{"moves": 3}'):
        with pytest.raises(ValueError):
            env.restore(data)


# ------------------------------------------------------------------------- pictures


def test_the_board_is_drawn() -> None:
    env = alone()
    for mode in ("svg", "text"):
        with pytest.raises(Refused, match="before reset"):
            env.render(mode)
    env.reset()
    move(env, "e2e4")
    before = env.state
    svg, text = env.render(), env.render("text")
    assert svg.startswith("<svg") and "</svg>" in svg
    assert len(text.splitlines()) == 18 and "♔" in text
    assert env.state == before
    with pytest.raises(Refused, match="'svg' or 'text'"):
        env.render("png")  # type: ignore[arg-type]


def test_black_sees_the_board_from_the_other_side() -> None:
    env = alone()
    env.reset(agent_color="white")
    white = env.render("text")
    env.reset(agent_color="black")
    assert white.splitlines()[1].startswith("8") and env.render("text").splitlines()[1][0] == "1"


def test_the_picture_of_the_readme_is_what_render_draws() -> None:
    env = alone()
    env.reset()
    moves(env, ["f2f3", "e7e5", "g2g4", "d8h4"])
    assert (Path(__file__).parents[1] / "board.svg").read_text() == env.render() + "\n"


# ------------------------------------------------------------------------- the wire


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    app = create_app(
        partial(ChessEnvironment, "random"),
        ChessAction,
        ChessObservation,
        env_name="chess_env",
        state_cls=ChessState,
    )
    with serving(app) as served:
        yield served


def test_the_client_tells_done_and_reward(url: str) -> None:
    with ChessEnv(base_url=url).sync() as env:
        first = env.reset(fen=BACK_RANK, agent_color="white", episode_id="e")
        assert (first.done, first.reward) == (False, None)
        wrong = env.step(ChessAction(move="a1b7"))
        assert (wrong.done, wrong.reward) == (False, -0.1)
        last = env.step(ChessAction(move="a1a8"))
        assert (last.done, last.reward, last.truncated) == (True, 1.0, False)
        assert last.observation.result == "1-0"
        assert read_pgn(last.observation.metadata["pgn"]).headers["Result"] == "1-0"
        state = env.state()
    assert isinstance(state, ChessState)
    assert (state.episode_id, state.step_count, state.move_history) == ("e", 1, ["a1a8"])


def test_the_client_forks_a_game(url: str) -> None:
    with ChessEnv(base_url=url).sync() as env:
        first = env.reset(seed=3)
        forks = env.fork(2)
        seen = [fork.step(ChessAction(move=first.observation.legal_moves[0])) for fork in forks]
        assert all(a.observation == b.observation for a, b in pairwise(seen))
        assert env.state().step_count == 0


def test_many_clients_play_at_once(url: str) -> None:
    clients = [ChessEnv(base_url=url).sync() for _ in range(8)]
    try:
        results = [client.reset(seed=2) for client in clients]
        for _ in range(5):
            results = [
                client.step(ChessAction(move=result.observation.legal_moves[0]))
                for client, result in zip(clients, results, strict=True)
            ]
        assert len({result.observation.fen for result in results}) == 1
    finally:
        for client in clients:
            client.close()


def test_the_client_side_does_not_import_chess() -> None:
    code = "import sys, chess_env; assert 'chess' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# ------------------------------------------------------------------------- settings


def test_the_variables_are_the_constructors_arguments() -> None:
    environ = {
        "CHESS_OPPONENT": "random",
        "CHESS_OPPONENT_DEPTH": "3",
        "CHESS_MAX_MOVES": "7",
        "CHESS_AGENT_COLOR": "black",
        "CHESS_GAMMA": "0.5",
        "CHESS_ENGINE_TIMEOUT_S": "",
        "MAX_CONCURRENT_ENVS": "5",
    }
    env = make_environment_factory(environ)()
    env.reset()
    state = env.state
    assert (state.opponent, state.opponent_depth, state.max_moves) == ("random", 3, 7)
    assert state.agent_color == "black" and env.rubric.gamma == 0.5
    assert max_concurrent_envs(environ) == 5
    assert make_environment_factory({})().state.opponent == "alphabeta"
    assert max_concurrent_envs({}) is None


@pytest.mark.parametrize("name", ["none", "self"])
def test_nobody_is_an_opponent_too(name: str) -> None:
    assert make_environment_factory({"CHESS_OPPONENT": name})().state.opponent == "self"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("CHESS_OPPONENT", "/no/engine"),
        ("CHESS_OPPONENT", "ramdom"),
        ("CHESS_OPPONENT_DEPTH", "two"),
        ("CHESS_OPPONENT_DEPTH", "0"),
        ("CHESS_GAMMA", "2"),
        ("CHESS_AGENT_COLOR", "red"),
    ],
)
def test_a_variable_that_means_nothing_is_named(variable: str, value: str) -> None:
    with pytest.raises(ValueError, match=variable):
        make_environment_factory({variable: value})
