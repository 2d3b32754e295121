"""A TCP relay with whose connections everything happens that happens to connections."""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass

from support.raw import address


@dataclass(eq=False)
class _Pair:
    """A client's connection, and the one to the server by which it is passed on.

    Both are closed once nothing copies between them any more: the number of a socket that was
    closed sooner may be another connection's by the time that a copy writes to it.
    """

    near: socket.socket
    far: socket.socket
    copies: int = 2
    tells_server: bool = True  # of its end

    def end(self) -> None:
        """Let nothing pass any more, so that the copies end."""
        for connection in (self.near, self.far) if self.tells_server else (self.near,):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.near.close()
        if self.tells_server:
            self.far.close()


class Relay:
    """Passes connections on to the server at `url`.

    Attributes:
        connections: How many there have been.
    """

    def __init__(self, url: str) -> None:
        self._target = address(url)
        self._pairs: list[_Pair] = []
        self._left_open: list[_Pair] = []
        self._lock = threading.Lock()  # of the pairs, and of whether more are taken
        self._is_accepting = False
        self._down, self._up = threading.Event(), threading.Event()  # what flows, flows
        self._left: dict[threading.Event, int] = {}  # bytes that still pass this way
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
                    pair = _Pair(near, far)
                    self._pairs.append(pair)
                    self.connections += 1
                for source, sink, flows in ((near, far, self._up), (far, near, self._down)):
                    arguments = (pair, source, sink, flows)
                    threading.Thread(target=self._copy, args=arguments, daemon=True).start()

    def _copy(
        self, pair: _Pair, source: socket.socket, sink: socket.socket, flows: threading.Event
    ) -> None:
        with contextlib.suppress(OSError):
            with contextlib.suppress(ConnectionResetError):  # as of one that was killed
                while data := source.recv(65536):
                    flows.wait()
                    left = self._left.get(flows)
                    if left is None:
                        sink.sendall(data)
                        continue
                    sink.sendall(data[:left])
                    self._left[flows] = left - len(data)
                    if self._left[flows] <= 0:
                        del self._left[flows]
                        self.cut()
            if sink is pair.near or pair.tells_server:
                sink.shutdown(socket.SHUT_WR)
        with self._lock:
            pair.copies -= 1
            if not pair.copies:
                pair.close()
                if pair in self._pairs:
                    self._pairs.remove(pair)

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
            for pair in pairs:
                pair.tells_server = not only_near
                pair.end()
            if only_near:
                self._left_open += pairs

    def cut_after(self, count: int, *, upwards: bool = False) -> None:
        """Drop every connection once so many more bytes have come this way."""
        self._left[self._up if upwards else self._down] = count

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
        with self._lock:
            for pair in self._left_open:
                pair.tells_server = True
                pair.end()
                if not pair.copies:
                    pair.close()
