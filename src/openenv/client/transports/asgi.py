"""A transport to an ASGI application in this process: routing and middleware, but no socket.

The WebSocket messages are those of the ASGI specification, version 2.4.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any
from urllib.parse import unquote

from openenv.client.transports.base import InProcessTransport, TransportClosed, refused
from openenv.errors import ConnectError
from openenv.protocol.http import IN_PROCESS_EXTENSION
from openenv.protocol.v1.codec import is_binary

JSON = "application/json"
HOST, PATH = "asgi", "/ws"

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class ASGITransport(InProcessTransport):
    """A WebSocket connection to an ASGI application, made by calling the application."""

    def __init__(
        self,
        app: ASGIApp,
        headers: Mapping[str, str] | None = None,
        subprotocols: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self._subprotocols = list(subprotocols)
        self.app = app
        self.headers = {"host": HOST, **(headers or {})}
        self._to_app: asyncio.Queue[Message] = asyncio.Queue()
        self._handshake: asyncio.Queue[Message] = asyncio.Queue()
        self._running: asyncio.Task[None] | None = None

    def __str__(self) -> str:
        return "an application in this process"

    async def connect(self, route: str | None = None) -> None:
        self._to_app.put_nowait({"type": "websocket.connect"})
        self._running = asyncio.create_task(self._run())
        message = await self._handshake.get()
        if message["type"] == "websocket.http.response.start":
            raise refused(PATH, message["status"], await self._body())
        if message["type"] != "websocket.accept":
            raise ConnectError(f"the application refused {PATH}: {message}")
        self.subprotocol = message.get("subprotocol")

    async def _body(self) -> bytes:
        body = b""
        while (message := await self._handshake.get())["type"] == "websocket.http.response.body":
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        return body

    async def _run(self) -> None:
        try:
            scope = _scope("websocket", PATH, self.headers, {"websocket.http.response": {}})
            scope |= {"scheme": "ws", "subprotocols": self._subprotocols}
            await self.app(scope, self._to_app.get, self._take)
        finally:
            await self._take({"type": "websocket.close", "code": 1006})

    async def _take(self, message: Message) -> None:
        kind = message["type"]
        if kind == "websocket.send":
            text: str | None = message.get("text")
            self.put(bytearray(message["bytes"]) if text is None else text)
            return
        self._handshake.put_nowait(message)  # only `connect` reads this queue
        if kind == "websocket.close":
            code = message.get("code", 1000)
            why = f"the application closed the connection ({code})"
            self.end(TransportClosed(why, code, by_peer=True))

    def send(self, frame: bytes) -> None:
        if self._running is None or self._running.done():
            raise TransportClosed("the application has ended the connection")
        content = {"bytes": frame} if is_binary(self.subprotocol) else {"text": frame.decode()}
        self._to_app.put_nowait({"type": "websocket.receive", **content})

    async def close(self) -> None:
        if self._running is not None:
            self._to_app.put_nowait({"type": "websocket.disconnect", "code": 1000})
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(self._running)

    def abort(self) -> None:
        self._to_app.put_nowait({"type": "websocket.disconnect", "code": 1006})


def _scope(
    kind: str, path: str, headers: Mapping[str, str], extensions: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "type": kind,
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 0),
        "server": (HOST, 80),
        "state": {},
        "extensions": {IN_PROCESS_EXTENSION: {}, **(extensions or {})},
    }


async def request(
    app: ASGIApp, path: str, body: bytes | None, headers: Mapping[str, str]
) -> tuple[int, bytes]:
    """Send an HTTP request to an application: a GET, or a POST of JSON if there is a body.

    Returns:
        The status and body of the response.

    Raises:
        ConnectError: The application gave no answer.
    """
    given = {"host": HOST, **headers} | ({} if body is None else {"content-type": JSON})
    scope = _scope("http", path, given)
    scope |= {"scheme": "http", "method": "GET" if body is None else "POST"}
    asked: list[Message] = [{"type": "http.request", "body": body or b"", "more_body": False}]
    answer: list[Message] = []

    async def receive() -> Message:
        return asked.pop() if asked else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        answer.append(message)

    await app(scope, receive, send)
    if not answer:
        raise ConnectError(f"the application gave no answer at {path}")
    return answer[0]["status"], b"".join(part.get("body", b"") for part in answer[1:])
