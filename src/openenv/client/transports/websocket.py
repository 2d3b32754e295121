"""A WebSocket transport, based on `picows`, which parses frames in compiled code."""

from __future__ import annotations

import contextlib
import functools
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from openenv._internal.addresses import server_root
from openenv._internal.lazy import asyncio, lazy_module, logging
from openenv._internal.net.keys import key_for, key_headers, split_credentials
from openenv._internal.net.proxies import proxy_for
from openenv._internal.timing import within
from openenv.client.transports.base import Receiver, TransportClosed, refused
from openenv.errors import ConnectError
from openenv.protocol.messages import NON_FINITE_HEADER, ROUTE_HEADER, SPREAD_HEADER

if TYPE_CHECKING:
    import ssl

    import picows

    from openenv._internal.net import tls as _tls
else:
    picows = lazy_module("picows")
    ssl = lazy_module("ssl")
    _tls = lazy_module("openenv._internal.net.tls")

_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
_SECRET_HEADERS = ("authorization", "x-api-key", "cookie")

READ_BUFFER_BYTES = 16 * 1024  # initially; the buffer grows with the frames
NO_LIMIT = 2**62
MAX_REDIRECTS = 5
TICKS_TO_NOTICE = 20  # ticks for a loop's transport to notice a shut-down socket and close it


def websocket_url(base_url: str) -> str:
    """Turn a base URL (``http``, ``https``, ``ws``, ``wss`` or no scheme) into the URL of `/ws`.

    Any address that the server prints is accepted; see `openenv._internal.addresses`.

    Raises:
        ValueError: The URL has another scheme.
    """
    url = server_root(base_url)
    scheme, rest = url.split("://", 1) if "://" in url else ("ws", url)
    if scheme.lower() not in _SCHEMES:
        raise ValueError(f"{base_url!r}: the scheme must be one of {', '.join(_SCHEMES)}, or none")
    return f"{_SCHEMES[scheme.lower()]}://{rest}/ws"


@dataclass(frozen=True)
class WebSocketOptions:
    """Limits, headers and key of a connection. Times are in seconds; None means no limit.

    Without a key, `openenv._internal.net.keys.key_for` looks it up.
    """

    connect_timeout_s: float | None = 10.0
    ping_interval_s: float | None = 20.0
    ping_timeout_s: float | None = 20.0
    max_message_bytes: int | None = 100 * 2**20
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    subprotocols: Sequence[str] = ()
    api_key: str | None = field(default=None, repr=False)
    ca_file: str | None = None


class WebSocketTransport:
    """A WebSocket connection.

    Messages are not compressed: on a loopback or cluster network compression costs more time than
    it saves.
    """

    def __init__(self, url: str, options: WebSocketOptions | None = None) -> None:
        self.subprotocol: str | None = None
        self.ends: list[str] | None = None
        self.route: str | None = None
        self.spread: int | None = None
        self._url = url
        self._options = options or WebSocketOptions()
        self._link: Any = None

    def __str__(self) -> str:
        return _shown(self._url)

    async def connect(self, route: str | None = None) -> None:
        options = self._options
        if route is not None:
            options = replace(options, headers={**options.headers, ROUTE_HEADER: route})
        limit = options.connect_timeout_s
        try:
            self._link = link = await within(limit, _connected(self._url, options))
        except _connection_errors() as error:
            raise _connect_error(self._url, error) from error
        self.subprotocol, self.ends = link.subprotocol, link.ends
        self.route, self.spread = link.route, link.spread
        # Every frame passes here; one layer less saves a twentieth of a step's time.
        self.send = link.send  # type: ignore[method-assign]

    def send(self, frame: bytes) -> None:
        self._open_link().send(frame)

    async def receive(self, timeout_s: float | None = None) -> str | bytes | bytearray:
        frame: str | bytes | bytearray = await self._open_link().receive(timeout_s)
        return frame

    def attach(self, receiver: Receiver) -> None:
        self._open_link().attach(receiver)

    def has_frame(self) -> bool:
        """Return whether a frame waits to be read."""
        return self._link is not None and bool(self._link.frames)

    async def close(self) -> None:
        if self._link is not None:
            await self._link.close()

    def abort(self) -> None:
        if self._link is not None:
            self._link.abort()

    def _open_link(self) -> Any:
        if self._link is None:
            raise TransportClosed("the connection was never opened")
        return self._link


