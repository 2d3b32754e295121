"""Right answers to every environment of this repository, written as an agent writes them.

A reply is the whole action as text, where the environment's only action is one text; else a call as
JSON. Whatever plays the replies has to come to the same reward, also where they stand behind an
agent's thoughts or within a fence.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.venvs import python_of

__all__ = ["ENVIRONMENTS", "RIGHT_ANSWERS", "RightAnswer", "python_with"]

ENVIRONMENTS = Path(__file__).resolve().parents[2] / "envs"


@dataclass(frozen=True)
class RightAnswer:
    """One episode that goes well.

    Attributes:
        name: What a test calls it.
        target: The environment's class, as ``module:class``.
        replies: What the agent says, turn by turn.
        reward: What the episode is worth then.
        reset: The arguments of its `reset`.
        library: The package that it needs and that is not installed beside ours; see
            `python_with`. None where there is none.
        variables: Variables that the environment's process needs.
        is_code: The reply is a program, which agents write in a fence.
    """

    name: str
    target: str
    replies: tuple[str, ...]
    reward: float
    reset: Mapping[str, Any] = field(default_factory=dict)
    library: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    is_code: bool = False

    @property
    def environment(self) -> str:
        """The name of its directory, such as ``chess_env``."""
        return self.target.partition(".")[0]

    @property
    def is_installed(self) -> bool:
        """Whether this Python can play it."""
        return self.library is None or importlib.util.find_spec(self.library) is not None

    def environment_class(self) -> Any:
        """Import the environment's class."""
        module, _, name = self.target.partition(":")
        return getattr(importlib.import_module(module), name)


def python_with(library: str) -> str:
    """The Python of a virtual environment that has a case's library, and pytest."""
    root = ENVIRONMENTS.parent
    folder = next(one for one, name in _LIBRARIES.items() if name == library)
    package = ENVIRONMENTS / folder
    wanted = (root / "pyproject.toml").read_text() + (package / "pyproject.toml").read_text()
    editable = [word for path in (root, package) for word in ("--editable", str(path))]
    packages = {
        "textarena": [*editable, "numpy", "pytest", "pytest-timeout"],
        "reasoning_gym": ["--compile-bytecode", *editable, "pytest", "pytest-timeout"],
    }[library]
    name = {"textarena": "textarena", "reasoning_gym": "reasoning"}[library]
    # The same as that of the environment's own tests, so that it is made once.
    return python_of(root / ".peers" / name, *packages, made_of=wanted)


_LIBRARIES = {"textarena_env": "textarena", "reasoning_gym_env": "reasoning_gym"}


def _call(tool: str, /, **arguments: Any) -> str:
    return json.dumps({"name": tool, "arguments": arguments})


PONG = (
    "00003000000000003223330203322332220322233222230223"
    "333223333223022233232220333023332032033032302"
)
"""The actions that win the first point."""

FUNCTION = """\
def digital_root(number):
    while number > 9:
        number = sum(int(digit) for digit in str(number))
    return number
"""

PROGRAM = """\
words = ["right", "answers"]
print(" ".join(words), 6 * 7)
"""

ATARI = "atari_env.server.atari_environment:AtariEnvironment"
BLACKJACK = "blackjack_env.server.blackjack_environment:BlackjackEnvironment"
BROWSER = "browser_env.server.browser_environment:BrowserEnvironment"
CHESS = "chess_env.server.chess_environment:ChessEnvironment"
CODING = "coding_env.server.python_codeact_env:PythonCodeActEnv"
ECHO = "echo_env.server.echo_environment:EchoEnvironment"
FINRL = "finrl_env.server.finrl_environment:FinRLEnvironment"
GAME_2048 = "game_2048_env.server.game_2048_environment:Game2048Environment"
OPENSPIEL = "openspiel_env.server.openspiel_environment:OpenSpielEnvironment"
REASONING = "reasoning_gym_env.server.reasoning_gym_environment:ReasoningGymEnvironment"
TERMINAL = "terminal_env.server.terminal_environment:TerminalEnvironment"
TEXTARENA = "textarena_env.server.textarena_environment:TextArenaEnvironment"
WORDLE = "wordle_env.server.wordle_environment:WordleEnvironment"

