"""Real clients of MCP at the bridge."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any
from urllib.parse import urlsplit

import pytest
from fastmcp import Client, FastMCP

from openenv.agents import (
    HarnessError,
    HarnessMCPBridge,
    build_bridge_server,
    resolve_tool_conflicts,
)
from openenv.tools import Tool
from openenv.tools.connections import MCPConnection
from openenv.tools.sources import Address
from openenv.tools.transports import connect_address

pytestmark = pytest.mark.anyio


def server() -> FastMCP[Any]:
    made: FastMCP[Any] = FastMCP("calculator")

    @made.tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    @made.tool
    def fail() -> int:
        """Fail."""
        raise ValueError("on purpose")

    return made


async def test_fastmcps_client_calls_the_tools() -> None:
    bridge = HarnessMCPBridge(server())
    url = bridge.start()
    assert url == bridge.start() == bridge.url and url.endswith("/mcp")
    async with Client(url) as client:
        assert {tool.name for tool in await client.list_tools()} == {"add", "fail"}
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
        failed = await client.call_tool("fail", raise_on_error=False)
        assert failed.is_error
    bridge.stop()
    bridge.stop()
    with pytest.raises(HarnessError, match="start it"):
        _ = bridge.url


async def test_the_sdks_client_calls_them_by_other_names() -> None:
    renamed = await build_bridge_server(server(), {"plus": "add"})
    bridge = HarnessMCPBridge(renamed)
    address = Address(bridge.start())
    connection = MCPConnection(lambda: connect_address(address))
    assert {tool["name"] for tool in await connection.tools()} == {"plus", "fail"}
    result = await connection.call("plus", {"a": 1, "b": 2})
    assert result["structuredContent"] == {"result": 3}
    await connection.aclose()
    bridge.stop()


async def test_only_tools_that_are_there_can_be_renamed() -> None:
    with pytest.raises(HarnessError, match="no tool 'minus'"):
        await build_bridge_server(server(), {"subtract": "minus"})


def asked(url: str, body: str, method: str = "POST", **headers: str) -> tuple[int, Any]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)
    connection.request(method, parts.path, body, headers)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text) if text else None


def test_what_is_no_request_is_told_so() -> None:
    bridge = HarnessMCPBridge(server())
    url = bridge.start()
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert asked(url, json.dumps(ping)) == (200, {"jsonrpc": "2.0", "id": 1, "result": {}})
    assert asked(url, "", "GET")[0] == 405
    assert asked(url, "{")[1]["error"]["code"] == -32700
    assert asked(url, "1")[1]["error"]["code"] == -32600
    assert asked(url, json.dumps({**ping, "method": "nothing"}))[1]["error"]["code"] == -32601
    assert asked(url, json.dumps({"jsonrpc": "2.0", "method": "initialized"})) == (202, None)
    assert len(asked(url, json.dumps([ping, ping]))[1]) == 2
    unknown = {**ping, "method": "tools/call", "params": {"name": "nothing"}}
    assert "Unknown tool" in asked(url, json.dumps(unknown))[1]["error"]["message"]
    assert asked(url, json.dumps(ping), Host="evil.example")[0] == 403
    assert asked(url, json.dumps(ping), Origin="https://evil.example")[0] == 403
    bridge.stop()


def test_a_client_that_has_ended_its_side_is_answered() -> None:
    bridge = HarnessMCPBridge(server())
    where = urlsplit(bridge.start())
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
    head = f"POST {where.path} HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Length: {len(body)}"
    with socket.create_connection(("127.0.0.1", where.port or 0), timeout=10) as connection:
        connection.sendall(f"{head}\r\n\r\n".encode() + body)
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(2**16), b""))
    assert answer.startswith(b"HTTP/1.1 200 ")
    bridge.stop()


def test_tools_are_renamed_that_the_harness_has_too() -> None:
    def named(*names: str) -> list[Tool]:
        return [Tool(name=name, description="", input_schema={}) for name in names]

    resolved = resolve_tool_conflicts(named("add", "bash"), {"bash"})
    assert [tool.name for tool in resolved] == ["add", "env_bash"]
    with pytest.raises(ValueError, match="taken too"):
        resolve_tool_conflicts(named("env_bash", "bash"), {"bash"})
    other = resolve_tool_conflicts(named("env_bash", "bash"), {"bash"}, prefix="my_")
    assert [tool.name for tool in other] == ["env_bash", "my_bash"]
