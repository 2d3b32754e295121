"""Running a gateway until it is told to stop."""

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
from openenv.gateway.gateway import Gateway
from openenv.gateway.servers import Server, Servers

__all__ = ["Followed", "run"]

logger = logging.getLogger(__name__)

RESOLVE_S = 5.0


class Followed:
    """A name whose addresses are servers, such as that of a headless service of Kubernetes.

    Args:
        environment: What they serve.
        url: The name, as ``dns://host:port``.
        key: What they are sent; see `Server`.
    """

    def __init__(self, environment: str, url: str, key: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme != "dns" or not parts.hostname or not parts.port:
            raise ValueError(f"{url!r} is no name of servers, such as dns://service:8000")
        self.environment = environment
        self.host, self.port = parts.hostname, parts.port
        self.key = key
        self._servers: dict[str, Server] = {}

    async def follow(self, servers: Servers) -> None:
        """Add and take away servers as the name's addresses come and go, for ever."""
        while True:
            await self.update(servers)
            await asyncio.sleep(RESOLVE_S)

    async def update(self, servers: Servers) -> None:
        """Do so once. A name that cannot be resolved just now changes nothing."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except OSError as error:
            logger.warning("%s cannot be resolved: %s", self.host, error)
            return
        there = {str(one[4][0]) for one in found}
        for address in there - self._servers.keys():
            host = f"[{address}]" if ":" in address else address
            server = Server(self.environment, f"http://{host}:{self.port}", self.key)
            self._servers[address] = server
            servers.add(server)
            logger.info("%s is a server of %s", server.url, self.host)
        for address in self._servers.keys() - there:
            server = self._servers.pop(address)
            servers.remove(server)
            logger.info("%s is none of %s any more", server.url, self.host)


def run(
    gateway: Gateway,
    *,
    host: str,
    port: int,
    tls: ssl.SSLContext | None = None,
    followed: list[Followed] | None = None,
    drain_s: float = 30.0,
    on_listening: Callable[[int], object] = lambda port: None,
) -> None:
    """Run a gateway until SIGTERM or SIGINT; see `Gateway.drain`.

    Args:
        gateway: The gateway.
        host: The address that it listens on.
        port: The port; 0 chooses a free one.
        tls: How it proves who it is, where it speaks TLS.
        followed: Names whose addresses are servers.
        drain_s: Seconds that sessions of protocol version 0 have to end in, when it stops.
        on_listening: Called with the port that it listens on.

    Raises:
        OSError: It cannot listen there.
    """
    loop = new_event_loop()
    try:
        loop.run_until_complete(
            _run(gateway, host, port, tls, followed or [], drain_s, on_listening)
        )
    finally:
        loop.close()


async def _run(
    gateway: Gateway,
    host: str,
    port: int,
    tls: ssl.SSLContext | None,
    followed: list[Followed],
    drain_s: float,
    on_listening: Callable[[int], object],
) -> None:
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    for one in followed:
        await one.update(gateway.servers)
    following = [asyncio.ensure_future(one.follow(gateway.servers)) for one in followed]
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
