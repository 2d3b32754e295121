"""HTTP clients: only this module opens HTTP connections.

`ask` and `open_answer` block, for commands and for code on threads. `HTTPClient` is for asyncio,
and reads answers as they arrive. Both halves follow the same rules:

* Redirects to another origin are never followed, so that a key reaches only the host that it is
  for. `HTTPClient` can follow redirects within an origin.
* `openenv._internal.net.proxies` chooses the proxy for an address; this machine is always reached
  without one. An error names the proxy that was used.
* `openenv._internal.net.tls` decides which certificates are trusted.
* Waits are bounded, and so is the size of the answers that `ask` reads.

The blocking half uses urllib, which is fast to import and sends absolute URLs to an HTTP proxy;
some proxies allow CONNECT to port 443 only. The other half uses h11 on asyncio's streams: httpx
would add a tenth of a second to the start of commands, and needs another library for SOCKS.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urljoin, urlsplit

from openenv._internal.lazy import lazy_module
from openenv._internal.net.keys import split_credentials
from openenv._internal.net.proxies import OutgoingProxy, proxy_for
from openenv._internal.net.sockets import open_stream
from openenv._internal.net.tls import client_context

if TYPE_CHECKING:
    import ssl

    import h11
else:
    h11 = lazy_module("h11")

MAX_BYTES = 16 * 2**20
CHUNK_BYTES = 2**16
CONNECT_TIMEOUT_S = 10.0
IDLE_CONNECTIONS = 64
MAX_REDIRECTS = 5
PROXY_SILENCE_S = CONNECT_TIMEOUT_S
PROXY_AUTHENTICATION_REQUIRED = 407
REDIRECTS = (301, 302, 307, 308)
REPEATING_REDIRECTS = (307, 308)  # these keep the method, such as POST

FAILURES = (OSError, ValueError)
"""The exceptions that `ask` raises if there is no answer."""


class NoAnswerError(ConnectionError):
    """The server could not be reached or does not speak HTTP, or the connection broke."""


# ------------------------------------------------------------------ blocking


class HTTPAnswer(NamedTuple):
    """A status, and the part of the body that was read."""

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
) -> HTTPAnswer:
    """Send a GET request, or a POST request if there is a body, and return the answer.

    Args:
        url: An address of http or https.
        headers: Headers of the request.
        body: The body of the request.
        timeout_s: Time limit in seconds for the request and the whole answer.
        ca_file: Trusted certificates; see `openenv._internal.net.tls.client_context`.
        max_bytes: Maximum number of bytes to read of the answer's body.

    Raises:
        ValueError: The URL has another scheme, the certificates cannot be used, or a proxy variable
            is invalid.
        OSError: There was no answer in time. If a proxy was used, the text names the proxy and says
            how to connect without it.
    """
    until = time.monotonic() + timeout_s
    # Behind a proxy, a slow server cannot be distinguished from a dead proxy.
    silence_s = timeout_s if proxy_for(url) is None else min(timeout_s, PROXY_SILENCE_S)
    with open_answer(url, headers, body, timeout_s=silence_s, ca_file=ca_file) as answer:
        return HTTPAnswer(answer.status, answer.read(max_bytes, until))


class BlockingAnswer:
    """An answer whose body is not read yet; a context manager that closes the connection."""

    def __init__(self, response: Any) -> None:
        self.status: int = response.status
        self._response = response

    def __enter__(self) -> BlockingAnswer:
        return self

    def __exit__(self, *exc: object) -> None:
        self._response.close()

    def read(self, max_bytes: int | None = None, until: float | None = None) -> bytes:
        """Read the body, or its first `max_bytes`, until a time of `time.monotonic`.

        Raises:
            OSError: The connection broke, or the body did not end in time.
        """
        body = bytearray()
        try:
            while max_bytes is None or len(body) < max_bytes:
                piece = self._response.read1(CHUNK_BYTES)
                if not piece:
                    if self._response.length:  # `read1` does not report a missing rest
                        raise NoAnswerError("the answer broke off before its end")
                    break
                body += piece
                if until is not None and time.monotonic() > until:
                    raise TimeoutError("the answer did not end in time")
        except HTTPException as error:
            raise NoAnswerError(f"the answer broke off: {error!r}") from error
        return bytes(body[:max_bytes])


def open_answer(
    url: str,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    *,
    timeout_s: float | None,
    ca_file: str | None = None,
) -> BlockingAnswer:
    """Send a request as `ask` does, and return the answer before reading the body.

    `timeout_s` limits each single wait, not their sum. Raises the same errors as `ask`.
    """
    parts = urlsplit(url)
    if parts.scheme.lower() not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r:.200} is no URL of http or https")
    proxy = proxy_for(url)
    request = urllib.request.Request(url, body, dict(headers or {}))
    opener = urllib.request.build_opener(*_handlers(parts.scheme.lower(), proxy, ca_file))
    try:
        response: Any = opener.open(request, timeout=timeout_s)
    except urllib.error.HTTPError as error:
        response = error
    except (OSError, HTTPException) as error:
        raise _failure(error, proxy, timeout_s) from error
    if proxy is not None and response.status == PROXY_AUTHENTICATION_REQUIRED:
        response.close()
        raise ConnectionError(proxy.describe("it wants a name and a password (status 407)"))
    return BlockingAnswer(response)


def _failure(
    error: OSError | HTTPException, proxy: OutgoingProxy | None, timeout_s: float | None
) -> OSError:
    """Return the error below urllib's error, or an error that names the proxy."""
    is_connecting = isinstance(error, urllib.error.URLError)
    why = error.reason if isinstance(error, urllib.error.URLError) else error
    if proxy is not None:
        if isinstance(why, TimeoutError):
            return ConnectionError(proxy.describe("nothing came in time"))
        if isinstance(why, ConnectionRefusedError):
            return ConnectionRefusedError(proxy.describe("connection refused"))
        return ConnectionError(proxy.describe(str(why) or type(why).__name__))
    if isinstance(why, TimeoutError) and is_connecting:
        return NoAnswerError(f"no connection within {timeout_s:g} s")
    if isinstance(why, HTTPException):
        return NoAnswerError(f"the server does not speak HTTP: {why!r:.200}")
    return why if isinstance(why, OSError) else NoAnswerError(str(why))


