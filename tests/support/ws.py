"""A WebSocket client that does what no library would: RFC 6455 frame by frame, over a socket."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

from support.raw import connected

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="  # RFC 6455, section 1.3

HEADERS = {
    "Host": "localhost",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": KEY,
    "Sec-WebSocket-Version": "13",
}


class Frame(NamedTuple):
    """A frame that the server has sent."""

    opcode: int
    payload: bytes
    fin: bool = True

    @property
    def code(self) -> int | None:
        """Of a close frame."""
        return int.from_bytes(self.payload[:2], "big") if self.payload else None


def frame(
    opcode: int, payload: bytes = b"", *, fin: bool = True, rsv: int = 0, masked: bool = True
) -> bytes:
    """Write a frame as a client does, or wrongly."""
    size, bit = len(payload), 0x80 * masked
    head = bytes([(0x80 * fin) | (rsv << 4) | opcode])
    if size < 126:
        head += bytes([bit | size])
    elif size < 2**16:
        head += bytes([bit | 126]) + size.to_bytes(2, "big")
    else:
        head += bytes([bit | 127]) + size.to_bytes(8, "big")
    if not masked:
        return head + payload
    mask = os.urandom(4)
    long_mask = mask * (size // 4 + 1)
    masked_payload = bytes(a ^ b for a, b in zip(payload, long_mask, strict=False))
    return head + mask + masked_payload


def close(code: int, reason: bytes = b"") -> bytes:
    return frame(CLOSE, struct.pack("!H", code) + reason)


def request_for(path: str, **headers: str | None) -> bytes:
    """Write a request for an upgrade. A header of None is left out; underscores are dashes."""
    lines = {**HEADERS, **{name.replace("_", "-"): value for name, value in headers.items()}}
    text = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value is not None)
    return f"GET {path} HTTP/1.1\r\n{text}\r\n".encode()


class Raw:
    """One connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.buffer = b""

    def handshake(self, path: str = "/ws", **headers: str | None) -> tuple[int, dict[str, str]]:
        """Ask for an upgrade; gives the status and the headers of the answer."""
        self.send(request_for(path, **headers))
        return self.answer()

    def answer(self) -> tuple[int, dict[str, str]]:
        """Read the head of an HTTP response."""
        while b"\r\n\r\n" not in self.buffer:
            self._more()
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        fields = (line.partition(": ") for line in lines)
        return int(first.split()[1]), {name.lower(): value for name, _, value in fields}

    def _more(self) -> None:
        data = self.socket.recv(65536)
        if not data:
            raise EOFError(self.buffer)
        self.buffer += data

    def _take(self, count: int) -> bytes:
        while len(self.buffer) < count:
            self._more()
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def text(self, text: str) -> None:
        self.send(frame(TEXT, text.encode()))

    def read(self) -> Frame:
        """The next frame."""
        first, second = self._take(2)
        assert not second & 0x80, "a server masks nothing"
        size = second & 0x7F
        if size > 125:
            size = int.from_bytes(self._take(2 if size == 126 else 8), "big")
        return Frame(first & 0x0F, self._take(size), bool(first & 0x80))

    def message(self) -> bytes:
        """The next text. Pings are left unanswered: a thread may be in the middle of a frame."""
        while (got := self.read()).opcode == PING:
            pass
        assert got.opcode == TEXT, got
        return got.payload

    def close_code(self) -> int | None:
        """Read until the server closes; gives its code. The connection has ended then."""
        while (got := self.read()).opcode != CLOSE:
            pass
        self.assert_ended()
        return got.code

    def assert_ended(self) -> None:
        with contextlib.suppress(ConnectionResetError):
            assert not (self.buffer or self.socket.recv(1))


@contextlib.contextmanager
def raw(url: str, path: str = "/ws", **headers: str | None) -> Iterator[Raw]:
    """A connection after a handshake that went well."""
    with connected(url) as connection:
        client = Raw(connection)
        status, _ = client.handshake(path, **headers)
        assert status == 101
        yield client
