"""`/ws`: an ASGI WebSocket as the channel of a connection.

If the web server offers its socket (see `openenv.server.socket`), the connection takes it over, and
no frame passes through ASGI. With other servers, frames travel as ASGI messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs

from starlette.routing import WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from openenv._internal.net.peers import ends
from openenv.execution.connections.channel import Channel
from openenv.execution.connections.v0.connection import ServedConnectionV0
from openenv.execution.connections.v1.connection import ServedConnectionV1
from openenv.execution.limits import Limits
from openenv.execution.manager import SessionManager
from openenv.execution.principal import principal_of
from openenv.execution.slow_readers import SlowReaderGuard
from openenv.protocol.http import IN_PROCESS_EXTENSION
from openenv.protocol.messages import NON_FINITE_HEADER
from openenv.protocol.v1.codec import SUBPROTOCOLS, codec_named, is_binary
from openenv.server.auth import warn_if_open
from openenv.settings import hide_keys

# The name under which a server offers its socket in the extensions of the ASGI scope.
SOCKET_EXTENSION = "openenv.socket"
UNSENT_BYTES = 2**16  # at this many unsent bytes, reading pauses, as with a socket
FAREWELL_S = 0.5
_NON_FINITE_HEADER = NON_FINITE_HEADER.lower().encode()  # the form of header names in ASGI
# With any other close code a client leaves on purpose. uvicorn gives 1005 for a lost connection.
ACCIDENTS = (1005, 1006, 1011, 1013, 1014)

AnyConnection = ServedConnectionV0 | ServedConnectionV1
ServeChannel = Callable[[Channel], AnyConnection]


def max_unread_bytes(limits: Limits, connection: AnyConnection | None) -> int:
    """Return how many bytes the client of a channel may leave unread."""
    return limits.max_unread_bytes if connection is None else connection.max_unread_bytes()


class WebSocketChannel:
    """Frames over an accepted ASGI WebSocket, sent by a writer task."""

    def __init__(self, websocket: WebSocket, limits: Limits, *, is_binary: bool) -> None:
        self.connection: AnyConnection | None = None
        self.said_goodbye = False
        self._unsent_bytes = 0
        self._backlog = SlowReaderGuard(
            lambda: max_unread_bytes(limits, self.connection),
            lambda: self._unsent_bytes,
            self._cut_off,
        )
        self.is_cut = asyncio.Event()
        self._websocket = websocket
        self._is_binary = is_binary
        self._unsent: asyncio.Queue[bytes | int] = asyncio.Queue()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._is_sent = asyncio.Event()
        self._is_sent.set()

    def send(self, frame: bytes) -> None:
        self._unsent_bytes += len(frame)
        self._unsent.put_nowait(frame)
        if self._unsent_bytes >= UNSENT_BYTES:
            self._is_sent.clear()
        self._backlog.note(len(frame))

    @property
    def is_clogged(self) -> bool:
        return not self._is_sent.is_set()

    def _cut_off(self) -> None:
        if self.connection is not None:
            self.connection.note_cut_off()
        self.abort()

    def close(self, code: int) -> None:
        self._unsent.put_nowait(code)

    def pause(self) -> None:
        self._may_read.clear()

    def resume(self) -> None:
        self._may_read.set()

    def abort(self) -> None:
        self.is_cut.set()

    def stop(self) -> None:
        """Stop watching the client, since it has gone."""
        self._backlog.stop()

    async def read(self) -> None:
        """Pass every frame to the connection, no faster than the connection serves and the client
        reads.
        """
        while True:
            await self._may_read.wait()
            if self.connection is not None and not self.connection.hears_while_clogged:
                await self._is_sent.wait()
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                self.said_goodbye = message.get("code") not in ACCIDENTS
                return
            text: str | None = message.get("text")
            if self.connection is not None:
                self.connection.receive(message["bytes"] if text is None else text)

    async def write(self) -> None:
        """Send queued frames until the channel is closed."""
        while True:
            frame = await self._unsent.get()
            if isinstance(frame, int):
                await self._websocket.close(frame)
                return
            if self._is_binary:
                await self._websocket.send_bytes(frame)
            else:
                await self._websocket.send_text(frame.decode())
            self._unsent_bytes -= len(frame)
            if self.is_clogged and self._unsent.empty():
                self._is_sent.set()
                if self.connection is not None:
                    self.connection.go_on()


async def _serve(
    websocket: WebSocket, serve: ServeChannel, subprotocol: str | None, limits: Limits
) -> None:
    await websocket.accept(subprotocol)
    channel = WebSocketChannel(websocket, limits, is_binary=is_binary(subprotocol))
    channel.connection = serve(channel)
    tasks: list[asyncio.Task[Any]] = [
        asyncio.ensure_future(channel.read()),
        asyncio.ensure_future(channel.write()),
        asyncio.ensure_future(channel.is_cut.wait()),
    ]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[1].done():  # writing may fail before the client's close frame is read
            await asyncio.wait(tasks[:1], timeout=FAREWELL_S)
    finally:
        connection: AnyConnection | None = channel.connection
        if connection is not None and connection.lose(is_goodbye=channel.said_goodbye):
            connection = None  # it waits for the client to come back
        channel.stop()
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(
                asyncio.CancelledError, WebSocketDisconnect, RuntimeError, OSError
            ):
                await task
    if connection is not None:
        await connection.ended


class WebSocketEndpoint:
    """The ASGI application of a WebSocket path.

    Args:
        connection: The class of connections; by default that of the negotiated version.
    """

    def __init__(
        self, manager: SessionManager, connection: type[ServedConnectionV0] | None = None
    ) -> None:
        self._manager = manager
        self._connection = connection

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        session_id = query_of(scope, "session_id")
        is_old = self._connection is not None or session_id is not None
        # A client that attaches to a session by id speaks version 0: one session per connection.
        offered = () if is_old else scope["subprotocols"]
        subprotocol = next((name for name in offered if name in SUBPROTOCOLS), None)
        extensions = scope.get("extensions") or {}
        debug = self._manager.debug or IN_PROCESS_EXTENSION in extensions

        # `serve` lives as long as the connection, so it must not hold the scope.
        principal, both = principal_of(scope), ends(scope.get("client"), scope.get("server"))
        if principal is not None and principal.session_id is not None:
            session_id = principal.session_id
        take_over = extensions.get(SOCKET_EXTENSION)
        is_known = take_over is not None or IN_PROCESS_EXTENSION in extensions
        is_known = is_known or self._manager.knows_its_web_server
        largest = None if is_known else UVICORNS_MAX_BYTES
        names_non_finite = subprotocol is None and any(
            name == _NON_FINITE_HEADER for name, _ in scope["headers"]
        )

        def serve(channel: Channel) -> AnyConnection:
            if subprotocol is None:
                cls = self._connection or ServedConnectionV0
                return cls(
                    self._manager,
                    channel,
                    session_id,
                    principal,
                    debug=debug,
                    names_non_finite=names_non_finite,
                )
            codec = codec_named(subprotocol, debug)
            return ServedConnectionV1(
                self._manager, channel, codec, both, principal, largest=largest
            )

        if take_over is None:
            websocket = WebSocket(scope, receive, send)
            await _serve(websocket, serve, subprotocol, self._manager.limits)
        else:
            take_over(serve, subprotocol, self._manager.limits)


def query_of(scope: Scope, name: str) -> str | None:
    """Return the last value of a parameter in a URL's query; None without the parameter."""
    values = parse_qs(scope["query_string"].decode("latin-1")).get(name)
    return values[-1] if values else None


