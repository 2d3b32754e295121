"""NeMo Gym's agent plays our environments: by its own adapter, unchanged, and by our server."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.commands import ENVIRONMENTS, SOURCES
from support.llm_server import Asked, LLMServer, Reply, llm_server
from support.servers import serving
from support.venvs import python_of
from trainers.buttons import Buttons, obedient

from openenv.server.app import create_app

pytestmark = [pytest.mark.trainers, pytest.mark.slow, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
ROOT = SOURCES.parent
Play = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def python() -> str:
    paths = [ROOT, ENVIRONMENTS / "echo_env", ENVIRONMENTS / "blackjack_env"]
    editable = [word for path in paths for word in ("-e", str(path))]
    folder = ROOT / ".peers" / "trainers_nemo_gym"
    return python_of(folder, "nemo-gym==0.4.0", *editable, at_least=(3, 12))


@pytest.fixture(scope="module")
def model() -> Iterator[LLMServer]:
    """Does as it is told, by the first tool that it has."""

    def answer(asked: Asked) -> Reply:
        button = obedient(asked.last)
        tools = asked.body.get("tools")
        if button is None or not tools:
            return Reply("I leave it there.")
        return Reply("", calls=[(tools[0]["function"]["name"], {"button": button})])

    with llm_server(answer) as server:
        yield server


@pytest.fixture
def play(python: str) -> Play:
    def played(model: LLMServer, server: str, env: dict[str, Any], rows: Any) -> Any:
        asked = {"model": model.url, "server": server, "env": env, "rows": rows}
        done = subprocess.run(
            [python, str(HERE / "nemo_gym_play.py"), json.dumps(asked)],
            env={**os.environ, "PYTHONPATH": str(HERE.parent)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return played


def row(text: str, tool: str, **parameters: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": parameters, "required": list(parameters)}
    described = {"type": "function", "name": tool, "description": tool, "parameters": schema}
    asked = {"input": [{"role": "user", "content": text}], "tools": [{**described, "strict": True}]}
    return {"responses_create_params": asked}


# ------------------------------------------------------------------ its own adapter


def test_its_own_adapter_finds_and_calls_the_tools_of_an_environment(play: Play) -> None:
    """It imports the class, resets, asks for the tools and calls them, all on a running loop."""
    env = {
        "env_class": "echo_env.server.echo_environment.EchoEnvironment",
        "action_class": "openenv.core.env_server.mcp_types.CallToolAction",
        "is_mcp": True,
    }
    replies = [Reply("", calls=[("echo_message", {"message": "hi"})]), Reply("done")]
    with llm_server(replies) as model:
        asked = row("Echo hi.", "echo_message", message={"type": "string"})
        (told,) = play(model, "own", env, [asked])
    assert told["status"] == 200
    kinds = [one["type"] for one in told["body"]["response"]["output"]]
    assert kinds == ["function_call", "function_call_output", "message"]
    answer = json.loads(told["body"]["response"]["output"][1]["output"])
    assert answer["error"] is None
    assert answer["result"]["data"] == "hi"


def test_its_own_adapter_steps_an_environment_of_actions(play: Play) -> None:
    """What a step shows is dumped as it is, and its rewards are added up."""
    env = {
        "env_class": "trainers.buttons.Buttons",
        "action_class": "trainers.buttons.Press",
        "reset_kwargs": {"seed": 0},
    }
    replies = [Reply("", calls=[("step", {"button": "go"})]) for _ in range(2)]
    with llm_server([*replies, Reply("done")]) as model:
        (told,) = play(model, "own", env, [row("Begin.", "step", button={"type": "string"})])
    assert told["status"] == 200
    assert told["body"]["reward"] == 1.0
    shown = json.loads(told["body"]["response"]["output"][1]["output"])
    assert (shown["text"], shown["reward"], shown["done"]) == ("press on", 0.5, False)


# ------------------------------------------------------------------ our server


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving(create_app(Buttons, max_concurrent_envs=8)) as url:
        yield url


def test_an_episode_is_worth_what_the_environment_says(
    play: Play, model: LLMServer, address: str
) -> None:
    env = {"environment": address}
    fine, breaks, unscored, left, refused = play(model, "ours", env, {"num_rows": 5})
    assert fine["row"]["responses_create_params"]["input"][0]["content"] == "press go"
    assert (fine["status"], fine["body"]["reward"], fine["body"]["steps"]) == (200, 1.0, 2)
    outputs = [one["output"] for one in fine["body"]["response"]["output"] if "output" in one]
    assert outputs[0] == "press on"
    assert left["body"]["reward"] == 0.5
    assert refused["body"]["reward"] == 1.0
    for failed, why in ((breaks, "ExecutionFailed"), (unscored, "the camera was off")):
        assert failed["status"] == 500
        assert why in failed["body"]


def test_failures_are_set_aside_if_that_is_asked_for(
    play: Play, model: LLMServer, address: str
) -> None:
    env = {"environment": address, "on_failure": "set_aside", "unfinished": -1.0}
    fine, breaks, unscored, left, _ = play(model, "ours", env, {"num_rows": 5})
    assert "_ng_failure_class" not in fine["body"]
    assert left["body"]["reward"] == -1.0
    for failed in (breaks, unscored):
        assert failed["status"] == 200
        assert failed["body"]["_ng_failure_class"] == "environment"
        assert failed["body"]["failure"]


def test_an_episode_that_is_not_the_row_s_is_refused(
    play: Play, model: LLMServer, address: str
) -> None:
    other = {**row("press on", "press", button={"type": "string"})}
    other["openenv"] = {"reset": {"seed": 0}, "seen": "press on"}
    (told,) = play(model, "ours", {"environment": address}, [other])
    assert told["status"] == 500
    assert "make the rows anew" in told["body"]


def test_a_full_server_makes_rollouts_wait(play: Play, model: LLMServer) -> None:
    """Rows of seeds 0, 1 and 2: the second breaks, and gives its place back like the others."""
    with serving(create_app(Buttons, max_concurrent_envs=1)) as url:
        told = play(model, "ours", {"environment": url}, {"num_rows": 3})
    assert [one["status"] for one in told] == [200, 500, 500]
    assert told[0]["body"]["reward"] == 1.0
