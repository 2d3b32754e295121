"""WebSockets at the socket level: a connection that our application accepts leaves ASGI.

uvicorn hands a connection's upgrade to a protocol class. Ours runs the application as usual, with
its middleware and routes, but offers to hand over the socket, as an extension of the ASGI scope.
The endpoint of `/ws` accepts the offer: from then on `picows` (a WebSocket implementation in
Cython) parses frames and passes them straight to the connection. An ASGI message costs more than
a quick step.

`openenv.server.run` chooses the class, or the application itself if a plain ``uvicorn module:app``
starts it. Under other servers frames go through ASGI. So do frames for clients that want
compression, if it is enabled (`OPENENV_COMPRESS`).
"""

from __future__ import annotations

import asyncio
import base64
import logging
import socket
from struct import pack
from typing import Any
from urllib.parse import unquote
from weakref import WeakKeyDictionary

from picows import (
    WSAutoPingStrategy,
    WSCloseCode,
    WSFrame,
    WSListener,
    WSMsgType,
    WSTransport,
    WSUpgradeRequest,
    WSUpgradeResponse,
    WSUpgradeResponseWithListener,
)
from picows.common import WSProtocolError
from picows.picows import WSProtocol  # type: ignore[attr-defined]
from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from openenv._internal.fragments import Fragments
from openenv._internal.net.peers import notice_dead_peer
from openenv.execution.connections.channel import SERVICE_RESTART
from openenv.execution.limits import Limits
from openenv.execution.slow_readers import SlowReaderGuard
from openenv.protocol.v1.codec import is_binary
from openenv.server.websocket import (
    SOCKET_EXTENSION,
    AnyConnection,
    ServeChannel,
    max_unread_bytes,
)
from openenv.settings import compresses

READ_BUFFER_BYTES = 4096  # initially; the buffer grows with the frames
CLOSE_TIMEOUT_S = 10.0
# picows copies a frame up to this size before sending. The head of a larger frame is only lent to
# the event loop, which sends it later, when the next frame has overwritten it (picows 2.3.1).
COPIED_BYTES = 8192

# Enum members are slow to look up.
_TEXT, _BINARY, _CONTINUATION = WSMsgType.TEXT, WSMsgType.BINARY, WSMsgType.CONTINUATION
_CLOSE, _PING = WSMsgType.CLOSE, WSMsgType.PING

logger = logging.getLogger(__name__)
# An adapter, since picows derives a new logger for every connection from a plain logger.
_picows_logger = logging.LoggerAdapter(logging.getLogger("openenv.server.picows"), {})
logging.getLogger("openenv.server.picows").setLevel(logging.WARNING)


def _is_of_server(record: logging.LogRecord) -> bool:
    """Return whether a log record reports an error of the server rather than of a peer.

    Peers are sent their own errors, and must not be able to fill the log.
    """
    return not str(record.msg).startswith(("WS parser error", "on_ws_frame raised WSProtocolError"))


logging.getLogger("openenv.server.picows").addFilter(_is_of_server)


