"""Authentication: keys, and the routes that each role may reach.

If a server has keys, a request carries one as ``Authorization: Bearer KEY`` or as ``X-API-Key:
KEY``; the second form is for servers behind a gateway that uses the first. A web page's WebSocket
offers the key as a subprotocol: ``openenv.key.`` and its base64 (RFC 4648, section 5). Without keys
everyone may reach everything.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import functools
import logging

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openenv._internal.net.peers import is_loopback
from openenv.errors import NotAuthenticatedError, NotPermittedError, OpenEnvError
from openenv.execution.manager import SessionManager
from openenv.execution.principal import PRINCIPAL, KeyLimits, Keyring, Principal, Role, Tenants
from openenv.protocol.messages import TENANT_HEADER, Tenant
from openenv.server.refusals import refuse

logger = logging.getLogger(__name__)

# Routes that each role may reach besides the public ones; an orchestrator may reach all routes.
REACHABLE: dict[Role, frozenset[str]] = {
    Role.AGENT: frozenset({"/mcp"}),
    Role.OBSERVER: frozenset({"/metrics", "/web/about", "/web/watch"}),
}
# Launchers and probes have no key. These routes decide themselves what they show without one.
FOR_EVERYBODY = frozenset({"/health", "/", "/web", "/web/"})
# Files of the web page, which asks for a key before it shows anything of the environment.
ASSETS = "/web/assets/"
# A browser's WebSocket can set no header but this one, which offers subprotocols.
KEY_SUBPROTOCOL = "openenv.key."


def may_reach(role: Role, path: str) -> bool:
    """Return whether a role may reach a path of the application."""
    return role is Role.ORCHESTRATOR or is_public(path) or path in REACHABLE[role]


def is_public(path: str) -> bool:
    """Return whether a path needs no key."""
    return path in FOR_EVERYBODY or path.startswith(ASSETS)


@functools.cache  # warns once per process
def warn_if_open(host: str) -> None:
    """Warn that a server without keys listens on an address that others may reach."""
    if not is_loopback(host):
        logger.warning(
            "this server listens on %s and has no keys: every client that reaches it may use its "
            "environments. Give it keys (OPENENV_API_KEY_FILE, --api-key-file FILE), or have it "
            "listen on 127.0.0.1",
            host,
        )


def described(principal: Principal, limits: KeyLimits, session_id: str | None) -> str:
    """Return the header value that tells a server on whose behalf a gateway sends a request.

    Args:
        principal: The principal that the gateway acts for.
        limits: The principal's limits on that server.
        session_id: The session of an agent, by its id on that server.
    """
    rights = dataclasses.asdict(limits)
    return Tenant(principal.name, principal.role.value, session_id, **rights).to_header()


class KeyGuard:
    """ASGI middleware that admits requests with a key to the routes of the key's role.

    Args:
        keys: The accepted keys. None admits everyone, and keeps only a gateway's tenants apart.
        public_schema: Let everyone read the schema.
    """

    def __init__(
        self,
        app: ASGIApp,
        keys: Keyring | None,
        manager: SessionManager,
        *,
        public_schema: bool = False,
    ) -> None:
        self._app = app
        self._keys = keys
        self._tenants = Tenants()
        self._for_everybody = frozenset({"/schema"} if public_schema else ())
        self._manager = manager

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        try:
            principal = None if self._keys is None else self._principal(scope, self._keys)
            principal = self._tenant(scope, principal)
            limited = None if principal is None else principal.if_limited()
            if limited is not None:
                limited.allow(1, 0)
        except OpenEnvError as error:
            await refuse(error, scope, receive, send, self._manager)
            return
        scope[PRINCIPAL] = principal
        if limited is not None and scope["type"] == "http":
            receive, send = _counted(limited, receive, send)
        await self._app(scope, receive, send)

    def _tenant(self, scope: Scope, principal: Principal | None) -> Principal | None:
        """Return the tenant that a gateway acts for, or the principal of the key."""
        name = TENANT_HEADER.lower().encode()
        value = next((value for key, value in scope["headers"] if key == name), None)
        if value is None or (principal is None) is not (self._keys is None):
            return principal
        if principal is not None and principal.role is not Role.ORCHESTRATOR:
            return principal
        try:
            read = Tenant.of_header(value)
            limits = KeyLimits(read.max_sessions, read.requests_per_s, read.bytes_per_s)
            tenant = Principal(read.name, Role(read.role), session_id=read.session, limits=limits)
        except ValueError as error:
            raise NotPermittedError(f"{TENANT_HEADER} cannot be read: {error}") from None
        _check_may_reach(tenant, path_of(scope))
        return self._tenants.find(principal, tenant)

    def _principal(self, scope: Scope, keys: Keyring) -> Principal | None:
        path = path_of(scope)
        offered = keys_in(scope["headers"])
        if not offered:
            if is_public(path) or path in self._for_everybody:
                return None
            raise NotAuthenticatedError(
                "this server wants a key, as `Authorization: Bearer KEY` or as `X-API-Key: KEY`"
            )
        found = [keys.find(key) for key in offered]
        principal = next((one for one in found if one is not None), None)
        if principal is None:
            raise NotAuthenticatedError("this server does not know the key that was sent")
        _check_may_reach(principal, path)
        return principal


def _check_may_reach(principal: Principal, path: str) -> None:
    if not may_reach(principal.role, path):
        raise NotPermittedError(
            f"the key {principal.name!r} is an {principal.role.value}'s, which may not "
            f"reach {path}; use the key of an orchestrator"
        )


def path_of(scope: Scope) -> str:
    """Return the path within the application, which may be mounted in another."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def keys_in(headers: list[tuple[bytes, bytes]]) -> list[str]:
    """Return the keys that a request carries. A gateway's token may be among them."""
    found = []
    for name, value in headers:
        if name == b"x-api-key":
            found.append(value.decode("latin-1").strip())
        elif name == b"authorization":
            scheme, _, token = value.decode("latin-1").partition(" ")
            if scheme.lower() == "bearer":
                found.append(token.strip())
        elif name == b"sec-websocket-protocol":
            for offered in map(str.strip, value.decode("latin-1").split(",")):
                text = offered.removeprefix(KEY_SUBPROTOCOL)
                padded = text + "=" * (-len(text) % 4)
                with contextlib.suppress(ValueError):  # not a valid key, so it grants nothing
                    if offered.startswith(KEY_SUBPROTOCOL):
                        found.append(base64.urlsafe_b64decode(padded).decode())
    return found


def without_keys(subprotocols: str) -> str:
    """Return the subprotocols that a handshake offers, without the keys."""
    offered = [name.strip() for name in subprotocols.split(",")]
    return ", ".join(name for name in offered if not name.startswith(KEY_SUBPROTOCOL))


def _counted(principal: Principal, receive: Receive, send: Send) -> tuple[Receive, Send]:
    """Charge the bytes of a request and its response to a principal."""

    async def counted_receive() -> Message:
        message = await receive()
        principal.charge(len(message.get("body", b"")))
        return message

    async def counted_send(message: Message) -> None:
        principal.charge(len(message.get("body", b"")))
        await send(message)

    return counted_receive, counted_send
