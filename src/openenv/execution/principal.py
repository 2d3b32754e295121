"""Keys and principals: roles, rights and limits.

A server with keys admits no one without a key. It keeps only the SHA-256 digests of its keys.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from openenv._internal.net.keys import checked_key
from openenv.errors import KeySessionsError, RateLimitError

PRINCIPAL = "openenv.principal"  # the key of the client's identity in an ASGI scope
MAX_TENANTS = 10_000
BURST_S = 2.0  # seconds of unused allowance that a key can use at once


class Role(str, Enum):
    """The role of a key.

    `ORCHESTRATOR`: everything, from driving episodes to all data about them.
    `AGENT`: the tools of one session, over MCP; not its state, no resets and no other sessions.
    `OBSERVER`: the server's health and metrics.
    """

    ORCHESTRATOR = "orchestrator"
    AGENT = "agent"
    OBSERVER = "observer"


@dataclass(frozen=True)
class KeyLimits:
    """The limits of a key; None means no limit.

    Allowance that was not used within the last 2 seconds may be used at once. A frame that exceeds
    it is still served, and the next request is delayed accordingly.

    Attributes:
        max_sessions: Maximum number of sessions open at once.
        requests_per_s: Requests per second; a step of each of 64 environments counts as 64.
        bytes_per_s: Bytes per second, sent and received.
    """

    max_sessions: int | None = None
    requests_per_s: float | None = None
    bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} is {value!r}; it must be a positive number")


@dataclass(frozen=True)
class Key:
    """A key that a server accepts.

    Args:
        key: The secret that a client sends. It is never displayed.
        role: The key's role.
        name: The key's name in messages and logs.
        session: The id of the session whose tools an agent may use; None for other roles.
        limits: The key's limits.

    Raises:
        ValueError: A header cannot carry the key; or an agent's key has no session, or another
            key has one.
    """

    key: str = field(repr=False)
    role: Role = Role.ORCHESTRATOR
    name: str = ""
    session: str | None = None
    limits: KeyLimits = KeyLimits()

    def __post_init__(self) -> None:
        object.__setattr__(self, "role", Role(self.role))
        checked_key(self.key)
        if (self.role is Role.AGENT) != (self.session is not None):
            raise ValueError("the key of an agent, and no other, names the session that it is for")


class Principal:
    """The holder of a key.

    Attributes:
        name: The principal's name in messages and logs.
        role: The principal's role.
        session_id: The session of an agent; None for other roles.
        limits: The principal's limits.
        sessions: Number of sessions that are open or wait for a slot.
    """

    __slots__ = ("_bytes", "_requests", "limits", "name", "role", "session_id", "sessions")

    def __init__(
        self,
        name: str,
        role: Role = Role.ORCHESTRATOR,
        *,
        session_id: str | None = None,
        limits: KeyLimits | None = None,
    ) -> None:
        self.name = name or role.value
        self.role = role
        self.session_id = session_id
        self.sessions = 0
        self.limit(limits or KeyLimits())

    def limit(self, limits: KeyLimits) -> None:
        """Set new limits from now on."""
        self.limits = limits
        requests, size = limits.requests_per_s, limits.bytes_per_s
        self._requests = None if requests is None else _Bucket(requests)
        self._bytes = None if size is None else _Bucket(size)

    def __repr__(self) -> str:
        return f"<Principal {self.name!r}: {self.role.value}>"

    def if_limited(self) -> Principal | None:
        """Return the principal if `allow` and `charge` must be called; otherwise None."""
        return self if self._requests is not None or self._bytes is not None else None

    def allow(self, requests: int, size: int) -> None:
        """Count requests and the bytes of their frame, or refuse the requests.

        Raises:
            RateLimitError: A rate limit is exceeded; the requests are not counted.
        """
        both = ((self._requests, "requests"), (self._bytes, "bytes"))
        waits = [(bucket.wait_s(), bucket.rate, unit) for bucket, unit in both if bucket]
        wait_s, rate, unit = max(waits, default=(0.0, 0.0, ""))
        if wait_s > 0:
            raise RateLimitError(self.name, f"{rate:g} {unit} a second", wait_s)
        if self._requests is not None:
            self._requests.level -= requests
        self.charge(size)

    def charge(self, size: int) -> None:
        """Count transferred bytes; they may delay the next request."""
        if self._bytes is not None:
            self._bytes.level -= size

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Count a session that waits for a slot among the open sessions."""
        self.sessions += 1
        try:
            yield
        finally:
            self.sessions -= 1

    @property
    def is_full(self) -> bool:
        """Whether the principal has the maximum number of sessions open."""
        most = self.limits.max_sessions
        return most is not None and self.sessions >= most

    def check_sessions(self) -> None:
        """Check that the principal may open another session.

        Raises:
            KeySessionsError: The principal has the maximum number of sessions open.
        """
        if self.is_full:
            raise KeySessionsError(self.name, self.sessions, self.limits.max_sessions or 0)


