"""One address in front of many servers.

A WebSocket is looked at until its handshake is done: a new one goes to the server with the least
to do, one that names its route to the server that has its sessions. From then on its bytes pass
from socket to socket, unread. HTTP requests are passed on one by one; the ids of sessions that
servers give out have the route put before them, and taken off again. So a gateway keeps nothing
about any session, and two of them with the same servers are one. Whom it asks for it tells the
servers, which keep the sessions of different keys apart, and each key to its limits.
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
from openenv.errors import NotPermittedError, WrongHostError, outward
from openenv.execution.principal import KeyLimits, Keyring, Principal, Role
from openenv.gateway.servers import NoServer, RouteGone, Server, Servers, Shares
from openenv.gateway.wire import Wire, splice
from openenv.protocol.http import SESSION_COOKIE, SESSION_HEADER
from openenv.protocol.messages import ROUTE_HEADER, ROUTE_QUERY, SPREAD_HEADER, TENANT_HEADER
from openenv.server.auth import described, is_public, keys_in, may_reach, without_keys
from openenv.server.origins import Pages
from openenv.tools.types import CREATE

__all__ = ["Gateway"]

logger = logging.getLogger(__name__)

MCP_SESSION = "mcp-session-id"

HEAD_S = 60.0  # that a client may take to say what it wants, and be silent in between
CONNECT_S = 5.0
CHECK_S = 1.0
FIRST_LOOK_S = 0.3
KEPT_S = 2.0  # that an unused connection to a server is kept: they close theirs after five
KEPT = 32
MCP_BODY_BYTES = 2**20
MAX_ANSWER_BYTES = 16 * MCP_BODY_BYTES  # of an answer that is read as a whole
OWN = "/gateway/"

_ROUTED = re.compile(r"^([a-z2-7]{8})\.(.+)$", re.DOTALL)
_HOP_BY_HOP = {
    *(b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"upgrade"),
    *(b"proxy-authenticate", b"proxy-authorization", b"expect"),
}
_KEYS = {b"authorization", b"x-api-key"}
Headers = list[tuple[bytes, bytes]]


class _Refused(Exception):
    """A request that is not passed on."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        super().__init__(text)


class _TooLarge(ConnectionResetError):
    """An answer of a server that is not read to its end."""


