"""The way out of a sandbox whose policy names hosts: an HTTP proxy that asks these, and no other.

It listens on a socket in the file system, which is mounted into the sandbox; in there
`openenv.sandbox.inside.forward` takes connections on the loopback to it.
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

__all__ = ["PROXY_SOCKET", "Proxy", "variables"]

PROXY_SOCKET = "/run/proxy.sock"  # in the sandbox
PORT = 3128  # of the sandbox's loopback
MAX_HEAD = 2**16
MAX_CONNECTIONS = 128  # at once: each has a thread of this program
CONNECT_TIMEOUT_S, IDLE_TIMEOUT_S = 10.0, 60.0


def variables() -> dict[str, str]:
    """The variables by which programs find the proxy."""
    url = f"http://127.0.0.1:{PORT}"
    names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
    return dict.fromkeys(names, url) | {"no_proxy": "localhost,127.0.0.1"}


class Proxy:
    """A proxy that knows some hosts, as ``NAME:PORT``; a name may begin with ``*.``."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self.hosts = tuple(host.lower() for host in hosts)
        self._folder = Path(tempfile.mkdtemp(prefix="openenv-proxy-"))
        self._folder.chmod(0o711)
        self.path = self._folder / "proxy.sock"
        self._server = _Server(str(self.path), self)
        self.path.chmod(0o666)
        self._thread = threading.Thread(
            target=self._server.serve, name="openenv-sandbox-proxy", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Let nobody out any more."""
        self._server.end()
        self._thread.join()
        self._server.server_close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def connect(self, host: str, port: int) -> socket.socket:
        """Connect to a host of the list.

        A name that the list has with a ``*`` only must lead to a public address: whoever owns such
        names shall not choose what of this machine, or of its network, is asked.

        Raises:
            PermissionError: It is none of the list.
            OSError: It cannot be reached.
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
    """Whether an address is one of the internet's, also where it stands for one of IPv4: mapped or
    "compatible" (RFC 4291, 2.5.5), by NAT64 (RFC 6052), 6to4 (RFC 3056) or Teredo (RFC 4380).
    """
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv4Address):
        return found.is_global
    if found in _LOCAL_NAT64:  # where in it the address stands, only the network knows
        return False
    inner = [found.ipv4_mapped, found.sixtofour, *(found.teredo or ())]
    if found in _COMPATIBLE or found in _NAT64:
        inner.append(ipaddress.IPv4Address(int(found) & 0xFFFFFFFF))
    embedded = [one for one in inner if one is not None]
    return all(one.is_global for one in embedded) if embedded else found.is_global


_COMPATIBLE, _NAT64 = ipaddress.IPv6Network("::/96"), ipaddress.IPv6Network("64:ff9b::/96")
_LOCAL_NAT64 = ipaddress.IPv6Network("64:ff9b:1::/48")  # RFC 8215


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, path: str, proxy: Proxy) -> None:
        self.proxy = proxy
        self._places = threading.Semaphore(MAX_CONNECTIONS)
        self._bell, self._ring = socket.socketpair()
        super().__init__(path, _Connection)

    def serve(self) -> None:
        """Answer until `end`. `serve_forever` would look twice a second whether it is to end, and
        closing a sandbox would wait for that.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(self, selectors.EVENT_READ)
            selector.register(self._bell, selectors.EVENT_READ)
            while not any(key.fileobj is self._bell for key, _ in selector.select()):
                self.handle_request()

    def end(self) -> None:
        """Have `serve` return, wherever the socket's file is by now."""
        self._ring.close()

    def server_close(self) -> None:
        """Let go of the sockets."""
        super().server_close()
        self._ring.close()
        self._bell.close()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        with contextlib.suppress(OSError):  # nor waits this thread for one that reads nothing
            request.send(_answer("503 Service Unavailable", _FULL), socket.MSG_DONTWAIT)
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: what a sandbox sends is no error of this program."""


class _Connection(socketserver.BaseRequestHandler):
    """One connection: its first request says where to, and the rest goes both ways."""

    request: socket.socket
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]

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
            self._refuse(error)
            return
        with outside:
            if first:
                outside.sendall(first)
            else:
                self.request.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            _join(self.request, outside)

    def _reached(self, head: bytes) -> tuple[socket.socket, bytes]:
        """Connect to where a request goes; give what is to be sent there first."""
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
        # One request for one connection: a second could name another host.
        kept = [one for one in headers if not _is_of_this_hop(one)]
        first = f"{method} {path} {version}\r\nConnection: close".encode("latin-1")
        return outside, b"\r\n".join([first, *kept]) + b"\r\n\r\n" + body

    def _refuse(self, error: Exception) -> None:
        status = "403 Forbidden" if isinstance(error, PermissionError) else "502 Bad Gateway"
        self._say(status, str(error))

    def _say(self, status: str, words: str) -> None:
        with contextlib.suppress(OSError):
            self.request.sendall(_answer(status, words))


_FULL = f"a sandbox has at most {MAX_CONNECTIONS} connections at once; close some, and try again"


def _answer(status: str, words: str) -> bytes:
    body = f"{words}\n".encode()
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


def _is_of_this_hop(header: bytes) -> bool:
    return header.lower().startswith((b"connection:", b"proxy-"))


def _join(one: socket.socket, other: socket.socket) -> None:
    """Pass on what comes from either, until both are at their ends or nothing comes for long."""
    with selectors.DefaultSelector() as selector:
        selector.register(one, selectors.EVENT_READ, other)
        selector.register(other, selectors.EVENT_READ, one)
        while selector.get_map() and (ready := selector.select(IDLE_TIMEOUT_S)):
            for key, _ in ready:
                assert isinstance(key.fileobj, socket.socket)
                data = key.fileobj.recv(2**16)
                if data:
                    key.data.sendall(data)
                    continue
                selector.unregister(key.fileobj)
                with contextlib.suppress(OSError):
                    key.data.shutdown(socket.SHUT_WR)
