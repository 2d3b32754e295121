"""Joined connections: after a WebSocket handshake, bytes are copied between them."""

from __future__ import annotations

import asyncio
from typing import Any

from openenv._internal.net.wire import Wire

__all__ = ["splice"]


class _Splice(asyncio.Protocol):
    """Copies the bytes of one socket to another."""

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
        # Abort after an error: the unwritten bytes may be half of a frame.
        self._peer.close() if exc is None else self._peer.abort()
        if not self._ended.done():
            self._ended.set_result(None)

    def pause_writing(self) -> None:
        """Stop reading from the peer while this side's buffer is full."""
        if not self._peer.is_closing():
            self._peer.pause_reading()

    def resume_writing(self) -> None:
        if not self._peer.is_closing():
            self._peer.resume_reading()


def splice(one: Wire, other: Wire) -> asyncio.Future[None]:
    """Join two connections; return a future that is done when either has ended."""
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    a, b = one.transport, other.transport
    of_one, of_other = one.rest(), other.rest()
    a.set_protocol(_Splice(a, b, ended))
    b.set_protocol(_Splice(b, a, ended))
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
