"""An HTTP/1.1 connection, for servers that are not ASGI applications, and for proxies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import h11

from openenv._internal.net.peers import notice_dead_peer

__all__ = ["HEAD_BYTES", "Wire"]

HEAD_BYTES = 64 * 2**10
READ_AHEAD = 2**18
WRITE_AHEAD = 2**20
DEAD_PEER_S = 60.0


class Wire(asyncio.Protocol):
    """A connection that a task reads and writes.

    Args:
        role: `h11.SERVER` towards clients, `h11.CLIENT` towards servers.
        keeps_half_open: Answer a client that has ended its side. The task then closes the
            transport.

    Attributes:
        http: The state of HTTP.
        transport: The transport of the connection.
        is_lost: Whether the connection has ended.
        has_ended: Whether nothing more will be received.
        made: A callback for when the connection is open.
        lost: A future that is done once the connection has ended.
    """

    def __init__(self, role: Any, *, keeps_half_open: bool = False) -> None:
        self.http = h11.Connection(role, max_incomplete_event_size=HEAD_BYTES)
        self.transport: Any = None
        self._keeps_half_open = keeps_half_open
        self.is_lost = self.has_ended = False
        self._unread = bytearray()
        self._is_broken = False
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._is_full = False
        self.made: Callable[[], object] = lambda: None
        self.lost = asyncio.get_running_loop().create_future()

    # ------------------------------------------------------------------ called by asyncio

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.set_write_buffer_limits(WRITE_AHEAD)
        notice_dead_peer(transport, DEAD_PEER_S)
        self.made()

    def data_received(self, data: bytes) -> None:
        self._unread += data
        if len(self._unread) > READ_AHEAD:
            self.transport.pause_reading()
        _wake(self._reader)

    def eof_received(self) -> bool:
        self.has_ended = True
        _wake(self._reader)
        return self._keeps_half_open

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = self.has_ended = True
        self._is_broken = exc is not None
        _wake(self._reader)
        _wake(self._writer)
        if not self.lost.done():
            self.lost.set_result(None)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        _wake(self._writer)

    # ------------------------------------------------------------------ for tasks

    async def event(self) -> Any:
        """Return the next event of h11; ConnectionClosed at the end.

        Raises:
            h11.RemoteProtocolError: The other side violates HTTP.
            ConnectionResetError: The connection broke.
        """
        while (event := self.http.next_event()) is h11.NEED_DATA:
            while not self._unread and not self.has_ended:
                self._reader = asyncio.get_running_loop().create_future()
                await self._reader
            data = bytes(self._unread)
            self._unread.clear()
            if not data and self._is_broken:  # h11 would take it for the end of the body
                raise ConnectionResetError("the other side broke the connection")
            if not self.has_ended:
                self.transport.resume_reading()
            self.http.receive_data(data)
        return event

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the parts of a message's body; answer an expectation of "100 Continue" first.

        Raises:
            ConnectionResetError: The other side ended the connection within the message.
        """
        if self.http.they_are_waiting_for_100_continue:
            await self.send(h11.InformationalResponse(status_code=100, headers=[]))
        while isinstance(event := await self.event(), h11.Data):
            yield bytes(event.data)
        if not isinstance(event, h11.EndOfMessage):
            raise ConnectionResetError("the other side left in the middle of a message")

    async def send(self, *events: Any) -> None:
        """Send events of h11 in one piece, and wait until the buffer has room.

        Raises:
            ConnectionResetError: The other side has left.
        """
        data = b"".join(self.http.send(event) or b"" for event in events)
        if not data:
            return
        if self.is_lost:
            raise ConnectionResetError("the other side has left")
        self.transport.write(data)
        while self._is_full and not self.is_lost:
            self._writer = asyncio.get_running_loop().create_future()
            await self._writer

    def rest(self) -> bytes:
        """Stop reading, and return the bytes after the handshake."""
        self.transport.pause_reading()
        trailing, _ = self.http.trailing_data
        rest = bytes(trailing) + bytes(self._unread)
        self._unread.clear()
        return rest


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
