"""The listener of one WebSocket connection: a module of its own, since picows comes with it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from threading import Event
from typing import TYPE_CHECKING, Any, cast

from picows import WSCloseCode, WSFrame, WSListener, WSMsgType, WSTransport
from picows.common import WSError

from openenv._internal.fragments import Fragments
from openenv._internal.net.peers import ends, notice_dead_peer
from openenv.client import background
from openenv.client.transports.base import TransportClosed
from openenv.protocol.v1 import is_binary

if TYPE_CHECKING:
    from openenv.client.transports.websocket import WebSocketOptions

__all__ = ["Link"]

TEXT, BINARY, CONTINUATION, CLOSE = (
    WSMsgType.TEXT,
    WSMsgType.BINARY,
    WSMsgType.CONTINUATION,
    WSMsgType.CLOSE,
)
UNREAD_FRAMES = 4096  # before the server is left waiting
DEAD_PEER_S = 60.0


class Link(WSListener):
    """Keeps what comes until it is asked for.

    Args:
        subprotocol: What the server has chosen.
        options: Of the client.
        route: Which server of a gateway's it is.
        spread: How many sessions a connection is to have, by a gateway.
        wanted: Not set once nobody waits for the connection any more: it is cut then.

    Attributes:
        subprotocol: What the server has chosen.
        route: Which server of a gateway's it is.
        spread: How many sessions a connection is to have, by a gateway.
        frames: What has come and was not taken.
        ends: The addresses and ports of this end and of the server's.
        broken: Called if the connection breaks while nobody waits for a frame.
    """

    def __init__(
        self,
        subprotocol: str | None,
        options: WebSocketOptions,
        route: str | None = None,
        spread: int | None = None,
        wanted: Event | None = None,
    ) -> None:
        self.subprotocol = subprotocol
        self.route = route
        self.spread = spread
        self.frames: deque[bytes | bytearray] = deque()
        self.broken: Callable[[], None] | None = None
        self.ends: list[str] | None = None
        self._options = options
        self._wanted = wanted
        self._kind = BINARY if is_binary(subprotocol) else TEXT
        self._loop = asyncio.get_running_loop()
        self._transport: WSTransport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._deadline: float | None = None
        self._alarm: asyncio.Handle | None = None
        self._alarm_at = 0.0  # uvloop's handles do not tell, where that is just now
        self._fragments = Fragments(options.max_message_bytes)
        self._ending: TransportClosed | None = None
        self._was_told = False
        self._is_paused = False
        self._is_alive = True
        self._silent_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._noticing: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------ what picows calls

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
            return  # picows goes on after an error, even with the frame that was too big
        if frame.fin and (kind is TEXT or kind is BINARY) and not self._fragments.is_open:
            # A bytearray, so that arrays that are views of it can be written to.
            self._keep(bytearray(frame.get_payload_as_memoryview()))
        elif kind is CLOSE:
            self._close_came(transport, frame)
        elif kind is CONTINUATION or kind is TEXT or kind is BINARY:
            message = self._fragments.add(kind, frame.get_payload_as_bytes(), frame.fin)
            if message is not None:
                self._keep(message[1])

    def _keep(self, frame: bytes | bytearray) -> None:
        self.frames.append(frame)
        if len(self.frames) >= UNREAD_FRAMES and not self._is_paused:
            assert self._transport is not None
            self._is_paused = True
            self._transport.underlying_transport.pause_reading()
        self._wake()

    def _close_came(self, transport: WSTransport, frame: WSFrame) -> None:
        self._was_told = True
        code, reason = frame.get_close_code(), frame.get_close_reason()
        number = 1005 if code == WSCloseCode.NO_INFO else int(cast(Any, code))
        words = f"received {number}" + (f" ({reason})" if reason else "")
        self._ending = TransportClosed(words, number)
        sent = _ending_of(transport)
        if sent.code not in (None, 1000):  # it was ended from here
            self._ending = sent
        if not transport.is_close_frame_sent:
            is_sendable = code not in (WSCloseCode.NO_INFO, WSCloseCode.ABNORMAL_CLOSURE)
            transport.send_close(code if is_sendable else WSCloseCode.OK)
        transport.disconnect()

    @property
    def is_broken(self) -> bool:
        """It has ended without a goodbye from the server."""
        return self._ending is not None and not self._was_told

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        for timer in (self._timer, self._alarm):
            if timer is not None:
                timer.cancel()
        if self._ending is None:
            self._ending = _ending_of(transport)
        if self._ending.code not in (None, 1000):
            self._noticing = self._loop.create_task(self._notice(transport))
        is_awaited = self._waiter is not None and not self._waiter.done()
        if self.broken is not None and not is_awaited:
            self.broken()
        self._wake()

    async def _notice(self, transport: WSTransport) -> None:
        """Take the error that picows keeps for whoever waits: if nobody does, it is reported."""
        with contextlib.suppress(Exception):
            await transport.wait_disconnected()

    # ------------------------------------------------------------------ what the transport calls

    def send(self, frame: bytes) -> None:
        """Send a frame.

        Raises:
            TransportClosed: The connection is gone.
        """
        transport = self._transport
        if transport is None or self._ending is not None or transport.is_close_frame_sent:
            raise self._ending or TransportClosed("the connection is closing")
        transport.send(self._kind, frame)

    async def receive(self, timeout_s: float | None = None) -> bytes | bytearray:
        """Wait for the next frame; see `Transport.receive`."""
        if not self.frames:
            await self._wait(timeout_s)
        frame = self.frames.popleft()
        if self._is_paused and len(self.frames) < UNREAD_FRAMES // 2:
            assert self._transport is not None
            self._is_paused = False
            if not self._transport.underlying_transport.is_closing():
                self._transport.underlying_transport.resume_reading()
        return frame

    async def _wait(self, timeout_s: float | None) -> None:
        deadline = None if timeout_s is None else self._loop.time() + timeout_s
        while not self.frames:
            if self._ending is not None:
                raise self._ending
            self._deadline = deadline
            if deadline is not None:
                self._watch(deadline)
            self._waiter = self._loop.create_future()
            await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _watch(self, deadline: float) -> None:
        """Have the deadline noticed. A timer that fires earlier sees to it, since most waits end
        long before theirs.
        """
        if self._alarm is not None:
            if self._alarm_at <= deadline:
                return
            self._alarm.cancel()
        self._alarm_at = deadline
        self._alarm = self._loop.call_at(deadline, self._ring)

    def _ring(self) -> None:
        self._alarm, deadline, waiter = None, self._deadline, self._waiter
        if deadline is None or waiter is None or waiter.done():
            return
        if self._loop.time() >= deadline:
            waiter.set_exception(asyncio.TimeoutError())
        else:
            self._watch(deadline)

    async def close(self) -> None:
        """Say goodbye, and wait until the server has said so too: who is cancelled does not."""
        transport = self._transport
        if transport is None or transport.is_disconnected:
            return
        if not transport.is_close_frame_sent:
            transport.send_close(WSCloseCode.OK)
        try:
            while not transport.is_disconnected:
                with contextlib.suppress(WSError):  # it says why the connection has ended
                    await transport.wait_disconnected()
        except asyncio.CancelledError:
            self.abort()
            raise

    def leave(self) -> None:
        """Say goodbye, and wait for nothing."""
        transport = self._transport
        if transport is not None and not transport.is_disconnected:
            with contextlib.suppress(WSError):
                transport.send_close(WSCloseCode.GOING_AWAY)

    def abort(self) -> None:
        """Cut the connection."""
        transport = self._transport
        if transport is not None and not transport.is_disconnected:
            transport.underlying_transport.abort()

    # ------------------------------------------------------------------ is the server there?

    def _look(self) -> None:
        """Ping a server that has been silent, and give up one that stays so."""
        assert self._transport is not None and self._options.ping_interval_s is not None
        if self._is_alive:
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = self._loop.time()
        limit = self._options.ping_timeout_s
        silent = self._silent_since
        if silent is not None and limit is not None and self._loop.time() - silent > limit:
            # The loop may have been blocked meanwhile: what has come by now is read first.
            self._timer = self._loop.call_later(0.001, self._give_up)
            return
        self._is_alive = False
        self._transport.send_ping()
        self._timer = self._loop.call_later(self._options.ping_interval_s, self._look)

    def _give_up(self) -> None:
        if self._is_alive:
            self._look()
            return
        self._ending = TransportClosed("the server does not answer pings")
        self.abort()


def _ending_of(transport: WSTransport) -> TransportClosed:
    """Why a connection has ended to which the server has not said goodbye."""
    handshake = transport.close_handshake
    sent = None if handshake is None else handshake.sent
    if sent is None:
        return TransportClosed("no close frame received or sent")
    code = int(cast(Any, sent.code))
    hint = ""
    if sent.code == WSCloseCode.MESSAGE_TOO_BIG:
        hint = "; a larger max_message_size_mb may be given to the client"
    return TransportClosed(f"sent {code} ({sent.reason}){hint}", code)
