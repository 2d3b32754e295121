"""verl plays our environments by our agent loop, made as its worker makes one of a file.

verl is the real package: its base class, its output, its configuration. Its server of models needs
a GPU; what writes the replies here is a program that does as it is told.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.commands import SOURCES
from support.servers import serving
from support.venvs import python_of
from trainers.buttons import Buttons

from openenv.server.app import create_app

pytestmark = [
    pytest.mark.trainers,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(sys.version_info >= (3, 13), reason="verl 0.9 needs Python 3.12 or older"),
]

HERE = Path(__file__).parent
ROOT = SOURCES.parent
# verl 0.9.1 does not name the last two.
PACKAGES = ("verl==0.9.1", "torch==2.13.0", "cachetools==6.2.0")


@pytest.fixture(scope="module")
def python() -> str:
    return python_of(ROOT / ".peers" / "trainers_verl", *PACKAGES, "-e", str(ROOT))


@pytest.fixture(scope="module")
def told(python: str) -> dict[str, Any]:
    """There is room for five episodes: one that is not given back would have the next wait."""
    with serving(create_app(Buttons, max_concurrent_envs=5)) as url:
        done = subprocess.run(
            [python, str(HERE / "verl_play.py"), url],
            env={**os.environ, "PYTHONPATH": str(HERE.parent), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return outcome


def test_an_episode_has_its_reward_at_its_last_token(told: dict[str, Any]) -> None:
    fine = told["all"][0]
    assert (fine["reward"], fine["at_the_end"], fine["steps"]) == (1.0, 1.0, 2)
    assert fine["turns"] == 6


def test_its_tokens_are_those_that_the_model_has_written(told: dict[str, Any]) -> None:
    fine = told["all"][0]
    assert fine["is_exact"]
    assert fine["grows"]
    assert fine["one_request"], "the server would not find what it has read before"
    assert fine["logprobs"] == [-0.5, 0.0]


def test_the_model_is_told_how_to_act_and_what_there_is(told: dict[str, Any]) -> None:
    fine = told["all"][0]
    assert fine["prompt"].endswith("Obey.\n\npress go<|im_end|>\n<|im_start|>assistant\n")
    assert '"button"' in fine["prompt"]
    assert "<|im_start|>user\npress on<|im_end|>" in fine["response"]
    assert fine["versions"] == [1, 2]


@pytest.mark.parametrize(("seed", "why"), [(1, "the episode broke off"), (2, "the camera was off")])
def test_what_fails_is_played_again_and_then_raises(
    told: dict[str, Any], seed: int, why: str
) -> None:
    failed = told["all"][seed]
    assert failed["error"].startswith("Unscored")
    assert why in failed["error"]
    assert failed["requests"] == 3


def test_what_is_refused_is_told_and_the_episode_goes_on(told: dict[str, Any]) -> None:
    assert told["all"][4]["reward"] == 1.0
    assert told["all"][4]["steps"] == 2


def test_an_episode_that_is_left_may_be_worth_a_number(told: dict[str, Any]) -> None:
    assert told["short"]["reward"] == -1.0


def test_a_server_that_is_not_there_raises(told: dict[str, Any]) -> None:
    assert told["gone"]["error"].startswith("ConnectError")
    assert "environment=None" in told["nowhere"]
