"""ART gathers rollouts in our environments: by its guide, unchanged, and by ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.commands import SOURCES
from support.llm_server import Asked, Reply, llm_server
from support.servers import serving
from support.venvs import python_of
from trainers.buttons import Buttons, obedient

from openenv.server.app import create_app
from openenv.server.loading import load_target

pytestmark = [
    pytest.mark.trainers,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(sys.version_info < (3, 11), reason="ART 0.5 needs Python 3.11"),
]

HERE = Path(__file__).parent
ROOT = SOURCES.parent


@pytest.fixture(scope="module")
def python() -> str:
    return python_of(
        ROOT / ".peers" / "trainers_art", "openpipe-art==0.5.18", "openai==2.14.0", "-e", str(ROOT)
    )


def answer(asked: Asked) -> Reply:
    """Do as one is told, by a call of a tool if there is one."""
    button = obedient(asked.last)
    if button is None:
        return Reply("I leave it there.")
    tools = asked.body.get("tools")
    if not tools:
        return Reply(json.dumps({"button": button}))
    return Reply("", calls=[(tools[0]["function"]["name"], {"button": button})])


@pytest.fixture(scope="module")
def told(python: str) -> dict[str, Any]:
    """There is room for five episodes: one that is not given back would have the next wait."""
    with (
        llm_server(answer) as model,
        serving(create_app(Buttons, max_concurrent_envs=5)) as buttons,
        serving(load_target("echo_env")) as echo,
    ):
        done = subprocess.run(
            [python, str(HERE / "art_play.py"), model.url, buttons, echo],
            env={
                **os.environ,
                "PYTHONPATH": str(HERE.parent),
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            },
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return outcome


@pytest.mark.parametrize("way", ["tools", "words"])
def test_what_succeeds_is_a_trajectory_with_its_reward(told: dict[str, Any], way: str) -> None:
    fine, left, refused = told[way]["trajectories"]
    assert (fine["reward"], fine["metrics"]) == (1.0, {"steps": 2, "finished": True})
    assert (left["reward"], left["metrics"]) == (1.5, {"steps": 3, "finished": False})
    assert (refused["reward"], refused["choices"]) == (1.0, 3)


@pytest.mark.parametrize("way", ["tools", "words"])
def test_what_fails_or_cannot_be_scored_is_an_exception_of_the_group(
    told: dict[str, Any], way: str
) -> None:
    breaks, unscored = told[way]["errors"]
    assert "ExecutionFailed" in breaks
    assert "Unscored" in unscored
    assert "the camera was off" in unscored


def test_without_tolerance_a_failure_ends_the_gathering(told: dict[str, Any]) -> None:
    assert told["intolerant"] == "ExecutionFailed"


def test_a_trajectory_holds_the_conversation(told: dict[str, Any]) -> None:
    fine = told["tools"]["trajectories"][0]
    (tool,) = fine["tools"]
    seen = [(one["role"], one["content"]) for one in fine["messages"]]
    assert seen == [
        ("system", "Obey."),
        ("user", "press go"),
        ("assistant", ""),
        ("tool", "press on"),
        ("assistant", ""),
        ("tool", "press on\n(the episode is over)"),
    ]
    assert fine["messages"][2]["tool_calls"][0]["function"]["name"] == tool
    assert fine["choices"] == 2


def test_an_episode_that_is_left_may_be_worth_a_number(told: dict[str, Any]) -> None:
    assert told["left"]["trajectories"][0]["reward"] == -1.0


def test_a_server_that_is_not_there_is_an_exception(told: dict[str, Any]) -> None:
    assert told["gone"]["trajectories"] == []
    assert "ConnectError" in told["gone"]["errors"][0]


def test_the_rollout_of_its_guide_calls_our_clients_from_threads(told: dict[str, Any]) -> None:
    first, second = told["theirs"]
    assert len(first) == 4
    assert first == second
    assert all(isinstance(one, float) for one in first)