async def _connected(url: str, options: WebSocketOptions) -> Any:
    headers = dict(options.headers)
    if options.subprotocols:
        headers["Sec-WebSocket-Protocol"] = ", ".join(options.subprotocols)
    else:
        headers[NON_FINITE_HEADER] = "1"
    url, credentials = split_credentials(url)
    if credentials is not None:
        headers["Authorization"] = credentials
    headers |= key_headers(options.api_key or key_for(url), headers)
    for redirects in range(MAX_REDIRECTS + 1):
        try:
            return await _connected_there(url, options, headers)
        except picows.WSHandshakeError as error:
            target = _redirected(url, error)
            if target is None or redirects == MAX_REDIRECTS:
                raise
        if urlsplit(target).netloc != urlsplit(url).netloc:  # secrets are for the first host only
            headers = {k: v for k, v in headers.items() if k.lower() not in _SECRET_HEADERS}
        url = target
    raise AssertionError


def _redirected(url: str, error: Any) -> str | None:
    """Return the target of a redirect as a `ws` or `wss` URL, the form that picows takes."""
    response = error.response
    if response is None or int(response.status) not in (301, 302, 303, 307, 308):
        return None
    where = response.headers.get("Location")
    if where is None:
        return None
    target = urlsplit(urljoin(url, where))
    scheme = _SCHEMES.get(target.scheme)
    if scheme is None or (url.startswith("wss:") and scheme == "ws"):
        return None
    there: str = target._replace(scheme=scheme).geturl()
    return there


async def _connected_there(url: str, options: WebSocketOptions, headers: dict[str, str]) -> Any:
    wanted, sockets = Event(), list[socket.socket]()
    wanted.set()

    async def open_socket(there: Any) -> socket.socket:
        sockets.append(one := await _socket_to(there.host, there.port))
        return one

    try:
        proxy = proxy_for(url)
        _, link = await picows.ws_connect(
            _make_link(options, wanted),
            url,
            # The caller's limit covers everything. If it cancels a handshake, picows continues
            # with it: until its socket is cut, or, through a proxy, until this timeout or until the
            # handshake is answered and the link finds itself unwanted.
            websocket_handshake_timeout=options.connect_timeout_s,
            ssl_context=_tls.client_context(options.ca_file) if url.startswith("wss:") else None,
            logger_name=_picows_logger(),
            max_frame_size=options.max_message_bytes or NO_LIMIT,
            extra_headers=headers,
            proxy=None if proxy is None else proxy.url,
            socket_factory=open_socket if proxy is None else None,
            max_redirects=0,
            use_aiofastnet=False,
            read_buffer_init_size=READ_BUFFER_BYTES,
        )
        if link is None:  # picows reports in this way that the peer left during the handshake
            hint = "; if it speaks TLS, connect by https:// or wss://" if url[:3] == "ws:" else ""
            why = f"the server closed the connection during the handshake{hint}"
            raise ConnectionResetError(why)
    except BaseException:
        wanted.clear()
        await _cut(*sockets)
        raise
    return link


async def _socket_to(host: str, port: int) -> socket.socket:
    """Connect to the first address of a host that answers, as `create_connection` does.

    Raises:
        OSError: No address answers.
    """
    errors: list[OSError] = []
    for family, address in await _addresses(host, port):
        one = socket.socket(family, socket.SOCK_STREAM)
        try:
            one.setblocking(False)
            await asyncio.get_running_loop().sock_connect(one, address)
        except BaseException as error:
            await _cut(one)
            if not isinstance(error, OSError):
                raise
            errors.append(error)
        else:
            return one
    if len({str(error) for error in errors}) == 1:
        raise errors[0]
    raise OSError(f"none of its addresses answers: {'; '.join(map(str, errors))}")


