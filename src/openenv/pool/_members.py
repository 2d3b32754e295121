"""The servers of a pool, with their leases and their health."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from openenv._internal.addresses import server_root
from openenv._internal.net.keys import note_key
from openenv.client._resuming import greeted
from openenv.client.transports.websocket import (
    WebSocketOptions,
    WebSocketTransport,
    websocket_url,
)
from openenv.pool.control import Window
from openenv.protocol.v1.codec import codec_named, offered
from openenv.protocol.v1.connection import Multiplexer
from openenv.providers.servers import Server

__all__ = ["Chooser", "GivenServer", "Member", "capacity_of", "pack", "spread"]

STRAIN = 0.8  # a slow server's session limit is multiplied by this

_numbers = itertools.count()


class GivenServer(Server):
    """A server that was given by its address; the pool neither starts nor stops it.

    Args:
        url: Address of the server.
        key: Key of the server; None for OPENENV_API_KEY.
    """

    def __init__(self, url: str, key: str | None) -> None:  # the base would note a key of None
        self.url = server_root(url)
        self.name = self.url
        self._key = key
        self._is_stopped = False
        if key is not None:
            note_key(self.url, key)

    def stop(self) -> None:
        """Do nothing."""

    def _stop(self) -> None:
        """Do nothing."""


class Member:
    """A server of a pool.

    Args:
        server: The server.
        sessions: Maximum number of sessions.
        source: The index of the provider, or a negative number for a given address.
        version: The protocol version.

    Attributes:
        number: Sequence number, unique among the members of all pools.
        window: The session limit, which adapts to the server's latency.
        leases: The current leases.
        served: Number of leases so far.
        gone: Why the server was given up; None while it serves.
        is_resting: Whether the server gets no new leases.
        is_spent: Whether the server has had all its leases, and gets no new ones for good.
        failures: Number of failed checks in a row.
        latency_s: Duration of the last check in seconds; None before the first.
        check_at: Time of the next check, as of `time.monotonic`.
    """

    def __init__(self, server: Server, sessions: int, source: int, version: int) -> None:
        self.version = version
        self.number = next(_numbers)
        self.server = server
        self.source = source
        self.sessions = sessions
        self.window = Window(sessions, highest=sessions, factor=STRAIN)
        self.leases: set[Any] = set()
        self.served = 0
        self.gone: str | None = None
        self.is_resting = self.is_spent = False
        self.failures = 0
        self.latency_s: float | None = None
        self.check_at = 0.0

    @property
    def room(self) -> int:
        """The number of sessions that can be leased now."""
        return 0 if self.gone or self.is_resting else max(self.window.size - len(self.leases), 0)

    def note(self, latency_s: float, limit_s: float, now: float) -> None:
        """Record the duration of a successful check, and adapt the session limit."""
        self.failures, self.latency_s = 0, latency_s
        if latency_s > limit_s:
            self.window.narrow(now)
        elif self.room == 0:
            self.window.widen()


async def capacity_of(server: Server, timeout_s: float) -> tuple[int | None, int]:
    """Return a server's maximum number of sessions (None if not reported), and protocol version.

    Raises:
        ConnectError: The server does not answer.
    """
    options = WebSocketOptions(timeout_s, subprotocols=offered(1))
    transport = WebSocketTransport(websocket_url(server.url), options)
    await transport.connect()
    try:
        if transport.subprotocol is None:
            return None, 0
        hello = await greeted(transport)
        codec = codec_named(transport.subprotocol)
        return Multiplexer(codec, hello, {}, transport.ends).hello.max_sessions, 1
    except BaseException:
        transport.abort()
        raise
    finally:
        await transport.close()


Chooser = Callable[[list[Member]], Member]


def spread(members: list[Member]) -> Member:
    """Return the member with the largest share of free sessions."""
    return min(members, key=lambda one: (len(one.leases) / one.window.size, one.number))


def pack(members: list[Member]) -> Member:
    """Return the member with the fewest free sessions, so that other servers can be ended."""
    return min(members, key=lambda one: (one.room, one.number))
