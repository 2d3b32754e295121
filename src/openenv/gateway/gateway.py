"""A proxy: a single address in front of many servers.

The gateway reads a WebSocket connection only until its handshake is done. A new session goes to the
least loaded server; a handshake that names a route goes to the server with its sessions. From then
on the gateway copies bytes without reading them. HTTP requests are forwarded one by one. The
gateway prefixes the session ids that servers return with a route, and removes the route from the
ids that clients send.

So a gateway stores nothing about sessions, and gateways with the same servers are interchangeable.
A gateway tells servers which key each request belongs to. The servers keep the sessions of
different keys apart, and enforce each key's limits.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import re
import ssl
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

import h11

from openenv._internal.json import read_json
from openenv._internal.net.peers import is_loopback
from openenv._internal.net.sockets import connect
from openenv._internal.net.tls import client_context
from openenv._internal.net.wire import Wire
from openenv.errors import NotPermittedError, WrongHostError, outward
from openenv.execution.principal import KeyLimits, Keyring, Principal, Role
from openenv.gateway.backends import Backend, Backends, NoServer, RouteGone, Shares
from openenv.gateway.splice import splice
from openenv.protocol.http import SESSION_COOKIE, SESSION_HEADER
from openenv.protocol.messages import ROUTE_HEADER, ROUTE_QUERY, SPREAD_HEADER, TENANT_HEADER
from openenv.server.auth import described, is_public, keys_in, may_reach, without_keys
from openenv.server.origins import Pages
from openenv.tools.types import CREATE

__all__ = ["Gateway"]

logger = logging.getLogger(__name__)

HEAD_S = 60.0  # for the head of a request, and for silence within a request
CONNECT_S = 5.0
CHECK_S = 1.0
FIRST_LOOK_S = 0.3
KEPT_S = 2.0  # how long an idle connection to a server is kept: servers close theirs after 5 s
KEPT = 32
MCP_BODY_BYTES = 2**20
MAX_ANSWER_BYTES = 16 * MCP_BODY_BYTES  # for an answer that is read as a whole
OWN = "/gateway/"

_ROUTED = re.compile(r"^([a-z2-7]{8})\.(.+)$", re.DOTALL)
_COOKIE = SESSION_COOKIE.encode()
_MCP_SESSION = b"mcp-session-id"
_SESSION_IDS = {SESSION_HEADER.lower().encode(), _MCP_SESSION}
_HOP_BY_HOP = {
    *(b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"upgrade"),
    *(b"proxy-authenticate", b"proxy-authorization", b"expect"),
}
_OURS = {ROUTE_HEADER.lower().encode(), TENANT_HEADER.lower().encode()}
_KEYS = {b"authorization", b"x-api-key"}
Headers = list[tuple[bytes, bytes]]


class _RequestRefused(Exception):
    """Raised for a request that is not forwarded."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        super().__init__(text)


class _AnswerTooLarge(ConnectionResetError):
    """Raised if a server's answer is larger than `MAX_ANSWER_BYTES`."""


