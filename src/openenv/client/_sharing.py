"""Connections that the sessions of one event loop share.

Every `EnvClient` of a loop is a session on a shared connection to its server: opening a session
takes one message and no handshake, and the requests of many sessions travel in one frame. Clients
share a connection if their server address, key and connection options are equal. Three kinds of
clients share none: a client with ``share_connection=False``, a client that starts its server, and a
client of an environment in this process. A server of version 0, and a gateway, which places
sessions by connection, get one connection for each session.

How many sessions share a connection depends on the server. A single process that is reached
directly gets `SESSIONS` on each. Several processes may stand behind the address if the host is a
name, if there is a proxy, or if the server reports siblings. Connections then spread the load: the
first `SPREAD` sessions get one each, and `SPREAD_SESSIONS` share each further one, on the process
that has the fewest.

A frame waits for the frames before it. So a connection that has carried a large frame takes no more
sessions, and a client whose message limit is below a server's joined frame shares no connection.
"""

from __future__ import annotations

import contextlib
import copy
import ipaddress
import os
import weakref
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from openenv._internal.lazy import asyncio
from openenv._internal.net.keys import key_for
from openenv._internal.net.proxies import proxy_for
from openenv.client.connection import (
    ConnectionEndpoint,
    RemoteSession,
    SessionConnection,
    connect_transport,
    open_connection,
)
from openenv.client.transports.base import Transport
from openenv.client.transports.websocket import WebSocketOptions, WebSocketTransport
from openenv.errors import OpenEnvError
from openenv.settings import ca_file

if TYPE_CHECKING:
    from collections.abc import Hashable

SESSIONS = 64
SPREAD = 16
SPREAD_SESSIONS = 8
AT_ONCE_S = 0.1  # a session that begins to connect within this time shares the first one's failure
LARGE_BYTES = 2**20
SMALLEST_LIMIT = 2**19  # bytes of a message; a server joins up to half of this in a frame


class SessionEndpoint(ConnectionEndpoint, Protocol):
    """The server of a client."""

    def shared(self) -> SharedAddress | None:
        """Return the address for shared connections, or None if the client shares none."""
        ...


@dataclass(frozen=True)
class SharedAddress:
    """A server address, for connections that outlive the client that opened them.

    Args:
        url: URL of the WebSocket.
        options: Options of the connections.
        key: Clients with equal keys share connections.
    """

    url: str
    options: WebSocketOptions
    key: Hashable = field(repr=False)

    @cached_property
    def may_be_several(self) -> bool:
        """Whether the host is a name, which may stand for several machines."""
        host = urlsplit(self.url).hostname or ""
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(host)
            return False
        return host != "localhost"


def shared_address(url: str, options: WebSocketOptions) -> SharedAddress | None:
    """Return the address that clients at `url` share; None if they share no connections."""
    largest = options.max_message_bytes
    if largest is not None and largest < SMALLEST_LIMIT:
        return None
    try:
        proxy = proxy_for(url)
    except ValueError:  # of a proxy variable; the connection reports the error
        return None
    key = (
        url,
        proxy,
        options.api_key or key_for(url),
        options.ca_file or ca_file(),
        largest,
        options.connect_timeout_s,
        options.ping_interval_s,
        options.ping_timeout_s,
        tuple(options.subprotocols),
        tuple(sorted(options.headers.items())),
    )
    return SharedAddress(url, options, key)


async def open_session(
    endpoint: SessionEndpoint, opening: dict[str, Any], session: RemoteSession
) -> SessionConnection:
    """Add a session to a connection, opening a new connection if none has room.

    Args:
        endpoint: The server.
        opening: Fields of the request that opens the session.
        session: The session.

    Raises:
        ConnectError: No server answers.
        NotSupported: The server cannot do what `opening` asks for.
    """
    address = endpoint.shared()
    if address is None:
        connection = await open_connection(endpoint, opening)
        connection.carry({0: session})
        return connection
    groups = _groups.setdefault(asyncio.get_running_loop(), {})
    key = (os.getpid(), address.key, *sorted(opening.items()))
    group = groups.get(key)
    if group is None:
        group = groups[key] = _Group(address, opening, key)
    return await group.join(session)


@dataclass
class _Attempt:
    """A connection attempt.

    Attributes:
        began: The start, by the loop's clock.
        done: A future for the outcome.
        waiting: Number of sessions that wait for it.
    """

    began: float
    done: asyncio.Future[None]
    waiting: int = 0


