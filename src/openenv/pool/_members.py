"""The servers of a pool: what each has taken, how it is, and what became of it."""

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

__all__ = ["Given", "Member", "capacity_of"]

STRAIN = 0.8  # what is left of a server's sessions when it answers too slowly

_numbers = itertools.count()


class Given(Server):
    """A server that somebody else has started, and will stop.

    Args:
        url: Its address.
        key: What it wants; None is that of OPENENV_API_KEY.
    """

    def __init__(self, url: str, key: str | None) -> None:  # the base notes that it wants none
        self.url = server_root(url)
        self.name = self.url
        self._key = key
        self._is_stopped = False
        if key is not None:
            note_key(self.url, key)

    def stop(self) -> None:
        """Nothing: it is not ours."""

    def _stop(self) -> None:
        """Nothing."""


class Member:
    """A server of a pool.

    Args:
        server: The server.
        sessions: How many it takes at once.
        source: Which of the pool's sources it is of.

    Attributes:
        number: Counts the members of all pools.
        window: How many sessions are asked of it.
        leases: What is leased.
        served: How many leases it has had.
        gone: Why it takes no more, and has lost what it had; None while it is well.
        version: Of the protocol that it speaks.
        is_resting: Its leases go on, and it gets no new one.
        is_spent: It has had as many leases as it may, and rests for good.
        failures: Checks in a row that have failed.
        latency_s: How long its last answer took; None before there was one.
        check_at: When it is looked at next, by the monotonic clock.
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
        """How many more sessions it may be asked for."""
        return 0 if self.gone or self.is_resting else max(self.window.size - len(self.leases), 0)

    def note(self, latency_s: float, limit_s: float, now: float) -> None:
        """Note how long it took to answer, and ask more or less of it."""
        self.failures, self.latency_s = 0, latency_s
        if latency_s > limit_s:
            self.window.narrow(now)
        elif self.room == 0:
            self.window.widen()


async def capacity_of(server: Server, options: WebSocketOptions) -> tuple[int | None, int]:
    """Ask a server how many sessions it takes, None where it does not say; and which version of
    the protocol it speaks.

    Raises:
        ConnectError: It does not answer.
    """
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


def probing(timeout_s: float) -> WebSocketOptions:
    """How a server is asked."""
    return WebSocketOptions(timeout_s, subprotocols=offered(1))


Chooser = Callable[[list[Member]], Member]


def spread(members: list[Member]) -> Member:
    """The one with the largest share of its sessions free."""
    return min(members, key=lambda one: (len(one.leases) / one.window.size, one.number))


def pack(members: list[Member]) -> Member:
    """The one with the least room, so that others can be ended."""
    return min(members, key=lambda one: (one.room, one.number))
