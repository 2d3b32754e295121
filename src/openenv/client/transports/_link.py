"""The listener of a WebSocket, in its own module so that `websocket` need not import picows."""

from __future__ import annotations

import asyncio
import contextlib
from threading import Event
from typing import TYPE_CHECKING, Any, cast

from picows import WSCloseCode, WSFrame, WSListener, WSMsgType, WSTransport
from picows.common import WSError

from openenv._internal.fragments import Fragments
from openenv._internal.net.peers import ends, notice_dead_peer
from openenv.client import background
from openenv.client.transports.base import FrameQueue, Receiver, TransportClosed
from openenv.protocol.v1.codec import is_binary

if TYPE_CHECKING:
    from openenv.client.transports.websocket import WebSocketOptions

TEXT, BINARY, CONTINUATION, CLOSE = (
    WSMsgType.TEXT,
    WSMsgType.BINARY,
    WSMsgType.CONTINUATION,
    WSMsgType.CLOSE,
)
UNREAD_FRAMES = 4096  # at this many, reading stops until frames are read
DEAD_PEER_S = 60.0


class WebSocketLink(FrameQueue, WSListener):
    """A WebSocket, between picows, which calls this class, and `WebSocketTransport`.

    Args:
        subprotocol: The subprotocol that the server has chosen.
        options: The client's options.
        route: The server behind a gateway that the WebSocket leads to.
        spread: Maximum number of sessions that a gateway wants on the connection.
        wanted: Cleared once no caller waits for the connection any longer; it is then cut.

    Attributes:
        subprotocol: See `Args`.
        route: See `Args`.
        spread: See `Args`.
        ends: The addresses and ports of this end and of the server's.
    """

    def __init__(
        self,
        subprotocol: str | None,
        options: WebSocketOptions,
        route: str | None = None,
        spread: int | None = None,
        wanted: Event | None = None,
    ) -> None:
        super().__init__()
        self.subprotocol = subprotocol
        self.route = route
        self.spread = spread
        self.ends: list[str] | None = None
        self._options = options
        self._wanted = wanted
        self._kind = BINARY if is_binary(subprotocol) else TEXT
        self._loop = asyncio.get_running_loop()
        self._transport: WSTransport | None = None
        self._fragments = Fragments(options.max_message_bytes)
        self._is_paused = False
        self._is_alive = True
        self._silent_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._noticing: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------ called by picows

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport
        socket = transport.underlying_transport
        if self._wanted is not None and not self._wanted.is_set():
            socket.abort()
            return
        self.ends = ends(socket.get_extra_info("sockname"), socket.get_extra_info("peername"))
        notice_dead_peer(socket, DEAD_PEER_S)
        if background.is_shared(self._loop):
            background.leaving.add(self)
        if self._options.ping_interval_s:
            self._timer = self._loop.call_later(self._options.ping_interval_s, self._look)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        self._is_alive = True
        kind = frame.msg_type
        if transport.is_close_frame_sent and kind is not CLOSE:
            return  # picows continues after an error, even with the frame that was too big
        if frame.fin and (kind is TEXT or kind is BINARY) and not self._fragments.is_open:
            # A bytearray, so that arrays that are views of it are writable.
            payload = bytearray(frame.get_payload_as_memoryview())
            if self.receiver is not None:
                self.receiver.on_frame(payload)
            else:
                self._keep(payload)
        elif kind is CLOSE:
            self._close_came(transport, frame)
        elif kind is CONTINUATION or kind is TEXT or kind is BINARY:
            message = self._fragments.add(kind, frame.get_payload_as_bytes(), frame.fin)
            if message is not None:
                self._keep(message[1])

    def _keep(self, frame: bytes | bytearray) -> None:
        self.put(frame)
        if len(self.frames) >= UNREAD_FRAMES and not self._is_paused:
            assert self._transport is not None
            self._is_paused = True
            self._transport.underlying_transport.pause_reading()

    def _close_came(self, transport: WSTransport, frame: WSFrame) -> None:
        code, reason = frame.get_close_code(), frame.get_close_reason()
        number = 1005 if code == WSCloseCode.NO_INFO else int(cast(Any, code))
        words = f"received {number}" + (f" ({reason})" if reason else "")
        self.ending = TransportClosed(words, number, by_peer=True)
        sent = _ending_of(transport)
        if sent.code not in (None, 1000):  # this end closed first
            self.ending = TransportClosed(str(sent), sent.code, by_peer=True)
        if not transport.is_close_frame_sent:
            is_sendable = code not in (WSCloseCode.NO_INFO, WSCloseCode.ABNORMAL_CLOSURE)
            transport.send_close(code if is_sendable else WSCloseCode.OK)
        transport.disconnect()

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        if self._timer is not None:
            self._timer.cancel()
        ending = self.ending or _ending_of(transport)
        if ending.code not in (None, 1000):
            self._noticing = self._loop.create_task(self._notice(transport))
        self.end(ending)

    async def _notice(self, transport: WSTransport) -> None:
        """Retrieve the error that picows keeps and would otherwise log."""
        with contextlib.suppress(Exception):
            await transport.wait_disconnected()

    # ------------------------------------------------------------------ called by the transport

    def send(self, frame: bytes) -> None:
        """Send a frame.

        Raises:
            TransportClosed: The connection is gone.
        """
        transport = self._transport
        if transport is None or self.ending is not None or transport.is_close_frame_sent:
            raise self.ending or TransportClosed("the connection is closing")
        transport.send(self._kind, frame)

    async def receive(self, timeout_s: float | None = None) -> str | bytes | bytearray:
        """Wait for the next frame; see `Transport.receive`."""
        frame = await super().receive(timeout_s)
        if len(self.frames) < UNREAD_FRAMES // 2:
            self._read_on()
        return frame

    def attach(self, receiver: Receiver) -> None:
        """Pass all frames to `receiver` from now on."""
        super().attach(receiver)
        self._read_on()

    def _read_on(self) -> None:
        if self._is_paused:
            assert self._transport is not None
            self._is_paused = False
            if not self._transport.underlying_transport.is_closing():
                self._transport.underlying_transport.resume_reading()

    async def close(self) -> None:
        """Send a close frame and wait until the server has closed too, unless canceled."""
        transport = self._transport
        if transport is None or transport.is_disconnected:
            return
        if not transport.is_close_frame_sent:
            transport.send_close(WSCloseCode.OK)
        try:
            while not transport.is_disconnected:
                with contextlib.suppress(WSError):  # the reason why the connection has ended
                    await transport.wait_disconnected()
        except asyncio.CancelledError:
            self.abort()
            raise

    def leave(self) -> None:
        """Send a close frame without waiting."""
        transport = self._transport
        if transport is not None and not transport.is_disconnected:
            with contextlib.suppress(WSError):
                transport.send_close(WSCloseCode.GOING_AWAY)

    def abort(self) -> None:
        """Cut the connection."""
        transport = self._transport
        if transport is not None and not transport.is_disconnected:
            transport.underlying_transport.abort()

    # ------------------------------------------------------------------ keepalive

    def _look(self) -> None:
        """Ping a silent server, and give up on a server that stays silent."""
        assert self._transport is not None and self._options.ping_interval_s is not None
        if self._is_alive:
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = self._loop.time()
        limit = self._options.ping_timeout_s
        silent = self._silent_since
        if silent is not None and limit is not None and self._loop.time() - silent > limit:
            # The loop may have been blocked meanwhile: frames that have arrived are read first.
            self._timer = self._loop.call_later(0.001, self._give_up)
            return
        self._is_alive = False
        self._transport.send_ping()
        self._timer = self._loop.call_later(self._options.ping_interval_s, self._look)

    def _give_up(self) -> None:
        if self._is_alive:
            self._look()
            return
        self.ending = TransportClosed("the server does not answer pings")
        self.abort()


def _ending_of(transport: WSTransport) -> TransportClosed:
    """Return why a connection ended without a close frame from the server."""
    handshake = transport.close_handshake
    sent = None if handshake is None else handshake.sent
    if sent is None:
        return TransportClosed("no close frame received or sent")
    code = int(cast(Any, sent.code))
    hint = ""
    if sent.code == WSCloseCode.MESSAGE_TOO_BIG:
        hint = "; a larger max_message_size_mb may be given to the client"
    return TransportClosed(f"sent {code} ({sent.reason}){hint}", code)
