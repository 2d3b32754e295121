"""verifiers plays our environments: by a taskset of its own, unchanged, and by ours."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.commands import ENVIRONMENTS, SOURCES
from support.llm_server import Asked, LLMServer, Reply, llm_server
from support.servers import serving
from support.venvs import python_of
from trainers.buttons import Buttons, obedient

from openenv.server.app import create_app
from openenv.server.loading import load_target

pytestmark = [
    pytest.mark.trainers,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(sys.version_info < (3, 11), reason="verifiers 0.4 needs Python 3.11"),
]

HERE = Path(__file__).parent
ROOT = SOURCES.parent
IMPORTED = [HERE, HERE.parent, ROOT / "examples" / "verifiers"]
NULL = {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}}
OWN = {"player": NULL}


@pytest.fixture(scope="module")
def python() -> str:
    ours = [ROOT, ENVIRONMENTS / "blackjack_env"]
    editable = [word for path in ours for word in ("-e", str(path))]
    return python_of(ROOT / ".peers" / "trainers_verifiers", "verifiers==0.4.0", *editable)


@pytest.fixture(scope="module")
def model() -> Iterator[LLMServer]:
    """Does as it is told, by a call of a tool if it has one."""

    def answer(asked: Asked) -> Reply:
        button = obedient(asked.last)
        if button is None:
            return Reply("I leave it there.")
        tools = asked.body.get("tools")
        if not tools:
            return Reply(json.dumps({"button": button}))
        return Reply("", calls=[(tools[0]["function"]["name"], {"button": button})])

    with llm_server(answer) as server:
        yield server


def play(python: str, model: LLMServer, *configs: dict[str, Any]) -> list[list[dict[str, Any]]]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # where uv is
    done = subprocess.run(
        [python, str(HERE / "verifiers_play.py"), model.url, json.dumps(configs)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, IMPORTED)), "PATH": path},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "was destroyed but it is pending" not in done.stderr
    outcome: list[list[dict[str, Any]]] = json.loads(done.stdout.splitlines()[-1])
    return outcome


# ------------------------------------------------------------------ its own taskset


def test_its_own_taskset_plays_a_server_by_its_address(python: str) -> None:
    """By words, each a JSON action; what it is shown are our observation and our schema."""
    with llm_server('{"action": "stand"}') as model, serving(load_target("blackjack_env")) as url:
        resets = [{"seed": 1}, {"seed": 2}]
        config = {"taskset": {"id": "openenv", "base_url": url, "resets": resets}, **OWN}
        ((first, second),) = play(python, model, config)
    assert first["ok"]
    assert second["ok"]
    shown = json.loads(first["messages"][0][1])
    assert shown["observation"]["legal_actions"] == ["hit", "stand"]
    assert shown["action_schema"]["title"] == "BlackjackAction"
    assert first["messages"][0] != second["messages"][0], "the seed has not arrived"
    assert {first["rewards"]["openenv_reward"], second["rewards"]["openenv_reward"]} <= {-1, 0, 1}


def test_its_own_taskset_lists_the_tools_of_an_environment_of_tools(python: str) -> None:
    """It asks for them before the first reset."""
    call = {"type": "call_tool", "tool_name": "greet", "arguments": {"name": "Ada"}}
    with (
        llm_server([json.dumps(call), ""]) as model,
        serving(load_target("compat.tools_environment:app")) as url,
    ):
        ((episode,),) = play(python, model, {"taskset": {"id": "openenv", "base_url": url}, **OWN})
    assert episode["ok"]
    assert episode["stop"] == "empty_action"
    opening = json.loads(episode["messages"][0][1])
    tools = {tool["name"] for tool in opening["action_schema"]["available_tools"]}
    assert tools == {"add_to_basket", "total", "greet"}
    assert "Hello, Ada!" in episode["messages"][2][1]


def test_its_own_taskset_starts_a_project_by_uv(python: str, tmp_path: Path) -> None:
    """`GenericEnvClient.from_env(...)`, awaited, as it is called there: by uv, without Docker."""
    project = tmp_path / "blackjack_env"
    shutil.copytree(ENVIRONMENTS / "blackjack_env", project)
    manifest = project / "pyproject.toml"
    ours = f'dependencies = ["openenv @ {ROOT.as_uri()}"]'
    text, count = re.subn(r'dependencies = \["openenv[^"]*"\]', ours, manifest.read_text())
    assert count == 1
    manifest.write_text(text + "\n[tool.hatch.metadata]\nallow-direct-references = true\n")
    given = {"project_path": str(project), "context_timeout_s": 300}
    taskset = {"id": "openenv", "env": "someone/blackjack_env", "provider_kwargs": given}
    with llm_server("stand") as model:
        ((episode,),) = play(python, model, {"taskset": taskset, **OWN})
    assert episode["ok"], episode["errors"]
    assert episode["rewards"]["openenv_reward"] in (-1, 0, 1)


# ------------------------------------------------------------------ ours


def test_the_example_plays_the_tasks_of_its_environment(python: str) -> None:
    config = {"taskset": {"id": "blackjack_taskset", "split": "train", "num_tasks": 2}}
    stand = Reply("", calls=[("blackjack", {"action": "stand"})])
    with llm_server(lambda asked: stand) as model:
        ((first, second),) = play(python, model, config)
    for episode in (first, second):
        assert episode["ok"], episode["errors"]
        assert episode["rewards"]["environment"] in (-1, 0, 1)
        assert episode["messages"][1][2] == ["blackjack"]
    assert first["task"] != second["task"]


def by_seed(episodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(episodes, key=lambda episode: str(episode["task"]))


@pytest.fixture(scope="module")
def told(python: str, model: LLMServer) -> dict[str, list[dict[str, Any]]]:
    """Five episodes, one of each kind, several times over."""
    with serving(create_app(Buttons, max_concurrent_envs=1)) as small:
        taskset = {"id": "verifiers_buttons", "num_tasks": 5}
        configs: dict[str, dict[str, Any]] = {
            "tools": {"taskset": taskset},
            "words": {"taskset": taskset, "acts": "words", "agent": {"max_turns": 4}},
            "bad": {"taskset": taskset, "unfinished": -1.0},
            "short": {"taskset": taskset, "agent": {"max_turns": 1}},
            "queued": {"taskset": {**taskset, "environment": small}},
        }
        played = play(python, model, *configs.values())
    return dict(zip(configs, map(by_seed, played), strict=True))


@pytest.mark.parametrize("way", ["tools", "words", "queued"])
def test_an_episode_is_worth_what_the_environment_says(
    told: dict[str, list[dict[str, Any]]], way: str
) -> None:
    fine, _, _, left, refused = told[way]
    assert fine["ok"]
    assert fine["rewards"] == {"environment": 1.0}
    assert fine["metrics"]["steps"] == 2
    assert refused["rewards"] == {"environment": 1.0}
    said = [content for _, content, _ in refused["messages"]]
    assert any("there is no such button; press go" in content for content in said)
    if way != "words":
        assert left["rewards"] == {"environment": 0.5}, "what it had earned when the model left"


def test_the_model_calls_the_tools_of_the_environment(
    told: dict[str, list[dict[str, Any]]],
) -> None:
    fine = told["tools"][0]
    assert fine["stop"] == "episode_over"
    assert fine["messages"] == [
        ["user", "press go", []],
        ["assistant", "", ["press"]],
        ["tool", "press on", []],
        ["assistant", "", ["press"]],
    ]


@pytest.mark.parametrize("way", ["tools", "words", "queued"])
@pytest.mark.parametrize(
    ("seed", "why"), [(1, "ExecutionFailed"), (2, "the camera was off")], ids=["breaks", "unscored"]
)
def test_what_fails_or_cannot_be_scored_is_an_error_and_no_reward(
    told: dict[str, list[dict[str, Any]]], way: str, seed: int, why: str
) -> None:
    episode = told[way][seed]
    assert not episode["ok"]
    assert not episode["trace_ok"]
    assert episode["rewards"] == {}
    (error,) = episode["errors"]
    assert error.startswith("EnvError")
    assert why in error


def test_to_leave_may_be_worth_a_number(told: dict[str, list[dict[str, Any]]]) -> None:
    left = told["bad"][3]
    assert left["ok"]
    assert left["rewards"] == {"environment": -1.0}


def test_turns_end_an_episode_with_what_it_has_earned(
    told: dict[str, list[dict[str, Any]]],
) -> None:
    short = told["short"][0]
    assert short["ok"]
    assert short["stop"] == "max_turns"
    assert short["rewards"] == {"environment": 0.5}
