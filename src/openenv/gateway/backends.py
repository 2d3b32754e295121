"""The servers behind a gateway: their health and load, and the choice of one for a session.

A backend's route is computed from its address alone, so gateways with the same backends understand
each other's routes.
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

__all__ = ["Backend", "Backends", "NoServer", "RouteGone", "Shares", "route_of"]

FAILED_CHECKS = 3
USUAL_SLOTS = 64  # assumed for a server that does not report its number
_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


class NoServer(ConnectError):
    """Raised if no server can take the request; the gateway answers 503 or 404."""

    def __init__(self, text: str, status: int = 503) -> None:
        self.status = status
        super().__init__(text)


class RouteGone(NoServer):
    """Raised if the server of a session is gone; the gateway answers 410."""

    def __init__(self, text: str) -> None:
        super().__init__(text, 410)


def route_of(url: str) -> str:
    """Return the route to a server: eight letters and digits, computed from its address."""
    digest = hashlib.blake2s(url.rstrip("/").lower().encode(), digest_size=5).digest()
    return base64.b32encode(digest).decode().lower()


@dataclass(eq=False)
class Backend:
    """A server behind a gateway.

    Attributes:
        environment: Name of the environment that the server serves.
        url: Address of the server.
        key: Key that the gateway sends if it has keys of its own; None for no key.
        route: Route to the server; see `route_of`.
        authority: Host and port, as in a Host header.
        connections: Number of open WebSockets through this gateway.
        served: Number of WebSockets opened so far.
        taken: Number of sessions that the server reports; None if not reported.
        slots: Maximum number of sessions that the server reports; None if not reported.
        placed: Number of connections placed on the server since its last report.
        is_up: Whether the server answers.
        is_draining: Whether the server gets no new sessions.
        failures: Number of failed checks in a row.
        idle: Connections that are kept open for further requests.
    """

    environment: str
    url: str
    key: str | None = field(default=None, repr=False)
    connections: int = field(default=0, init=False)
    served: int = field(default=0, init=False)
    taken: int | None = field(default=None, init=False)
    slots: int | None = field(default=None, init=False)
    placed: int = field(default=0, init=False)
    is_up: bool = field(default=True, init=False)
    is_draining: bool = field(default=False, init=False)
    failures: int = field(default=0, init=False)
    idle: list[Any] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        root = server_root(self.url)
        parts = urlsplit(root if "://" in root else f"http://{root}")
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ValueError(f"{self.url!r} is no address of a server, such as http://host:8000")
        self.path = parts.path.rstrip("/")
        self.url = f"{parts.scheme}://{parts.netloc}{self.path}"
        self.route = route_of(self.url)
        self.is_secure = parts.scheme in ("https", "wss")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        self.authority = f"{host}:{parts.port or _PORTS[parts.scheme]}"

    @property
    def load(self) -> float:
        """The share of the server's sessions that is taken, as far as known."""
        taken = self.connections if self.taken is None else self.taken + self.placed
        return taken / (self.slots or USUAL_SLOTS)

    def note_report(self, taken: int | None, slots: int | None) -> None:
        """Record a successful check, and the sessions that the server reports."""
        self.is_up, self.failures, self.placed = True, 0, 0
        self.taken, self.slots = taken, slots

    def note_failure(self) -> None:
        """Record a failed check. After three in a row the server counts as down."""
        self.failures += 1
        if self.failures >= FAILED_CHECKS:
            self.is_up = False


Shares = Mapping[str, KeyLimits]
"""The limits of a key on each of its servers, by route."""


def _part(limits: KeyLimits, sessions: int) -> KeyLimits:
    """Return the limits for a server that holds `sessions` of a key's sessions."""
    part = sessions / (limits.max_sessions or sessions)
    rates = (limits.requests_per_s, limits.bytes_per_s)
    return KeyLimits(sessions, *(None if rate is None else rate * part for rate in rates))


class Backends:
    """All servers behind a gateway, by environment.

    Args:
        servers: The servers.

    Raises:
        ValueError: A server is given twice.
    """

    def __init__(self, servers: Iterable[Backend] = ()) -> None:
        self._of: dict[str, dict[str, Backend]] = {}
        for server in servers:
            self.add(server)

    def __iter__(self) -> Iterator[Backend]:
        for group in self._of.values():
            yield from group.values()

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    @property
    def environments(self) -> list[str]:
        """The names of the environments."""
        return list(self._of)

    def add(self, server: Backend) -> None:
        """Add a server.

        Raises:
            ValueError: The server was already added.
        """
        group = self._of.setdefault(server.environment, {})
        if server.route in group:
            raise ValueError(f"{server.url} is there twice")
        group[server.route] = server

    def remove(self, server: Backend) -> None:
        """Remove a server."""
        self._of.get(server.environment, {}).pop(server.route, None)

    def serving(self, environment: str | None) -> dict[str, Backend]:
        """Return the servers of an environment, by route.

        Raises:
            NoServer: The environment does not exist, or none is named and there are several.
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
        """Divide a key's limits among servers; return None for a key without limits.

        Servers enforce limits independently. So a key with limits uses only as many servers as are
        needed for its `max_sessions`, or one server if it has no such limit. Every gateway chooses
        the same servers from the key's name (rendezvous hashing, Thaler and Ravishankar 1996).
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

    def routed(self, environment: str | None, route: str) -> Backend:
        """Return the server that a route leads to.

        Raises:
            RouteGone: The server is unknown or down.
        """
        server = self.serving(environment).get(route)
        if server is None or not server.is_up:
            raise RouteGone("the server that had this session is gone")
        return server

    def least_loaded(self, environment: str | None, limits: Shares | None = None) -> Backend:
        """Return the server for a new session.

        Args:
            environment: Name of the environment; None if there is only one.
            limits: The shares of the client's key. Servers with a share are preferred.

        Raises:
            NoServer: No server takes sessions.
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
