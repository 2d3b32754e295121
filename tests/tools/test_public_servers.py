"""Public MCP servers as environments: stepped, scored, recorded, and served again."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.processes import is_alive
from support.servers import serving
from support.waiting import wait_until

from openenv import GenericEnvClient, create_app
from openenv.rollouts.replays import read
from openenv.tools import CallToolAction, CallToolObservation, wrap

NODE_SERVER = "@modelcontextprotocol/server-filesystem"

pytestmark = [pytest.mark.packages, pytest.mark.timeout(300)]


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "call_tool", "tool_name": name, "arguments": arguments}


async def seen_by(target: Any, calls: list[tuple[str, dict[str, Any]]]) -> tuple[Any, Any]:
    """The tools of a server, and what comes of calls, as an MCP client sees them."""
    from mcp import Client

    async with Client(target, mode="legacy") as client:
        tools = [one.model_dump() for one in (await client.list_tools()).tools]
        results = [(await client.call_tool(*one)).model_dump() for one in calls]
    kept = ("content", "structured_content", "is_error")
    return tools, [{key: result[key] for key in kept} for result in results]


async def assert_the_same(
    made: Any, command: list[str], variables: dict[str, str], calls: Any
) -> None:
    from mcp import StdioServerParameters

    parameters = StdioServerParameters(command=command[0], args=command[1:], env=variables)
    with serving(create_app(made)) as url:
        tools, results = await seen_by(f"{url}/mcp", calls)
    expected_tools, expected = await seen_by(parameters, calls)
    assert tools == expected_tools and len(tools) > 3
    assert results == expected


def test_git(python_servers: Path, serve: Callable[[Any], str], tmp_path: Path) -> None:
    repository, records = tmp_path / "repository", tmp_path / "records"
    subprocess.run(["git", "init", "--quiet", str(repository)], check=True)
    (repository / "new.txt").write_text("new\n")
    command = [str(python_servers / "mcp-server-git"), "--repository", str(repository)]

    def reward(action: CallToolAction, seen: CallToolObservation) -> float | None:
        if seen.error is not None:
            return None
        return 1.0 if "new file:   new.txt" in seen.result["content"][0]["text"] else 0.0

    made = wrap(command, reward=reward, done=lambda _, seen: seen.error is not None)
    with GenericEnvClient(base_url=serve(create_app(made, record=records))) as env:
        env.reset()
        assert env.step(call("git_status", repo_path=str(repository))).reward == 0.0
        env.step(call("git_add", repo_path=str(repository), files=["new.txt"]))
        assert env.step(call("git_status", repo_path=str(repository))).reward == 1.0
        last = env.step(call("git_show", repo_path=str(repository), revision="nothing"))
        assert last.reward is None and last.done
    wait_until(lambda: any(b'{"event":"end"' in f.read_bytes() for f in records.glob("*/*")))
    (episode,) = read(*records.glob("*/*"))
    assert [event.reward for event in episode.events] == [None, 0.0, 0.0, 1.0, None]
    calls = [
        ("git_status", {"repo_path": str(repository)}),
        ("git_show", {"repo_path": str(repository), "revision": "nothing"}),
    ]
    asyncio.run(assert_the_same(made, command, {}, calls))


def test_sqlite(python_servers: Path, serve: Callable[[Any], str], tmp_path: Path) -> None:
    database = tmp_path / "world.db"
    command = [str(python_servers / "mcp-server-sqlite"), "--db-path", str(database)]

    def rows(action: CallToolAction, seen: CallToolObservation) -> float:
        with sqlite3.connect(database) as connection:
            tables = connection.execute("select count(*) from sqlite_master").fetchone()[0]
        connection.close()
        return float(tables)

    made = wrap(command, reward=rows, max_steps=2)
    with GenericEnvClient(base_url=serve(create_app(made))) as env:
        env.reset()
        assert env.step(call("list_tables")).reward == 0.0
        last = env.step(call("create_table", query="create table t (x integer)"))
        assert last.reward == 1.0 and last.truncated
    calls = [
        ("write_query", {"query": "insert into t values (3)"}),
        ("read_query", {"query": "select nothing from t"}),
    ]
    asyncio.run(assert_the_same(made, command, {}, calls))


def test_filesystem(
    npx: tuple[list[str], dict[str, str]], serve: Callable[[Any], str], tmp_path: Path
) -> None:
    program, variables = npx
    place, records = tmp_path / "place", tmp_path / "records"
    place.mkdir()
    command = [*program, NODE_SERVER, str(place)]

    def done(action: CallToolAction, seen: CallToolObservation) -> bool:
        return (place / "answer.txt").exists()

    def reward(action: CallToolAction, seen: CallToolObservation) -> float:
        return float(done(action, seen))

    made = wrap(command, env=variables, reward=reward, done=done, name="filesystem")
    others = set(processes_below(os.getpid()))
    with GenericEnvClient(base_url=serve(create_app(made, record=records))) as env:
        env.reset()
        before = set(processes_below(os.getpid())) - others
        listed = env.step(call("list_directory", path=str(place)))
        assert (listed.reward, listed.done) == (0.0, False)
        outside = env.step(call("read_text_file", path="/etc/passwd"))
        assert "denied" in outside.observation["error"]["message"]
        last = env.step(call("write_file", path=str(place / "answer.txt"), content="42"))
        assert (last.reward, last.done) == (1.0, True)
    assert before
    wait_until(lambda: not any(map(is_alive, before)))
    wait_until(lambda: any(b'{"event":"end"' in f.read_bytes() for f in records.glob("*/*")))
    (episode,) = read(*records.glob("*/*"))
    assert [event.reward for event in episode.events] == [None, 0.0, 0.0, 1.0]
    made = wrap(command, env=variables)
    calls = [
        ("read_text_file", {"path": str(place / "answer.txt")}),
        ("list_directory", {"path": "/"}),
    ]
    asyncio.run(assert_the_same(made, command, variables, calls))


def processes_below(parent: int) -> list[int]:
    """The ids of a process's children, and of theirs."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True)
    pairs = (line.split() for line in listed.stdout.splitlines())
    parents = {int(pid): int(above) for pid, above in pairs}
    found: list[int] = []
    for pid in sorted(parents):
        above = pid
        while above in parents and above != parent:
            above = parents[above]
        if above == parent and pid != parent:
            found.append(pid)
    return found