def websocket_route(
    manager: SessionManager, path: str = "/ws", connection: type[ServedConnectionV0] | None = None
) -> WebSocketRoute:
    """Build the route of a WebSocket path; the arguments are those of `WebSocketEndpoint`."""
    endpoint: Any = WebSocketEndpoint(manager, connection)
    return WebSocketRoute(path, endpoint)


class AdoptsUvicorn:
    """ASGI middleware that makes uvicorn offer sockets to the application.

    Most servers are started with ``uvicorn module:app``, so that must be no slower than ours.
    """

    def __init__(self, app: ASGIApp, manager: SessionManager) -> None:
        self._app = app
        self._manager = manager

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            configs = (getattr(owner, "config", None) for owner in owners_of(receive))
            config: Any = next((c for c in configs if hasattr(c, "ws_protocol_class")), None)
            if config is not None:
                from openenv.server import socket

                socket.use_at(config)
                if "httptools" in sys.modules:  # uvicorn's other parser, h11, has bounds
                    from openenv.server import heads

                    heads.use_at(config)
                self._agree(config)
                self._manager.knows_its_web_server = True
                if self._manager.keys is None and config.uds is None and config.fd is None:
                    warn_if_open(config.host)
                if threading.current_thread() is threading.main_thread():  # it only serves
                    hide_keys()
        await self._app(scope, receive, send)

    def _agree(self, config: Any) -> None:
        """Use the same message size limit in uvicorn and here, and note whether it has workers."""
        manager = self._manager
        manager.has_siblings = (config.workers or 1) > 1
        if config.ws_max_size == UVICORNS_MAX_BYTES:
            config.ws_max_size = manager.limits.max_message_bytes
        else:
            limits = dataclasses.replace(manager.limits, max_message_bytes=config.ws_max_size)
            manager.limits = limits


UVICORNS_MAX_BYTES = 2**24  # uvicorn's default for the size of a message
WRAPPINGS = 5  # maximum depth of wrappers around the `receive` that a server passes


def owners_of(receive: Any, wrappings: int = WRAPPINGS) -> Iterator[Any]:
    """Iterate over the objects behind an ASGI `receive`; one of them is its server.

    Middleware may have wrapped `receive` in functions, as FastAPI's telemetry does, or in a
    Starlette request.
    """
    owner = getattr(receive, "__self__", None)
    yield owner
    inner = [getattr(owner, "_receive", None)]
    for cell in getattr(receive, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # an empty cell
            inner.append(cell.cell_contents)
    for one in inner:
        if wrappings and callable(one):
            yield from owners_of(one, wrappings - 1)
