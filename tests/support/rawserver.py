"""WebSocket servers that do what no library would, and proxies, in a thread of this process."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any

from support.ws import CLOSE, frame

Serve = Callable[["Peer"], None]


class Peer:
    """The server's end of one connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.file = connection.makefile("rb")
        self.headers: dict[str, str] = {}
        self.first = ""

    def read_head(self) -> None:
        """Read a request's line and headers."""
        self.first = self.file.readline().decode().strip()
        while line := self.file.readline().decode().strip():
            name, _, value = line.partition(":")
            self.headers[name.lower()] = value.strip()

    def accept(self, **headers: str) -> None:
        """Answer a handshake."""
        self.read_head()
        key = self.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        more = "".join(f"{n.replace('_', '-')}: {v}\r\n" for n, v in headers.items())
        self.socket.sendall(
            f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {accept}\r\n{more}\r\n".encode()
        )

    def send(self, opcode: int, payload: bytes = b"", *, fin: bool = True) -> None:
        self.socket.sendall(frame(opcode, payload, fin=fin, masked=False))

    def read(self) -> tuple[int, bytes]:
        """The next frame; (-1, b"") at the end."""
        head = self.file.read(2)
        if len(head) < 2:
            return -1, b""
        size = head[1] & 0x7F
        if size > 125:
            size = int.from_bytes(self.file.read(2 if size == 126 else 8), "big")
        mask = self.file.read(4)
        data = self.file.read(size)
        return head[0] & 0x0F, bytes(b ^ mask[i % 4] for i, b in enumerate(data))

    def read_until_end(self) -> list[tuple[int, bytes]]:
        """Read what comes, and answer a goodbye."""
        frames = []
        while (got := self.read())[0] >= 0:
            frames.append(got)
            if got[0] == CLOSE:
                with contextlib.suppress(OSError):
                    self.send(CLOSE, got[1])
                break
        return frames


@contextlib.contextmanager
def raw_server(serve: Serve, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """Call `serve` for each connection, in a thread of its own; gives the port."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []
    open_connections: list[socket.socket] = []

    def one(connection: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):
            wrapped = connection if tls is None else tls.wrap_socket(connection, server_side=True)
            open_connections.append(wrapped)
            with wrapped:
                peer = Peer(wrapped)
                with peer.file:
                    serve(peer)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                connection.settimeout(10)
                threads.append(threading.Thread(target=one, args=(connection,), daemon=True))
                threads[-1].start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join(5)
        for connection in open_connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(5)
            assert not thread.is_alive(), "a connection does not end"


def _join(one: socket.socket, other: socket.socket) -> None:
    """Pass on what comes, both ways, until either end is closed."""

    def copy(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)

    back = threading.Thread(target=copy, args=(other, one), daemon=True)
    back.start()
    copy(one, other)
    back.join(5)


def http_proxy(target: tuple[str, int], seen: list[Any], refuses: bool = False) -> Serve:
    """A proxy that answers CONNECT, and connects to `target` wherever it is asked to."""

    def serve(peer: Peer) -> None:
        peer.read_head()
        seen.append((peer.first, peer.headers.get("proxy-authorization")))
        if refuses:
            peer.socket.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
            return
        with socket.create_connection(target, 5) as far:
            peer.socket.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            _join(peer.socket, far)

    return serve


def socks_proxy(target: tuple[str, int], seen: list[Any]) -> Serve:
    """A SOCKS5 proxy (RFC 1928) without authentication."""

    def serve(peer: Peer) -> None:
        count = peer.file.read(2)[1]
        peer.file.read(count)
        peer.socket.sendall(b"\x05\x00")
        kind = peer.file.read(4)[3]
        size = {1: 4, 4: 16}.get(kind) or peer.file.read(1)[0]
        host = peer.file.read(size)
        seen.append((host, int.from_bytes(peer.file.read(2), "big")))
        with socket.create_connection(target, 5) as far:
            peer.socket.sendall(b"\x05\x00\x00\x01" + bytes(6))
            _join(peer.socket, far)

    return serve