class SocketChannel(WSListener):
    """The channel of a connection; picows calls it with the client's frames."""

    __slots__ = (
        "_backlog",
        "_connections",
        "_fragments",
        "_is_ending",
        "_is_paused",
        "_keepalive",
        "_kind",
        "_limits",
        "_ping",
        "_said_goodbye",
        "_serve",
        "_subprotocol",
        "_transport",
        "connection",
        "is_alive",
        "is_clogged",
        "silent_since",
    )

    def __init__(
        self,
        serve: ServeChannel,
        subprotocol: str | None,
        connections: set[Any],
        keepalive: Keepalive,
        limits: Limits,
    ) -> None:
        self._serve: ServeChannel | None = serve
        self._connections = connections
        self._keepalive = keepalive
        self._limits = limits
        self._backlog: SlowReaderGuard | None = None
        self._subprotocol = subprotocol
        self._kind = _BINARY if is_binary(subprotocol) else _TEXT
        self._transport: WSTransport | None = None
        self.connection: AnyConnection | None = None
        self._fragments: Fragments | None = None
        self._is_paused = self._is_ending = self._said_goodbye = False
        self.is_clogged = False
        self._ping: bytes | None = None  # an unanswered ping of a client that does not read
        self.is_alive = True  # a frame has arrived since the last check
        self.silent_since: float | None = None

    # ------------------------------------------------------------------ called by picows

    def accept(self, request: WSUpgradeRequest) -> Any:
        """Answer the handshake."""
        if self._subprotocol is None:
            return self
        agreed = {"Sec-WebSocket-Protocol": self._subprotocol}
        return WSUpgradeResponseWithListener(WSUpgradeResponse.create_101_response(agreed), self)

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport
        self._connections.add(self)
        self._keepalive.channels.add(self)
        assert self._serve is not None
        self.connection = self._serve(self)
        self._serve = None  # its closure would keep the handshake's objects alive

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        self.is_alive = True
        kind = frame.msg_type
        if transport.is_close_frame_sent and kind is not _CLOSE:
            return  # picows continues after an error, even with the frame that was too big
        if frame.rsv1 or frame.rsv2 or frame.rsv3:
            raise WSProtocolError(WSCloseCode.PROTOCOL_ERROR, "reserved bits are set")
        if kind is _TEXT or kind is _BINARY or kind is _CONTINUATION:
            message: Any = frame.get_payload_as_bytes()
            if not frame.fin or self._fragments is not None or kind is _CONTINUATION:
                message = self._fragment(kind, message, frame.fin)
                if message is None:
                    return
            elif kind is _TEXT:
                try:
                    message = message.decode()
                except UnicodeDecodeError:
                    raise _no_text() from None
            if self.connection is not None:  # otherwise another channel has replaced this one
                self.connection.receive(message)
        elif kind is _CLOSE:
            self._close_came(transport, frame)
        elif kind is _PING and self.is_clogged:
            # A client that does not read gets its answer once it reads, and only to the last ping
            # (RFC 6455, section 5.5.3).
            self._ping = frame.get_payload_as_bytes()
        elif kind is _PING:
            transport.send_pong(frame.get_payload_as_bytes())

    def _fragment(self, kind: WSMsgType, payload: bytes, is_last: bool) -> str | bytes | None:
        """Add a fragment, and return the message once all fragments have come."""
        if self._fragments is None:
            self._fragments = Fragments(self._limits.max_message_bytes)
        message = self._fragments.add(kind, payload, is_last)
        if message is None:
            return None
        self._fragments = None
        try:
            return message[1].decode() if message[0] is _TEXT else bytes(message[1])
        except UnicodeDecodeError:
            raise _no_text() from None

    def _close_came(self, transport: WSTransport, frame: WSFrame) -> None:
        self._said_goodbye = frame.get_close_code() not in _ACCIDENTS
        if not transport.is_close_frame_sent:
            transport.send_close(_ANSWERS.get(frame.get_close_code(), frame.get_close_code()))
        transport.disconnect()

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        if self._backlog is not None:
            self._backlog.stop()
        self._keepalive.channels.discard(self)
        self._connections.discard(self)
        if self.connection is not None:
            self.connection.lose(is_goodbye=self._said_goodbye)

    def pause_writing(self) -> None:
        """Note that the client does not read."""
        self.is_clogged = True
        self._listen_or_not()

    def resume_writing(self) -> None:
        """Note that the client has read."""
        self.is_clogged = False
        if self._ping is not None:
            payload, self._ping = self._ping, None
            assert self._transport is not None
            self._transport.send_pong(payload)
        self._listen_or_not()
        if self.connection is not None:
            self.connection.go_on()

    # ------------------------------------------------------------------ called by the connection

    def send(self, frame: bytes) -> None:
        assert self._transport is not None
        if len(frame) <= COPIED_BYTES:
            self._transport.send(self._kind, frame)
        else:
            self._send_large(self._transport, frame)
        if self.is_clogged:
            if self._backlog is None:
                size = self._transport.underlying_transport.get_write_buffer_size
                self._backlog = SlowReaderGuard(
                    lambda: max_unread_bytes(self._limits, self.connection), size, self._cut_off
                )
            self._backlog.note(len(frame))

    def _send_large(self, transport: WSTransport, frame: bytes) -> None:
        """Send like picows, but with a head that nothing overwrites (RFC 6455, section 5.2)."""
        if not (transport.is_close_frame_sent or transport.is_disconnected):
            size, first = len(frame), 0x82 if self._kind is _BINARY else 0x81
            is_short = size < 2**16
            head = pack("!BBH", first, 126, size) if is_short else pack("!BBQ", first, 127, size)
            transport.underlying_transport.writelines((head, frame))

    def _cut_off(self) -> None:
        if self.connection is not None:
            self.connection.note_cut_off()
        self.abort()

    def close(self, code: int) -> None:
        transport = self._transport
        assert transport is not None
        if transport.is_close_frame_sent or transport.is_disconnected:
            return
        transport.send_close(WSCloseCode(code))
        if self._is_ending:
            transport.disconnect()
            return
        asyncio.get_running_loop().call_later(CLOSE_TIMEOUT_S, transport.disconnect)

    def pause(self) -> None:
        self._is_paused = True
        self._listen_or_not()

    def resume(self) -> None:
        self._is_paused = False
        self._listen_or_not()

    def _listen_or_not(self) -> None:
        assert self._transport is not None
        socket = self._transport.underlying_transport
        if socket.is_closing():
            return
        connection = self.connection
        is_heard = connection is None or connection.hears_while_clogged
        if self._is_paused or (self.is_clogged and not is_heard):
            socket.pause_reading()
        else:
            socket.resume_reading()

    # ------------------------------------------------------------------ called by the server

    def ping(self) -> None:
        """Check that the client is still there."""
        assert self._transport is not None
        self._transport.send_ping()

    def abort(self) -> None:
        """Cut the connection."""
        assert self._transport is not None
        self._transport.disconnect(graceful=False)

    def shutdown(self) -> None:
        """Note that the server stops; called by uvicorn."""
        assert self._transport is not None
        self._is_ending = True
        if self.connection is not None:
            self.connection.drain()
        else:
            self.close(SERVICE_RESTART)


