"""A TCP relay with whose connections everything happens that happens to connections."""

from __future__ import annotations

import contextlib
import socket
import threading

from support.raw import address


class Relay:
    """Passes connections on to the server at `url`.

    Attributes:
        connections: How many there have been.
    """

    def __init__(self, url: str) -> None:
        self._target = address(url)
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._left_open: list[socket.socket] = []
        self._lock = threading.Lock()  # of the pairs, and of whether more are taken
        self._is_accepting = False
        self._down, self._up = threading.Event(), threading.Event()  # what flows, flows
        self.release()
        self.connections = 0
        self._place = socket.socket()  # bound, not listening: nobody takes the port meanwhile
        self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._place.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._place.getsockname()[1]}"
        self.accept_again()

    def accept_again(self) -> None:
        """Take connections (again), at the same address."""
        self._listener = socket.create_server(self._place.getsockname(), reuse_port=True)
        self._is_accepting = True
        threading.Thread(target=self._accept, args=[self._listener], daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                try:
                    far = socket.create_connection(self._target)
                except OSError:
                    near.close()
                    continue
                with self._lock:
                    if not self._is_accepting:  # it came as this was told to refuse
                        near.close()
                        far.close()
                        return
                    self._pairs.append((near, far))
                    self.connections += 1
                for source, sink, flows in ((near, far, self._up), (far, near, self._down)):
                    arguments = (source, sink, flows)
                    threading.Thread(target=self._copy, args=arguments, daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket, flows: threading.Event) -> None:
        with contextlib.suppress(OSError):
            with contextlib.suppress(ConnectionResetError):  # as of one that was killed
                while data := source.recv(65536):
                    flows.wait()
                    sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def hold(self, *, upwards: bool = False) -> None:
        """Pass nothing on from the server to clients, or the other way, until `release`."""
        (self._up if upwards else self._down).clear()

    def release(self) -> None:
        """Pass everything on again."""
        self._up.set()
        self._down.set()

    def cut(self, count: int | None = None, *, only_near: bool = False) -> None:
        """Drop connections (by default every one), as a proxy that restarts does.

        With `only_near` the server is not told.
        """
        with self._lock:
            pairs, self._pairs = self._pairs[:count], self._pairs[count or len(self._pairs) :]
        if only_near:
            self._left_open += [far for _, far in pairs]
        for near, far in pairs:
            for connection in (near,) if only_near else (near, far):
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                connection.close()

    def cut_and_release(self) -> None:
        """Drop every connection with what was held, and pass on what comes by new ones."""
        self.cut()
        self.release()

    def cut_near(self) -> None:
        """Drop every connection; the server is not told."""
        self.cut(only_near=True)

    def refuse(self) -> None:
        """Take no more connections, until `accept_again`."""
        with self._lock:
            self._is_accepting = False
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def lead_to(self, url: str) -> None:
        """Pass new connections on to another server."""
        self._target = address(url)

    def close(self) -> None:
        self.refuse()
        self._place.close()
        self.release()
        self.cut()
        for connection in self._left_open:
            connection.close()
