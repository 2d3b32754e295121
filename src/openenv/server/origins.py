"""Protection from web pages that are not the server's own.

A page in a user's browser can send requests, and open WebSockets, to servers that only the user's
machine can reach. The browser names the page in the `Origin` header, and in `Host` the name by
which it found the server. Programs other than browsers send no `Origin`.
"""

from __future__ import annotations

import functools
import ipaddress
import re
import socket
from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from openenv._internal.net.peers import is_loopback
from openenv.errors import MalformedHostError, NotPermittedError, OpenEnvError, WrongHostError
from openenv.execution.manager import SessionManager
from openenv.server.refusals import refuse
from openenv.settings import allowed_hosts, allowed_origins

# Names by which containers reach their host machine. No one can register a name in `internal`.
OF_CONTAINERS = ("host.docker.internal", "host.containers.internal")


class OriginGuard:
    """ASGI middleware that refuses pages of other origins (403), malformed hosts (400), and, on
    loopback, unknown host names, which DNS rebinding may have made up (421).
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
    """Finds requests of web pages to refuse; see OPENENV_ALLOWED_ORIGINS and _HOSTS."""

    def __init__(self) -> None:
        self._origins = allowed_origins()
        self._hosts = allowed_hosts()

    def check(
        self, headers: Iterable[tuple[bytes, bytes]], server: tuple[str, int | None] | None
    ) -> None:
        """Check that a request is allowed.

        Args:
            headers: The request's headers, with names in lower case.
            server: The address and port that received the request.

        Raises:
            MalformedHostError: `Host` is not a name with an optional port, or there are several.
            NotPermittedError: The request is from a page of another origin.
            WrongHostError: The request reached a server on loopback by a host name that is not this
                machine's own, nor in OPENENV_ALLOWED_HOSTS.
        """
        origin = host = forwarded = ""
        for name, value in headers:
            if name not in (b"host", b"origin", b"x-forwarded-host"):
                continue
            text = value.decode("latin-1").strip().lower()
            if name == b"host":
                # A browser never sends two (RFC 9112, 3.2; RFC 6454, 7.3).
                host = text if host in ("", text) else f"{host}, {text}"
            elif name == b"origin":
                origin = text if origin in ("", text) else f"{origin}, {text}"
            else:  # a page cannot set this header without permission
                forwarded = text
        if host and _HOST.fullmatch(host) is None:
            raise MalformedHostError(f"Host: {host!r:.200}; expected one name, or name:port")
        is_own = not origin or _place(origin) in {_place(own) for own in (host, forwarded) if own}
        if not is_own and not self._origins & {"*", origin, origin.partition("://")[2]}:
            raise NotPermittedError(
                f"a web page of {origin} may not use this server; if it is to, name it in "
                "OPENENV_ALLOWED_ORIGINS"
            )
        if host and server is not None and server[1] is not None and is_loopback(server[0]):
            asked = _place(host)[0]
            if not (_is_own(asked) or self._hosts & {"*", asked, host}):
                raise WrongHostError(
                    f"this server is on loopback, and not known as {asked}; if a proxy is to reach "
                    "it by that name, set OPENENV_ALLOWED_HOSTS"
                )


# The host and port of a `Host` header and nothing else; an origin also has a scheme.
_HOST = re.compile(r"(?P<name>\[[0-9a-z:.%]+\]|[^\s@:/\\?#,\[\]]+)(?::(?P<port>\d{0,5}))?")
_PLACE = re.compile(rf"(?:[a-z][a-z0-9+.-]*://)?{_HOST.pattern}/?")


@functools.lru_cache(maxsize=256)
def _place(url: str) -> tuple[str, int | None]:
    """Return the host and the port in an origin or a `Host` header; None for a default port."""
    found = _PLACE.fullmatch(url)
    if found is None:  # such as one with a user, which is invalid (RFC 9110, 4.2.4; RFC 6454, 6.2)
        return f'"{url}"', None  # equal to no valid name
    port = int(found["port"] or 0)
    return found["name"].strip("[]").rstrip("."), None if port in (0, 80, 443) else port


@functools.lru_cache(maxsize=256)
def _is_own(name: str) -> bool:
    """Return whether a host name surely means this machine. DNS cannot rebind an address."""
    if name == "localhost" or name.endswith(".localhost") or name in OF_CONTAINERS:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name == socket.gethostname().lower()
    return True
