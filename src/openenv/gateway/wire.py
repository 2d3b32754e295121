"""The two ends of what passes through a gateway: HTTP, message by message; and after a handshake
bytes alone, from one socket to the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import h11

from openenv._internal.net.peers import notice_dead_peer

__all__ = ["HEAD_BYTES", "Splice", "Wire", "splice"]

HEAD_BYTES = 64 * 2**10
READ_AHEAD = 2**18
WRITE_AHEAD = 2**20
DEAD_PEER_S = 60.0


class Wire(asyncio.Protocol):
    """One connection, read and written by a task.

    Args:
        role: `h11.SERVER` towards clients, `h11.CLIENT` towards servers.

    Attributes:
        http: What is said on it, by h11.
        transport: The connection.
        is_lost: It has ended.
        made: Called once it is there.
        lost: Done once it has ended.
    """

    def __init__(self, role: Any) -> None:
        self.http = h11.Connection(role, max_incomplete_event_size=HEAD_BYTES)
        self.transport: Any = None
        self.is_lost = False
        self._unread = bytearray()
        self._has_ended = self._is_broken = False
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._is_full = False
        self.made: Callable[[], object] = lambda: None
        self.lost = asyncio.get_running_loop().create_future()

    # ------------------------------------------------------------------ what asyncio calls

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
        self._has_ended = True
        _wake(self._reader)
        return False  # close

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = self._has_ended = True
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
        """The next event of h11; ConnectionClosed at the end.

        Raises:
            h11.RemoteProtocolError: The other side breaks HTTP.
            ConnectionResetError: The connection broke.
        """
        while True:
            event = self.http.next_event()
            if event is not h11.NEED_DATA:
                return event
            self.http.receive_data(await self._data())

    async def _data(self) -> bytes:
        while not self._unread and not self._has_ended:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        data = bytes(self._unread)
        self._unread.clear()
        if not data and self._is_broken:  # to h11 it would be the end of a body without a length
            raise ConnectionResetError("the other side broke the connection")
        if not self._has_ended:
            self.transport.resume_reading()
        return data

    async def send(self, event: Any) -> None:
        """Send an event of h11, as soon as there is room for it."""
        data = self.http.send(event)
        if data:
            await self.write(data)

    async def write(self, data: bytes) -> None:
        """Send bytes, as soon as there is room for them.

        Raises:
            ConnectionResetError: The other side has left.
        """
        if self.is_lost:
            raise ConnectionResetError("the other side has left")
        self.transport.write(data)
        while self._is_full and not self.is_lost:
            self._writer = asyncio.get_running_loop().create_future()
            await self._writer

    def rest(self) -> bytes:
        """What came after the handshake; nobody reads from now on."""
        self.transport.pause_reading()
        trailing, _ = self.http.trailing_data
        rest = bytes(trailing) + bytes(self._unread)
        self._unread.clear()
        return rest


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


class Splice(asyncio.Protocol):
    """Hands the bytes of one socket to the other, as they come."""

    def __init__(self, transport: Any, peer: Any, ended: asyncio.Future[None]) -> None:
        self._transport = transport
        self._peer = peer
        self._write = peer.write
        self._ended = ended

    def data_received(self, data: bytes) -> None:
        self._write(data)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        # Not `close`: what is still to be written may be half of a frame.
        self._peer.close() if exc is None else self._peer.abort()
        if not self._ended.done():
            self._ended.set_result(None)

    def pause_writing(self) -> None:
        """This side takes no more just now: the other is not read."""
        if not self._peer.is_closing():
            self._peer.pause_reading()

    def resume_writing(self) -> None:
        if not self._peer.is_closing():
            self._peer.resume_reading()


def splice(one: Wire, other: Wire) -> asyncio.Future[None]:
    """Join two connections; gives what is done when either has ended."""
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    a, b = one.transport, other.transport
    of_one, of_other = one.rest(), other.rest()
    a.set_protocol(Splice(a, b, ended))
    b.set_protocol(Splice(b, a, ended))
    if of_one:
        b.write(of_one)
    if of_other:
        a.write(of_other)
    if one.is_lost or other.is_lost:
        a.close()
        b.close()
        if not ended.done():
            ended.set_result(None)
        return ended
    a.resume_reading()
    b.resume_reading()
    return ended
