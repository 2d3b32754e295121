"""Forwards connections on a sandbox's loopback to the proxy outside.

A stand-alone program: ``python -I forward.py PORT SOCKET``. The proxy outside uses `relay` too.
"""

from __future__ import annotations

import contextlib
import select
import socket
import socketserver
import sys


def relay(one: socket.socket, other: socket.socket, idle_s: float | None = None) -> None:
    """Copy bytes both ways until both sides have ended, or nothing moves for `idle_s` seconds.

    Neither direction waits for the other: a peer that does not read must still be able to send.
    """
    peers = {one: other, other: one}
    unsent = dict.fromkeys(peers, b"")  # received from each, and not yet sent to its peer
    reading = set(peers)
    for sock in peers:
        sock.setblocking(False)
    while reading or any(unsent.values()):
        poll = select.poll()
        for sock, peer in peers.items():
            can_read = sock in reading and not unsent[sock]
            if can_read or unsent[peer]:
                wanted = (select.POLLIN if can_read else 0) | (
                    select.POLLOUT if unsent[peer] else 0
                )
                poll.register(sock, wanted)
        ready = dict(poll.poll(None if idle_s is None else idle_s * 1000))
        if not ready:
            return
        for sock, peer in peers.items():
            events = ready.get(sock.fileno(), 0)
            with contextlib.suppress(BlockingIOError):
                if unsent[peer] and events:
                    unsent[peer] = unsent[peer][sock.send(unsent[peer]) :]
            with contextlib.suppress(BlockingIOError):
                if events & ~select.POLLOUT and sock in reading and not unsent[sock]:
                    unsent[sock] = sock.recv(2**16)
                    if not unsent[sock]:
                        reading.discard(sock)
                        with contextlib.suppress(OSError):
                            peer.shutdown(socket.SHUT_WR)


class ForwardedConnection(socketserver.BaseRequestHandler):
    """A connection to the loopback, joined to a connection to the proxy."""

    def handle(self) -> None:
        """Relay bytes until both sides have ended."""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as outside:
            outside.connect(sys.argv[2])
            relay(self.request, outside)


class LoopbackServer(socketserver.ThreadingTCPServer):
    """The listener on the sandbox's loopback."""

    allow_reuse_address = True
    daemon_threads = True


if __name__ == "__main__":
    with LoopbackServer(("127.0.0.1", int(sys.argv[1])), ForwardedConnection) as server:
        print("ready", flush=True)
        server.serve_forever()
