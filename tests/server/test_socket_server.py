"""The WebSocket endpoint beside all else that a server does: HTTP, other routes, its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI, WebSocket, WebSocketDisconnect
from server.sockets import STATE, WAYS, app_of, assert_serves
from starlette.responses import PlainTextResponse
from support.environments import Counter, Log
from support.logs import tracebacks
from support.raw import connected, reset_connection
from support.servers import NotAdopted, Server, serving
from support.waiting import wait_until
from support.ws import (
    BINARY,
    PING,
    PONG,
    TEXT,
    Frame,
    Raw,
    close,
    frame,
    raw,
    request_for,
)
from websockets.sync.client import connect

from openenv.server.run import bind
from openenv.server.socket import SocketProtocol

# ------------------------------------------------------------------ beside it


@pytest.mark.parametrize("ws", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("setting", ["", "1"])
def test_messages_are_compressed_where_both_sides_want_it(
    ws: Any, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENENV_COMPRESS", setting)
    with serving(app_of(), ws=ws, ws_per_message_deflate=bool(setting)) as url:
        address = f"ws{url.removeprefix('http')}/ws"
        for compression in ("deflate", None):
            with connect(address, compression=compression) as client:
                assert client.response is not None
                answer = client.response.headers.get("Sec-WebSocket-Extensions", "")
                assert ("permessage-deflate" in answer) is bool(setting and compression)
                client.send('{"type":"reset","data":{}}')
                assert json.loads(client.recv())["type"] == "observation"


def test_http_is_served_on_the_same_port(url: str) -> None:
    with raw(url) as client, connected(url) as connection:
        http = Raw(connection)
        for _ in range(3):  # one connection, kept alive
            http.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            status, headers = http.answer()
            body = http._take(int(headers["content-length"]))
            assert status == 200 and json.loads(body)["status"] == "healthy"
        assert_serves(client)
        assert http.handshake()[0] == 101, "a connection may be upgraded later"
        assert_serves(http)


@pytest.mark.parametrize("ws", WAYS.values(), ids=WAYS)
def test_the_routes_and_middleware_of_an_application_are_its_own(ws: Any) -> None:
    app = app_of()
    seen: list[Any] = []

    @app.websocket("/chat")
    async def chat(websocket: WebSocket) -> None:
        await websocket.accept("chat.v2", headers=[(b"x-who", b"me")])
        await websocket.send_text(await websocket.receive_text())
        await websocket.send_bytes(b"\x00")
        await websocket.close(4000)

    @app.websocket("/fails")
    async def fails(websocket: WebSocket) -> None:
        raise ZeroDivisionError

    class Guard:
        def __init__(self, app: Any) -> None:
            self.app = app

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "websocket":
                seen.append(
                    (scope["path"], scope["query_string"], dict(scope["headers"]).get(b"x-token"))
                )
                if scope["query_string"] == b"denied":
                    await send({"type": "websocket.close", "code": 1008})
                    return
                if scope["query_string"] == b"polite":
                    answer = PlainTextResponse("who are you?", 401)
                    await answer(scope, receive, send)
                    return
            await self.app(scope, receive, send)

    app.add_middleware(Guard)
    with serving(app, ws=ws) as url:
        for path, status in (("/ws?denied", 403), ("/ws?polite", 401), ("/nowhere", 403)):
            with connected(url) as connection:
                assert Raw(connection).handshake(path)[0] == status
        with connected(url) as connection:
            client = Raw(connection)
            status, headers = client.handshake("/chat", Sec_WebSocket_Protocol="chat.v2")
            assert (status, headers["sec-websocket-protocol"]) == (101, "chat.v2")
            assert headers["x-who"] == "me"
            client.text("hello")
            assert client.read() == Frame(TEXT, b"hello")
            assert client.read() == Frame(BINARY, b"\x00")
            assert client.read().code == 4000
        with tracebacks() as logged, connected(url) as connection:
            assert Raw(connection).handshake("/fails")[0] == 500
        assert any("ZeroDivisionError" in line for line in logged)
        with raw(url, "/ws?token=%20a", X_Token="t") as client:
            assert_serves(client)
    assert seen[-1] == ("/ws", b"token=%20a", b"t")


@pytest.mark.parametrize("ws", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("path", ["/ws", "/chat"])
def test_a_client_that_leaves_before_it_is_answered_leaves_nothing(ws: Any, path: str) -> None:
    """`serving` sees that no connection and no task stays."""
    app, came, go = app_of(), threading.Event(), threading.Event()

    @app.websocket("/chat")
    async def chat(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.receive_text()

    class Slow:
        def __init__(self, app: Any) -> None:
            self.app = app

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "websocket":
                came.set()
                await asyncio.to_thread(go.wait, 5)
                with contextlib.suppress(WebSocketDisconnect):
                    await self.app(scope, receive, send)
            else:
                await self.app(scope, receive, send)

    app.add_middleware(Slow)
    with serving(app, ws=ws) as url, tracebacks() as logged:
        with connected(url) as connection:
            connection.sendall(request_for(path))
            assert came.wait(5)
            reset_connection(connection)
        with connected(url) as other:
            Raw(other).send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert Raw(other).answer()[0] == 200, "by now the reset has been seen"
        go.set()
    assert logged == []


@pytest.mark.parametrize("ws", WAYS.values(), ids=WAYS)
def test_an_application_may_be_mounted_under_a_prefix(ws: Any) -> None:
    outer = FastAPI()
    outer.mount("/env", app_of())
    with serving(outer, ws=ws) as url:
        with raw(url, "/env/ws") as client:
            assert_serves(client)
        with connected(url) as connection:
            assert Raw(connection).handshake("/ws")[0] == 403


def test_a_root_path_is_no_part_of_the_route() -> None:
    with serving(app_of(), root_path="/behind/proxy") as url, raw(url) as client:
        assert_serves(client)


# ------------------------------------------------------------------ the end


@pytest.mark.parametrize("ws", WAYS.values(), ids=WAYS)
def test_a_server_that_stops_says_so_and_closes_the_environments(
    ws: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log()
    monkeypatch.setattr(Counter, "log", log)
    app: Any = NotAdopted(app_of()) if ws == "websockets-sansio" else app_of()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(contextlib.ExitStack())
        url = server.enter_context(serving(app, ws=ws))
        old = stack.enter_context(raw(url))
        new = stack.enter_context(raw(url, Sec_WebSocket_Protocol="openenv.v1.json"))
        assert_serves(old)
        new.text('[{"type":"open","session":1},{"type":"reset","session":1,"id":1}]')
        wait_until(lambda: log.count("reset") == 1)
        server.close()
        assert [client.close_code() for client in (old, new)] == [1012, 1012]
    wait_until(lambda: log.count("close") == 2)


@pytest.fixture
def serve_with() -> Iterator[Callable[..., str]]:
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(serving(app_of(), **options))


@pytest.mark.slow
def test_a_client_that_answers_no_ping_is_cut(
    serve_with: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Counter, "log", log := Log())
    url = serve_with(ws=SocketProtocol, ws_ping_interval=0.05, ws_ping_timeout=0.1)
    with raw(url) as silent, raw(url) as busy:
        assert_serves(silent)
        assert silent.read().opcode == PING
        for _ in range(8):  # it says nothing for long, but answers pings
            asked = busy.read()
            assert asked.opcode == PING
            busy.send(frame(PONG, asked.payload))
        with pytest.raises((EOFError, ConnectionResetError)):
            while silent.read().opcode == PING:
                pass
        wait_until(lambda: log.count("close") == 1)
        busy.send(frame(TEXT, STATE.encode()))
        while (answer := busy.read()).opcode == PING:
            busy.send(frame(PONG))
        assert json.loads(answer.payload)["type"] == "state"


def test_pings_may_be_left_out(serve_with: Callable[..., str]) -> None:
    url = serve_with(ws=SocketProtocol, ws_ping_interval=None)
    with raw(url) as client:
        assert_serves(client)


async def _two_loops() -> None:
    """Served by the loop of the caller, as in a notebook."""
    with bind("127.0.0.1", 0) as bound:
        server = Server(uvicorn.Config(app_of(), log_level="warning", ws=SocketProtocol))
        running = asyncio.ensure_future(server.serve([bound]))
        await asyncio.to_thread(server.up.wait, 5)

        def talk() -> None:
            with raw(f"http://127.0.0.1:{bound.getsockname()[1]}") as client:
                assert_serves(client)
                client.send(close(1000))
                client.close_code()

        await asyncio.to_thread(talk)
        server.stop()
        await running


def test_a_loop_of_asyncio_serves_as_well() -> None:
    asyncio.run(_two_loops())
