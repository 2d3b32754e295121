"""Tests of the TextArena environment, without the library and in a process that has it.

`with_textarena.py` has the tests that need the library. They run in a virtual environment with the
library.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.venvs import python_of

from openenv.types import public_view
from textarena_env import (
    TextArenaAction,
    TextArenaMessage,
    TextArenaObservation,
    TextArenaState,
)
from textarena_env.rewards import (
    extract_feedback_counts,
    extract_guess,
    extract_wordle_feedback,
)

HERE = Path(__file__).parent
PACKAGE = HERE.parent
ROOT = PACKAGE.parents[1]


def test_the_client_side_does_not_import_the_library() -> None:
    code = "import sys, textarena_env; assert 'textarena' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_fields_are_those_of_the_public_package() -> None:
    seen = TextArenaObservation(prompt="Guess.")
    assert TextArenaState().last_reward == 0.0
    assert (seen.messages, seen.current_player_id, seen.legal_players, seen.info) == ([], 0, [], {})
    own = set(TextArenaState.model_fields)
    assert {"env_id", "num_players", "max_turns", "turn", "last_reward", "last_info"} < own
    assert TextArenaAction(message="[crane]").message == "[crane]"


def told(*texts: str) -> TextArenaObservation:
    messages = [TextArenaMessage(sender_id=-1, content=one, category="MESSAGE") for one in texts]
    return TextArenaObservation(messages=messages)


def test_public_scripts_read_guesses_and_marks() -> None:
    assert extract_guess("I think [CRANE], not [slate].") == "[crane]"
    assert extract_guess("Slate it is") == "[slate]"
    assert extract_guess("no") == "[dunno]"
    feedback = extract_wordle_feedback(
        told("Feedback:\nold", "so\nFeedback:\nC R A N E\nG X Y X G\n")
    )
    assert feedback == "C R A N E\nG X Y X G"
    assert extract_feedback_counts(feedback) == (2, 1)
    assert extract_wordle_feedback(told("Guess.")) == ""
    assert extract_feedback_counts("") == extract_feedback_counts("G Y") == (0, 0)


def test_the_games_own_state_is_private() -> None:
    state = TextArenaState(raw_state={"secret_word": "crane"})
    assert "crane" not in str(public_view(state))


@pytest.mark.packages
@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_it_keeps_its_promises_with_the_library() -> None:
    wanted = (ROOT / "pyproject.toml").read_text() + (PACKAGE / "pyproject.toml").read_text()
    editable = [word for path in (ROOT, PACKAGE) for word in ("--editable", str(path))]
    packages = [*editable, "numpy", "pytest", "pytest-timeout"]
    python = python_of(ROOT / ".peers" / "textarena", *packages, made_of=wanted)
    tests = HERE / "with_textarena.py"
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests)]
    ran = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=1800, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
