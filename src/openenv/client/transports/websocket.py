"""Frames over a WebSocket, by the `websockets` library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from openenv._lazy import lazy_module
from openenv.client.transports.base import TransportClosed
from openenv.errors import ConnectError

if TYPE_CHECKING:
    import asyncio

    from websockets.asyncio.client import ClientConnection
else:
    asyncio = lazy_module("asyncio")

__all__ = ["WebSocketOptions", "WebSocketTransport", "websocket_url"]

_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
_LOOPBACK = ("localhost", "127.", "::1")


def websocket_url(base_url: str) -> str:
    """Turn a base URL (``http``, ``https``, ``ws``, ``wss`` or no scheme) into that of `/ws`.

    Raises:
        ValueError: It has another scheme.
    """
    url = base_url.rstrip("/")
    scheme, rest = url.split("://", 1) if "://" in url else ("ws", url)
    if scheme.lower() not in _SCHEMES:
        raise ValueError(f"{base_url!r}: the scheme must be one of {', '.join(_SCHEMES)}, or none")
    return f"{_SCHEMES[scheme.lower()]}://{rest}/ws"


@dataclass(frozen=True)
class WebSocketOptions:
    """Limits and headers of a connection; times in seconds, None for no limit."""

    connect_timeout_s: float | None = 10.0
    ping_interval_s: float | None = 20.0
    ping_timeout_s: float | None = 20.0
    max_message_bytes: int | None = 100 * 2**20
    headers: Mapping[str, str] = field(default_factory=dict)


class WebSocketTransport:
    """One WebSocket connection.

    Messages are not compressed: on a loopback or cluster network that costs more than it saves.
    """

    def __init__(self, url: str, options: WebSocketOptions | None = None) -> None:
        self._url = url
        self._options = options or WebSocketOptions()
        self._socket: ClientConnection | None = None

    def __str__(self) -> str:
        return self._url

    async def connect(self) -> None:
        from websockets.asyncio.client import connect
        from websockets.exceptions import WebSocketException

        options = self._options
        arguments: dict[str, Any] = {
            "open_timeout": options.connect_timeout_s,
            "ping_interval": options.ping_interval_s,
            "ping_timeout": options.ping_timeout_s,
            "max_size": options.max_message_bytes,
            "additional_headers": dict(options.headers),
            "compression": None,
        }
        try:
            host = urlsplit(self._url).hostname or ""
            if host.startswith(_LOOPBACK):
                arguments["proxy"] = None
            self._socket = await connect(self._url, **arguments)
        except (
            OSError,
            WebSocketException,
            asyncio.TimeoutError,
            ValueError,  # of a port or a host that cannot be
            ImportError,  # of what a SOCKS proxy needs
        ) as error:
            raise ConnectError(f"Failed to connect to {self._url}: {_words(error)}") from error

    async def send(self, frame: bytes) -> None:
        from websockets.exceptions import ConnectionClosed

        try:
            await self._open_socket().send(frame, text=True)
        except ConnectionClosed as error:
            raise _closed(error) from error

    async def receive(self) -> str | bytes:
        from websockets.exceptions import ConnectionClosed

        try:
            return await self._open_socket().recv()
        except ConnectionClosed as error:
            raise _closed(error) from error

    def has_frame(self) -> bool:
        # The library has no call for it; `recv` would wait.
        return self._socket is not None and len(self._socket.recv_messages.frames) > 0

    async def close(self) -> None:
        if self._socket is not None:
            await self._socket.close()

    def abort(self) -> None:
        if self._socket is not None:
            self._socket.transport.abort()

    def _open_socket(self) -> ClientConnection:
        if self._socket is None:
            raise TransportClosed("the connection was never opened")
        return self._socket


def _closed(error: Any) -> TransportClosed:
    frame = error.rcvd or error.sent
    return TransportClosed(str(error), None if frame is None else frame.code)


def _words(error: BaseException) -> str:
    if isinstance(error, TimeoutError | asyncio.TimeoutError):
        return "no answer in time; is a server listening there?"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused; is a server running there?"
    return str(error) or type(error).__name__
