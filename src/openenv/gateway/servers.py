"""The servers behind a gateway: which there are, how they are, and which gets the next session.

A server's route is made from its address alone, so that any gateway which knows the same servers
understands the routes of any other.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from openenv._internal.addresses import server_root
from openenv.errors import ConnectError
from openenv.execution.principal import KeyLimits

__all__ = ["NoServer", "RouteGone", "Server", "Servers", "Shares", "route_of"]

FAILED_CHECKS = 3
USUAL_SLOTS = 64  # of a server that does not say how many it has
_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_SECURE = {"https", "wss"}


class NoServer(ConnectError):
    """No server can take what was asked for; the gateway answers 503, or 404."""

    def __init__(self, text: str, status: int = 503) -> None:
        self.status = status
        super().__init__(text)


class RouteGone(NoServer):
    """The server that has a session is not there any more; the gateway answers 410."""

    def __init__(self, text: str) -> None:
        super().__init__(text, 410)


def route_of(url: str) -> str:
    """The route to a server: eight letters and digits, made from its address."""
    digest = hashlib.blake2s(url.rstrip("/").lower().encode(), digest_size=5).digest()
    return base64.b32encode(digest).decode().lower()


@dataclass(eq=False)
class Server:
    """A server behind a gateway.

    Attributes:
        environment: What it serves.
        url: Its address.
        key: What it is sent where the gateway has keys of its own; None sends none.
        route: See `route_of`.
        connections: WebSockets that are open through this gateway.
        served: Those that ever were.
        taken: Sessions that it has said it holds; None where it does not say.
        slots: Sessions that it has said it takes.
        placed: Connections that were given to it since it last said so.
        is_up: It answers.
        is_draining: It gets no new sessions.
        failures: Checks in a row that have failed.
    """

    environment: str
    url: str
    key: str | None = field(default=None, repr=False)
    route: str = ""
    host: str = ""
    port: int = 0
    is_secure: bool = False
    path: str = ""
    connections: int = 0
    served: int = 0
    taken: int | None = None
    slots: int | None = None
    placed: int = 0
    is_up: bool = True
    is_draining: bool = False
    failures: int = 0
    idle: list[Any] = field(default_factory=list, repr=False)  # its connections that wait

    def __post_init__(self) -> None:
        root = server_root(self.url)
        parts = urlsplit(root if "://" in root else f"http://{root}")
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ValueError(f"{self.url!r} is no address of a server, such as http://host:8000")
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self.route = route_of(self.url)
        self.host, self.port = parts.hostname, parts.port or _PORTS[parts.scheme]
        self.is_secure, self.path = parts.scheme in _SECURE, parts.path.rstrip("/")

    @property
    def authority(self) -> str:
        """Its host and port, as they stand in a Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def load(self) -> float:
        """How much of it is taken, as far as is known."""
        taken = self.connections if self.taken is None else self.taken + self.placed
        return taken / (self.slots or USUAL_SLOTS)

    def said(self, taken: int | None, slots: int | None) -> None:
        """Note what it has said of itself: it is up."""
        self.is_up, self.failures, self.placed = True, 0, 0
        self.taken, self.slots = taken, slots

    def failed(self) -> None:
        """Note that it did not answer."""
        self.failures += 1
        if self.failures >= FAILED_CHECKS:
            self.is_up = False


Shares = Mapping[str, KeyLimits]
"""The limits of a key at each server that it is served by, by its route."""


def _part(limits: KeyLimits, sessions: int) -> KeyLimits:
    """The limits of a server that holds so many of a key's sessions."""
    part = sessions / (limits.max_sessions or sessions)
    rates = (limits.requests_per_s, limits.bytes_per_s)
    return KeyLimits(sessions, *(None if rate is None else rate * part for rate in rates))


class Servers:
    """All servers behind a gateway, by what they serve.

    Args:
        servers: The servers.

    Raises:
        ValueError: One is there twice.
    """

    def __init__(self, servers: Iterable[Server] = ()) -> None:
        self._of: dict[str, dict[str, Server]] = {}
        for server in servers:
            self.add(server)

    def __iter__(self) -> Iterator[Server]:
        for group in self._of.values():
            yield from group.values()

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    @property
    def environments(self) -> list[str]:
        """What is served."""
        return list(self._of)

    def add(self, server: Server) -> None:
        """Add a server.

        Raises:
            ValueError: It is there already.
        """
        group = self._of.setdefault(server.environment, {})
        if server.route in group:
            raise ValueError(f"{server.url} is there twice")
        group[server.route] = server

    def remove(self, server: Server) -> None:
        """Take a server away."""
        self._of.get(server.environment, {}).pop(server.route, None)

    def serving(self, environment: str | None) -> dict[str, Server]:
        """The servers of an environment, by route.

        Raises:
            NoServer: There is no such environment, or it must be named.
        """
        if environment is None:
            if len(self._of) == 1:
                return next(iter(self._of.values()))
            named = ", ".join(f"/envs/{name}" for name in self._of)
            raise NoServer(f"several environments are served here; take one of {named}", 404)
        if environment not in self._of:
            named = ", ".join(self._of) or "none"
            raise NoServer(f"there is no environment {environment!r} here; there are {named}", 404)
        return self._of[environment]

    def shares(self, environment: str | None, name: str, limits: KeyLimits) -> Shares | None:
        """What a key may ask of each server, such that it gets no more of all of them than its
        limits; None where it has none.

        Servers keep the limits, and know nothing of each other. So a key that has any is served by
        as few as hold its `max_sessions`, by one where that says nothing: always by the same, which
        follow from its name (rendezvous hashing, Thaler and Ravishankar 1996), for any gateway.
        """
        if limits == KeyLimits():
            return None
        up = [one for one in self.serving(environment).values() if one.is_up]
        up.sort(key=lambda one: hashlib.blake2s(f"{name} {one.route}".encode()).digest())
        if limits.max_sessions is None:
            return {one.route: limits for one in up[:1]}
        shares, left = {}, limits.max_sessions
        for number, one in enumerate(up, 1):
            is_last = number == len(up)
            taken = left if is_last else min(left, one.slots or USUAL_SLOTS)
            shares[one.route] = _part(limits, taken)
            left -= taken
            if not left:
                break
        return shares

    def routed(self, environment: str | None, route: str) -> Server:
        """The server that has a session.

        Raises:
            RouteGone: It is not there any more.
        """
        server = self.serving(environment).get(route)
        if server is None or not server.is_up:
            raise RouteGone("the server that had this session is gone")
        return server

    def least_loaded(self, environment: str | None, limits: Shares | None = None) -> Server:
        """The server that gets the next session.

        Args:
            environment: What it is to serve.
            limits: Of whoever opens it, by server: only those that have a share are asked.

        Raises:
            NoServer: None can.
        """
        group = self.serving(environment)
        fit = [one for one in group.values() if one.is_up and not one.is_draining]
        if limits is not None:
            fit = [one for one in fit if one.route in limits] or fit
        if not fit:
            down = sum(not one.is_up for one in group.values())
            raise NoServer(
                f"no server takes sessions: of {len(group)}, {down} do not answer, and "
                f"{len(group) - down} are being drained"
            )
        return min(fit, key=lambda one: (one.load, one.connections, one.served))
