"""Runs a gateway until a signal."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import ssl
from collections.abc import Callable
from urllib.parse import urlsplit

from openenv._internal.timing import new_event_loop
from openenv.gateway.backends import Backend, Backends
from openenv.gateway.gateway import Gateway

__all__ = ["ResolvedBackends", "run"]

logger = logging.getLogger(__name__)

RESOLVE_S = 5.0


class ResolvedBackends:
    """A host name whose addresses are servers, such as that of a headless Kubernetes service.

    Args:
        environment: Environment that the servers serve.
        url: The host name, as ``dns://host:port``.
        key: Key of the servers; see `Backend`.
    """

    def __init__(self, environment: str, url: str, key: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme != "dns" or not parts.hostname or not parts.port:
            raise ValueError(f"{url!r} is no name of servers, such as dns://service:8000")
        self.environment = environment
        self.host, self.port = parts.hostname, parts.port
        self.key = key
        self._servers: dict[str, Backend] = {}

    async def follow(self, servers: Backends) -> None:
        """Update the servers every 5 seconds, forever."""
        while True:
            await self.update(servers)
            await asyncio.sleep(RESOLVE_S)

    async def update(self, servers: Backends) -> None:
        """Add and remove servers as the name resolves now; if it does not, change nothing."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except OSError as error:
            logger.warning("%s cannot be resolved: %s", self.host, error)
            return
        there = {str(one[4][0]) for one in found}
        for address in there - self._servers.keys():
            host = f"[{address}]" if ":" in address else address
            server = Backend(self.environment, f"http://{host}:{self.port}", self.key)
            self._servers[address] = server
            servers.add(server)
            logger.info("%s is a server of %s", server.url, self.host)
        for address in self._servers.keys() - there:
            server = self._servers.pop(address)
            servers.remove(server)
            logger.info("%s is no longer a server of %s", server.url, self.host)


def run(
    gateway: Gateway,
    *,
    host: str,
    port: int,
    tls: ssl.SSLContext | None = None,
    resolved: list[ResolvedBackends] | None = None,
    drain_s: float = 30.0,
    on_listening: Callable[[int], object] = lambda port: None,
) -> None:
    """Run a gateway until SIGTERM or SIGINT, then drain it; see `Gateway.drain`.

    Args:
        gateway: The gateway.
        host: Address to listen on.
        port: Port to listen on; 0 for a free port.
        tls: TLS context; None for plain HTTP.
        resolved: Host names whose addresses are servers.
        drain_s: Seconds that sessions of protocol version 0 have to end.
        on_listening: Called with the port once the gateway listens.

    Raises:
        OSError: The gateway cannot listen on the address.
    """

    async def serve() -> None:
        loop, told = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, told.set)
        names = resolved or []
        for one in names:
            await one.update(gateway.servers)
        following = [asyncio.ensure_future(one.follow(gateway.servers)) for one in names]
        listening = await gateway.listen(host, port, tls=tls)
        on_listening(listening.sockets[0].getsockname()[1])
        try:
            await told.wait()
        finally:
            listening.close()
            for task in following:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*following, return_exceptions=True)
            await gateway.drain(drain_s)

    loop = new_event_loop()
    try:
        loop.run_until_complete(serve())
    finally:
        loop.close()
