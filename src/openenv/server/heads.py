"""Limits for the head of a request, for uvicorn's HTTP protocol.

uvicorn with httptools buffers everything that arrives: endless heads, requests that are sent before
earlier ones are answered, and idle connections. None of these needs a key.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 2**16  # size of a request line with its headers, or of trailers
HEAD_S = 60.0  # seconds until a head must be complete
PIECE_BYTES = 2**14  # parsed at once: a few hundred pipelined requests at most

TOO_LARGE = b"the head of the request is larger than %d bytes" % MAX_HEAD_BYTES


class BoundedProtocol(HttpToolsProtocol):
    """Answers 431 (RFC 6585) to a head larger than `MAX_HEAD_BYTES`, closes a connection that
    sends no request within `HEAD_S`, and reads no further than a few waiting requests.
    """

    _held = b""  # received but not yet parsed
    _head_bytes = 0  # size of the current head so far
    _is_in_head = False
    _has_moved = False  # the parser has reported something
    _stalled_bytes = 0  # bytes that the parser holds without reporting anything
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_there()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._held += data
        self._take()

    def _take(self) -> None:
        """Parse the received bytes, as long as no requests wait."""
        data, self._held = self._held, b""
        for at in range(0, len(data), PIECE_BYTES):
            if self.transport.is_closing():
                return
            if self.pipeline:
                self._held = data[at:]
                self.flow.pause_reading()
                return
            piece = data[at : at + PIECE_BYTES]
            self._has_moved = False
            super().data_received(piece)
            if self.transport.get_protocol() is not self:  # it is now a WebSocket
                self._head_is_there()
                return
            self._stalled_bytes = 0 if self._has_moved else self._stalled_bytes + len(piece)
            if self._stalled_bytes > MAX_HEAD_BYTES:
                self._refuse()
        if self._is_in_head:
            self._wait_for_head()

    def _refuse(self) -> None:
        head = b"HTTP/1.1 431 \r\ncontent-type: text/plain; charset=utf-8\r\n"
        head += b"content-length: %d\r\nconnection: close\r\n\r\n" % len(TOO_LARGE)
        self.transport.write(head + TOO_LARGE)
        self.transport.close()

    # ------------------------------------------------------------------ called by the parser

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes, self._is_in_head = 0, True
        self._has_moved = True

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._count(len(name) + len(value) + 4)

    def _count(self, size: int) -> None:
        self._has_moved = True
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            raise ValueError(TOO_LARGE.decode())  # ends the parsing

    def send_400_response(self, msg: str) -> None:
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse()
        else:
            super().send_400_response(msg)

    def on_headers_complete(self) -> None:
        self._head_is_there()
        self._has_moved, self._is_in_head = True, False
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._has_moved = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._has_moved = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._held:
            self.loop.call_soon(self._take)
        elif self.pipeline:
            self.flow.pause_reading()

    # ------------------------------------------------------------------ time limit

    def _wait_for_head(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(HEAD_S, self._give_up)

    def _head_is_there(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        self.transport.close()


def use_at(config: Any) -> None:
    """Use the bounded protocol in a uvicorn server, unless another class was chosen."""
    if config.http_protocol_class is HttpToolsProtocol:
        config.http_protocol_class = BoundedProtocol
