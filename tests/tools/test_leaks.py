"""What is turned away leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
from collections.abc import Callable
from typing import Any

import pytest
from support.amounts import amount
from support.environments import Counter
from support.raw import address

from openenv import create_app

REQUESTS = amount(5000, 1000)
MCP = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
}
MODERN = {**MCP, "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}


def rpc(method: str, params: Any = None) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}})


# Requests that are refused: what is sent, and the status.
REFUSED: list[tuple[dict[str, str], str, int]] = [
    (MCP, "no JSON", 400),
    (MCP, rpc("tools/list"), 400),  # no session, and no handshake
    (MCP, rpc("initialize", {"protocolVersion": 7}), 200),
    ({**MCP, "Mcp-Session-Id": "unknown"}, rpc("tools/list"), 404),
    ({**MCP, "Content-Type": "text/plain"}, rpc("tools/list"), 400),
    ({**MODERN, "MCP-Protocol-Version": "2099-01-01"}, rpc("tools/list"), 400),
    (MODERN, "[]", 400),
    (MODERN, rpc("tools/list"), 400),  # what every request has to say of itself is missing
    ({"Content-Type": "application/json"}, rpc("tools/call", {"session_id": "no"}), 200),
    ({"Content-Type": "application/json"}, "{", 200),
]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_thousands_of_rejected_requests_leave_nothing(
    serve: Callable[[Any], str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL")  # the SDK logs each of them
    app = create_app(Counter)
    (manager,) = app.state.openenv_managers
    host, port = address(serve(app))
    connection = http.client.HTTPConnection(host, port, timeout=10)

    def send(count: int) -> None:
        for number in range(count):
            headers, body, status = REFUSED[number % len(REFUSED)]
            connection.request("POST", "/mcp", body, headers)
            response = connection.getresponse()
            answer = response.read()
            assert response.status == status, (headers, body, answer)

    def left() -> tuple[int, int, int]:
        gc.collect()
        tasks = sum(isinstance(one, asyncio.Task) and not one.done() for one in gc.get_objects())
        return len(manager.sessions()), tasks, len(gc.get_objects())

    send(500)
    sessions, tasks, objects = left()
    assert sessions == 0
    send(REQUESTS)
    after = left()
    connection.close()
    assert after[0] == 0
    assert after[1] <= tasks + 1
    assert after[2] - objects < REQUESTS / 10