class Gateway:
    """An HTTP and WebSocket proxy in front of servers.

    Args:
        servers: The servers.
        keys: Accepted keys. None accepts every request, and forwards keys to the servers.
        sessions_per_connection: Number of a client's sessions that share a connection to one server
            before further sessions go to another server. Protocol version 1 only.
        on_change: Called when a server stops or starts answering.

    Attributes:
        servers: The servers.
        is_ending: Whether the gateway takes no new sessions.
        answered: Number of HTTP requests that servers have answered, by status.
        refused: Number of requests that the gateway has refused, by status.
    """

    def __init__(
        self,
        servers: Backends,
        *,
        keys: Keyring | None = None,
        sessions_per_connection: int = 32,
        on_change: Callable[[Backend], object] | None = None,
    ) -> None:
        self.servers = servers
        self.is_ending = False
        self._keys = keys
        self._spread = sessions_per_connection
        self._pages = Pages()
        self._on_change = on_change
        self._tasks: set[asyncio.Task[None]] = set()
        self._open: dict[asyncio.Future[None], tuple[Wire, bool]] = {}
        self.answered: Counter[int] = Counter()
        self.refused: Counter[int] = Counter()

    # ------------------------------------------------------------------ life cycle

    async def listen(
        self,
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> asyncio.Server:
        """Start to listen, and to check the servers."""
        loop = asyncio.get_running_loop()
        checking = self._keep(self._check_all())
        await asyncio.wait([checking], timeout=FIRST_LOOK_S)  # so that the first choice has reports
        return await loop.create_server(self._made, host, port, ssl=tls, backlog=4096)

    async def drain(self, within_s: float) -> None:
        """End all connections: at once if the client can resume elsewhere, else within `within_s`.

        Args:
            within_s: Seconds that sessions of protocol version 0 have to end.
        """
        self.is_ending = True
        for wire, can_resume in list(self._open.values()):
            if can_resume:
                wire.transport.abort()
        waiting = [one for one, (_, can_resume) in self._open.items() if not can_resume]
        if waiting:
            await asyncio.wait(waiting, timeout=within_s)
        for wire, _ in list(self._open.values()):
            wire.transport.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for server in self.servers:
            while server.idle:
                server.idle.pop()[0].transport.abort()

    def _made(self) -> Wire:
        wire = Wire(h11.SERVER)
        wire.made = lambda: self._keep(self._serve(wire))
        return wire

    def _keep(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # ------------------------------------------------------------------ one client

    async def _serve(self, wire: Wire) -> None:
        working = asyncio.ensure_future(self._serve_requests(wire))
        wire.lost.add_done_callback(lambda _: working.cancel())
        try:
            await asyncio.wait([working])
        finally:
            working.cancel()
        if not working.cancelled() and (error := working.exception()) is not None:
            logger.error("a request could not be passed on", exc_info=error)
            wire.transport.abort()

    async def _serve_requests(self, wire: Wire) -> None:
        is_joined = False
        try:
            while True:
                event = await asyncio.wait_for(wire.event(), HEAD_S)
                if not isinstance(event, h11.Request):
                    break
                is_joined = await self._answer(wire, event)
                if is_joined:
                    return
                if wire.http.our_state is not h11.DONE or wire.http.their_state is not h11.DONE:
                    break
                wire.http.start_next_cycle()
        except (h11.RemoteProtocolError, asyncio.TimeoutError) as error:
            with contextlib.suppress(Exception):
                status = getattr(error, "error_status_hint", 408)
                await self._say(wire, status, {"detail": str(error) or "nothing came in time"})
        except (ConnectionError, h11.LocalProtocolError):
            pass  # the client left, or its server left while answering
        finally:
            if not is_joined:
                wire.transport.close()

    async def _answer(self, wire: Wire, request: h11.Request) -> bool:
        """Answer a request; return whether the client's connection was joined with a server's."""
        asked = _ProxiedRequest(wire, request)
        try:
            self._check_page(asked)
            if (own := self._own_answer(asked)) is not None:
                await self._say(wire, 200, own)
                return False
            self._authenticate(asked)
            server = self._server_of(asked)
            if _value(asked.headers, b"upgrade").lower() == "websocket":
                return await self._join_websocket(asked, server)
            await self._pass_on(asked, server)
        except (_RequestRefused, NoServer) as error:
            self.refused[error.status] += 1
            extra = [("WWW-Authenticate", "Bearer")] if error.status == 401 else []
            await self._say(wire, error.status, {"detail": str(error)}, extra)
        return False

    async def _say(
        self,
        wire: Wire,
        status: int,
        body: Any,
        extra: Sequence[tuple[str, str]] = (),
    ) -> None:
        is_text = isinstance(body, str)
        data = body.encode() if is_text else json.dumps(body).encode()
        kind = "text/plain; version=0.0.4; charset=utf-8" if is_text else "application/json"
        headers = [("Content-Type", kind), ("Content-Length", str(len(data))), *extra]
        if wire.http.their_state is not h11.DONE:  # the rest of the body is not read
            headers.append(("Connection", "close"))
        head = h11.Response(status_code=status, headers=headers)
        # In one piece, since WebSocket clients read only the first piece.
        await wire.send(head, h11.Data(data=data), h11.EndOfMessage())

    # ------------------------------------------------------------------ permissions and routing

    def _check_page(self, asked: _ProxiedRequest) -> None:
        """Refuse requests of other sites' web pages, as servers do, by this gateway's address.

        Raises:
            _RequestRefused: The page is not allowed.
        """
        own = asked.client.transport.get_extra_info("sockname")
        try:
            self._pages.check(asked.headers, (own[0], own[1]) if isinstance(own, tuple) else None)
        except (NotPermittedError, WrongHostError) as error:
            raise _RequestRefused(outward(error).http_status, str(error)) from None

    def _authenticate(self, asked: _ProxiedRequest) -> None:
        """Check the key of a request, and record its owner and limits.

        Raises:
            _RequestRefused: The key is missing, unknown, or not permitted.
        """
        if self._keys is None or is_public(asked.path):
            return
        principal = self._principal(asked)
        if principal is None:
            offered = keys_in(asked.headers)
            if offered and asked.path == "/mcp" and asked.route:
                server = self.servers.routed(asked.environment, asked.route)
                if server.key is not None:  # the server checks keys, and knows its agents' keys
                    return
            text = "does not know the key that was sent" if offered else "requires a key"
            raise _RequestRefused(401, f"this gateway {text}")
        if not may_reach(principal.role, asked.path):
            who = f"{principal.name!r} ({principal.role.value})"
            raise _RequestRefused(403, f"the key {who} is not permitted here")
        asked.passes_keys = False
        asked.tenant = principal
        asked.note_session(principal.session_id or "")
        asked.shares = self.servers.shares(asked.environment, principal.name, principal.limits)

    def _principal(self, asked: _ProxiedRequest) -> Principal | None:
        """Return the owner of the first known key in a request, or None."""
        assert self._keys is not None
        found = map(self._keys.find, keys_in(asked.headers))
        return next((one for one in found if one is not None), None)

    def _server_of(self, asked: _ProxiedRequest) -> Backend:
        if asked.route:
            return self.servers.routed(asked.environment, asked.route)
        if self.is_ending:
            raise NoServer("this gateway is shutting down; another takes new sessions")
        return self.servers.least_loaded(asked.environment, asked.shares)

    # ------------------------------------------------------------------ WebSockets

    async def _join_websocket(self, asked: _ProxiedRequest, server: Backend) -> bool:
        """Forward a handshake, then join both connections; return whether they were joined."""
        server.placed += 1
        client = asked.client
        if not isinstance(await client.event(), h11.EndOfMessage):
            raise _RequestRefused(400, "a handshake has no body")
        behind = await self._connect(server)
        try:
            headers = asked.headers_for(server)
            headers += [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
            await behind.send(asked.request_to(server, headers, b"GET"), h11.EndOfMessage())
            answer = await _answered(behind)
            if answer.status_code != 101:
                await self._relay(asked, server, behind, answer)
                behind.transport.abort()
                return False
            told = [(k, v) for k, v in answer.headers if k.lower() != b"connection"]
            told += [
                (b"Connection", b"Upgrade"),
                (ROUTE_HEADER.encode(), server.route.encode()),
                (SPREAD_HEADER.encode(), str(self._spread).encode()),
            ]
            await client.send(h11.InformationalResponse(status_code=101, headers=told))
        except BaseException:
            behind.transport.abort()
            raise
        server.connections += 1
        server.served += 1
        ended = splice(client, behind)
        can_resume = _value(told, b"sec-websocket-protocol").startswith("openenv.v1")
        self._open[ended] = (client, can_resume)

        def forget(_: object) -> None:
            server.connections -= 1
            self._open.pop(ended, None)

        ended.add_done_callback(forget)
        return True

    async def _connect(self, server: Backend) -> Wire:
        try:
            connecting = connect(
                lambda: Wire(h11.CLIENT),
                f"{'https' if server.is_secure else 'http'}://{server.authority}",
                tls=client_context(None) if server.is_secure else None,
                timeout_s=CONNECT_S,
            )
            _, wire = await asyncio.wait_for(connecting, CONNECT_S)
        except ConnectionRefusedError as error:
            self._note_failure(server, for_good=True)
            raise RouteGone(f"nothing listens at the server's address any more ({error})") from None
        except (OSError, asyncio.TimeoutError) as error:
            self._note_failure(server)
            why = str(error) or f"no connection within {CONNECT_S:g} s"
            raise _RequestRefused(502, f"the server cannot be reached: {why}") from None
        return wire

    # ------------------------------------------------------------------ HTTP

    async def _pass_on(self, asked: _ProxiedRequest, server: Backend) -> None:
        body = None
        if asked.is_json_rpc:
            body, asked.rpc_method, route = _unrouted(await _all_of(asked.client))
            if route and not asked.route:
                server = self.servers.routed(asked.environment, route)
        behind = self._idle(server) or await self._connect(server)
        is_whole = False
        try:
            headers = asked.headers_for(server)
            if body is not None:
                headers = _with_length(headers, body)
            await behind.send(asked.request_to(server, headers, asked.method))
            if body is not None:
                await behind.send(h11.Data(data=body), h11.EndOfMessage())
            else:
                await _copy_body(asked.client, behind)
            await self._relay(asked, server, behind, await _answered(behind))
            is_whole = True
        except _AnswerTooLarge as error:
            raise _RequestRefused(502, str(error)) from None
        except ConnectionResetError as error:
            text = f"the server left in the middle of the request: {error}"
            raise _RequestRefused(502, text) from None
        finally:
            self._put_back(server, behind, is_whole)

    def _idle(self, server: Backend) -> Wire | None:
        now = time.monotonic()
        while server.idle:
            wire, since = server.idle.pop()
            if now - since < KEPT_S and not wire.has_ended:
                return wire  # type: ignore[no-any-return]
            wire.transport.abort()
        return None

    def _put_back(self, server: Backend, wire: Wire, is_whole: bool) -> None:
        done = wire.http.our_state is h11.DONE and wire.http.their_state is h11.DONE
        if is_whole and done and not wire.is_lost and len(server.idle) < KEPT:
            wire.http.start_next_cycle()
            server.idle.append((wire, time.monotonic()))
        else:
            wire.transport.abort()

    async def _relay(
        self, asked: _ProxiedRequest, server: Backend, behind: Wire, answer: Any
    ) -> None:
        """Forward a server's answer to the client."""
        client, status = asked.client, answer.status_code
        headers = [_to_client(k, v, asked, server) for k, v in answer.headers]
        headers = [(k, v) for k, v in headers if k.lower() not in _HOP_BY_HOP]
        self.answered[status] += 1
        if asked.rpc_method == CREATE and status == 200:
            data = _routed(await _all_of(behind), server.route)
            head = h11.Response(status_code=status, headers=_with_length(headers, data))
            await client.send(head, h11.Data(data=data), h11.EndOfMessage())
            return
        await client.send(h11.Response(status_code=status, headers=headers))
        await _copy_body(behind, client)

    # ------------------------------------------------------------------ endpoints of the gateway

    def _own_answer(self, asked: _ProxiedRequest) -> Any:
        """Return the gateway's own answer, or None for a request to forward.

        Raises:
            _RequestRefused: The client is not permitted, or there is no such endpoint.
            NoServer: No server is up.
        """
        if asked.path == "/health" and not asked.route:
            return self._health(asked.environment)
        if asked.environment is not None or not asked.path.startswith(OWN):
            return None
        what = asked.path.removeprefix(OWN)
        principal = None
        if self._keys is not None:
            principal = self._principal(asked)
            if principal is None:
                raise _RequestRefused(401, "this gateway requires a key")
        if what == "metrics":
            from openenv.gateway.metrics import render_metrics

            return render_metrics(self)
        if what == "servers" and asked.method == b"GET":
            names = ["environment", "url", "route", "connections", "served", "taken", "slots"]
            names += ["is_up", "is_draining"]
            return [{name: getattr(one, name) for name in names} for one in self.servers]
        if what in ("drain", "undrain") and asked.method == b"POST":
            peer = asked.client.transport.get_extra_info("peername")
            is_local = not isinstance(peer, tuple) or is_loopback(str(peer[0]))
            if not is_local if principal is None else principal.role is not Role.ORCHESTRATOR:
                raise _RequestRefused(403, "draining requires the key of an orchestrator")
            url = parse_qs(asked.query).get("server", [""])[0]
            for server in self.servers:
                if url in (server.url, server.route):
                    server.is_draining = what == "drain"
                    return {"url": server.url, "is_draining": server.is_draining}
            raise _RequestRefused(404, f"there is no server {url!r}; GET {OWN}servers lists them")
        raise _RequestRefused(
            404, f"the gateway has metrics, servers, drain and undrain, not {what!r}"
        )

    def _health(self, environment: str | None) -> dict[str, Any]:
        group = list(self.servers)
        if environment is not None:
            group = list(self.servers.serving(environment).values())
        up = sum(one.is_up for one in group)
        if not up:
            raise NoServer(f"none of {len(group)} servers answers")
        status = "healthy" if up == len(group) else "degraded"
        return {"status": status, "servers": len(group), "servers_up": up}

    # ------------------------------------------------------------------ checks of the servers

    async def _check_all(self) -> None:
        while True:
            await asyncio.gather(*(self._check(one) for one in list(self.servers)))
            await asyncio.sleep(CHECK_S)

    async def _check(self, server: Backend) -> None:
        was_up = server.is_up
        try:
            status, text = await asyncio.wait_for(self._get(server, "/metrics"), CONNECT_S)
            if status == 200:
                taken, slots = (_gauge(text, f"openenv_slots{end}") for end in ("_taken", ""))
                server.note_report(taken, slots)
            elif (await asyncio.wait_for(self._get(server, "/health"), CONNECT_S))[0] == 200:
                server.note_report(None, None)
            else:
                self._note_failure(server)
        except (_RequestRefused, NoServer):
            pass  # recorded by `_connect`
        except (OSError, asyncio.TimeoutError, h11.ProtocolError):
            self._note_failure(server)
        except Exception:
            logger.exception("%s could not be checked", server.url)
        if server.is_up and not was_up:
            logger.warning("%s answers again", server.url)
            if self._on_change is not None:
                self._on_change(server)

    def _note_failure(self, server: Backend, *, for_good: bool = False) -> None:
        was_up = server.is_up
        server.note_failure()
        if for_good:
            server.is_up = False
        if was_up and not server.is_up:
            logger.warning("%s does not answer, and gets no sessions", server.url)
            if self._on_change is not None:
                self._on_change(server)

    async def _get(self, server: Backend, path: str) -> tuple[int, str]:
        wire = self._idle(server) or await self._connect(server)
        is_whole = False
        try:
            headers = [(b"Host", server.authority.encode())]
            if server.key is not None:
                headers.append((b"Authorization", f"Bearer {server.key}".encode()))
            target = f"{server.path}{path}".encode()
            request = h11.Request(method="GET", target=target, headers=headers)
            await wire.send(request, h11.EndOfMessage())
            answer = await wire.event()
            if not isinstance(answer, h11.Response):
                raise ConnectionResetError("the server closed the connection")
            text = (await _all_of(wire)).decode(errors="replace")
            is_whole = True
            return answer.status_code, text
        finally:
            self._put_back(server, wire, is_whole)


class _ProxiedRequest:
    """A client's request, and the parts of it that the gateway interprets.

    Attributes:
        client: The client's connection.
        environment: Name of the environment in the path, or None.
        path: Rest of the path.
        query: The query string.
        target: Path and query.
        route: Route to the server of the request's session; "" for any server.
        rpc_method: Method of a JSON-RPC body, or None.
        passes_keys: Whether the client's keys are forwarded to the server.
        tenant: Owner of the key, if the gateway has keys.
        shares: Shares of the key's limits, by route; None without limits.
    """

    passes_keys = True
    rpc_method: str | None = None
    tenant: Principal | None = None
    shares: Shares | None = None

    def __init__(self, client: Wire, request: h11.Request) -> None:
        self.client = client
        self.method = bytes(request.method)
        self.headers: Headers = [(bytes(k), bytes(v)) for k, v in request.headers]
        self.environment, self.target = _split(request.target.decode("latin-1"))
        parts = urlsplit(self.target)
        self.path, self.query = parts.path, parts.query
        self.route = _value(self.headers, ROUTE_HEADER.lower().encode())
        if not self.route and ROUTE_QUERY in self.query:
            self.route = parse_qs(self.query).get(ROUTE_QUERY, [""])[0]
        for name, value in self.headers:
            text = value.decode("latin-1")
            if name in _SESSION_IDS:
                self.note_session(text)
            elif name == b"cookie" and SESSION_COOKIE in text:
                for one in text.split(";"):
                    key, _, cookie = one.strip().partition("=")
                    if key == SESSION_COOKIE:
                        self.note_session(cookie)

    def note_session(self, session_id: str) -> None:
        """Take the route from a session id, unless the route is already known."""
        found = _ROUTED.match(session_id)
        if found and not self.route:
            self.route = found[1]

    @property
    def is_json_rpc(self) -> bool:
        """Whether the body is a message of the older JSON-RPC, which names the session."""
        names = {name for name, _ in self.headers}
        return (
            self.path == "/mcp"
            and self.method == b"POST"
            and not names & {b"mcp-protocol-version", _MCP_SESSION}
            and int(_value(self.headers, b"content-length") or MCP_BODY_BYTES + 1) <= MCP_BODY_BYTES
        )

    def request_to(self, server: Backend, headers: Headers, method: bytes) -> h11.Request:
        """Return the request for a server."""
        target = (server.path + self.target).encode("latin-1")
        return h11.Request(method=method, target=target, headers=headers)

    def headers_for(self, server: Backend) -> Headers:
        """Return the headers for a server: the client's, without those meant for the gateway."""
        kept: Headers = []
        dropped = _HOP_BY_HOP | {b"host"} | _OURS | (set() if self.passes_keys else _KEYS)
        for name, value in self.headers:
            if name in dropped:
                continue
            if not self.passes_keys and name == b"sec-websocket-protocol":
                value = without_keys(value.decode("latin-1")).encode("latin-1")
                if not value:
                    continue
            if name == b"origin":  # this gateway has checked it, so the server sees its own origin
                scheme = "https" if server.is_secure else "http"
                value = f"{scheme}://{server.authority}".encode()
            elif name in _SESSION_IDS and (found := _ROUTED.match(value.decode("latin-1"))):
                value = found[2].encode("latin-1")
            elif name == b"cookie" and _COOKIE in value:
                value = re.sub(rb"(" + _COOKIE + rb"=)[a-z2-7]{8}\.", rb"\1", value)
            kept.append((name, value))
        kept.append((b"Host", server.authority.encode()))
        if not self.passes_keys and server.key is not None:
            kept.append((b"Authorization", f"Bearer {server.key}".encode()))
        if self.tenant is not None:
            session_id = self.tenant.session_id
            found = _ROUTED.match(session_id) if session_id is not None else None
            own = found[2] if found is not None else session_id
            limits = KeyLimits()
            if self.shares is not None:  # without a share, only existing sessions can continue
                limits = self.shares.get(server.route) or dataclasses.replace(
                    self.tenant.limits, max_sessions=1
                )
            kept.append((TENANT_HEADER.encode(), described(self.tenant, limits, own).encode()))
        peer = self.client.transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            kept.append((b"X-Forwarded-For", str(peer[0]).encode()))
        host = _value(self.headers, b"host")
        kept.append((b"X-Forwarded-Host", host.encode("latin-1")))
        return kept


def _split(target: str) -> tuple[str | None, str]:
    """Split a target into the environment, or None, and the rest of the target."""
    if not target.startswith("/envs/"):
        return None, target
    name, slash, rest = target.removeprefix("/envs/").partition("/")
    if not slash:
        name, mark, query = name.partition("?")
        return name, f"/{mark}{query}"
    return name, f"/{rest}"


def _to_client(
    name: bytes, value: bytes, asked: _ProxiedRequest, server: Backend
) -> tuple[bytes, bytes]:
    """Convert a header of an answer for the client, with the route before session ids."""
    lower = name.lower()
    if lower in _SESSION_IDS:
        return name, f"{server.route}.".encode() + value
    if lower == b"set-cookie" and value.startswith(_COOKIE + b"="):
        cookie, mark, rest = value.partition(b";")
        key, _, session = cookie.partition(b"=")
        if session.strip(b'"'):
            cookie = key + b"=" + server.route.encode() + b"." + session
        if asked.environment is not None:
            rest = re.sub(rb"(?i)path=/", f"Path=/envs/{asked.environment}/".encode(), rest)
        return name, cookie + mark + rest
    return name, value


def _value(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> str:
    return next((v.decode("latin-1") for k, v in headers if k.lower() == name), "")


def _with_length(headers: Headers, body: bytes) -> Headers:
    framing = (b"content-length", b"transfer-encoding")
    kept = [(k, v) for k, v in headers if k.lower() not in framing]
    return [*kept, (b"Content-Length", str(len(body)).encode())]


async def _copy_body(source: Wire, to: Wire) -> None:
    async for part in source.body():
        await to.send(h11.Data(data=part))
    await to.send(h11.EndOfMessage())


async def _answered(behind: Wire) -> Any:
    """Return the head of a server's answer; status 101 for a successful handshake.

    Raises:
        _RequestRefused: The server does not answer.
    """
    try:
        answer = await behind.event()
        while isinstance(answer, h11.InformationalResponse) and answer.status_code != 101:
            answer = await behind.event()
    except h11.RemoteProtocolError as error:
        raise _RequestRefused(502, f"the server did not answer in HTTP: {error}") from None
    except ConnectionResetError:
        raise _RequestRefused(502, "the server broke the connection without an answer") from None
    if isinstance(answer, h11.ConnectionClosed):
        raise _RequestRefused(502, "the server closed the connection without an answer")
    return answer


async def _all_of(wire: Wire) -> bytes:
    """Return the whole body of a small message.

    Raises:
        _AnswerTooLarge: The body has more than `MAX_ANSWER_BYTES`.
        ConnectionResetError: The other side disconnected in the middle of the message.
    """
    found = bytearray()
    async for part in wire.body():
        found += part
        if len(found) > MAX_ANSWER_BYTES:
            raise _AnswerTooLarge(f"the server's answer has more than {MAX_ANSWER_BYTES} bytes")
    return bytes(found)


def _unrouted(body: bytes) -> tuple[bytes, str | None, str]:
    """Return a JSON-RPC message without the route, its method, and the route of its session id."""
    try:
        message = read_json(body)
        method, params = message.get("method"), message.get("params")
    except (ValueError, AttributeError):
        return body, None, ""  # let the server explain the fault
    named = params.get("session_id") if isinstance(params, dict) else None
    found = _ROUTED.match(named) if isinstance(named, str) else None
    if found is None:
        return body, method if isinstance(method, str) else None, ""
    params["session_id"] = found[2]
    return json.dumps(message).encode(), method, found[1]


def _routed(body: bytes, route: str) -> bytes:
    """Add the route to the session id in the answer to a session's creation."""
    try:
        message = read_json(body)
        message["result"]["session_id"] = f"{route}.{message['result']['session_id']}"
    except (ValueError, KeyError, TypeError):
        return body  # an error, which has no session id
    return json.dumps(message).encode()


def _gauge(text: str, name: str) -> int | None:
    found = re.search(rf"^{name}(?:{{[^}}]*}})? ([0-9.e+]+)$", text, re.MULTILINE)
    return int(float(found[1])) if found else None