def _no_text() -> WSProtocolError:
    return WSProtocolError(WSCloseCode.INVALID_TEXT, "this is no UTF-8")


# These codes mean that an accident happened; with any other code a client leaves on purpose.
_ACCIDENTS = (
    WSCloseCode.ABNORMAL_CLOSURE,
    WSCloseCode.INTERNAL_ERROR,
    WSCloseCode.TRY_AGAIN_LATER,
    WSCloseCode.BAD_GATEWAY,
)

# Replies to close frames whose code must not be on the wire (RFC 6455, section 7.4.1).
_ANSWERS = {
    WSCloseCode.NO_INFO: WSCloseCode.OK,  # the frame has no code
    WSCloseCode.ABNORMAL_CLOSURE: WSCloseCode.PROTOCOL_ERROR,
}


class Keepalive:
    """Pings silent clients of a server, and cuts off clients that stay silent.

    Args:
        loop: The server's event loop.
        interval_s: Seconds of silence after which a client is pinged; None sends no pings.
        timeout_s: Seconds that a pinged client may stay silent; None for no limit.
    """

    CHANNELS_A_TICK = 256

    def __init__(
        self, loop: asyncio.AbstractEventLoop, interval_s: float | None, timeout_s: float | None
    ) -> None:
        self.channels: set[SocketChannel] = set()
        self._loop = loop
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        if interval_s:
            loop.call_later(interval_s, self._round)

    def _round(self) -> None:
        assert self._interval_s is not None
        self._go_on(list(self.channels))
        self._loop.call_later(self._interval_s, self._round)

    def _go_on(self, channels: list[SocketChannel]) -> None:
        now = self._loop.time()
        for channel in channels[: self.CHANNELS_A_TICK]:
            if channel in self.channels:
                self._look_after(channel, now)
        if rest := channels[self.CHANNELS_A_TICK :]:
            self._loop.call_soon(self._go_on, rest)

    def _look_after(self, channel: SocketChannel, now: float) -> None:
        if channel.is_alive:
            channel.is_alive, channel.silent_since = False, None
            return
        if channel.silent_since is None:
            channel.silent_since = now
        elif self._timeout_s is not None and now - channel.silent_since > self._timeout_s:
            channel.abort()
            return
        channel.ping()


