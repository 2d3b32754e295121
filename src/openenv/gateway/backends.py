"""The servers behind a gateway: health, load, and the choice of a server for a session.

A backend's route is computed from its address alone, so that any gateway with the same backends
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

__all__ = ["Backend", "Backends", "NoServer", "RouteGone", "Shares", "route_of"]

FAILED_CHECKS = 3
USUAL_SLOTS = 64  # of a server that does not report its number
_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


class NoServer(ConnectError):
    """No server can take the request; the gateway answers 503 or 404."""

    def __init__(self, text: str, status: int = 503) -> None:
        self.status = status
        super().__init__(text)


class RouteGone(NoServer):
    """The server of a session is gone; the gateway answers 410."""

    def __init__(self, text: str) -> None:
        super().__init__(text, 410)


def route_of(url: str) -> str:
    """Return the route to a server: eight letters and digits, computed from the address."""
    digest = hashlib.blake2s(url.rstrip("/").lower().encode(), digest_size=5).digest()
    return base64.b32encode(digest).decode().lower()


@dataclass(eq=False)
class Backend:
    """A server behind a gateway.

    Attributes:
        environment: The environment that it serves.
        url: The address.
        key: The key that the gateway sends if it has keys of its own; None for no key.
        route: See `route_of`.
        authority: Host and port, as in a Host header.
        connections: Open WebSockets through this gateway.
        served: WebSockets opened so far.
        taken: Sessions that the server reports; None if it does not report them.
        slots: The most sessions that the server reports.
        placed: Connections placed on the server since its last report.
        is_up: Whether it answers.
        is_draining: Whether it gets no new sessions.
        failures: Failed checks in a row.
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
        """The share of sessions that is taken, as far as known."""
        taken = self.connections if self.taken is None else self.taken + self.placed
        return taken / (self.slots or USUAL_SLOTS)

    def note_report(self, taken: int | None, slots: int | None) -> None:
        """Note a successful check and the sessions that the server reports."""
        self.is_up, self.failures, self.placed = True, 0, 0
        self.taken, self.slots = taken, slots

    def note_failure(self) -> None:
        """Note a failed check; after several the server counts as down."""
        self.failures += 1
        if self.failures >= FAILED_CHECKS:
            self.is_up = False


Shares = Mapping[str, KeyLimits]
"""The limits of a key at each of its servers, by route."""


def _part(limits: KeyLimits, sessions: int) -> KeyLimits:
    """Return the limits of a server that holds this many of a key's sessions."""
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
            ValueError: The server is there already.
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
            NoServer: There is no such environment, or there are several and none is named.
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

        Servers enforce limits without knowing of each other. So a key with limits uses only as few
        servers as hold its `max_sessions`, or one server if it has no such limit. Every gateway
        chooses the same servers by the key's name (rendezvous hashing, Thaler and Ravishankar
        1996).
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
        """Return the server of a session.

        Raises:
            RouteGone: The server is gone.
        """
        server = self.serving(environment).get(route)
        if server is None or not server.is_up:
            raise RouteGone("the server that had this session is gone")
        return server

    def least_loaded(self, environment: str | None, limits: Shares | None = None) -> Backend:
        """Return the server for the next session.

        Args:
            environment: The environment.
            limits: The shares of the client's key; servers with a share are preferred.

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
