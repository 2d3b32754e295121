"""Leads connections out of a container that has no network, and into it.

It runs alone in the container, on the Python of the image: ``python -I -S inside.py PORT PROXY``.
What comes by the machine's socket ``server.sock`` beside it is led to the server, at PORT of the
container's loopback; what asks the port PROXY there, if that is not 0, to ``proxy.sock``. It
returns when that is so, and goes on in the background.

Nobody can connect to a container that has no network. So this side connects, and waits until it is
needed: the machine says so by a byte. Answered 1, the connection leads to the server from then on;
answered 0, nobody listens there.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import sys
import time

FOLDER = os.path.dirname(os.path.abspath(__file__))
WAITING = 8  # connections: so many may be needed at once
BACKLOG = 128
CHUNK = 2**18
PATIENCE_S, PAUSE_S = 10.0, 1.0
NEEDED, REACHED, REFUSED = b"?", b"1", b"0"


class Way:
    """One direction of a connection."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source, self.sink = source, sink
        self.data, self.is_over = b"", False

    def read(self) -> None:
        """Take what has come, or its end."""
        try:
            self.data = self.source.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            self.data = b""
        if not self.data:
            self.end()

    def write(self) -> None:
        """Pass on what was taken."""
        try:
            self.data = self.data[self.sink.send(self.data) :]
        except BlockingIOError:
            return
        except OSError:
            self.data = b""
            self.end()

    def end(self) -> None:
        """Pass on that there is no more."""
        self.is_over = True
        with contextlib.suppress(OSError):
            self.sink.shutdown(socket.SHUT_WR)


class Pair:
    """Two sockets, each of which gets what comes by the other."""

    def __init__(self, forwarder: Forwarder, one: socket.socket, other: socket.socket) -> None:
        self.forwarder = forwarder
        self.ways = (Way(one, other), Way(other, one))
        for each in (one, other):
            each.setblocking(False)
        self.watch()

    def is_ready(self, ready: socket.socket, mask: int) -> None:
        """Do what a socket is ready for."""
        for way in self.ways:
            is_source = way.source is ready
            if is_source and mask & selectors.EVENT_READ and not way.data and not way.is_over:
                way.read()
            if way.data and (is_source or way.sink is ready):
                way.write()
        self.watch()

    def watch(self) -> None:
        """Wait for what either socket is to be ready for next."""
        there, back = self.ways
        is_over = there.is_over and back.is_over
        for out, into in ((there, back), (back, there)):
            wanted = 0 if out.is_over or out.data else selectors.EVENT_READ
            wanted |= selectors.EVENT_WRITE if into.data else 0
            self.forwarder.watch(out.source, 0 if is_over else wanted, self)
            if is_over:
                out.source.close()


class Forwarder:
    """All connections of a container."""

    def __init__(self, port: int, proxy: int) -> None:
        self.port = port
        self.selector = selectors.DefaultSelector()
        self.waiting: set[socket.socket] = set()
        self.listener = socket.socket()
        if proxy:
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.listener.bind(("127.0.0.1", proxy))
            self.listener.listen(BACKLOG)
            self.selector.register(self.listener, selectors.EVENT_READ)
        self.wait_to_be_needed()

    def watch(self, one: socket.socket, wanted: int, pair: Pair) -> None:
        """Wait until a socket of a pair is ready."""
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(one)
        if wanted:
            self.selector.register(one, wanted, pair)

    def wait_to_be_needed(self) -> None:
        """Have enough connections to the machine."""
        while len(self.waiting) < WAITING:
            one = outside("server.sock")
            self.waiting.add(one)
            self.selector.register(one, selectors.EVENT_READ)

    def needed(self, one: socket.socket) -> None:
        """Lead a connection to the server."""
        self.waiting.discard(one)
        self.selector.unregister(one)
        with contextlib.suppress(OSError):
            if one.recv(1) == NEEDED:
                try:
                    server = socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)
                except OSError:
                    one.sendall(REFUSED)
                else:
                    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    one.sendall(REACHED)
                    Pair(self, one, server)
                    return
        one.close()

    def asked(self) -> None:
        """Lead a connection to the proxy."""
        asking, _ = self.listener.accept()
        try:
            Pair(self, asking, outside("proxy.sock"))
        except OSError:
            asking.close()

    def serve(self) -> None:
        """Go on until the container ends."""
        while True:
            for key, mask in self.selector.select():
                one = key.fileobj
                assert isinstance(one, socket.socket)
                if key.data is not None:
                    key.data.is_ready(one, mask)
                elif one is self.listener:
                    self.asked()
                else:
                    self.needed(one)
            try:
                self.wait_to_be_needed()
            except OSError:  # whoever held the container is gone
                time.sleep(PAUSE_S)


def outside(name: str) -> socket.socket:
    """Connect to a socket of the machine."""
    found = socket.socket(socket.AF_UNIX)
    found.settimeout(PATIENCE_S)
    try:
        found.connect(os.path.join(FOLDER, name))
    except OSError:
        found.close()
        raise
    return found


def main() -> None:
    """Be ready; then go on in the background, where nobody hears or waits for it."""
    forwarder = Forwarder(int(sys.argv[1]), int(sys.argv[2]))
    if os.fork():
        os._exit(0)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    forwarder.serve()


if __name__ == "__main__":
    main()
