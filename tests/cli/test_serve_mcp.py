"""`openenv serve --mcp`: MCP servers as an environment, from the command line."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import bare_server
from support.commands import Running, openenv_running, run_openenv
from support.processes import is_alive
from support.waiting import wait_until

from openenv import GenericEnvClient

pytestmark = pytest.mark.slow

BARE = shlex.join([sys.executable, bare_server.__file__])
SCORES = """
def reward(call, seen):
    return float(len(seen.result["content"][0]["text"]))


def done(call, seen):
    return call.tool_name == "big"


class Always:
    def __call__(self, call, seen):
        return 7.0
"""


@contextlib.contextmanager
def serving(*arguments: str, cwd: Path) -> Iterator[tuple[Running, dict[str, Any]]]:
    command = ("serve", *arguments, "--port=0", "--json")
    with openenv_running(*command, cwd=cwd, log=cwd / "log") as server:
        yield server, server.first_line()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "scores.py").write_text(SCORES)
    return tmp_path


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "call_tool", "tool_name": name, "arguments": arguments}


def text(result: Any) -> str:
    return str(result.observation["result"]["content"][0]["text"])


@pytest.mark.extended("starts commands; tests/tools shows what they do")
@pytest.mark.parametrize("workers", [(), ("--workers=1",)])
def test_a_command_line_is_served_and_scored(directory: Path, workers: tuple[str, ...]) -> None:
    options = ("--mcp", BARE, "--reward=scores:reward", "--done=scores:done", *workers)
    with serving(*options, "--record=records", cwd=directory) as (server, told):
        assert told["target"] == BARE
        with GenericEnvClient(base_url=told["url"]) as env:
            env.reset()
            pid = int(text(env.step(call("pid"))))
            last = env.step(call("big", n=12))
            assert (last.reward, last.done) == (12.0, True)
            assert is_alive(pid)
            assert server.interrupt()[0] == 130
        wait_until(lambda: not is_alive(pid))
    assert len(list(directory.glob("records/*/*.jsonl"))) == 1


@pytest.mark.extended("starts commands; tests/tools shows what they do")
@pytest.mark.parametrize("workers", [(), ("--workers=1",)])
def test_a_file_may_hold_what_was_wrapped(directory: Path, workers: tuple[str, ...]) -> None:
    (directory / "world.py").write_text(
        f"from openenv.tools import wrap\nWorld = wrap({BARE!r}, reward=lambda *_: 3)\n"
    )
    with (
        serving("world.py", *workers, cwd=directory) as (_, told),
        GenericEnvClient(base_url=told["url"]) as env,
    ):
        env.reset()
        assert env.step(call("add", n=1)).reward == 3


@pytest.mark.extended("starts commands; tests/tools shows what they do")
def test_several_servers_are_one_environment(directory: Path) -> None:
    entry = {"command": sys.executable, "args": [bare_server.__file__, "--reset"]}
    (directory / "mcp.json").write_text(json.dumps({"mcpServers": {"tally": entry}}))
    options = ("--mcp", "mcp.json", "--mcp", BARE, "--rubric=scores:Always", "--max-steps=2")
    with (
        serving(*options, cwd=directory) as (_, told),
        GenericEnvClient(base_url=told["url"]) as env,
    ):
        env.reset(seed=40)
        assert text(env.step(call("tally_add", n=2))) == "42"
        last = env.step(call("bare_server_add", n=2))
        assert (text(last), last.reward, last.truncated) == ("2", 7.0, True)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["echo_env", "--mcp", BARE], "TARGET"),
        (["--mcp", BARE, "--reload"], "--reload"),
        (["--reward=scores:reward"], "--mcp"),
        (["--max-steps=3"], "--mcp"),
        (["--mcp", "no-such-program --x"], "no-such-program"),
        (["--mcp", "nowhere/mcp.json"], "nowhere/mcp.json"),
        (["--mcp", BARE, "--reward=scores"], "module:name"),
        (["--mcp", BARE, "--reward=scores:rewad"], "did you mean reward?"),
        (["--mcp", BARE, "--reward=scorse:reward"], "scorse"),
        (["--mcp", BARE, "--reward=scores:reward", "--rubric=scores:Always"], "exclude"),
    ],
)
def test_what_makes_no_sense_is_refused(directory: Path, arguments: list[str], told: str) -> None:
    done = run_openenv("serve", *arguments, "--port=0", cwd=directory)
    assert done.returncode == 2 and told in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
