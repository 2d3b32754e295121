"""Tests of engine processes: a real engine, and engines that fail in every way."""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import chess
import pytest
from support.processes import is_alive

from openenv import Refused

from .. import ChessAction
from ..server.chess_environment import ChessEnvironment
from ..server.uci import OpponentFailed, UciEngine

STOCKFISH = "/usr/games/stockfish"

needs_stockfish = pytest.mark.skipif(
    not Path(STOCKFISH).exists(), reason="Debian's stockfish is not installed"
)

# An engine that plays the first legal move of python-chess. The placeholders take faulty code.
ENGINE = """#!{python}
import sys, time, chess
from pathlib import Path
goes = Path(__file__).with_suffix(".goes")
for line in sys.stdin:
    words = line.split()
    if words[0] == "uci":
        {uci}
        print("id name Test\\nuciok", flush=True)
    elif words[0] == "isready":
        print("readyok", flush=True)
    elif words[0] == "position":
        board = chess.Board(" ".join(words[2:8]))
        for move in words[9:]:
            board.push_uci(move)
    elif words[0] == "go":
        goes.open("a").write("go\\n")
        number = len(goes.read_text().split())
        move = next(iter(board.legal_moves)).uci()
        {go}
        print("info string thinking\\nbestmove " + move, flush=True)
    elif words[0] == "quit":
        {quit}
        break
"""


def engine(folder: Path, *, uci: str = "pass", go: str = "pass", quit: str = "pass") -> str:
    path = folder / "engine"
    path.write_text(ENGINE.format(python=sys.executable, uci=uci, go=go, quit=quit))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def environment(path: str, timeout_s: float = 20.0) -> ChessEnvironment:
    return ChessEnvironment(path, 1, agent_color="white", engine_timeout_s=timeout_s)


def pid_of(env: ChessEnvironment) -> int:
    assert env._engine is not None and env._engine.pid is not None
    return env._engine.pid


@pytest.fixture
def stockfish() -> Iterator[ChessEnvironment]:
    env = ChessEnvironment(STOCKFISH, 4, agent_color="white")
    yield env
    env.close()


# ------------------------------------------------------------------------- a real engine


@needs_stockfish
def test_stockfish_punishes_a_blunder(stockfish: ChessEnvironment) -> None:
    stockfish.reset()
    stockfish.step(ChessAction(move="f2f3"))
    last = stockfish.step(ChessAction(move="g2g4"))
    assert (last.done, last.reward, last.result) == (True, -1.0, "0-1")
    assert last.metadata["opponent_move"] == "d8h4"
    assert 'Black "stockfish (depth 4)"' in last.metadata["pgn"]
    assert stockfish.state.opponent == "stockfish"


@needs_stockfish
def test_stockfish_gives_the_same_game_again(stockfish: ChessEnvironment) -> None:
    def played() -> list[str]:
        stockfish.reset(seed=1)
        for move in ("e2e4", "g1f3", "f1c4"):
            observation = stockfish.step(ChessAction(move=move))
            assert observation.reward == 0.0
        return stockfish.state.move_history

    assert played() == played()


@needs_stockfish
def test_the_process_begins_with_the_first_move_and_ends_with_the_environment(
    stockfish: ChessEnvironment,
) -> None:
    assert stockfish._engine is not None and stockfish._engine.pid is None
    stockfish.reset(agent_color="black")
    pid = pid_of(stockfish)
    assert is_alive(pid)
    stockfish.reset(agent_color="black")
    assert pid_of(stockfish) == pid
    stockfish.close()
    assert not is_alive(pid)
    stockfish.close()


@needs_stockfish
def test_a_process_that_nobody_closed_ends_when_it_is_forgotten() -> None:
    engine = UciEngine(STOCKFISH, timeout_s=10)
    engine.move(chess.Board(), 1)
    pid = engine.pid
    assert pid is not None and is_alive(pid)
    del engine
    assert not is_alive(pid)


@needs_stockfish
def test_an_episode_may_choose_another_opponent_and_go_back(stockfish: ChessEnvironment) -> None:
    stockfish.reset(opponent="random")
    assert stockfish.state.opponent == "random"
    stockfish.reset(opponent="stockfish", opponent_depth=3)
    assert (stockfish.state.opponent, stockfish.state.opponent_depth) == ("stockfish", 3)
    stockfish.reset()
    assert (stockfish.state.opponent, stockfish.state.opponent_depth) == ("stockfish", 4)