class Gateway:
    """Passes clients on to servers.

    Args:
        servers: The servers behind it.
        keys: The keys that it lets in; None lets everybody in, and passes on what they carry.
        sessions_per_connection: What it tells a client that opens many sessions: so many of them
            share a connection, and the next go to another server. Of version 1 only.
        on_change: Called when a server is lost or found.

    Attributes:
        servers: The servers behind it.
        is_ending: It takes no new sessions.
    """

    def __init__(
        self,
        servers: Servers,
        *,
        keys: Keyring | None = None,
        sessions_per_connection: int = 32,
        on_change: Callable[[Server], object] | None = None,
    ) -> None:
        self.servers = servers
        self.is_ending = False
        self._keys = keys
        self._spread = sessions_per_connection
        self._pages = Pages()
        self._on_change = on_change
        self._tasks: set[asyncio.Task[None]] = set()
        self._open: dict[asyncio.Future[None], tuple[Wire, bool]] = {}
        self.answered: Counter[int] = Counter()  # HTTP requests, by status
        self.refused: Counter[int] = Counter()

    # ------------------------------------------------------------------ its life

    async def listen(
        self,
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> asyncio.Server:
        """Begin to listen, and to look after the servers."""
        loop = asyncio.get_running_loop()
        looking = self._keep(self._look_after())
        await asyncio.wait([looking], timeout=FIRST_LOOK_S)  # that the first choice is a good one
        listening = await loop.create_server(self._made, host, port, ssl=tls, backlog=4096)
        return listening

    async def drain(self, within_s: float) -> None:
        """Let go of everything: those who can resume elsewhere at once, others within a time.

        Args:
            within_s: Seconds that sessions of protocol version 0 have to end in.
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
        is_passing = False
        try:
            while True:
                event = await asyncio.wait_for(wire.event(), HEAD_S)
                if not isinstance(event, h11.Request):
                    break
                is_passing = await self._answer(wire, event)
                if is_passing:
                    return
                if wire.http.our_state is not h11.DONE or wire.http.their_state is not h11.DONE:
                    break
                wire.http.start_next_cycle()
        except (h11.RemoteProtocolError, asyncio.TimeoutError) as error:
            with contextlib.suppress(Exception):
                status = getattr(error, "error_status_hint", 408)
                await self._say(wire, status, {"detail": str(error) or "nothing came in time"})
        except (ConnectionError, h11.LocalProtocolError):
            pass  # it left, or its server did in mid-answer
        finally:
            if not is_passing:
                wire.transport.close()

    async def _answer(self, wire: Wire, request: h11.Request) -> bool:
        """Answer a request; true where its connection was handed on."""
        headers: Headers = [(bytes(k), bytes(v)) for k, v in request.headers]
        target = request.target.decode("latin-1")
        try:
            self._check_page(wire, headers)
            if own := self._own(wire, request, target, headers):
                await self._say(wire, 200, await own())
                return False
            asked = _Asked(request, target, headers)
            credential = self._let_in(asked)
            server = self._server_of(asked)
            if _value(headers, b"upgrade").lower() == "websocket":
                return await self._hand_on(wire, asked, server, credential)
            await self._pass_on(wire, asked, server, credential)
        except _Refused as refused:
            await self._refuse(wire, refused.status, str(refused))
        except NoServer as error:
            await self._refuse(wire, error.status, str(error))
        return False

    async def _refuse(self, wire: Wire, status: int, text: str) -> None:
        self.refused[status] += 1
        extra = [("WWW-Authenticate", "Bearer")] if status == 401 else []
        await self._say(wire, status, {"detail": text}, extra)

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
        if wire.http.their_state is not h11.DONE:  # a body that nobody will read
            headers.append(("Connection", "close"))
        # In one piece: clients of WebSockets read no further than the first.
        said = (
            h11.Response(status_code=status, headers=headers),
            h11.Data(data=data),
            h11.EndOfMessage(),
        )
        await wire.write(b"".join(wire.http.send(one) or b"" for one in said))

    # ------------------------------------------------------------------ who may, and where to

    def _check_page(self, wire: Wire, headers: Headers) -> None:
        """Turn web pages away, as servers do: they see this gateway's address, and not the page's.

        Raises:
            _Refused: It may not be here.
        """
        own = wire.transport.get_extra_info("sockname")
        try:
            self._pages.check(headers, (own[0], own[1]) if isinstance(own, tuple) else None)
        except (NotPermittedError, WrongHostError) as error:
            raise _Refused(outward(error).http_status, str(error)) from None

    def _let_in(self, asked: _Asked) -> str | None:
        """The key that the server is sent; "" passes on what the client sent.

        Raises:
            _Refused: It may not.
        """
        if self._keys is None or is_public(asked.path):
            return ""
        principal = self._principal(asked.headers)
        if principal is None:
            offered = keys_in(asked.headers)
            if offered and asked.path == "/mcp" and asked.route:
                server = self.servers.routed(asked.environment, asked.route)
                if server.key is not None:  # it asks for keys, and alone knows those of its agents
                    return ""
            text = "does not know the key that was sent" if offered else "wants a key"
            raise _Refused(401, f"this gateway {text}")
        if not may_reach(principal.role, asked.path):
            raise _Refused(
                403, f"the key {principal.name!r} ({principal.role.value}) may not go there"
            )
        asked.tenant = principal
        asked.note(principal.session_id or "")
        asked.shares = self.servers.shares(asked.environment, principal.name, principal.limits)
        return None

    def _principal(self, headers: Headers) -> Principal | None:
        """Who has a key of this gateway among those that a request carries."""
        assert self._keys is not None
        found = [self._keys.find(key) for key in keys_in(headers)]
        return next((one for one in found if one is not None), None)

    def _server_of(self, asked: _Asked) -> Server:
        if asked.route:
            return self.servers.routed(asked.environment, asked.route)
        if self.is_ending:
            raise NoServer("this gateway is being ended; another takes new sessions")
        return self.servers.least_loaded(asked.environment, asked.shares)

    # ------------------------------------------------------------------ WebSockets

    async def _hand_on(
        self, wire: Wire, asked: _Asked, server: Server, credential: str | None
    ) -> bool:
        """Have a server answer the handshake; then join its connection and the client's."""
        server.placed += 1
        if not isinstance(await wire.event(), h11.EndOfMessage):
            raise _Refused(400, "a handshake has no body")
        behind = await self._connect(server)
        try:
            headers = self._request_headers(wire, asked, server, credential)
            headers += [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
            target = (server.path + asked.target).encode("latin-1")
            await behind.send(h11.Request(method="GET", target=target, headers=headers))
            await behind.send(h11.EndOfMessage())
            answer = await _answered(behind)
            if answer.status_code != 101:
                await self._relay(wire, behind, answer, asked, server)
                behind.transport.abort()
                return False
            told = [(k, v) for k, v in answer.headers if k.lower() != b"connection"]
            told += [
                (b"Connection", b"Upgrade"),
                (ROUTE_HEADER.encode(), server.route.encode()),
                (SPREAD_HEADER.encode(), str(self._spread).encode()),
            ]
            await wire.send(h11.InformationalResponse(status_code=101, headers=told))
        except BaseException:
            behind.transport.abort()
            raise
        version_1 = _value(told, b"sec-websocket-protocol").startswith("openenv.v1")
        self._join(wire, behind, server, version_1)
        return True

    def _join(self, wire: Wire, behind: Wire, server: Server, can_resume: bool) -> None:
        server.connections += 1
        server.served += 1
        ended = splice(wire, behind)
        self._open[ended] = (wire, can_resume)

        def forget(_: object) -> None:
            server.connections -= 1
            self._open.pop(ended, None)

        ended.add_done_callback(forget)

    async def _connect(self, server: Server) -> Wire:
        try:
            connecting = connect(
                lambda: Wire(h11.CLIENT),
                f"{'https' if server.is_secure else 'http'}://{server.authority}",
                tls=client_context(None) if server.is_secure else None,
                timeout_s=CONNECT_S,
            )
            _, wire = await asyncio.wait_for(connecting, CONNECT_S)
        except ConnectionRefusedError as error:
            self._failed(server, for_good=True)
            raise RouteGone(f"nothing listens at the server's address any more ({error})") from None
        except (OSError, asyncio.TimeoutError) as error:
            self._failed(server)
            why = str(error) or f"no connection within {CONNECT_S:g} s"
            raise _Refused(502, f"the server cannot be reached: {why}") from None
        return wire

    def _failed(self, server: Server, *, for_good: bool = False) -> None:
        was_up = server.is_up
        server.failed()
        if for_good:
            server.is_up = False
        if was_up and not server.is_up:
            logger.warning("%s does not answer, and gets no sessions", server.url)
            if self._on_change is not None:
                self._on_change(server)

    # ------------------------------------------------------------------ HTTP

    async def _pass_on(
        self, wire: Wire, asked: _Asked, server: Server, credential: str | None
    ) -> None:
        body = None
        if asked.is_json_rpc:
            body = await _small_body(wire)
            if body is not None:
                body, asked.rpc_method, route = _unrouted(body)
                if route and not asked.route:
                    server = self.servers.routed(asked.environment, route)
        behind = self._idle(server) or await self._connect(server)
        is_whole = False
        try:
            headers = self._request_headers(wire, asked, server, credential)
            if body is not None:
                headers = [(k, v) for k, v in headers if k.lower() != b"content-length"]
                headers.append((b"Content-Length", str(len(body)).encode()))
            target = (server.path + asked.target).encode("latin-1")
            request = h11.Request(method=asked.method, target=target, headers=headers)
            await behind.send(request)
            if body is not None:
                await behind.send(h11.Data(data=body))
                await behind.send(h11.EndOfMessage())
            else:
                await _pump_body(wire, behind)
            answer = await _answered(behind)
            await self._relay(wire, behind, answer, asked, server)
            is_whole = True
        except _TooLarge as error:
            raise _Refused(502, str(error)) from None
        except ConnectionResetError as error:
            raise _Refused(502, f"the server left in mid-request: {error}") from None
        finally:
            self._put_back(server, behind, is_whole)

    def _idle(self, server: Server) -> Wire | None:
        now = time.monotonic()
        while server.idle:
            wire, since = server.idle.pop()
            if now - since < KEPT_S and not wire.is_lost and not wire._has_ended:
                return wire  # type: ignore[no-any-return]
            wire.transport.abort()
        return None

    def _put_back(self, server: Server, wire: Wire, is_whole: bool) -> None:
        done = wire.http.our_state is h11.DONE and wire.http.their_state is h11.DONE
        if is_whole and done and not wire.is_lost and len(server.idle) < KEPT:
            wire.http.start_next_cycle()
            server.idle.append((wire, time.monotonic()))
        else:
            wire.transport.abort()

    async def _relay(
        self, wire: Wire, behind: Wire, answer: Any, asked: _Asked, server: Server
    ) -> None:
        """Give a server's answer to the client."""
        headers = [_to_client(k, v, asked, server) for k, v in answer.headers]
        headers = [(k, v) for k, v in headers if k.lower() not in _HOP_BY_HOP]
        self.answered[answer.status_code] += 1
        if asked.rpc_method == CREATE and answer.status_code == 200:
            data = await _all_of(behind)
            data = _routed(data, server.route)
            headers = [(k, v) for k, v in headers if k.lower() != b"content-length"]
            headers = [(k, v) for k, v in headers if k.lower() != b"transfer-encoding"]
            headers.append((b"Content-Length", str(len(data)).encode()))
            await wire.send(h11.Response(status_code=answer.status_code, headers=headers))
            await wire.send(h11.Data(data=data))
            await wire.send(h11.EndOfMessage())
            return
        await wire.send(h11.Response(status_code=answer.status_code, headers=headers))
        while True:
            event = await behind.event()
            if isinstance(event, h11.Data):
                await wire.send(h11.Data(data=bytes(event.data)))
            elif isinstance(event, h11.EndOfMessage):
                await wire.send(h11.EndOfMessage())
                return
            else:
                raise ConnectionResetError("the server left in mid-answer")

    def _request_headers(
        self, wire: Wire, asked: _Asked, server: Server, credential: str | None
    ) -> Headers:
        """What the server is sent: the client's headers, but for what concerns the gateway."""
        kept: Headers = []
        ours = {ROUTE_HEADER.lower().encode(), TENANT_HEADER.lower().encode()}
        dropped = _HOP_BY_HOP | {b"host"} | ours
        if credential is None:
            dropped |= _KEYS
        host = _value(asked.headers, b"host")
        for name, value in asked.headers:
            if name in dropped:
                continue
            if credential is None and name == b"sec-websocket-protocol":
                value = without_keys(value.decode("latin-1")).encode("latin-1")
                if not value:
                    continue
            if name == b"origin":  # it may be here; the server's own may be there
                scheme = "https" if server.is_secure else "http"
                value = f"{scheme}://{server.authority}".encode()
            kept.append((name, asked.unrouted(name, value)))
        kept.append((b"Host", server.authority.encode()))
        if credential is None and server.key is not None:
            kept.append((b"Authorization", f"Bearer {server.key}".encode()))
        if asked.tenant is not None:
            session_id = asked.tenant.session_id
            found = _ROUTED.match(session_id) if session_id is not None else None
            own = found[2] if found is not None else session_id
            tenant = described(asked.tenant, asked.limits_at(server), own)
            kept.append((TENANT_HEADER.encode(), tenant.encode()))
        peer = wire.transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            kept.append((b"X-Forwarded-For", str(peer[0]).encode()))
        kept.append((b"X-Forwarded-Host", host.encode("latin-1")))
        return kept

    # ------------------------------------------------------------------ of its own

    def _own(
        self, wire: Wire, request: h11.Request, target: str, headers: Headers
    ) -> Callable[[], Coroutine[Any, Any, Any]] | None:
        """What it answers itself, if it does.

        Raises:
            _Refused: It may not be asked, or there is no such thing.
        """
        path = urlsplit(target).path
        asked = _Asked(request, target, headers)
        if asked.path == "/health" and not asked.route:
            return lambda: self._health(asked.environment)
        if not path.startswith(OWN):
            return None
        what = path.removeprefix(OWN)
        principal = None
        if self._keys is not None:
            principal = self._principal(headers)
            if principal is None:
                raise _Refused(401, "this gateway wants a key")
        is_observer = principal is not None and principal.role is not Role.ORCHESTRATOR
        if what == "metrics":
            return self._metrics
        if what == "servers" and request.method == b"GET":
            return self._listed
        if what in ("drain", "undrain") and request.method == b"POST":
            peer = wire.transport.get_extra_info("peername")
            if is_observer or (self._keys is None and not _is_local(peer)):
                raise _Refused(403, "draining wants the key of an orchestrator")
            url = parse_qs(urlsplit(target).query).get("server", [""])[0]
            return lambda: self._set_draining(url, what == "drain")
        raise _Refused(404, f"the gateway has metrics, servers, drain and undrain, not {what!r}")

    async def _health(self, environment: str | None) -> dict[str, Any]:
        group = list(self.servers)
        if environment is not None:
            group = list(self.servers.serving(environment).values())
        up = sum(one.is_up for one in group)
        if not up:
            raise NoServer(f"none of {len(group)} servers answers")
        status = "healthy" if up == len(group) else "degraded"
        return {"status": status, "servers": len(group), "servers_up": up}

    async def _listed(self) -> list[dict[str, Any]]:
        names = ("environment", "url", "route", "connections", "served", "taken", "slots")
        return [
            {
                **{name: getattr(one, name) for name in names},
                "is_up": one.is_up,
                "is_draining": one.is_draining,
            }
            for one in self.servers
        ]

    async def _set_draining(self, url: str, is_draining: bool) -> dict[str, Any]:
        for server in self.servers:
            if url in (server.url, server.route):
                server.is_draining = is_draining
                return {"url": server.url, "is_draining": is_draining}
        raise _Refused(404, f"there is no server {url!r}; GET {OWN}servers lists them")

    async def _metrics(self) -> str:
        from openenv.gateway.metrics import written

        return written(self)

    # ------------------------------------------------------------------ how the servers are

    async def _look_after(self) -> None:
        while True:
            await asyncio.gather(*(self._look_at(one) for one in list(self.servers)))
            await asyncio.sleep(CHECK_S)

    async def _look_at(self, server: Server) -> None:
        was_up = server.is_up
        try:
            status, text = await asyncio.wait_for(self._ask(server, "/metrics"), CONNECT_S)
            if status == 200:
                server.said(_gauge(text, "openenv_slots_taken"), _gauge(text, "openenv_slots"))
            elif (await asyncio.wait_for(self._ask(server, "/health"), CONNECT_S))[0] == 200:
                server.said(None, None)
            else:
                self._failed(server)
        except (_Refused, NoServer):
            pass  # noted where it happened
        except (OSError, asyncio.TimeoutError, h11.ProtocolError):
            self._failed(server)
        except Exception:
            logger.exception("%s could not be looked at", server.url)
        if server.is_up and not was_up:
            logger.warning("%s answers again", server.url)
            if self._on_change is not None:
                self._on_change(server)

    async def _ask(self, server: Server, path: str) -> tuple[int, str]:
        wire = self._idle(server) or await self._connect(server)
        is_whole = False
        try:
            headers = [(b"Host", server.authority.encode())]
            if server.key is not None:
                headers.append((b"Authorization", f"Bearer {server.key}".encode()))
            target = f"{server.path}{path}".encode()
            await wire.send(h11.Request(method="GET", target=target, headers=headers))
            await wire.send(h11.EndOfMessage())
            answer = await wire.event()
            if not isinstance(answer, h11.Response):
                raise ConnectionResetError("the server closed the connection")
            text = (await _all_of(wire)).decode(errors="replace")
            is_whole = True
            return answer.status_code, text
        finally:
            self._put_back(server, wire, is_whole)


class _Asked:
    """A request, as far as a gateway has to understand it.

    Attributes:
        environment: The environment that its path names; None where it names none.
        path: The rest of its path.
        target: The same, with the query.
        route: The server that has its session; "" for whichever.
        rpc_method: Of JSON-RPC in its body, the method.
        tenant: Who asks, where the gateway has keys.
        shares: Of their limits; None where they have none.
    """

    tenant: Principal | None = None
    shares: Shares | None = None

    def __init__(self, request: h11.Request, target: str, headers: Headers) -> None:
        self.method = bytes(request.method)
        self.headers = headers
        self.environment, self.target = _split(target)
        parts = urlsplit(self.target)
        self.path = parts.path
        self.rpc_method: str | None = None
        self.route = _value(headers, ROUTE_HEADER.lower().encode())
        if not self.route and ROUTE_QUERY in parts.query:
            self.route = parse_qs(parts.query).get(ROUTE_QUERY, [""])[0]
        for name, value in headers:
            text = value.decode("latin-1")
            if name in (SESSION_HEADER.lower().encode(), MCP_SESSION.encode()):
                self.note(text)
            elif name == b"cookie" and SESSION_COOKIE in text:
                for one in text.split(";"):
                    key, _, cookie = one.strip().partition("=")
                    if key == SESSION_COOKIE:
                        self.note(cookie)

    def limits_at(self, server: Server) -> KeyLimits:
        """What the tenant may ask of a server; of one that takes no new sessions of theirs, to go
        on with those that it has.
        """
        if self.shares is None:
            return KeyLimits()
        assert self.tenant is not None
        limits = self.tenant.limits
        return self.shares.get(server.route) or dataclasses.replace(limits, max_sessions=1)

    def note(self, session_id: str) -> None:
        """Take the route off the id of a session, unless there is one."""
        found = _ROUTED.match(session_id)
        if found and not self.route:
            self.route = found[1]

    @property
    def is_json_rpc(self) -> bool:
        """It is a message of the older JSON-RPC, whose body names the session."""
        names = {name for name, _ in self.headers}
        return (
            self.path == "/mcp"
            and self.method == b"POST"
            and not names & {b"mcp-protocol-version", MCP_SESSION.encode()}
            and int(_value(self.headers, b"content-length") or MCP_BODY_BYTES + 1) <= MCP_BODY_BYTES
        )

    def unrouted(self, name: bytes, value: bytes) -> bytes:
        """A header's value as the server knows it: without the route."""
        if name in (SESSION_HEADER.lower().encode(), MCP_SESSION.encode()):
            found = _ROUTED.match(value.decode("latin-1"))
            return found[2].encode("latin-1") if found else value
        if name == b"cookie" and SESSION_COOKIE.encode() in value:
            pattern = rf"({SESSION_COOKIE}=)[a-z2-7]{{8}}\.".encode()
            return re.sub(pattern, rb"\1", value)
        return value


def _split(target: str) -> tuple[str | None, str]:
    """The environment that a path names, and what is left of the target."""
    if not target.startswith("/envs/"):
        return None, target
    name, slash, rest = target.removeprefix("/envs/").partition("/")
    if not slash:
        name, mark, query = name.partition("?")
        return name, f"/{mark}{query}"
    return name, f"/{rest}"


def _to_client(name: bytes, value: bytes, asked: _Asked, server: Server) -> tuple[bytes, bytes]:
    """A header of an answer as the client is to see it: ids of sessions with their route."""
    lower = name.lower()
    if lower in (SESSION_HEADER.lower().encode(), MCP_SESSION.encode()):
        return name, f"{server.route}.".encode() + value
    if lower == b"set-cookie" and value.startswith(f"{SESSION_COOKIE}=".encode()):
        cookie, mark, rest = value.partition(b";")
        key, _, session = cookie.partition(b"=")
        if session.strip(b'"'):
            cookie = key + b"=" + server.route.encode() + b"." + session
        if asked.environment is not None:
            rest = re.sub(rb"(?i)path=/", f"Path=/envs/{asked.environment}/".encode(), rest)
        return name, cookie + mark + rest
    return name, value


def _value(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> str:
    for key, value in headers:
        if key.lower() == name:
            return value.decode("latin-1")
    return ""


def _is_local(peer: Any) -> bool:
    return not isinstance(peer, tuple) or is_loopback(str(peer[0]))


async def _pump_body(wire: Wire, behind: Wire) -> None:
    """Hand a request's body to the server, as it comes."""
    if wire.http.they_are_waiting_for_100_continue:
        await wire.send(h11.InformationalResponse(status_code=100, headers=[]))
    while True:
        event = await wire.event()
        if isinstance(event, h11.Data):
            await behind.send(h11.Data(data=bytes(event.data)))
        elif isinstance(event, h11.EndOfMessage):
            await behind.send(h11.EndOfMessage())
            return
        else:
            raise ConnectionResetError("the client left in mid-request")


async def _answered(behind: Wire) -> Any:
    """The head of a server's answer; of a handshake that succeeded, status 101.

    Raises:
        _Refused: There is none.
    """
    try:
        answer = await behind.event()
        while isinstance(answer, h11.InformationalResponse) and answer.status_code != 101:
            answer = await behind.event()
    except h11.RemoteProtocolError as error:
        raise _Refused(502, f"the server did not answer in HTTP: {error}") from None
    except ConnectionResetError:
        raise _Refused(502, "the server broke the connection without an answer") from None
    if isinstance(answer, h11.ConnectionClosed):
        raise _Refused(502, "the server closed the connection without an answer")
    return answer


async def _all_of(wire: Wire) -> bytes:
    """Return the whole body of a small message.

    Raises:
        _TooLarge: The body has more than `MAX_ANSWER_BYTES`.
        ConnectionResetError: The other side left in mid-message.
    """
    found = bytearray()
    while isinstance(event := await wire.event(), h11.Data):
        found += event.data
        if len(found) > MAX_ANSWER_BYTES:
            raise _TooLarge(f"the server's answer has more than {MAX_ANSWER_BYTES} bytes")
    if not isinstance(event, h11.EndOfMessage):
        raise ConnectionResetError("the other side left in mid-message")
    return bytes(found)


async def _small_body(wire: Wire) -> bytes:
    if wire.http.they_are_waiting_for_100_continue:
        await wire.send(h11.InformationalResponse(status_code=100, headers=[]))
    return await _all_of(wire)


def _unrouted(body: bytes) -> tuple[bytes, str | None, str]:
    """JSON-RPC as the server knows it; its method, and the route of the session that it names."""
    try:
        message = read_json(body)
        method, params = message.get("method"), message.get("params")
    except (ValueError, AttributeError):
        return body, None, ""  # the server says what is wrong with it
    named = params.get("session_id") if isinstance(params, dict) else None
    found = _ROUTED.match(named) if isinstance(named, str) else None
    if found is None:
        return body, method if isinstance(method, str) else None, ""
    params["session_id"] = found[2]
    return json.dumps(message).encode(), method, found[1]


def _routed(body: bytes, route: str) -> bytes:
    """The answer to the making of a session, whose id has the route put before it."""
    try:
        message = read_json(body)
        message["result"]["session_id"] = f"{route}.{message['result']['session_id']}"
    except (ValueError, KeyError, TypeError):
        return body  # an error, which names no session
    return json.dumps(message).encode()


def _gauge(text: str, name: str) -> int | None:
    found = re.search(rf"^{name}(?:{{[^}}]*}})? ([0-9.e+]+)$", text, re.MULTILINE)
    return int(float(found[1])) if found else None