def _handlers(
    scheme: str, proxy: OutgoingProxy | None, ca_file: str | None
) -> list[urllib.request.BaseHandler]:
    handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
    is_socks = proxy is not None and proxy.is_socks
    # An empty dict keeps urllib from reading the variables itself.
    proxies = {scheme: proxy.url} if proxy is not None and not is_socks else {}
    handlers.append(urllib.request.ProxyHandler(proxies))
    context = client_context(ca_file) if scheme == "https" else None
    if proxy is not None and is_socks:
        handlers.append(_SocksHandler(proxy, context))
    elif context is not None:
        handlers.append(urllib.request.HTTPSHandler(context=context))
    return handlers


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class _SocksHandler(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """A handler that opens every connection through a SOCKS proxy, which urllib cannot."""

    def __init__(self, proxy: OutgoingProxy, context: ssl.SSLContext | None) -> None:
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
        # Both kinds of connections create their socket with this function.
        made._create_connection = self._connect  # type: ignore[attr-defined]
        return made

    def _connect(self, address: tuple[str, int], timeout: float, *_: Any) -> socket.socket:
        from python_socks import ProxyError
        from python_socks.sync import Proxy as Socks

        try:
            return Socks.from_url(self._proxy.url).connect(*address, timeout=timeout)
        except ProxyError as error:
            raise ConnectionError(str(error)) from error


# ------------------------------------------------------------------ on asyncio


@dataclass
class _HTTPConnection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    http: h11.Connection = field(default_factory=lambda: h11.Connection(h11.CLIENT))
    is_used: bool = False

    def close(self) -> None:
        self.writer.close()


@dataclass
class StreamedAnswer:
    """A status, headers by lower-case name, and a body that is read in parts.

    Each part has to arrive within the client's `timeout_s`.
    """

    status: int
    headers: dict[str, str]
    _connection: _HTTPConnection
    _timeout_s: float | None
    is_read: bool = False

    async def parts(self) -> AsyncGenerator[bytes, None]:
        """Yield the parts of the body as they arrive.

        Raises:
            NoAnswerError: The connection broke before the end of the body.
            TimeoutError: The next part did not arrive in time.
        """
        while not self.is_read:
            event = await _event(self._connection, self._timeout_s)
            data = []
            while isinstance(event, h11.Data):  # join all data that has arrived to one part
                data.append(event.data)
                event = _next_event(self._connection)
            self.is_read = isinstance(event, h11.EndOfMessage)
            if data:
                yield b"".join(data)

    async def read(self, max_bytes: int | None = None) -> bytes:
        """Return the body, or its first `max_bytes`. Raises the same errors as `parts`.

        If the body is longer, the rest is not read, and the connection is not reused.
        """
        body = bytearray()
        async with contextlib.aclosing(self.parts()) as parts:
            async for part in parts:
                body += part
                if max_bytes is not None and len(body) > max_bytes:
                    break
        return bytes(body[:max_bytes])


class HTTPClient:
    """A client of one server, which reuses its connections.

    Any number of tasks of one event loop may use a client. After that loop has ended, another loop
    may use it.

    Args:
        url: The server's address. Its path is prepended to the path of each request, without its
            last part if the path of the request begins with ``/../``. Its user and password are
            sent as basic authentication.
        timeout_s: Seconds that the server may be silent in an answer; None means no limit.
        ca_file: Trusted certificates; see `openenv._internal.net.tls.client_context`.
        follows_redirects: Follow redirects within the address's scheme, host and port. Other
            redirects are returned as answers.

    Raises:
        ValueError: The address is not one of http or https.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float | None,
        ca_file: str | None = None,
        follows_redirects: bool = False,
    ) -> None:
        self._url, credentials = split_credentials(url)
        parts = urlsplit(self._url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no address of HTTP, such as http://localhost:8000/v1")
        self._timeout_s = timeout_s
        self._ca_file = ca_file
        self._max_redirects = MAX_REDIRECTS if follows_redirects else 0
        self._is_secure = parts.scheme == "https"
        self._prefix = parts.path.rstrip("/")
        self._authority = parts.netloc
        self._where = f"{parts.hostname}:{parts.port or (443 if self._is_secure else 80)}"
        self._headers = {"host": self._authority, "accept-encoding": "identity"}
        if credentials is not None:
            self._headers["authorization"] = credentials
        self._idle: list[_HTTPConnection] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    @contextlib.asynccontextmanager
    async def request(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> AsyncIterator[StreamedAnswer]:
        """Send a request, and yield the answer, which is read in the block.

        Raises:
            NoAnswerError: No server answers, or the connection broke.
            TimeoutError: The server was silent for too long.
        """
        head = dict(self._headers)
        head.update((name.lower(), value) for name, value in (headers or {}).items())
        if body or method not in ("GET", "HEAD"):
            head["content-length"] = str(len(body))
        target = self._target(path)
        for redirects in range(self._max_redirects + 1):
            asked = h11.Request(method=method, target=target, headers=list(head.items()))
            connection, answer = await self._asked(asked, body)
            try:
                following = self._redirected(method, target, answer)
                if following is None or redirects == self._max_redirects:
                    yield answer
                    return
                await answer.read(MAX_BYTES)
                target = following
            finally:
                self._give_back(connection, answer)

    async def aclose(self) -> None:
        """Close the idle connections."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
            with contextlib.suppress(OSError):
                await connection.writer.wait_closed()

    def _target(self, path: str) -> str:
        if path.startswith("/../"):
            return self._prefix.rpartition("/")[0] + path[3:]
        return self._prefix + path

    def _redirected(self, method: str, target: str, answer: StreamedAnswer) -> str | None:
        followed = REDIRECTS if method == "GET" else REPEATING_REDIRECTS
        place = answer.headers.get("location")
        if answer.status not in followed or place is None:
            return None
        origin = f"{'https' if self._is_secure else 'http'}://{self._authority}"
        found = urlsplit(urljoin(f"{origin}{target}", place))
        if f"{found.scheme}://{found.netloc}".lower() != origin.lower():
            return None
        return f"{found.path or '/'}{f'?{found.query}' if found.query else ''}"

    # ------------------------------------------------------------------ connections

    async def _asked(
        self, asked: h11.Request, body: bytes
    ) -> tuple[_HTTPConnection, StreamedAnswer]:
        while True:
            connection = self._idle_one() or await self._connect()
            was_used, connection.is_used = connection.is_used, True
            try:
                return connection, await self._sent(connection, asked, body)
            except NoAnswerError:
                connection.close()
                if not was_used:
                    raise  # a reused connection may have been closed while idle: try another
            except BaseException:
                connection.close()
                raise

    async def _sent(
        self, connection: _HTTPConnection, asked: h11.Request, body: bytes
    ) -> StreamedAnswer:
        http, writer = connection.http, connection.writer
        try:
            writer.write((http.send(asked) or b"") + (http.send(h11.Data(data=body)) or b""))
            writer.write(http.send(h11.EndOfMessage()) or b"")
            await writer.drain()
        except OSError as error:
            raise NoAnswerError(f"{self._where} closed the connection: {error}") from error
        event = await _event(connection, self._timeout_s)
        while isinstance(event, h11.InformationalResponse):
            event = await _event(connection, self._timeout_s)
        if not isinstance(event, h11.Response):
            raise NoAnswerError(f"{self._where} does not speak HTTP")
        headers = {name.decode(): value.decode("latin-1") for name, value in event.headers}
        return StreamedAnswer(event.status_code, headers, connection, self._timeout_s)

    def _idle_one(self) -> _HTTPConnection | None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # those of a loop that is over are dead
            self._idle, self._loop = [], loop
        while self._idle:
            connection = self._idle.pop()
            if not connection.reader.at_eof() and not connection.writer.is_closing():
                return connection
            connection.close()
        return None

    async def _connect(self) -> _HTTPConnection:
        try:
            tls = client_context(self._ca_file) if self._is_secure else None
            opening = open_stream(self._url, tls=tls, timeout_s=CONNECT_TIMEOUT_S)
            reader, writer = await asyncio.wait_for(opening, CONNECT_TIMEOUT_S)
        except asyncio.TimeoutError as error:
            why = f"{self._where} took no connection in {CONNECT_TIMEOUT_S:g} s"
            proxy = proxy_for(self._url)
            raise NoAnswerError(why if proxy is None else proxy.describe(why)) from error
        except FAILURES as error:  # ssl.SSLError is an OSError
            raise NoAnswerError(f"{self._where} cannot be reached: {error}") from error
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return _HTTPConnection(reader, writer)

    def _give_back(self, connection: _HTTPConnection, answer: StreamedAnswer) -> None:
        http = connection.http
        ended = answer.is_read and http.our_state is h11.DONE and http.their_state is h11.DONE
        if ended and len(self._idle) < IDLE_CONNECTIONS:
            http.start_next_cycle()
            self._idle.append(connection)
        else:
            connection.close()


async def _event(connection: _HTTPConnection, timeout_s: float | None) -> object:
    while (event := _next_event(connection)) is h11.NEED_DATA:
        try:
            data = await asyncio.wait_for(connection.reader.read(CHUNK_BYTES), timeout_s)
        except asyncio.TimeoutError as error:
            raise TimeoutError(f"the server was silent for {timeout_s:g} s") from error
        except OSError as error:
            raise NoAnswerError(f"the connection broke: {error}") from error
        connection.http.receive_data(data)
    return event


def _next_event(connection: _HTTPConnection) -> object:
    try:
        event = connection.http.next_event()
    except h11.RemoteProtocolError as error:
        raise NoAnswerError(f"the connection broke: {error}") from error
    if isinstance(event, h11.ConnectionClosed):
        raise NoAnswerError("the server closed the connection")
    return event
