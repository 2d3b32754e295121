"""Asking a server by HTTP: the one way in which this program does.

Redirects are not followed: what is sent, a key among it, is for the host that was named.
`openenv._internal.net.proxies` decides which proxy is used, if any. An answer is bounded, in bytes
and in time.
"""

from __future__ import annotations

import socket
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from openenv._internal.net.proxies import Proxy, proxy_for
from openenv._internal.net.tls import client_context

if TYPE_CHECKING:
    import ssl

__all__ = ["FAILURES", "MAX_BYTES", "Answer", "ask", "open_answer"]

MAX_BYTES = 16 * 2**20
CHUNK_BYTES = 2**16
PROXY_SILENCE_S = 10.0  # as long as a client waits for its connection

FAILURES = (OSError, HTTPException, ValueError)
"""What `ask` raises where there is no answer."""


class Answer(NamedTuple):
    """What a server answered.

    Attributes:
        status: The status.
        body: The body, as far as it was read.
    """

    status: int
    body: bytes


def ask(
    url: str,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    *,
    timeout_s: float,
    ca_file: str | None = None,
    max_bytes: int = MAX_BYTES,
) -> Answer:
    """Ask by GET, or by POST where there is a body.

    Args:
        url: Of http or https.
        headers: What is sent beside the body.
        body: The body.
        timeout_s: Seconds for all of it.
        ca_file: See `openenv._internal.net.tls.client_context`.
        max_bytes: Read no more of the body.

    Raises:
        ValueError: The URL is none of these schemes, the certificates cannot be used, or the
            variable for a proxy names none.
        OSError: There was no answer in time. Where a proxy was asked, its text names the proxy, and
            how to do without it.
        HTTPException: What came is no HTTP.
    """
    until = time.monotonic() + timeout_s
    # Behind a proxy nobody can tell a server that thinks from a proxy that is dead.
    silence_s = timeout_s if proxy_for(url) is None else min(timeout_s, PROXY_SILENCE_S)
    with open_answer(url, headers, body, timeout_s=silence_s, ca_file=ca_file) as answer:
        return Answer(answer.status, _read(answer, until, max_bytes))


def open_answer(
    url: str,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    *,
    timeout_s: float | None,
    ca_file: str | None = None,
) -> Any:
    """Ask as `ask` does, and return an `http.client.HTTPResponse` to read from; it is a context
    manager. `timeout_s` limits each wait, and not all of it. Raises what `ask` raises.
    """
    parts = urlsplit(url)
    if parts.scheme.lower() not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r:.200} is no URL of http or https")
    proxy = proxy_for(url)
    request = urllib.request.Request(url, body, dict(headers or {}))
    opener = urllib.request.build_opener(*_handlers(parts.scheme.lower(), proxy, ca_file))
    answer: Any
    try:
        answer = opener.open(request, timeout=timeout_s)
    except urllib.error.HTTPError as error:
        answer = error
    except (OSError, HTTPException) as error:
        if proxy is None:
            raise
        raise _through(proxy, error) from error
    if proxy is not None and answer.status == PROXY_AUTHENTICATION_REQUIRED:
        answer.close()
        raise ConnectionError(proxy.describe("it wants a name and a password (status 407)"))
    return answer


# ------------------------------------------------------------------ on the way


PROXY_AUTHENTICATION_REQUIRED = 407


def _handlers(
    scheme: str, proxy: Proxy | None, ca_file: str | None
) -> list[urllib.request.BaseHandler]:
    handlers: list[urllib.request.BaseHandler] = [_Stays()]
    is_socks = proxy is not None and proxy.is_socks
    # An empty one keeps urllib from reading the variables itself.
    proxies = {scheme: proxy.url} if proxy is not None and not is_socks else {}
    handlers.append(urllib.request.ProxyHandler(proxies))
    context = client_context(ca_file) if scheme == "https" else None
    if proxy is not None and is_socks:
        handlers.append(_ThroughSocks(proxy, context))
    elif context is not None:
        handlers.append(urllib.request.HTTPSHandler(context=context))
    return handlers


class _ThroughSocks(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Opens every connection through a SOCKS proxy, which urllib cannot."""

    def __init__(self, proxy: Proxy, context: ssl.SSLContext | None) -> None:
        super().__init__()
        self._proxy = proxy
        self._tls = context

    def http_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(self._connection, req)

    def https_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(self._connection, req)

    def _connection(self, host: str, /, *, timeout: float = 60.0, **_: Any) -> HTTPConnection:
        if self._tls is None:
            made: HTTPConnection = HTTPConnection(host, timeout=timeout)
        else:
            made = HTTPSConnection(host, timeout=timeout, context=self._tls)
        # What both kinds of connection have their socket from.
        made._create_connection = self._connect  # type: ignore[attr-defined]
        return made

    def _connect(self, address: tuple[str, int], timeout: float, *_: Any) -> socket.socket:
        from python_socks import ProxyError
        from python_socks.sync import Proxy as Socks

        try:
            return Socks.from_url(self._proxy.url).connect(*address, timeout=timeout)
        except ProxyError as error:
            raise ConnectionError(str(error)) from error


def _through(proxy: Proxy, error: OSError | HTTPException) -> OSError:
    why = getattr(error, "reason", None) or error
    if isinstance(why, TimeoutError):
        return ConnectionError(proxy.describe("nothing came in time"))
    if isinstance(why, ConnectionRefusedError):
        return ConnectionRefusedError(proxy.describe("connection refused"))
    return ConnectionError(proxy.describe(str(why) or type(why).__name__))


class _Stays(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _read(answer: Any, until: float, max_bytes: int) -> bytes:
    """The body, which may come in drops, but not for ever."""
    body = bytearray()
    while len(body) < max_bytes and (piece := answer.read1(CHUNK_BYTES)):
        body += piece
        if time.monotonic() > until:
            raise TimeoutError("the answer did not end in time")
    return bytes(body[:max_bytes])
