"""TCP connections on asyncio, through the address's proxy if there is one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from openenv._internal.net.proxies import connect_through, proxy_for

if TYPE_CHECKING:
    import ssl

P = TypeVar("P", bound=asyncio.BaseProtocol)
BUFFER_BYTES = 2**20
PORTS = {"http": 80, "https": 443}


async def connect(
    protocol: Callable[[], P], url: str, *, tls: ssl.SSLContext | None, timeout_s: float
) -> tuple[Any, P]:
    """Connect to a server, as `loop.create_connection` does.

    Args:
        protocol: The protocol factory.
        url: An address of http or https.
        tls: The TLS context of the connection; None for a connection without TLS.
        timeout_s: Seconds that a proxy may take. The caller limits the rest.

    Raises:
        OSError: No server answers; if a proxy was used, the text names the proxy.
        ValueError: A proxy variable is invalid.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or PORTS[parts.scheme.lower()]
    loop = asyncio.get_running_loop()
    proxy = proxy_for(url)
    if proxy is None:
        return await loop.create_connection(protocol, host, port, ssl=tls)
    through = await connect_through(proxy, host, port, timeout_s)
    name = host if tls is not None else None
    try:
        return await loop.create_connection(protocol, sock=through, ssl=tls, server_hostname=name)
    except BaseException:
        through.close()
        raise


async def open_stream(
    url: str, *, tls: ssl.SSLContext | None, timeout_s: float, limit: int = BUFFER_BYTES
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect as `connect` does, and return streams; `limit` bounds what the reader buffers."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=limit, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await connect(lambda: protocol, url, tls=tls, timeout_s=timeout_s)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)
