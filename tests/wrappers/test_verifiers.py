"""Tasksets of verifiers, whose model is whoever drives the environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.commands import SOURCES, environ
from support.venvs import python_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytestmark = [pytest.mark.packages, pytest.mark.slow, pytest.mark.timeout(600)]

HERE = Path(__file__).parent
ROOT = SOURCES.parent


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if sys.version_info < (3, 11):
        pytest.skip("verifiers 0.4 needs Python 3.11")
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    python = python_of(ROOT / ".peers" / "verifiers", "verifiers==0.4.0", *ours)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # where uv is
    done = subprocess.run(
        [python, str(HERE / "verifiers_play.py")],
        cwd=tmp_path_factory.mktemp("verifiers"),
        env={**environ(HERE), "PATH": path},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    assert "was destroyed but it is pending" not in done.stderr
    outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return outcome


def test_what_the_harness_asks_is_seen_and_the_answer_scored(told: dict[str, Any]) -> None:
    assert told["asked"] == [{"role": "user", "content": "What is 2 + 2?"}]
    assert told["right"] == [1.0, True, {"exact": 1.0}, {"exact": 1.0}]


def test_a_rubric_that_fails_leaves_no_reward_and_says_why(told: dict[str, Any]) -> None:
    reward, done, info = told["broken"]
    assert (reward, done) == (None, True)
    assert "the rubric broke" in info["unscored"]


@pytest.mark.parametrize(
    ("call", "named"),
    [("before", "reset"), ("after", "reset"), ("empty", "content"), ("no_task", "77")],
)
def test_what_cannot_be_done_is_refused(told: dict[str, Any], call: str, named: str) -> None:
    assert named in told[call]


def test_tasks_are_listed_and_their_data_private(told: dict[str, Any]) -> None:
    assert told["tasks"] == [["tasks"], 4, "6", {"id": "3", "index": 3}]


def test_what_is_none_is_an_error_of_the_target(told: dict[str, Any]) -> None:
    missing, option = told["targets"]
    assert "nowhere_here" in missing
    assert "wheels" in option


def test_a_request_of_a_harness_has_bounds(told: dict[str, Any]) -> None:
    assert told["overflow"] == [
        f"HTTP/1.1 413 Content Too Large | the request has {64 * 2**20 + 1} bytes; "
        f"at most {64 * 2**20} are read",
        f"HTTP/1.1 431 Request Header Fields Too Large | the head of the request is larger than "
        f"{2**16} bytes",
        "HTTP/1.1 404 Not Found | only chat completions",
    ]
