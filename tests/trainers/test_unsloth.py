"""Unsloth starts our server and plays it, with the functions of its own package; its example runs.

`unsloth_zoo` refuses to be imported where there is no GPU, so that the file of these functions is
loaded by itself, out of the package as it was published.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.commands import SOURCES, environ
from support.venvs import python_of
from trainers import test_trl

pytestmark = [pytest.mark.trainers, pytest.mark.slow, pytest.mark.timeout(300)]

HERE = Path(__file__).parent
ROOT = SOURCES.parent


@pytest.fixture(scope="module")
def file() -> str:
    folder = ROOT / ".peers" / "trainers_unsloth"
    python_of(folder, "--no-deps", "unsloth_zoo==2026.10.9")
    (found,) = folder.glob("lib/python*/site-packages/unsloth_zoo/rl_environments.py")
    return str(found)


def outcome_of(python: str, program: str, *arguments: str, cwd: Path = ROOT) -> dict[str, Any]:
    done = subprocess.run(
        [python, str(HERE / program), *arguments],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        cwd=cwd,
        env=environ() | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return outcome


@pytest.fixture(scope="module")
def told(file: str) -> dict[str, Any]:
    return outcome_of(sys.executable, "unsloth_play.py", file, str(ROOT))


def test_its_launcher_starts_our_server_and_keeps_it(told: dict[str, Any]) -> None:
    """A server is kept if ``/health`` answers within 0.1 s; the client is made with its address."""
    assert told["same"], "a second call started another server"
    assert told["first"] == [False, None, None]
    assert told["board"] == 16


def test_its_notebook_plays_within_a_time_limit(told: dict[str, Any]) -> None:
    steps, total, _ = told["played"]
    assert steps == 20
    assert total > 0
    assert "99" in told["illegal"]
    assert told["after"] == 20


def test_a_strategy_in_a_fork_begins_its_episode_there(told: dict[str, Any]) -> None:
    """Which is how a strategy is run that would catch the time limit's exception. An episode of the
    parent's cannot be gone on with there, and says so."""
    assert told["forked"] == 20
    assert "this process was forked" in told["forked_in_the_middle"]
    assert told["after_forks"] == 20


def test_strategies_that_a_model_writes_are_worth_their_points(file: str) -> None:
    told = outcome_of(sys.executable, "unsloth_strategies.py", file)
    for good in ("first", "last", "on_another_server", "after_that"):
        assert told[good] > 1
    (together,) = set(told["together"])
    assert together > 1
    for wrong in ("prose", "broken", "impossible", "no_move", "raises", "opens"):
        assert told[wrong] == -1
    for endless in ("endless", "catches"):
        assert told[endless] == -1
    assert told["killed_meanwhile"] is None, "a server that ended was scored"


def test_its_example_trains(file: str, tmp_path: Path) -> None:
    """With a stand-in for its `FastLanguageModel` alone, which needs a GPU."""
    python = test_trl.python()
    told = outcome_of(python, "unsloth_strategies.py", file, "--train", cwd=tmp_path)
    assert told == {"asked": ["tiny"], "reward": -1.0}
    assert (tmp_path / "outputs" / "lora").is_dir()