def test_the_depth_of_an_engine_is_too_deep_for_the_built_in_player(tmp_path: Path) -> None:
    env = ChessEnvironment(engine(tmp_path), 12, agent_color="white")
    env.reset(opponent="alphabeta")
    assert (env.state.opponent, env.state.opponent_depth) == ("alphabeta", 4)
    with pytest.raises(Refused, match="from 1 to 4"):
        env.reset(opponent="alphabeta", opponent_depth=12)
    env.reset(opponent_depth=11)
    assert (env.state.opponent, env.state.opponent_depth) == ("engine", 11)


# ------------------------------------------------------------------------- faulty engines

FAULTS = {
    "ends": "sys.exit(3)",
    "is killed": "import os; os.kill(os.getpid(), 9)",
    "says nonsense": 'move = "hello"',
    "says an illegal move": 'move = "a1a8"',
    "says a null move": 'move = "0000"',
    "says no move": 'move = "(none)"',
    "says nothing": 'move = ""',
    "says a line without an end": 'print("x" * 2**22, end="", flush=True)',
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_engine_that_fails_is_an_error_and_the_step_can_be_made_again(
    tmp_path: Path, fault: str
) -> None:
    env = environment(engine(tmp_path, go=f"if number == 2:\n            {FAULTS[fault]}"))
    env.reset(episode_id="e")
    env.step(ChessAction(move="e2e4"))
    before = env.state
    with pytest.raises(OpponentFailed, match="engine 'engine'"):
        env.step(ChessAction(move="g1f3"))
    assert env.state == before
    assert env._engine is not None and env._engine.pid is None
    again = env.step(ChessAction(move="g1f3"))
    assert again.reward == 0.0
    assert env.state.move_history[:3] == [*before.move_history, "g1f3"]
    env.close()


@pytest.mark.parametrize(
    "fault",
    ["time.sleep(60)", 'print("info depth 1\\n" * 1000, flush=True)'],
    ids=["silent", "chatty"],
)
def test_an_engine_that_does_not_answer_is_killed_in_time(tmp_path: Path, fault: str) -> None:
    env = environment(engine(tmp_path, go=f"while True: {fault}"), timeout_s=2.0)
    env.reset()
    with pytest.raises(OpponentFailed, match="did not answer within 2 s"):
        env.step(ChessAction(move="e2e4"))
    assert env.state.step_count == 0
    assert env._engine is not None and env._engine.pid is None


def test_an_engine_that_fails_in_reset_leaves_the_running_game(tmp_path: Path) -> None:
    env = environment(engine(tmp_path, uci="sys.exit(1)"))
    env.reset(episode_id="kept")
    before = env.state
    with pytest.raises(OpponentFailed, match="has ended"):
        env.reset(agent_color="black")
    assert env.state == before


@pytest.mark.slow
def test_an_engine_that_does_not_quit_is_killed(tmp_path: Path) -> None:
    env = environment(engine(tmp_path, quit="time.sleep(60)"))
    env.reset(agent_color="black")
    pid = pid_of(env)
    env.close()
    assert not is_alive(pid)


def test_a_program_that_is_no_engine_is_an_error(tmp_path: Path) -> None:
    env = environment("/bin/true")
    with pytest.raises(OpponentFailed, match="'true' has ended"):
        env.reset(agent_color="black")


def test_a_path_that_cannot_be_run_is_refused_at_once(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", tmp_path):
        with pytest.raises(ValueError, match="no chess engine"):
            ChessEnvironment(str(path))


def test_an_engine_cannot_take_another_opponents_name(tmp_path: Path) -> None:
    path = Path(engine(tmp_path)).rename(tmp_path / "random")
    with pytest.raises(ValueError, match="'random', the name of another opponent"):
        ChessEnvironment(str(path))


def test_a_caller_cannot_have_the_server_run_a_program(tmp_path: Path) -> None:
    env = ChessEnvironment()
    for path in (engine(tmp_path), "/bin/sh", "engine"):
        with pytest.raises(Refused, match="unknown opponent"):
            env.reset(opponent=path)


def test_an_engine_gets_no_key_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENENV_API_KEY", "secret")
    seen = tmp_path / "seen"
    env = environment(
        engine(tmp_path, uci=f'import os; open({str(seen)!r}, "w").write(str(dict(os.environ)))')
    )
    env.reset(agent_color="black")
    env.close()
    assert seen.read_text() and "secret" not in seen.read_text()
