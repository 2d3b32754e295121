"""Requests as bytes: what no well-behaved client would send, and connections that just break."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator

ANSWERS_WITHIN_S = 5.0


def address(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("http://").partition(":")
    return host, int(port)


@contextlib.contextmanager
def connected(url: str) -> Iterator[socket.socket]:
    with socket.create_connection(address(url), timeout=ANSWERS_WITHIN_S) as connection:
        yield connection


def post(path: str, body: bytes, *headers: str, length: int | str | None = None) -> bytes:
    """Write a request of a JSON body, with a `length` that need not be right."""
    lines = (
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {len(body) if length is None else length}",
        "Connection: close",
        *headers,
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def reset_connection(connection: socket.socket) -> None:
    """Break a TCP connection off with a RST, as a host does that crashed."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.shutdown(socket.SHUT_RD)  # or a thread that reads from it would keep it open
    connection.close()
