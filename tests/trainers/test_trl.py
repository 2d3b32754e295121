"""TRL's own GRPOTrainer trains on our environments, a tiny model for a few steps."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.commands import environ
from support.servers import serving
from support.venvs import python_of
from trainers.flaky import Broken, Flaky

from blackjack_env.server.blackjack_environment import BlackjackEnvironment
from openenv import create_app

ROOT = Path(__file__).parents[2]
PACKAGES = ("blackjack", "echo", "openspiel", "coding", "game_2048")
NEEDED = (
    "torch==2.13.0",
    "trl==1.16.*",
    "matplotlib",
    *(word for path in (".", *(f"envs/{one}_env" for one in PACKAGES)) for word in ("-e", path)),
)

pytestmark = [pytest.mark.trainers, pytest.mark.slow, pytest.mark.timeout(1200)]


def python() -> str:
    needed = [str(ROOT / word) if word == "." or "/" in word else word for word in NEEDED]
    return python_of(ROOT / ".peers" / "trl-envs", *needed)


def played(way: str, folder: Path, told: str = "", **options: Any) -> Any:
    program = str(Path(__file__).parent / "trl_play.py")
    done = subprocess.run(
        [python(), program, way, str(folder), json.dumps(options)],
        env=environ(ROOT / "tests") | {"OMP_NUM_THREADS": "1"},
        input=told,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def steps_of(found: dict[str, Any]) -> list[dict[str, Any]]:
    assert found["error"] is None
    return [one for one in found["logs"] if "reward" in one]


def check_costs(found: dict[str, Any], steps: int, batch: int) -> None:
    assert len(found["costs"]) == steps
    for cost in found["costs"]:
        assert cost["episodes"] == batch
        assert cost["failures"] == 0
        assert cost["tokens"] > 0
        assert 0 < cost["waited_s"] < cost["seconds"]
        assert cost["waited_s"] <= cost["summed_s"]
    assert sum(cost["steps"] for cost in found["costs"]) > batch


@pytest.mark.parametrize("way", ["one", "overlapping"])
def test_an_environment_is_trained_on_by_its_own_reward(way: str, tmp_path: Path) -> None:
    found = played(way, tmp_path)
    logs = steps_of(found)
    assert len(logs) == 3
    for log in logs:
        assert log["rewards/Blackjack/mean"] == log["reward"]
        assert -1 <= log["reward"] <= 1.5
        assert log["tools/call_frequency"] > 0.5
        assert log["tools/failure_frequency"] == 0
        assert log["environment/episodes"] == 8
        assert log["environment/failures"] == 0
    assert any(log["grad_norm"] > 0 for log in logs)
    check_costs(found, 3, 8)


def test_many_environments_are_trained_on_in_one_run(tmp_path: Path) -> None:
    found = played("many", tmp_path)
    logs = steps_of(found)
    for name in ("Echo", "Openspiel", "Coding"):
        assert any(log[f"rewards/{name}/mean"] is not None for log in logs), name
    check_costs(found, 6, 12)


def test_a_rollout_func_plays_a_batch_at_once(tmp_path: Path) -> None:
    found = played("together", tmp_path)
    logs = steps_of(found)
    assert any(log["grad_norm"] > 0 for log in logs)
    for log in logs:
        assert log["rewards/env_reward/mean"] == log["reward"]
    check_costs(found, 3, 8)
    assert any(cost["summed_s"] > cost["waited_s"] for cost in found["costs"])


def test_no_more_rollouts_are_played_at_once_than_there_is_room_for(tmp_path: Path) -> None:
    app = create_app(BlackjackEnvironment, max_concurrent_envs=3)
    with serving(app) as url:
        found = played("together", tmp_path, environment=url, at_once=3)
        check_costs(found, 3, 8)
        assert {cost["failures"] for cost in found["costs"]} == {0}


def test_a_server_without_enough_room_ends_the_training_and_names_the_cure(tmp_path: Path) -> None:
    app = create_app(BlackjackEnvironment, max_concurrent_envs=3)
    with serving(app) as url:
        found = played("one", tmp_path, environment=url, queue_s=1)
    assert found["error"].startswith("CapacityError")
    assert "MAX_CONCURRENT_ENVS" in found["error"]


@pytest.mark.parametrize("way", ["one", "together"])
def test_rollouts_whose_environment_fails_are_left_out(way: str, tmp_path: Path) -> None:
    Flaky.count = 0
    with serving(create_app(Flaky, max_concurrent_envs=16)) as url:
        found = played(way, tmp_path, environment=url)
    logs = steps_of(found)
    failures = sum(cost["failures"] for cost in found["costs"])
    assert 0 < failures < 24
    assert len(logs) == 3
    assert any(log["grad_norm"] > 0 for log in logs)
    for log in logs:
        assert log["reward"] >= -1


def test_an_environment_that_always_fails_ends_the_training(tmp_path: Path) -> None:
    with serving(create_app(Broken, max_concurrent_envs=16)) as url:
        found = played("one", tmp_path, environment=url, failures_in_a_row=6)
    assert found["error"].startswith("EnvironmentsFailing: 6 episodes in a row have failed")
    assert "the episode broke off: ExecutionFailed" in found["error"]


def test_the_worker_of_harnesses_plays_and_scores(tmp_path: Path) -> None:
    found = played("harness", tmp_path)
    assert found["open"] == 0
    assert len(found["played"]) == 6
    for messages, tokens, calls, reward, turns in found["played"]:
        assert messages >= 2
        assert tokens >= turns >= 1
        assert calls >= turns - 1
        assert -1 <= reward <= 1.5
    assert sum(one[2] for one in found["played"]) > 0


def test_transformers_reads_of_a_function_what_its_schema_says(tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "properties": {
            "from": {"type": "string", "description": "Where\nfrom. Returns: nothing"},
            "how": {"enum": ["slow", "fast"], "description": "Pace"},
            "often": {"type": "integer", "minimum": 1, "maximum": 9, "default": 2},
            "by": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
            "stops": {"type": "array", "items": {"$ref": "#/$defs/Stop"}},
        },
        "required": ["from", "how"],
        "$defs": {
            "Stop": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "wait": {"type": "number"}},
                "required": ["name"],
            }
        },
    }
    found = played("schemas", tmp_path, told=json.dumps({"go": schema}))["go"]
    assert found["description"] == "Does go."
    parameters = found["parameters"]
    assert parameters["required"] == ["from_", "how"]
    properties = parameters["properties"]
    assert properties["from_"] == {
        "type": "string",
        "description": "Where from. Returns - nothing.",
    }
    assert properties["how"]["enum"] == ["slow", "fast"]
    assert properties["often"]["type"] == "integer"
    assert properties["often"]["description"] == "The often (at least 1, at most 9)."
    assert properties["by"]["type"] == "number"
    assert properties["by"]["nullable"]
    assert properties["stops"]["items"]["type"] == "object"
    assert "'wait': number, optional" in properties["stops"]["description"]
