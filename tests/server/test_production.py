"""Production: nobody resets reality, whichever way it is tried; tools go on."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from support.environments import Counter
from support.lamps import Lamp
from websockets.sync.client import connect

from openenv import NotSupported, create_app
from openenv.client.generic import GenericEnvClient

Serve = Callable[[Any], str]


CONTROL: list[dict[str, Any]] = [
    {"type": "reset", "data": {}},
    {"type": "step", "data": {"type": "call_tool", "tool_name": "switch", "arguments": {}}},
    {"type": "state"},
]


def rpc(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def test_version_0_controls_nothing_and_calls_tools(serve: Serve) -> None:
    url = serve(create_app(Lamp, mode="production"))
    with connect(f"ws{url[4:]}/ws") as socket:
        for frame in CONTROL:
            socket.send(json.dumps(frame))
            answer = json.loads(socket.recv(5))
            assert answer["type"] == "error"
            assert answer["data"]["code"] == "NOT_SUPPORTED"
            assert f"nobody can {frame['type']}" in answer["data"]["message"]
        for expected in (True, False):
            socket.send(json.dumps({"type": "mcp", "data": rpc("tools/call", name="switch")}))
            assert json.loads(socket.recv(5))["data"]["result"]["data"] is expected


@pytest.mark.parametrize("protocol", ["openenv.v1.json"])
def test_version_1_controls_nothing_and_calls_tools(serve: Serve, protocol: str) -> None:
    url = serve(create_app(Lamp, mode="production"))
    snapshots: list[dict[str, Any]] = [
        {"type": "snapshot"},
        {"type": "restore", "data": {"snapshot": ""}},
        {"type": "render"},
        {"type": "view"},
    ]
    with connect(f"ws{url[4:]}/ws", subprotocols=[protocol]) as socket:  # type: ignore[list-item]
        assert json.loads(socket.recv(5))["type"] == "hello"
        socket.send(json.dumps({"type": "open"}))
        assert json.loads(socket.recv(5))["type"] == "opened"
        for number, frame in enumerate([*CONTROL, *snapshots], 1):
            socket.send(json.dumps({**frame, "id": number}))
            answer = json.loads(socket.recv(5))
            assert (answer["type"], answer["id"]) == ("error", number)
            assert answer["data"]["code"] == "NOT_SUPPORTED"
        socket.send(json.dumps({"type": "mcp", "id": 9, "data": rpc("tools/call", name="switch")}))
        assert json.loads(socket.recv(5))["data"]["result"]["data"] is True


def test_a_client_is_told_why(serve: Serve) -> None:
    url = serve(create_app(Counter, mode="production"))
    with GenericEnvClient(base_url=url).sync() as env:
        for call in (env.reset, lambda: env.step({"text": "x"}), env.state):
            with pytest.raises(NotSupported, match="production mode, where time flows"):
                call()


@pytest.mark.slow
def test_http_has_no_control_and_each_mode_its_tools(serve: Serve) -> None:
    for mode, offered in (("production", "switch"), ("simulation", "pretend")):
        url = serve(create_app(Lamp, mode=mode))
        expected = 404 if mode == "production" else 200
        assert httpx.post(f"{url}/reset").status_code == expected
        assert httpx.get(f"{url}/state").status_code == expected
        assert httpx.get(f"{url}/render").status_code == (404 if mode == "production" else 501)
        listed = httpx.post(f"{url}/mcp", json=rpc("tools/list")).json()["result"]["tools"]
        assert [one["name"] for one in listed] == [offered]
        assert [one["name"] for one in httpx.get(f"{url}/schema").json()["tools"]] == [offered]
        missing = "pretend" if mode == "production" else "switch"
        answer = httpx.post(f"{url}/mcp", json=rpc("tools/call", name=missing)).json()
        assert answer["error"]["message"] == f"Unknown tool: '{missing}'"


def test_the_mode_reaches_worker_processes(serve: Serve) -> None:
    url = serve(create_app(Lamp, mode="production", workers=1))
    created = httpx.post(f"{url}/mcp", json=rpc("openenv/session/create"), timeout=30).json()
    session = created["result"]["session_id"]
    for expected in (True, False):
        request = rpc("tools/call", name="switch", session_id=session)
        answer = httpx.post(f"{url}/mcp", json=request).json()
        assert answer["result"]["data"] is expected