class Tenants:
    """The principals that a gateway acts for, each with separate sessions and limits.

    See `openenv.protocol.messages.Tenant`.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[Principal | None, str], Principal] = OrderedDict()

    def find(self, gateway: Principal | None, tenant: Principal) -> Principal:
        """Return the known principal that matches a description; remember a new one."""
        place = (gateway, tenant.name)
        known = self._known.get(place)
        if known is None or (known.role, known.session_id) != (tenant.role, tenant.session_id):
            known = self._known[place] = tenant
        elif known.limits != tenant.limits:
            known.limit(tenant.limits)
        self._known.move_to_end(place)
        if len(self._known) > MAX_TENANTS:  # forget those that were absent longest
            # The current one is kept: its limits must still hold for its next request.
            idle = [
                place for place, one in self._known.items() if not one.sessions and one is not known
            ]
            for idle_place in idle[: len(self._known) - MAX_TENANTS]:
                del self._known[idle_place]
        return known


class _Bucket:
    """A token bucket that may be overdrawn, so that a large frame is not refused forever."""

    __slots__ = ("_then", "level", "rate")

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.level = rate * BURST_S
        self._then = time.monotonic()

    def wait_s(self) -> float:
        """Return the seconds until tokens are available again."""
        now = time.monotonic()
        self.level = min(self.rate * BURST_S, self.level + (now - self._then) * self.rate)
        self._then = now
        return 0.0 if self.level > 0 else max(-self.level / self.rate, 0.001)


class Keyring:
    """The keys that a server accepts.

    Raises:
        ValueError: A key is given twice.
    """

    def __init__(self, keys: Iterable[Key]) -> None:
        self._principals: dict[bytes, Principal] = {}
        self._of_sessions: dict[str, list[bytes]] = {}
        for key in keys:
            limits, session_id = key.limits, key.session
            self._add(key.key, Principal(key.name, key.role, session_id=session_id, limits=limits))

    def __repr__(self) -> str:
        return f"<Keyring of {list(self._principals.values())}>"

    def _add(self, key: str, principal: Principal) -> None:
        digest = _digest(key)
        if digest in self._principals:
            raise ValueError(f"the key {principal.name!r} is there twice")
        self._principals[digest] = principal
        if principal.session_id is not None:
            self._of_sessions.setdefault(principal.session_id, []).append(digest)

    def find(self, key: str) -> Principal | None:
        """Return the principal of a key, in a time that reveals nothing about the known keys."""
        digest, found = _digest(key), None
        for known, principal in self._principals.items():
            if hmac.compare_digest(known, digest):
                found = principal
        return found

    def issue(self, session_id: str) -> str:
        """Return a new key for the agent of a session, and keep only its digest."""
        key = secrets.token_urlsafe(32)
        self._add(key, Principal(f"agent of {session_id}", Role.AGENT, session_id=session_id))
        return key

    def end_session(self, session_id: str) -> None:
        """Remove the keys for a session that has ended."""
        for digest in self._of_sessions.pop(session_id, ()):
            self._principals.pop(digest, None)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def principal_of(scope: Mapping[str, Any]) -> Principal | None:
    """Return the principal of a request, from the ASGI scope.

    The result is None if the server has no keys or the route needs none.
    """
    principal: Principal | None = scope.get(PRINCIPAL)
    return principal
