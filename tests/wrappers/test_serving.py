"""Targets of other libraries where targets are taken: served, by workers, recorded, replayed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.amounts import rest
from support.commands import COMMAND, ENVIRONMENTS, environ, openenv_running, run_openenv

from openenv import GenericEnvClient, ProcessProvider, VectorEnv, create_app
from openenv.rollouts.replays import replay
from openenv.wrappers import from_gymnasium

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

HERE = Path(__file__).parent
PEER = ENVIRONMENTS.parent / ".peer"
CARTPOLE = "gymnasium:CartPole-v1?max_episode_steps=20"
RIGHT = {"action": 1}


@contextlib.contextmanager
def served(tmp_path: Path, target: str, *options: str) -> Iterator[str]:
    """The URL at which `openenv serve` serves a target."""
    arguments = ("serve", target, "--port", "0", "--json", *options)
    with openenv_running(*arguments, cwd=HERE, log=tmp_path / "serve.log") as running:
        yield running.first_line()["url"]


def driven(url: str) -> Any:
    return GenericEnvClient(base_url=url).sync()


def played(env: Any) -> list[Any]:
    """What is seen and scored in a few steps with a seed."""
    results = [env.reset(seed=5), env.step(RIGHT), env.step(RIGHT), env.step({"action": 0})]
    return [(np.asarray(one.observation["observation"]).tolist(), one.reward) for one in results]


@pytest.fixture(scope="module")
def expected() -> list[Any]:
    with GenericEnvClient.local(from_gymnasium("CartPole-v1")).sync() as env:
        return played(env)


@pytest.mark.extended("starts a server; other tests show the library in this process")
def test_it_is_served_to_one_and_to_many(tmp_path: Path, expected: list[Any]) -> None:
    with served(tmp_path, CARTPOLE) as url, driven(url) as env:
        assert played(env) == expected
        with VectorEnv(url, num_envs=4) as envs:
            observations, _ = envs.reset(seed=5)
            assert observations["observation"].shape == (4, 4)
            for _ in range(20):
                _, rewards, terminated, truncated, _ = envs.step([RIGHT] * 4)
            assert rewards.shape == (4,)
            assert (terminated | truncated).dtype == bool


@pytest.mark.extended("starts a server; other tests show the library in this process")
def test_workers_serve_it(tmp_path: Path, expected: list[Any]) -> None:
    with served(tmp_path, CARTPOLE, "--workers", "2") as url, driven(url) as env:
        assert played(env) == expected


@pytest.mark.extended("starts a server; other tests show the library in this process")
@pytest.mark.parametrize(
    ("target", "action"),
    [
        rest("python:games:Corridor?length=2", {"action": 2}),
        ("pettingzoo:games?sticks=3", {"action": 0}),
        rest("pettingzoo:games?parallel=true", {"actions": {"a": 1, "b": [0.0, 1.0]}}),
        rest("dm_env:games:Catch?rows=4", {"action": 1}),
        ("openspiel:tic_tac_toe", {"action_id": 4}),
    ],
)
def test_workers_serve_every_library(tmp_path: Path, target: str, action: dict[str, Any]) -> None:
    with served(tmp_path, target, "--workers", "1") as url, driven(url) as env:
        env.reset(seed=1)
        assert env.step(action).reward is not None
        assert env.state()["step_count"] >= 1


@pytest.mark.extended("starts a server; other tests show the library in this process")
def test_a_class_from_the_python_side_is_held_by_workers(
    serve: Callable[[Any], str], expected: list[Any]
) -> None:
    url = serve(create_app(from_gymnasium("CartPole-v1"), workers=1))
    with driven(url) as env:
        assert played(env) == expected


@pytest.mark.extended("starts a server; other tests show the library in this process")
def test_a_provider_starts_it(expected: list[Any]) -> None:
    with GenericEnvClient.with_provider(ProcessProvider(CARTPOLE)).sync() as env:
        assert played(env) == expected


def test_a_file_that_makes_a_class_is_served(tmp_path: Path, expected: list[Any]) -> None:
    file = tmp_path / "poles.py"
    file.write_text(
        "from openenv.wrappers import from_gymnasium\nPole = from_gymnasium('CartPole-v1')\n"
    )
    with GenericEnvClient.with_provider(ProcessProvider(file)).sync() as env:
        assert played(env) == expected


def test_a_recording_is_replayed_by_its_target(tmp_path: Path) -> None:
    with (
        served(tmp_path, CARTPOLE, "--record", str(tmp_path / "records")) as url,
        driven(url) as env,
    ):
        played(env)
    (file,) = (tmp_path / "records").glob("*/*.jsonl")
    header = json.loads(file.read_text().splitlines()[0])
    assert CARTPOLE in json.dumps(header)
    report = replay(file, trust_recorded=True)
    assert (report.episodes, report.divergence) == (1, None)
    done = run_openenv("replay", str(file), "--trust", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_an_unknown_id_is_told_on_the_command_line(tmp_path: Path) -> None:
    done = run_openenv("serve", "gymnasium:CartPol-v1", "--port", "0", cwd=tmp_path)
    assert done.returncode != 0
    assert "CartPole" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.extended("starts a server; other tests show the library in this process")
def test_an_agent_acts_in_it_by_mcp(tmp_path: Path) -> None:
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    async def acted() -> tuple[str, Any]:
        program, *arguments = (*COMMAND, "mcp", "python:games:Nim")
        server = StdioServerParameters(command=program, args=arguments, env=environ(HERE), cwd=HERE)
        with (tmp_path / "mcp.log").open("w") as log:
            async with (
                stdio_client(server, errlog=log) as streams,
                ClientSession(*streams) as agent,
            ):
                await agent.initialize()
                (tool,) = (await agent.list_tools()).tools
                called = await agent.call_tool(tool.name, {"action": 1})
                return tool.name, called.structured_content

    name, seen = asyncio.run(acted())
    assert name == "nim"
    assert seen["agent"] == "second"
    assert seen["observations"]["first"]["observation"] == [3]


@pytest.mark.packages
def test_a_client_of_the_public_package_drives_it(tmp_path: Path, expected: list[Any]) -> None:
    if not (PEER / ".ready").exists():
        pytest.skip("benchmarks/peer.py has not made the public package's environment")
    program = (
        "import json, sys\n"
        "from openenv.core import GenericEnvClient\n"
        "with GenericEnvClient(base_url=sys.argv[1]).sync() as env:\n"
        "    results = [env.reset(seed=5)]\n"
        "    results += [env.step({'action': a}) for a in (1, 1, 0)]\n"
        "print(json.dumps([(r.observation['observation'], r.reward) for r in results]))\n"
    )
    with served(tmp_path, CARTPOLE) as url:
        done = subprocess.run(
            [str(PEER / "bin" / "python"), "-c", program, url],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        )
    theirs = [
        (np.asarray(seen, np.float32).tolist(), reward) for seen, reward in json.loads(done.stdout)
    ]
    assert theirs == expected
