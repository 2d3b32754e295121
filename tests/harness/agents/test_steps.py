"""In simulation a turn is a step, by any client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from harness.agents.desks import Desk

from openenv import ExecutionFailed, GenericEnvClient
from openenv.core.harness import HarnessAction as OldAction
from openenv.core.harness.environment import HarnessEnvironment as OldEnvironment
from openenv.harness.agents import HarnessAction, HarnessEnvironment
from openenv.server.app import create_app
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
