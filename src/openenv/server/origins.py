"""Web pages that are not the server's own have no business here.

A page in its user's browser can send requests, and open WebSockets, to servers that only the user's
machine reaches. The browser says which page it is, in the `Origin` header, and by which name it
has found the server, in `Host`. Programs that are no browsers send no `Origin`.
"""

from __future__ import annotations

import functools
import ipaddress
import re
import socket
from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from openenv._internal.net.peers import is_loopback
from openenv.errors import NotPermittedError, OpenEnvError, WrongHostError
from openenv.execution.manager import SessionManager
from openenv.server.refusals import refuse
from openenv.settings import allowed_hosts, allowed_origins

__all__ = ["OriginGuard", "Pages"]

# By these names containers reach the machine that they run on. `internal` is nobody's to register.
OF_CONTAINERS = ("host.docker.internal", "host.containers.internal")


class OriginGuard:
    """ASGI middleware that turns away pages of other origins (403), and requests to a server on
    loopback by a name that anybody may have made up (421).

    Args:
        app: What it guards.
        manager: Where it counts whom it turns away.
    """

    def __init__(self, app: ASGIApp, manager: SessionManager) -> None:
        self._app = app
        self._manager = manager
        self._pages = Pages()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            try:
                self._pages.check(scope["headers"], scope.get("server"))
            except OpenEnvError as error:
                await refuse(error, scope, receive, send, self._manager)
                return
        await self._app(scope, receive, send)


class Pages:
    """Tells requests of web pages that may not be here; see OPENENV_ALLOWED_ORIGINS and _HOSTS."""

    def __init__(self) -> None:
        self._origins = allowed_origins()
        self._hosts = allowed_hosts()

    def check(
        self, headers: Iterable[tuple[bytes, bytes]], server: tuple[str, int | None] | None
    ) -> None:
        """See that a request may be here.

        Args:
            headers: Its headers, with names in lower case.
            server: The address and port that it came to.

        Raises:
            NotPermittedError: It is of a page of another origin.
            WrongHostError: It has found a server on loopback by a name that anybody may have made
                up.
        """
        origin = host = forwarded = ""
        for name, value in headers:
            if name == b"host":
                text = value.decode("latin-1").lower()
                # Two of them are no request of a browser's (RFC 9112, 3.2; RFC 6454, 7.3).
                host = text if host in ("", text) else f"{host}, {text}"
            elif name == b"origin":
                text = value.decode("latin-1").lower()
                origin = text if origin in ("", text) else f"{origin}, {text}"
            elif name == b"x-forwarded-host":  # no page can send it elsewhere unasked
                forwarded = value.decode("latin-1").lower()
        if origin and _place(origin) not in {_place(own) for own in (host, forwarded) if own}:
            self._check_origin(origin)
        if host and _is_loopback(server):
            self._check_host(host)

    def _check_origin(self, origin: str) -> None:
        if not self._origins & {"*", origin, origin.partition("://")[2]}:
            raise NotPermittedError(
                f"a web page of {origin} may not use this server; if it is to, name it in "
                "OPENENV_ALLOWED_ORIGINS"
            )

    def _check_host(self, host: str) -> None:
        name = _place(host)[0]
        if _is_own(name) or self._hosts & {"*", name, host}:
            return
        raise WrongHostError(
            f"this server is on loopback, and not known as {name}; if a proxy is to reach it by "
            "that name, set OPENENV_ALLOWED_HOSTS"
        )


# The host and the port of an origin, or of a `Host` header, and nothing else.
_PLACE = re.compile(
    r"(?:[a-z][a-z0-9+.-]*://)?(?P<name>\[[0-9a-z:.%]+\]|[^\s@:/\\?#,\[\]]+)"
    r"(?::(?P<port>\d{0,5}))?/?"
)


@functools.lru_cache(maxsize=256)
def _place(url: str) -> tuple[str, int | None]:
    """The host and the port that an origin, or a `Host` header, names; None is the usual port."""
    found = _PLACE.fullmatch(url)
    if found is None:  # such as one with a user, which neither has (RFC 9110, 4.2.4; RFC 6454, 6.2)
        return f'"{url}"', None  # which is no name
    port = int(found["port"] or 0)
    return found["name"].strip("[]").rstrip("."), None if port in (0, 80, 443) else port


def _is_loopback(server: tuple[str, int | None] | None) -> bool:
    return server is not None and server[1] is not None and is_loopback(server[0])


@functools.lru_cache(maxsize=256)
def _is_own(name: str) -> bool:
    """Say whether a host name surely belongs to this machine. No DNS can rebind an address."""
    if name == "localhost" or name.endswith(".localhost") or name in OF_CONTAINERS:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name == socket.gethostname().lower()
    return True
