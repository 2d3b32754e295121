"""In simulation a turn is a step, by any client."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agents.desks import Desk
from support.waiting import wait_until
from websockets.sync.client import connect

from openenv import ExecutionFailed, GenericEnvClient
from openenv.agents import HarnessAction, HarnessEnvironment
from openenv.core.harness import HarnessAction as OldAction
from openenv.core.harness.environment import HarnessEnvironment as OldEnvironment
from openenv.server.app import create_app
from openenv.testing import check_environment
from openenv.types import Observation, StepResult

Serve = Callable[[Any], str]


@pytest.mark.parametrize("protocol", ["0", "1"])
def test_a_client_takes_turns(serve: Serve, monkeypatch: pytest.MonkeyPatch, protocol: str) -> None:
    monkeypatch.setenv("OPENENV_PROTOCOL", protocol)
    with GenericEnvClient(base_url=serve(create_app(Desk))).sync() as client:
        with pytest.raises(ExecutionFailed, match="reset"):
            client.step({"message": "too early"})
        client.reset()
        result = client.step({"message": "hello"})
        assert told(result)["response"] == "I have heard hello"
        assert result.reward is None and not result.done
        failed = client.step({"message": "die"})
        assert failed.done and failed.reward is None
        assert told(failed)["error_type"] == "harness_crashed"


def told(result: StepResult[Any]) -> dict[str, Any]:
    assert result.metadata is not None
    return result.metadata


def test_old_code_names_the_models(serve: Serve) -> None:
    assert OldAction is HarnessAction and OldEnvironment is HarnessEnvironment
    app = create_app(Desk, OldAction, Observation)
    with GenericEnvClient(base_url=serve(app)).sync() as client:
        client.reset()
        assert told(client.step({"message": "hi"}))["turn_number"] == 1


@pytest.mark.extended("test_served.py shows it over a server")
@pytest.mark.slow
def test_it_keeps_the_contract_of_environments() -> None:
    check_environment(Desk, actions=[HarnessAction(message="hello")] * 2)  # which raises


def test_turns_of_the_socket_are_recorded_as_steps(serve: Serve, tmp_path: Path) -> None:
    url = serve(create_app(Desk, mode="production", record=tmp_path))
    with connect(url.replace("http", "ws") + "/harness", proxy=None) as socket:
        socket.send('{"type": "message", "content": "hello"}')
        while json.loads(socket.recv(15))["type"] != "turn_complete":
            pass
    wait_until(lambda: '"end"' in written(tmp_path), 5, lambda: "the recording has no end")
    events = [json.loads(line) for line in written(tmp_path).splitlines()][1:]
    assert [event["event"] for event in events] == ["reset", "step", "end"]
    assert events[1]["action"]["message"] == "hello"
    told = events[1]["observation"]["metadata"]
    assert told["response"] == "I have heard hello"


def written(folder: Path) -> str:
    return "".join(file.read_text() for file in folder.rglob("*.jsonl"))
