"""An HTTP proxy that connects only to the hosts in a sandbox's policy.

The proxy listens on a socket in the file system, which is mounted into the sandbox. Inside,
`openenv.sandbox.inside.forward` forwards connections on the loopback interface to that socket.
"""

from __future__ import annotations

import contextlib
import ipaddress
import selectors
import shutil
import socket
import socketserver
import tempfile
import threading
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from openenv.sandbox.inside.forward import relay

__all__ = ["PROXY_SOCKET", "Proxy", "variables"]

PROXY_SOCKET = "/run/proxy.sock"  # inside the sandbox
PORT = 3128  # on the sandbox's loopback interface
MAX_HEAD = 2**16
MAX_CONNECTIONS = 128  # at one time: each has a thread of this program
CONNECT_TIMEOUT_S, IDLE_TIMEOUT_S = 10.0, 60.0


def variables() -> dict[str, str]:
    """Return the environment variables that direct programs to the proxy."""
    url = f"http://127.0.0.1:{PORT}"
    names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
    return dict.fromkeys(names, url) | {"no_proxy": "localhost,127.0.0.1"}


class Proxy:
    """A proxy that connects only to listed hosts.

    Args:
        hosts: Allowed hosts, as ``NAME:PORT``; a name may begin with ``*.``.
    """

    def __init__(self, hosts: Iterable[str]) -> None:
        self.hosts = tuple(host.lower() for host in hosts)
        self._folder = Path(tempfile.mkdtemp(prefix="openenv-proxy-"))
        self._folder.chmod(0o711)
        self.path = self._folder / "proxy.sock"
        self._server = _ProxyServer(str(self.path), self)
        self.path.chmod(0o666)
        self._thread = threading.Thread(
            target=self._server.serve, name="openenv-sandbox-proxy", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop serving and remove the socket."""
        self._server.end()
        self._thread.join()
        self._server.server_close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def connect(self, host: str, port: int) -> socket.socket:
        """Connect to a listed host.

        A name that only a ``*`` pattern lists must resolve to a public address, so that the owner
        of such names cannot reach this machine or its network.

        Raises:
            PermissionError: The host is not listed, or its address is not public.
            OSError: The host cannot be reached.
        """
        wanted = f"{host}:{port}".lower()
        if wanted not in self.hosts and not any(fnmatchcase(wanted, one) for one in self.hosts):
            raise PermissionError(f"{wanted} is none of the hosts that this sandbox may ask")
        is_named = wanted in self.hosts
        error: OSError = OSError(f"{host} has no address")
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, 0, 1):
            if not is_named and not is_public(str(address[0])):
                error = PermissionError(f"{host} is {address[0]}, which is no public address")
                continue
            found = socket.socket(family, kind, protocol)
            found.settimeout(CONNECT_TIMEOUT_S)
            try:
                found.connect(address)
            except OSError as failed:
                error = failed
                found.close()
            else:
                return found
        raise error


def is_public(address: str) -> bool:
    """Return whether an address is public.

    An IPv6 address that embeds an IPv4 address is judged by the IPv4 address: mapped or
    "compatible" (RFC 4291, 2.5.5), NAT64 (RFC 6052), 6to4 (RFC 3056) and Teredo (RFC 4380).
    """
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv4Address):
        return found.is_global
    if found in _LOCAL_NAT64:  # only the network knows where the IPv4 address is in it
        return False
    inner = [found.ipv4_mapped, found.sixtofour, *(found.teredo or ())]
    if found in _COMPATIBLE or found in _NAT64:
        inner.append(ipaddress.IPv4Address(int(found) & 0xFFFFFFFF))
    embedded = [one for one in inner if one is not None]
    return all(one.is_global for one in embedded) if embedded else found.is_global


_COMPATIBLE, _NAT64 = ipaddress.IPv6Network("::/96"), ipaddress.IPv6Network("64:ff9b::/96")
_LOCAL_NAT64 = ipaddress.IPv6Network("64:ff9b:1::/48")  # RFC 8215


class _ProxyServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, path: str, proxy: Proxy) -> None:
        self.proxy = proxy
        self._places = threading.Semaphore(MAX_CONNECTIONS)
        self._bell, self._ring = socket.socketpair()
        super().__init__(path, _ProxyConnection)

    def serve(self) -> None:
        """Serve until `end`, without the polling of `serve_forever`, which delays closing."""
        with selectors.DefaultSelector() as selector:
            selector.register(self, selectors.EVENT_READ)
            selector.register(self._bell, selectors.EVENT_READ)
            while not any(key.fileobj is self._bell for key, _ in selector.select()):
                self.handle_request()

    def end(self) -> None:
        self._ring.close()

    def server_close(self) -> None:
        super().server_close()
        self._ring.close()
        self._bell.close()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        with contextlib.suppress(OSError):  # never wait here for a client that does not read
            request.send(_answer("503 Service Unavailable", _FULL), socket.MSG_DONTWAIT)
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Log nothing: invalid data from a sandbox is not an error of this program."""


class _ProxyConnection(socketserver.BaseRequestHandler):
    """A connection whose first request names the host; all further bytes are relayed."""

    request: socket.socket
    server: _ProxyServer  # pyright: ignore[reportIncompatibleVariableOverride]

    def handle(self) -> None:
        self.request.settimeout(CONNECT_TIMEOUT_S)
        head = b""
        while b"\r\n\r\n" not in head:
            data = self.request.recv(MAX_HEAD)
            head += data
            if not data:
                return
            if len(head) > MAX_HEAD:
                why = f"the head of a request has over {MAX_HEAD} bytes"
                self._say("431 Request Header Fields Too Large", why)
                return
        try:
            outside, first = self._reached(head)
        except (OSError, ValueError) as error:
            is_refused = isinstance(error, PermissionError)
            self._say("403 Forbidden" if is_refused else "502 Bad Gateway", str(error))
            return
        with outside:
            if first:
                outside.sendall(first)
            else:
                self.request.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            relay(self.request, outside, IDLE_TIMEOUT_S)

    def _reached(self, head: bytes) -> tuple[socket.socket, bytes]:
        """Connect to the host of a request; return the socket and the first bytes to send."""
        head, _, body = head.partition(b"\r\n\r\n")
        line, *headers = head.split(b"\r\n")
        method, target, version = line.decode("latin-1").split(" ")
        if method == "CONNECT":
            host, _, port = target.rpartition(":")
            return self.server.proxy.connect(host.strip("[]"), int(port)), b""
        url = urlsplit(target)
        if url.scheme != "http" or url.hostname is None:
            raise ValueError(f"a proxy was asked for {target[:100]!r}; expected http://HOST/...")
        outside = self.server.proxy.connect(url.hostname, url.port or 80)
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        # One request for each connection: a second request could name another host.
        of_this_hop = (b"connection:", b"proxy-")
        kept = [one for one in headers if not one.lower().startswith(of_this_hop)]
        first = f"{method} {path} {version}\r\nConnection: close".encode("latin-1")
        return outside, b"\r\n".join([first, *kept]) + b"\r\n\r\n" + body

    def _say(self, status: str, words: str) -> None:
        with contextlib.suppress(OSError):
            self.request.sendall(_answer(status, words))


_FULL = f"a sandbox has at most {MAX_CONNECTIONS} connections at once; close some, and try again"


def _answer(status: str, words: str) -> bytes:
    body = f"{words}\n".encode()
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
