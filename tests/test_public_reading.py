"""What public programs read of the environments that we have in common with the public package.

The programs are the examples, notebooks and tutorials of TRL and of the public package itself; each
attribute below is one that one of them reads. What TextArena gives is in
`envs/textarena_env/tests`, since its library is not installed here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

import pytest

from atari_env import AtariAction, AtariEnv
from atari_env.server.atari_environment import AtariEnvironment
from chess_env import ChessAction, ChessEnv
from chess_env.server.chess_environment import ChessEnvironment
from coding_env import CodeAction, CodingEnv
from coding_env.server.python_codeact_env import PythonCodeActEnv
from echo_env import EchoAction, EchoEnv
from echo_env.server.echo_environment import EchoEnvironment
from finrl_env import FinRLAction, FinRLEnv
from finrl_env.server.finrl_environment import FinRLEnvironment
from openspiel_env import OpenSpielAction, OpenSpielEnv
from openspiel_env.server.openspiel_environment import OpenSpielEnvironment

Check = Callable[[Any], bool]


class Program(NamedTuple):
    """What a program does, and what it reads after `reset`, after `step` and of the state."""

    client: Any
    environment: Any
    action: Any
    first: dict[str, Check]
    then: dict[str, Check]
    state: dict[str, Check]


def is_a(*kinds: type) -> Check:
    return lambda value: type(value) in kinds


def equals(expected: Any) -> Check:
    return lambda value: bool(value == expected and type(value) is type(expected))


def is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def has_cells(value: Any) -> bool:
    """A grid of catch, as `TRL` draws it: fifty floats, of which the ball's and the paddle's are 1,
    the latter in the last row.
    """
    taken = [index for index, cell in enumerate(value) if cell == 1.0]
    return len(value) == 50 and len(taken) == 2 and taken[0] < 45 <= taken[1]


def are_integers(value: Any) -> bool:
    return bool(value) and all(type(one) is int for one in value)


def are_numbers(value: Any) -> bool:
    return bool(value) and all(is_number(one) for one in value)


def are_texts(value: Any) -> bool:
    return bool(value) and all(is_text(one) for one in value)


OF_ANY_STATE: dict[str, Check] = {"episode_id": is_text, "step_count": equals(1)}

PROGRAMS = {
    "echo": Program(
        EchoEnv,
        EchoEnvironment,
        EchoAction(message="hello"),
        {"observation.echoed_message": is_text, "done": equals(False)},
        {
            "observation.reward": equals(0.5),  # by TRL's example, and `reward` by others
            "reward": equals(0.5),
            "observation.echoed_message": equals("hello"),
            "observation.message_length": equals(5),
            "done": equals(False),
        },
        OF_ANY_STATE,
    ),
    "catch": Program(
        OpenSpielEnv,
        OpenSpielEnvironment,
        OpenSpielAction(action_id=1, game_name="catch"),
        {
            "observation.done": equals(False),
            "observation.info_state": has_cells,
            "observation.legal_actions": equals([0, 1, 2]),
            "observation.game_phase": equals("initial"),
            "observation.current_player_id": equals(0),
            "observation.opponent_last_action": equals(None),
        },
        {
            "reward": equals(0.0),
            "done": equals(False),
            "observation.done": equals(False),
            "observation.reward": equals(0.0),
            "observation.info_state": has_cells,
            "observation.game_phase": equals("playing"),
        },
        {
            **OF_ANY_STATE,
            "game_name": equals("catch"),
            "agent_player": equals(0),
            "opponent_policy": equals("random"),
            "game_params": equals({}),
            "num_players": equals(1),
        },
    ),
    "coding": Program(
        CodingEnv,
        PythonCodeActEnv,
        CodeAction(code="print(6 * 7)"),
        {"observation.stdout": equals(""), "observation.exit_code": equals(0)},
        {
            "observation.stdout": equals("42\n"),
            "observation.stderr": equals(""),
            "observation.exit_code": equals(0),
            "reward": is_number,
        },
        {**OF_ANY_STATE, "last_exit_code": equals(0)},
    ),
    "atari": Program(
        AtariEnv,
        AtariEnvironment,
        AtariAction(action_id=0),
        {
            "observation.screen_shape": equals([210, 160, 3]),
            "observation.legal_actions": are_integers,
            "observation.lives": is_a(int),
        },
        {"reward": is_number, "done": equals(False), "observation.lives": is_a(int)},
        {**OF_ANY_STATE, "game_name": equals("pong"), "obs_type": equals("rgb")},
    ),
    "finrl": Program(
        FinRLEnv,
        FinRLEnvironment,
        FinRLAction(actions=[0.5]),
        {
            "observation.state": are_numbers,
            "observation.portfolio_value": is_number,
            "observation.date": is_text,
            "reward": equals(0.0),
        },
        {
            "observation.portfolio_value": is_number,
            "observation.date": is_text,
            "reward": is_number,
            "done": equals(False),
        },
        OF_ANY_STATE,
    ),
    "chess": Program(
        ChessEnv,
        lambda: ChessEnvironment(agent_color="white", opponent="random"),
        ChessAction(move="e2e4"),
        {
            "observation.fen": is_text,
            "observation.legal_moves": are_texts,
            "observation.is_check": equals(False),
        },
        {
            "reward": equals(0.0),
            "observation.fen": is_text,
            "observation.legal_moves": are_texts,
            "observation.result": equals(None),
        },
        {"fen": is_text, "current_player": equals("white"), "move_history": are_texts},
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_public_programs_read_is_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODING_SANDBOX", "bubblewrap")
    program = PROGRAMS[name]
    with program.client.local(program.environment).sync() as env:
        first = env.reset()
        then = env.step(program.action)
        read = ((first, program.first), (then, program.then), (env.state(), program.state))
    wrong = {
        path: found
        for of, checks in read
        for path, is_right in checks.items()
        if not is_right(found := attrgetter(path)(of))
    }
    assert wrong == {}


def test_catch_is_rewarded_at_its_end_as_public_programs_take_it() -> None:
    """They read the last step's reward, once `observation.done` says that it is over."""
    with OpenSpielEnv.local(OpenSpielEnvironment).sync() as env:
        result = env.reset()
        for _ in range(9):
            assert not result.observation.done
            result = env.step(OpenSpielAction(action_id=1, game_name="catch"))
    assert result.observation.done and result.reward in (1.0, -1.0)
