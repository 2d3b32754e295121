"""Environments made of servers of FastMCP 2, 3 and 4 and of the SDK 1 and 2, and clients of both.

FastMCP 4 and SDK 2 are what is installed here; 2 and 3 come with SDK 1, each in a virtual
environment of its own, beside this package.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp_types import EmptyResult, Request
from support.amounts import mostly_extended
from support.venvs import python_of
from support.waiting import wait_until

from openenv import GenericEnvClient

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).parent / "play_servers.py"
OLDER = {"2": "fastmcp==2.14.7", "3": "fastmcp==3.4.10"}
REVISION = {"2": "2025-11-25", "3": "2025-11-25", "4": "2026-07-28"}
STREAM = "application/json, text/event-stream"

pytestmark = [
    pytest.mark.extended("other versions of the SDK; test_wrap.py has the one that is installed"),
    pytest.mark.timeout(900),
]


@pytest.fixture(
    scope="module",
    params=[pytest.param(one, marks=pytest.mark.packages) for one in OLDER]
    + [pytest.param("4", marks=pytest.mark.slow)],
)
def fastmcp(request: pytest.FixtureRequest) -> str:
    """A major version of FastMCP."""
    return str(request.param)


@pytest.fixture(scope="module")
def python(fastmcp: str) -> str:
    """A Python that has this version of FastMCP and this package."""
    return python_of_version(fastmcp)


def python_of_version(fastmcp: str) -> str:
    if fastmcp not in OLDER:
        return sys.executable
    wanted = (ROOT / "pyproject.toml").read_text()
    folder = ROOT / ".peers" / f"fastmcp{fastmcp}"
    return python_of(folder, OLDER[fastmcp], "--editable", str(ROOT), made_of=wanted)


def environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "OPENENV"))}
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
    quiet = {"FASTMCP_LOG_LEVEL": "CRITICAL", "PYTHONWARNINGS": "ignore"}
    return {**kept, **quiet, "PYTHONPATH": paths}


@functools.cache
def play(python: str, *arguments: str) -> dict[str, Any]:
    """What the program prints."""
    command = [python, str(PROGRAM), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment(), timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


class Served:
    """An environment of a server of FastMCP, served by a process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None
        self.url: str = json.loads(process.stdout.readline())

    def census(self) -> dict[str, int]:
        """What there is in that process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        found: dict[str, int] = json.loads(self._process.stdout.readline())
        return found


@pytest.fixture(scope="module")
def served(python: str) -> Iterator[Served]:
    command = [python, str(PROGRAM), "serve", "fastmcp"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment(), **pipes) as process:
        try:
            yield Served(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(20)


# ------------------------------------------------------------------ driven in their own process


def text(called: Any) -> str:
    assert called["error"] is None, called
    return str(called["result"]["content"][0]["text"])


def test_an_answer_over_http_that_is_too_large_is_not_read(python: str) -> None:
    for told, after in play(python, "flood").values():
        assert "a message of over 1048576 bytes" in told and after == "5"


@pytest.mark.parametrize("kind", mostly_extended(["lowlevel", "fastmcp", "sdk"]))
def test_a_server_is_an_environment(fastmcp: str, python: str, kind: str) -> None:
    found = play(python, kind)
    assert found["versions"]["mcp"].startswith("2." if fastmcp == "4" else "1.")
    assert found["versions"]["fastmcp"].startswith(f"{fastmcp}.")
    assert {"add", "wait", "fail"} <= found["tools"].keys()
    assert found["tools"]["add"]["required"] == ["a", "b"]
    assert [text(one) for one in found["first"]] == ["1", "2"]
    assert text(found["add"]) == "3" and text(found["after"]) == "7"
    for unknown in ("unknown", "reserved"):
        assert found[unknown]["error"]["error_type"] == "tool_not_found"
    for wrong in ("wrong", "missing", "fail"):
        assert found[wrong]["error"]["error_type"] in ("invalid_args", "execution_error")
    assert found["slow"]["error"]["error_type"] == "timeout"
    assert found["cancelled"], "the tool was told that nobody waits for it"
    assert {text(one) for one in found["many"]} == {"waited"}
    assert found["closed"]["error"]["error_type"] == "transport_error"
    assert found["leaks"]["before"] == found["leaks"]["after"], "200 environments left something"
    assert found["together"] == [True] * 32
    assert found["plain"] == [None] * 5


@pytest.mark.parametrize("kind", mostly_extended(["sdk", "fastmcp"]))
def test_tools_may_do_what_servers_let_them(fastmcp: str, python: str, kind: str) -> None:
    found = play(python, kind)
    assert found["point"]["result"]["structured_content"] == {"x": 1, "y": 2}
    picture = found["picture"]["result"]["content"][0]
    assert (picture["type"], picture["mimeType"]) == ("image", "image/png")
    assert text(found["report"]) == "reported"
    assert found["reported"] and found["progress"] == [[1, 2]]
    assert text(found["grown"]) == "5"
    assert found["lingered"]["error"]["error_type"] == "timeout" and found["no longer"]
    assert found["blocked"]["error"]["error_type"] == "timeout"
    assert "reset" in found["refused"]
    if kind == "fastmcp":
        assert found["add"]["result"]["data"] == 3
        assert text(found["nested"]) == "true"
        # FastMCP 2 keeps its state for the length of a call.
        expected = ["1", "1", "1"] if fastmcp == "2" else ["1", "2", "3"]
        assert [text(one) for one in found["remembered"]] == expected


# ------------------------------------------------------------------ over the network


def test_trainers_call_its_tools_by_steps(served: Served) -> None:
    with GenericEnvClient(served.url).sync() as client:
        client.reset()
        tools = client.step({"type": "list_tools"}).observation["tools"]
        assert {"add", "wait", "report"} <= {one["name"] for one in tools}
        adding = {"type": "call_tool", "tool_name": "add", "arguments": {"a": 1, "b": 2}}
        called = client.step(adding)
        assert called.observation["result"]["data"] == 3
        called = client.step({"type": "call_tool", "tool_name": "report"})
        assert called.observation["error"] is None
        called = client.step({"type": "call_tool", "tool_name": "nope"})
        assert called.observation["error"]["error_type"] == "tool_not_found"


def test_the_older_json_rpc_calls_its_tools(served: Served) -> None:
    def ask(method: str, **params: Any) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return httpx.post(f"{served.url}/mcp", json=body, timeout=30).json()["result"]

    assert "add" in {one["name"] for one in ask("tools/list")["tools"]}
    named = ask("openenv/session/create")["session_id"]
    given = {"a": 2, "b": 2}
    called = ask("tools/call", name="add", arguments=given, session_id=named)
    assert called["data"] == 4 and called["is_error"] is False
    assert ask("openenv/session/close", session_id=named)["closed"] is True


async def play_client(
    connect: Callable[..., Client], revision: str, census: Callable[[], dict[str, int]] | None
) -> None:
    told: list[float] = []
    changed = asyncio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        told.append(progress)

    async def on_message(message: Any) -> None:
        if "ToolListChanged" in type(message).__name__:
            changed.set()

    async with connect(message_handler=on_message) as client:
        assert client.protocol_version == revision
        listed = (await client.list_tools()).tools
        (add,) = (one for one in listed if one.name == "add")
        assert add.output_schema is not None
        result = await client.call_tool("add", {"a": 1, "b": 2})
        assert result.structured_content == {"result": 3} and not result.is_error
        result = await client.call_tool("picture", {})
        assert result.content[0].type == "image"
        result = await client.call_tool("fail", {})
        assert result.is_error
        with pytest.raises(MCPError) as caught:
            await client.call_tool("nope", {})
        assert caught.value.error.code == -32602
        with pytest.raises(MCPError) as caught:
            await client.read_resource("openenv://nowhere")
        assert caught.value.error.code == -32602
        with pytest.raises(MCPError) as caught:
            unknown = Request[dict[str, Any], str](method="openenv/nothing", params={})
            await client.session.send_request(unknown, EmptyResult)
        assert caught.value.error.code == -32601
        await client.call_tool("wait", {"seconds": 1.2}, progress_callback=on_progress)
        assert told and told == sorted(told)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(client.call_tool("wait", {"seconds": 60}), 0.3)
        if census is not None:
            await asyncio.to_thread(wait_until, lambda: census()["cancelled"] > 0)
        if revision < "2026":
            await client.call_tool("grow", {})
            await asyncio.wait_for(changed.wait(), 10)
            assert "extra" in {one.name for one in (await client.list_tools()).tools}
        assert (await client.get_prompt("task")).messages


def test_a_client_of_sdk_2_agrees_on_a_revision(fastmcp: str, served: Served) -> None:
    def connect(**options: Any) -> Client:
        return Client(f"{served.url}/mcp", **options)

    asyncio.run(play_client(connect, REVISION[fastmcp], served.census))


def test_a_client_of_sdk_2_speaks_over_standard_streams(fastmcp: str, python: str) -> None:
    """One of the tools prints something of its own there."""

    def connect(**options: Any) -> Client:
        arguments = [str(PROGRAM), "stdio", "fastmcp"]
        server = StdioServerParameters(command=python, args=arguments, env=environment())
        return Client(server, **options)

    asyncio.run(play_client(connect, REVISION[fastmcp], None))


@pytest.mark.packages
def test_a_client_of_sdk_1_is_understood(fastmcp: str, served: Served) -> None:
    one_of_sdk_1 = python_of_version("3" if fastmcp == "4" else fastmcp)
    found = play(one_of_sdk_1, "client", served.url)
    assert found["revision"] == "2025-11-25"
    assert "add" in found["tools"] and found["added"] == {"result": 3}
    assert found["ticks"] >= 1
    assert "ToolListChangedNotification" in found["changes"]
    assert found["unknown"] == -32602
    assert json.loads(found["observation"])["done"] is False


def test_a_revision_that_it_does_not_speak_is_refused(fastmcp: str, served: Served) -> None:
    asked = "1999-01-01" if fastmcp == "4" else "2026-07-28"
    meta = {
        "io.modelcontextprotocol/protocolVersion": asked,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta}}
    headers = {"accept": STREAM, "mcp-protocol-version": asked, "mcp-method": "server/discover"}
    answer = httpx.post(f"{served.url}/mcp", json=body, headers=headers)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == -32022
    assert error["data"]["requested"] == asked
    assert REVISION[fastmcp] in error["data"]["supported"]


REFUSED: list[dict[str, Any]] = [
    {"method": "GET", "headers": {"mcp-session-id": "nobody-{}"}},
    {"method": "DELETE", "headers": {"mcp-session-id": "nobody-{}"}},
    {"method": "POST", "content": "{"},
    {"method": "POST", "json": {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}},
    {"method": "POST", "headers": {"mcp-protocol-version": "1999-01-01"}, "content": "{}"},
]


@pytest.mark.extended("test_leaks.py shows the same of the version that is installed")
def test_5000_refused_requests_leave_nothing(served: Served) -> None:
    def refuse(client: httpx.Client, count: int) -> None:
        for number in range(count):
            asked = dict(REFUSED[number % len(REFUSED)])
            extra = {k: v.format(number) for k, v in asked.pop("headers", {}).items()}
            headers = {"accept": STREAM, "content-type": "application/json", **extra}
            with client.stream(url=f"{served.url}/mcp", headers=headers, **asked) as answer:
                assert answer.status_code >= 400, (asked, answer.status_code)

    with httpx.Client(timeout=30) as client:
        refuse(client, 20)
        before = served.census()
        refuse(client, 5000)

    def nothing_is_left() -> bool:
        after = served.census()
        return all(after[kind] <= count for kind, count in before.items())

    wait_until(nothing_is_left, 10)
