"""A program that connects a container without a network to the machine.

The program runs in the container, on the image's Python, without other files:
``python -I -S inside.py PORT PROXY``. Connections from the machine's socket ``server.sock``, in the
same directory, lead to the server at PORT on the container's loopback interface. If PROXY is not 0,
connections to that port lead to ``proxy.sock``. Once ready, the program continues in the
background.

Nothing can connect to a container without a network. So the program opens connections in advance,
and each waits until the machine sends a byte. The program answers 1 and connects the connection to
the server, or answers 0 if the server does not listen.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import sys
import time

FOLDER = os.path.dirname(os.path.abspath(__file__))
WAITING = 8  # connections opened in advance: the number of clients that can connect at once
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
        """Read data from the source, or notice its end."""
        try:
            self.data = self.source.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            self.data = b""
        if not self.data:
            self.end()

    def write(self) -> None:
        """Write the pending data to the sink."""
        try:
            self.data = self.data[self.sink.send(self.data) :]
        except BlockingIOError:
            return
        except OSError:
            self.data = b""
            self.end()

    def end(self) -> None:
        """End the direction: stop reading, and shut down writing to the sink."""
        self.is_over = True
        with contextlib.suppress(OSError):
            self.sink.shutdown(socket.SHUT_WR)


class Pair:
    """Two connected sockets; the data of each is sent to the other."""

    def __init__(self, forwarder: Forwarder, one: socket.socket, other: socket.socket) -> None:
        self.forwarder = forwarder
        self.ways = (Way(one, other), Way(other, one))
        for each in (one, other):
            each.setblocking(False)
        self.watch()

    def is_ready(self, ready: socket.socket, mask: int) -> None:
        """Read or write after one of the sockets has become ready."""
        for way in self.ways:
            is_source = way.source is ready
            if is_source and mask & selectors.EVENT_READ and not way.data and not way.is_over:
                way.read()
            if way.data and (is_source or way.sink is ready):
                way.write()
        self.watch()

    def watch(self) -> None:
        """Register both sockets for their next events."""
        there, back = self.ways
        is_over = there.is_over and back.is_over
        for out, into in ((there, back), (back, there)):
            wanted = 0 if out.is_over or out.data else selectors.EVENT_READ
            wanted |= selectors.EVENT_WRITE if into.data else 0
            self.forwarder.watch(out.source, 0 if is_over else wanted, self)
            if is_over:
                out.source.close()


class Forwarder:
    """The event loop that forwards all connections of a container."""

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
        """Register a socket of a pair for events."""
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(one)
        if wanted:
            self.selector.register(one, wanted, pair)

    def wait_to_be_needed(self) -> None:
        """Open connections to the machine until `WAITING` of them wait."""
        while len(self.waiting) < WAITING:
            one = outside("server.sock")
            self.waiting.add(one)
            self.selector.register(one, selectors.EVENT_READ)

    def needed(self, one: socket.socket) -> None:
        """Connect a waiting connection to the server."""
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
        """Accept a connection, and connect it to the proxy."""
        asking, _ = self.listener.accept()
        try:
            Pair(self, asking, outside("proxy.sock"))
        except OSError:
            asking.close()

    def serve(self) -> None:
        """Serve until the container ends."""
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
            except OSError:  # the process that owns the container has ended
                time.sleep(PAUSE_S)


def outside(name: str) -> socket.socket:
    """Connect to a Unix socket of the machine."""
    found = socket.socket(socket.AF_UNIX)
    found.settimeout(PATIENCE_S)
    try:
        found.connect(os.path.join(FOLDER, name))
    except OSError:
        found.close()
        raise
    return found


def main() -> None:
    """Set up the forwarder, then serve as a daemon."""
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
