"""A TCP relay whose connections can be cut."""

from __future__ import annotations

import contextlib
import socket
import threading

from support.raw import address


class Relay:
    """Passes connections on to the server at `url`."""

    def __init__(self, url: str) -> None:
        self._target = address(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
                self._pairs.append((near, far))
                for a, b in ((near, far), (far, near)):
                    threading.Thread(target=self._copy, args=(a, b), daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def cut(self, count: int | None = None) -> None:
        """Drop connections (by default every one), as a proxy that restarts does."""
        pairs, self._pairs = self._pairs[:count], self._pairs[count or len(self._pairs) :]
        for pair in pairs:
            for connection in pair:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                connection.close()

    def close(self) -> None:
        self._listener.close()
        self.cut()