class _Group:
    """The connections shared by sessions with the same server, key and options; their endpoint.

    Args:
        address: The server.
        opening: Fields of the requests that open the sessions.
        key: The group's key in `_groups`.
    """

    def __init__(
        self, address: SharedAddress, opening: dict[str, Any], key: tuple[Hashable, ...]
    ) -> None:
        self._address = address
        self._opening = opening
        self._key = key
        # Weak references, since a connection holds its loop, for which `_groups` holds the group.
        self._connections: list[weakref.ref[SessionConnection]] = []
        self._latest: weakref.ref[SessionConnection] | None = None  # what the last session joined
        self._attempts: list[_Attempt] = []
        self._wanting = 0  # sessions that wait for a connection
        self._share: int | None = None  # sessions per connection, from the latest; None if unknown

    def open_transport(self) -> Transport:
        """Return a transport to the server, not yet connected."""
        return WebSocketTransport(self._address.url, self._address.options)

    async def connect(self) -> Transport:
        """Open a transport to the server."""
        return await connect_transport(self.open_transport())

    async def why_gone(self) -> str | None:
        """Return None: the group knows nothing about the server's process."""
        return None

    async def leave(self) -> None:
        """Note that a connection has ended, and drop the group if no connection is left."""
        self._forget_if_unused()

    def _forget_if_unused(self) -> None:
        groups = _groups.get(asyncio.get_running_loop(), {})
        if groups.get(self._key) is self and not (self._wanting or self._open_connections()):
            del groups[self._key]

    def _open_connections(self) -> list[SessionConnection]:
        found = [one() for one in self._connections]
        return [one for one in found if one is not None and not one.is_closed]

    async def join(self, session: RemoteSession) -> SessionConnection:
        """Add a session to a connection; see `open_session`."""
        self._wanting += 1
        try:
            while True:
                connection = self._with_room()
                if connection is not None:
                    connection.join(session)
                    self._latest = weakref.ref(connection)
                    return connection
                if self._may_open():
                    return await self._open(session)
                await self._wait()
        finally:
            self._wanting -= 1
            self._forget_if_unused()

    def _with_room(self) -> SessionConnection | None:
        """Return the connection for the next session, or None if a new one has to be opened."""
        latest = None if self._latest is None else self._latest()
        if latest is not None and not self._is_spread(latest) and self._has_room(latest):
            return latest  # thousands that open at once do not look through all connections
        found = self._open_connections()
        self._connections = [weakref.ref(one) for one in found]
        if self._share_now() in (1, None):
            return None
        free = [one for one in found if self._has_room(one)]
        if any(self._is_spread(one) for one in free):
            carried: Counter[str] = Counter()
            for one in found:
                carried[one.protocol.server] += len(one.sessions)

            def rank(one: SessionConnection) -> tuple[int, int]:
                return carried[one.protocol.server], len(one.sessions)

            limits = [(one, one.protocol.max_sessions) for one in free]
            free = [one for one, most in limits if most is None or rank(one)[0] < most]
            return min(free, key=rank, default=None)
        return free[0] if free else None

    def _has_room(self, connection: SessionConnection) -> bool:
        if connection.is_closed or not connection.is_usable:
            return False
        is_quick = connection.largest_frame < LARGE_BYTES
        return is_quick and len(connection.sessions) < self._share_of(connection)

    def _share_now(self) -> int | None:
        """Return how many sessions the next connection should carry; None if unknown."""
        share = self._share
        if share == SPREAD_SESSIONS and len(self._connections) + len(self._attempts) < SPREAD:
            return 1
        return share

    def _share_of(self, connection: SessionConnection) -> int:
        if connection.version == 0 or connection.route is not None:
            return 1
        return SPREAD_SESSIONS if self._is_spread(connection) else SESSIONS

    def _is_spread(self, connection: SessionConnection) -> bool:
        """Return whether another connection may lead to another server."""
        return connection.protocol.may_have_siblings or self._address.may_be_several

    def _may_open(self) -> bool:
        """Return whether the attempts under way are too few for the waiting sessions."""
        if not self._attempts:
            return True
        share = self._share_now()
        return share is not None and len(self._attempts) * share < self._wanting

    async def _open(self, session: RemoteSession) -> SessionConnection:
        loop = asyncio.get_running_loop()
        attempt = _Attempt(loop.time(), loop.create_future())
        self._attempts.append(attempt)
        error = None
        try:
            connection = await open_connection(self, self._opening)
            self._share = self._share_of(connection)
            connection.carry({0: session})
            self._connections.append(weakref.ref(connection))
        except OpenEnvError as why:
            error = why
            raise
        finally:
            self._attempts.remove(attempt)
            if error is None:
                attempt.done.set_result(None)
            else:
                attempt.done.set_exception(error)
                attempt.done.exception()  # marks the error as retrieved, since no caller may wait
        return connection

    async def _wait(self) -> None:
        """Wait for the attempt under way; if it fails, raise the error for this session too.

        The sessions wait for different attempts, so that each is awake once, and all find room. A
        session that came more than `AT_ONCE_S` after the attempt began makes its own attempt.
        """
        attempt = min(self._attempts, key=lambda one: one.waiting)
        attempt.waiting += 1
        came = asyncio.get_running_loop().time()
        try:
            await asyncio.shield(attempt.done)
        except OpenEnvError as error:
            if came - attempt.began < AT_ONCE_S:
                raise copy.copy(error) from error


_groups: weakref.WeakKeyDictionary[
    asyncio.AbstractEventLoop, dict[tuple[Hashable, ...], _Group]
] = weakref.WeakKeyDictionary()