class SocketProtocol(asyncio.Protocol):
    """The protocol of a connection that requests a WebSocket, under uvicorn.

    This class calls the application. If the application takes over the socket, picows continues.
    If it answers in the ordinary way, with ASGI messages, uvicorn's own protocol continues.
    """

    def __init__(
        self, config: Any, server_state: Any, app_state: dict[str, Any], _loop: Any = None
    ) -> None:
        self._config = config
        self._server_state = server_state
        self._app_state = app_state
        self._loop: asyncio.AbstractEventLoop = _loop or asyncio.get_running_loop()
        self._transport: Any = None
        self._head = self._handshake = b""
        self._is_lost = False
        self._calling: asyncio.Task[None] | None = None
        self._ordinary: asyncio.Future[tuple[Any, Any]] | None = None
        self._is_finished: asyncio.Future[None] | None = None

    # ------------------------------------------------------------------ called by uvicorn

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._server_state.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._server_state.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        if self._head:  # a client must not send before the handshake is answered
            self._transport.abort()
            return
        self._head = data  # uvicorn passes the whole request at once
        task = self._calling = self._loop.create_task(self._call(self._scope()))
        self._server_state.tasks.add(task)
        task.add_done_callback(self._server_state.tasks.discard)

    def shutdown(self) -> None:
        """Note that the server stops; called by uvicorn."""
        self._transport.close()

    # ------------------------------------------------------------------ the application's call

    def _scope(self) -> dict[str, Any]:
        first, *lines = self._head.removesuffix(b"\r\n\r\n").split(b"\r\n")
        path, _, query = first.split(b" ")[1].partition(b"?")
        parts = [line.partition(b": ") for line in lines]
        headers = [(name.lower(), value) for name, _, value in parts]
        offered = [v.decode("latin-1") for n, v in headers if n == b"sec-websocket-protocol"]
        extensions: dict[str, Any] = {"websocket.http.response": {}}
        # Only uvicorn's protocol compresses messages.
        compressed = (
            compresses()
            and self._config.ws_per_message_deflate
            and any(b"permessage-deflate" in v for n, v in headers if n == _EXTENSIONS)
        )
        self._handshake = _handshake(headers)
        if self._handshake and not compressed and not _is_local(self._transport):
            extensions[SOCKET_EXTENSION] = self.take_over
        root, transport = self._config.root_path, self._transport
        return {
            "type": "websocket",
            "asgi": {"version": self._config.asgi_version, "spec_version": "2.4"},
            "http_version": "1.1",
            "scheme": "wss" if is_ssl(transport) else "ws",
            "server": get_local_addr(transport),
            "client": get_remote_addr(transport),
            "root_path": root,
            "path": root + unquote(path.decode("ascii", "replace")),
            "raw_path": root.encode("ascii") + path,
            "query_string": query,
            "headers": headers,
            "subprotocols": [name.strip() for line in offered for name in line.split(",")],
            "state": self._app_state.copy(),
            "extensions": extensions,
        }

    async def _call(self, scope: dict[str, Any]) -> None:
        try:
            await self._config.loaded_app(scope, self._receive, self._send)
            failure = None
        except Exception as error:
            failure = error
        finally:
            scope["extensions"].clear()  # they refer to this protocol, and would keep it alive
        if self._transport is None:  # the socket was taken over
            if failure is not None:
                logger.error("the application failed after the handshake", exc_info=failure)
            return
        await self._use_ordinary()  # answers if the application did not
        assert self._is_finished is not None
        if failure is None:
            self._is_finished.set_result(None)
        else:
            self._is_finished.set_exception(failure)

    async def _receive(self) -> Any:
        receive, _ = await self._use_ordinary()
        return await receive()

    async def _send(self, message: Any) -> None:
        _, send = await self._use_ordinary()
        await send(message)

    # ------------------------------------------------------------------ uvicorn or picows

    async def _use_ordinary(self) -> tuple[Any, Any]:
        """Hand the connection over to uvicorn's protocol; return its ASGI `receive` and `send`.

        If the client is gone or the protocol refuses the handshake, nothing will ever be received,
        so the call of the application is canceled.
        """
        if self._ordinary is None:
            self._ordinary = self._loop.create_future()
            self._is_finished = self._loop.create_future()
            ordinary = _Ordinary(
                config=self._config,
                server_state=self._server_state,
                app_state=self._app_state,
                _loop=self._loop,
            )
            ordinary.app = self._bridge
            self._server_state.connections.discard(self)
            is_there = not self._transport.is_closing()
            if is_there:
                notice_dead_peer(self._transport, Limits.of_settings().dead_peer_s)
                self._transport.set_protocol(ordinary)
                ordinary.connection_made(self._transport)
                ordinary.data_received(_passed_on(self._head))
            if not is_there or not ordinary.handshake_initiated or ordinary.handshake_complete:
                assert self._calling is not None
                self._calling.cancel()
            if self._is_lost:  # `ordinary` would not learn it otherwise
                self._loop.call_soon(ordinary.connection_lost, None)
        return await asyncio.shield(self._ordinary)

    async def _bridge(self, scope: Any, receive: Any, send: Any) -> None:
        """Stand in for the application, which is already being called."""
        assert self._ordinary is not None and self._is_finished is not None
        self._ordinary.set_result((receive, send))
        await self._is_finished

    def take_over(self, serve: ServeChannel, subprotocol: str | None, limits: Limits) -> None:
        """Continue with picows; the application has no more to do with this connection."""
        transport, self._transport = self._transport, None
        connections = self._server_state.connections
        connections.discard(self)
        if transport.is_closing():  # the client has already left
            return
        keepalive = _keepalive_of(self._config, self._loop)
        channel = SocketChannel(serve, subprotocol, connections, keepalive, limits)
        protocol = _picows_protocol(channel, limits.max_message_bytes)
        transport.pause_reading()  # uvloop checks the protocol's type when it starts to read
        transport.set_protocol(protocol)
        notice_dead_peer(transport, limits.dead_peer_s)
        try:
            protocol.connection_made(transport)
            _feed(protocol, self._handshake)
        except BaseException:
            transport.abort()  # no other code knows about it any more
            raise
        if not transport.is_closing():
            transport.resume_reading()


