"""A `reset` or a `step` without an argument that the environment requires."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from support.asking import Asking, AskingLater, Supplied
from support.servers import serving

from openenv import GenericEnvClient, create_app
from openenv.errors import ExecutionFailed, ValidationFailed
from openenv.testing import CheckFailed, check_environment


@pytest.mark.parametrize("protocol", ["0", "1"])
@pytest.mark.parametrize(
    ("environment", "workers"), [(Asking, None), (AskingLater, None), (Asking, 1)]
)
def test_it_is_named(
    environment: Any, workers: int | None, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENENV_PROTOCOL", protocol)
    app = create_app(environment, max_concurrent_envs=4, workers=workers)
    with serving(app) as url, GenericEnvClient(base_url=url).sync() as env:
        with pytest.raises(ValidationFailed, match=r"pass reset\(task_id=\.\.\., level=\.\.\.\)"):
            env.reset()
        with pytest.raises(ValidationFailed, match=r"reset needs 'level': pass reset\(level="):
            env.reset(task_id="a")
        assert env.reset(task_id="a", level=2).observation is not None
        with pytest.raises(ValidationFailed, match=r"pass step\(action, hint=\.\.\.\)"):
            env.step({})
        if protocol == "1":  # version 0 has no arguments of a step
            assert env.step({}, hint="left").observation is not None
        answer = httpx.post(f"{url}/reset", json={"level": 1})
        assert answer.status_code == 422
        assert "task_id" in answer.text


def test_other_errors_of_the_same_kind_are_the_environment_s_own() -> None:
    with serving(create_app(Asking)) as url, GenericEnvClient(base_url=url).sync() as env:
        with pytest.raises(ExecutionFailed) as failed:
            env.reset(task_id="broken", level=1)
        assert "file" not in str(failed.value)


def test_what_a_decorator_supplies_is_not_missing() -> None:
    with serving(create_app(Supplied)) as url, GenericEnvClient(base_url=url).sync() as env:
        assert env.reset().observation["metadata"] == {"task_id": "first", "level": 1}


def test_the_check_of_an_environment_names_it_too() -> None:
    with pytest.raises(CheckFailed, match="reset needs 'task_id', 'level'"):
        check_environment(Asking)
