"""SkyRL plays our environments: by one call that registers them, and by its own integration.

skyrl-gym is the real package. SkyRL itself wants CUDA, so that the loop of its generator is written
anew from its source (``skyrl/train/generators/skyrl_gym_generator.py``), and so is what its own
integration calls of a client (``integrations/openenv/env.py``), with an address in place of an
image.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.commands import SOURCES
from support.servers import serving
from support.venvs import python_of
from trainers.buttons import Buttons

from openenv.server.app import create_app
from openenv.server.loading import load_target

pytestmark = [pytest.mark.trainers, pytest.mark.slow, pytest.mark.timeout(300)]

HERE = Path(__file__).parent
ROOT = SOURCES.parent


@pytest.fixture(scope="module")
def python() -> str:
    return python_of(ROOT / ".peers" / "trainers_skyrl", "skyrl-gym==0.4.0", "-e", str(ROOT))


def play(python: str, way: str, *addresses: str) -> dict[str, Any]:
    done = subprocess.run(
        [python, str(HERE / "skyrl_play.py"), way, *addresses],
        env={**os.environ, "PYTHONPATH": str(HERE.parent)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return outcome


@pytest.fixture(scope="module")
def told(python: str) -> Iterator[dict[str, Any]]:
    """There is room for five episodes: one that is not given back would have the next wait."""
    with serving(create_app(Buttons, max_concurrent_envs=5)) as url:
        yield play(python, "ours", url)


def test_a_row_is_an_episode_whose_worth_is_at_its_end(told: dict[str, Any]) -> None:
    fine = told["at_end"][0]
    assert fine["rewards"] == [0.0, 1.0]
    assert fine["metrics"] == {"steps": 2, "finished": True}


def test_the_model_is_told_how_to_act_and_what_there_is(told: dict[str, Any]) -> None:
    system, user = told["loud"][0]["shown"]
    assert system["role"] == "system"
    assert '"button"' in system["content"] and '"loud"' in system["content"]
    assert user["content"] == "Do as you are told.\n\npress go"


def test_where_any_text_is_an_action_the_model_is_told_no_more(told: dict[str, Any]) -> None:
    (user,) = told["words"][0]["shown"]
    assert user["content"] == "Do as you are told.\n\npress go"


def test_steps_may_have_what_they_add(told: dict[str, Any]) -> None:
    fine, left = told["each_step"]
    assert fine["rewards"] == [0.5, 0.5]
    assert left["rewards"] == [0.5, 0.5]
    assert left["metrics"] == {"steps": 2, "finished": False}


@pytest.mark.parametrize(
    ("seed", "why"), [(1, "ExecutionFailed"), (2, "the camera was off")], ids=["breaks", "unscored"]
)
def test_what_fails_or_cannot_be_scored_raises(told: dict[str, Any], seed: int, why: str) -> None:
    failed = told["at_end"][seed]
    assert why in failed["error"]
    assert failed["rewards"] == []


def test_turns_end_an_episode_with_what_it_has_earned(told: dict[str, Any]) -> None:
    assert told["at_end"][3]["rewards"] == [0.0, 0.0, 0.0, 2.0]


def test_what_is_refused_is_told_and_the_episode_goes_on(told: dict[str, Any]) -> None:
    assert told["at_end"][4]["rewards"] == [0.0, 0.0, 1.0]


def test_an_episode_that_is_left_may_be_worth_a_number(told: dict[str, Any]) -> None:
    assert told["words"][0]["rewards"] == [0.0, -1.0]


def test_the_configuration_comes_before_what_was_registered(told: dict[str, Any]) -> None:
    assert told["configured"][0]["rewards"] == [0.0, -2.0]
    assert "'turns'" in told["misnamed"]


def test_another_process_makes_it_of_what_was_registered(told: dict[str, Any]) -> None:
    assert told["elsewhere"][0]["rewards"] == [0.0, 1.0]
    assert told["unsendable"].startswith("TypeError")


def test_a_server_that_is_not_there_raises(told: dict[str, Any]) -> None:
    assert told["gone"][0]["error"].startswith("ConnectError")


def test_its_own_integration_calls_our_clients(python: str) -> None:
    with (
        serving(load_target("echo_env")) as echo,
        serving(load_target("coding_env")) as coding,
        serving(load_target("openspiel_env")) as openspiel,
    ):
        told = play(python, "theirs", echo, coding, openspiel)
    assert told["echo"]["seen"]["echoed_message"] == "hello"
    assert told["coding"]["seen"]["stdout"].strip() == "42"
    assert told["openspiel"]["done"] is False
    assert told["openspiel"]["reward"] is not None