SANDBOXED = {"CODING_SANDBOX": "bubblewrap", "TERMINAL_SANDBOX": "bubblewrap"}

RIGHT_ANSWERS = (
    RightAnswer(
        "a point in Pong",
        ATARI,
        tuple(_call("atari", action_id=int(action)) for action in PONG),
        1.0,
        {"seed": 0, "game_name": "pong", "obs_type": "ram", "max_frames": 4 * len(PONG)},
    ),
    RightAnswer("a hand of blackjack", BLACKJACK, ("hit", "stand"), 1.0, {"seed": 1}),
    RightAnswer(
        "a hand of blackjack, by calls",
        BLACKJACK,
        (_call("blackjack", action="hit"), _call("blackjack", action="stand")),
        1.0,
        {"seed": 1},
    ),
    RightAnswer(
        "a button in a browser",
        BROWSER,
        (_call("click", role="button", name="Share"),),
        1.0,
        {"task": "click-button/5", "seed": 1},
    ),
    RightAnswer("a mate in one", CHESS, ("f5d4",), 1.0, {"task": "mate_in_1-000"}),
    RightAnswer("a mate in two", CHESS, ("g4c8", "d4c6"), 1.0, {"task": "mate_in_2-000"}),
    RightAnswer(
        "a function that is submitted",
        CODING,
        (_call("code", code=FUNCTION, submit=True),),
        1.0,
        {"task": "digital_root"},
        variables=SANDBOXED,
    ),
    RightAnswer(
        "a program", CODING, (PROGRAM,), 0.1, {"seed": 1}, variables=SANDBOXED, is_code=True
    ),
    RightAnswer(
        "a word that is said",
        ECHO,
        (_call("echo_message", message="hello"),),
        1.0,
        {"task": "say-hello"},
    ),
    RightAnswer(
        "shares that rise",
        FINRL,
        (_call("fin_rl", actions=[1000.0]), *([_call("fin_rl", actions=[0.0])] * 11)),
        2.2699121372296984,
        {"market": "sine", "start": 19, "days": 12},
    ),
    RightAnswer(
        "seven moves of 2048",
        GAME_2048,
        ("right", "up", "up", "right", "up", "right", "up"),
        44.0,
        {"seed": 10, "max_moves": 7},
    ),
    RightAnswer(
        "a ball that is caught",
        OPENSPIEL,
        tuple(_call("open_spiel", action_id=action) for action in (2, 2, 1, 1, 1, 1, 1, 1, 1)),
        1.0,
        {"seed": 0},
    ),
    RightAnswer(
        "legs that are counted",
        REASONING,
        ("292",),
        1.0,
        {"dataset_name": "leg_counting", "seed": 1, "size": 10},
        library="reasoning_gym",
    ),
    RightAnswer(
        "a sum",
        REASONING,
        ("-4",),
        1.0,
        {"dataset_name": "chain_sum", "seed": 1, "size": 10},
        library="reasoning_gym",
    ),
    RightAnswer(
        "a key that is found",
        TERMINAL,
        (
            _call(
                "terminal",
                kind="run",
                command="cd ~ && grep -rl '^api_key =' archive > answer.txt"
                " && grep -rh '^api_key =' archive | sed 's/.*= //' >> answer.txt",
            ),
            _call("terminal", kind="submit"),
        ),
        1.0,
        {"task": "find_the_key", "seed": 1},
        variables=SANDBOXED,
    ),
    RightAnswer(
        "a number that is guessed",
        TEXTARENA,
        ("[5]",),
        1.0,
        {"env_id": "GuessTheNumber-v0", "seed": 1},
        library="textarena",
    ),
    RightAnswer("a word that is guessed", WORDLE, ("aaaaa", "layer"), 1.0, {"seed": 1}),
)
"""For each environment one at least."""
