"""Takes connections on a sandbox's loopback to the proxy outside.

It runs alone: ``python -I forward.py PORT SOCKET``.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import sys
import threading


class Connection(socketserver.BaseRequestHandler):
    """One connection, in two threads."""

    def handle(self) -> None:
        """Pass on what comes from either side."""
        outside = socket.socket(socket.AF_UNIX)
        outside.connect(sys.argv[2])
        back = threading.Thread(target=pass_on, args=(outside, self.request), daemon=True)
        back.start()
        pass_on(self.request, outside)
        back.join()
        outside.close()


class Server(socketserver.ThreadingTCPServer):
    """The loopback's side."""

    allow_reuse_address = True
    daemon_threads = True


def pass_on(one: socket.socket, other: socket.socket) -> None:
    """Pass on what comes from one side until it ends."""
    with contextlib.suppress(OSError):
        while data := one.recv(2**16):
            other.sendall(data)
    with contextlib.suppress(OSError):
        other.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    with Server(("127.0.0.1", int(sys.argv[1])), Connection) as server:
        print("ready", flush=True)
        server.serve_forever()