def _is_local(transport: Any) -> bool:
    """Return whether a socket is a Unix socket; picows takes only TCP sockets."""
    connection = transport.get_extra_info("socket")
    return connection is not None and connection.family == getattr(socket, "AF_UNIX", None)


_SECRET = (b"authorization", b"x-api-key")
_EXTENSIONS = b"sec-websocket-extensions"


def _passed_on(head: bytes) -> bytes:
    """Return the request for uvicorn's protocol, without keys, which that protocol may log.

    Without OPENENV_COMPRESS the request for compression is removed too. The application has
    already seen the original request.
    """
    hidden = _SECRET if compresses() else (*_SECRET, _EXTENSIONS)
    first, *lines = head.split(b"\r\n")
    kept = [line for line in lines if line.partition(b":")[0].lower() not in hidden]
    return b"\r\n".join([first, *kept])


class _Ordinary(WebSocketsSansIOProtocol):
    """uvicorn's protocol, with a bound on pongs: a client that does not read gets only the last
    pong, as from the picows channel (RFC 6455, section 5.5.3). uvicorn keeps all pongs.
    """

    _pong = b""

    def handle_ping(self) -> None:
        if self.writable.is_set():
            super().handle_ping()
        else:
            self._pong = b"".join(self.conn.data_to_send())

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._pong:
            self.transport.write(self._pong)
            self._pong = b""


def _handshake(headers: list[tuple[bytes, bytes]]) -> bytes:
    """Return the handshake in the form that picows takes; empty for an invalid handshake.

    Clients send many forms, and picows keeps the handshake for as long as the connection lasts.
    uvicorn's protocol answers an invalid handshake (RFC 6455, section 4.2.1).
    """
    versions = [value for name, value in headers if name == b"sec-websocket-version"]
    keys = [value for name, value in headers if name == b"sec-websocket-key"]
    try:
        ((key,), is_right) = keys, versions == [b"13"]
        is_right = is_right and len(base64.b64decode(key, validate=True)) == 16
    except ValueError:  # no key, several, or invalid base64
        return b""
    return _HANDSHAKE % key if is_right else b""


_HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %b\r\n\r\n"
)


def _picows_protocol(channel: SocketChannel, max_bytes: int) -> Any:
    return WSProtocol(
        None,  # host and path are for clients
        None,
        False,
        channel.accept,
        _picows_logger,
        True,
        None,  # handshake timeout: the handshake has already arrived
        False,  # pings: sent by Keepalive, without a task for every connection
        20,
        20,
        WSAutoPingStrategy.PING_WHEN_IDLE,
        False,  # pongs: sent by `SocketChannel`, which knows which clients do not read
        max_bytes,
        None,
        READ_BUFFER_BYTES,
    )


def _feed(protocol: Any, data: bytes) -> None:
    while data:
        buffer = protocol.get_buffer(-1)
        taken = min(len(buffer), len(data))
        buffer[:taken] = data[:taken]
        protocol.buffer_updated(taken)
        data = data[taken:]


_keepalives: WeakKeyDictionary[Any, Keepalive] = WeakKeyDictionary()


def _keepalive_of(config: Any, loop: asyncio.AbstractEventLoop) -> Keepalive:
    keepalive = _keepalives.get(config)
    if keepalive is None:
        keepalive = _keepalives[config] = Keepalive(
            loop, config.ws_ping_interval, config.ws_ping_timeout
        )
    return keepalive


def use_at(config: Any) -> None:
    """Use `SocketProtocol` in a uvicorn server, unless another class was chosen."""
    if config.ws_protocol_class is WebSocketsSansIOProtocol:
        config.ws_protocol_class = SocketProtocol