async def _addresses(host: str, port: int) -> list[tuple[int, Any]]:
    for family in (socket.AF_INET, socket.AF_INET6):  # without a lookup, which takes a thread
        with contextlib.suppress(OSError, ValueError):
            socket.inet_pton(family, host)
            return [(family, (host, port))]
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, address) for family, _, _, _, address in found]


async def _cut(*sockets: socket.socket) -> None:
    """Cut connections that are being opened. If a loop's transport has the socket, it notices the
    end of the stream and closes the socket.

    If the task is canceled meanwhile, the cancellation takes effect after the sockets are closed.
    """
    given_up: BaseException | None = None
    for one in sockets:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
    for _ in range(TICKS_TO_NOTICE):
        if all(one.fileno() < 0 for one in sockets):
            break
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError as error:
            given_up = error
        except GeneratorExit as error:  # the task's loop is gone
            given_up = error
            break
    for one in sockets:
        one.close()
    if given_up is not None:
        raise given_up


@functools.cache
def _picows_logger() -> logging.LoggerAdapter[logging.Logger]:
    logger = logging.getLogger("openenv.client.picows")
    logger.setLevel(logging.CRITICAL)  # errors are raised instead
    # An adapter, since picows derives a new logger for every connection from a plain logger.
    return logging.LoggerAdapter(logger, {})


def _make_link(options: WebSocketOptions, wanted: Event) -> Any:
    from openenv.client.transports._link import WebSocketLink

    def make(request: Any, response: Any) -> WebSocketLink:
        told = response.headers
        spread = told.get(SPREAD_HEADER, "")
        return WebSocketLink(
            told.get("Sec-WebSocket-Protocol"),
            options,
            told.get(ROUTE_HEADER),
            int(spread) if spread.isdigit() and int(spread) > 0 else None,
            wanted,
        )

    return make


def _connection_errors() -> tuple[type[Exception], ...]:
    from python_socks import ProxyError

    return (
        OSError,
        picows.WSError,
        asyncio.TimeoutError,
        ValueError,  # from an invalid port or host
        ProxyError,
    )


def _connect_error(url: str, error: Exception) -> ConnectError:
    where = _shown(url)
    response = getattr(error, "response", None)  # the answer to a handshake
    if response is not None and int(response.status) != 101:
        return refused(where, int(response.status), getattr(error, "raw_body", None))
    proxy = None
    with contextlib.suppress(ValueError):  # of an invalid URL or variable, which `error` reports
        proxy = proxy_for(url)
    if proxy is None:
        return ConnectError(f"Failed to connect to {where}: {_words(error)}")
    why = _words(error).partition("; is a server")[0]  # the hint would be about the proxy
    return ConnectError(f"Failed to connect to {where} through {proxy}: {why}; {proxy.hint}")


def _shown(url: str) -> str:
    """Return a URL without its password; the URL may be invalid."""
    scheme, _, rest = url.partition("://")
    place, slash, path = rest.partition("/")
    return f"{scheme}://{place.rpartition('@')[2]}{slash}{path}"


def _words(error: BaseException) -> str:
    if isinstance(error, TimeoutError | asyncio.TimeoutError):
        return "no answer in time; is a server listening there?"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused; is a server running there?"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate does not fit: {error.verify_message}; {_cure(error)}"
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return "the server there speaks no TLS; connect by http:// or ws://"
    return str(error) or type(error).__name__


HOSTNAME_MISMATCH = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH and _IP_ADDRESS_MISMATCH, x509_vfy.h


def _cure(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in HOSTNAME_MISMATCH:
        return "connect by a name that the certificate is for, or have one made for this name"
    return _tls.CERTIFICATE_HINT
