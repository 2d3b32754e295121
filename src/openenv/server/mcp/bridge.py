"""Environments as MCP servers: the official SDK speaks the protocol, seats act on sessions.

Tools are the environment's, and so are the resources, prompts and completions of the MCP server
that it may have been made of. Beside them there are two resources, ``openenv://observation`` (what
the last step has shown) and ``openenv://readme``, and a prompt, ``task``. `reset`, `step`, `state`
and `close` are no tools.

The SDK is imported when the first client comes, on a thread: that takes half a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.types import Message, Receive, Scope, Send

from openenv._internal.incidents import describe_error
from openenv.errors import OpenEnvError, SessionNotFoundError
from openenv.execution.manager import SessionManager
from openenv.execution.principal import Principal
from openenv.server.mcp.bindings import Reporter, Seat, digest_of, readme_of
from openenv.tools.connections import ServerRefused, sdk_version
from openenv.tools.results import extract_text

__all__ = [
    "MAX_SESSIONS",
    "MCP_SESSION",
    "PLACE",
    "REVISION",
    "TRACE",
    "Bridge",
    "Place",
    "Speech",
    "header",
]

logger = logging.getLogger(__name__)

PLACE = "openenv.tools.place"  # where a scope says who asks, and for which session
MCP_SESSION, REVISION = "mcp-session-id", "mcp-protocol-version"  # headers
MAX_SESSIONS = 10_000  # of MCP
OBSERVATION, README = "openenv://observation", "openenv://readme"
OURS = "openenv://"
TASK = "task"
TIMEOUT, TRACE = "openenv/timeout_s", "traceparent"  # in the `_meta` of a call
INVALID_PARAMS, INTERNAL_ERROR, OVERLOADED = -32602, -32603, -32000
TICK_S = 1.0  # between reports of how long a call has been running
METHOD_NOT_FOUND = -32601
TASK_FIELDS = ("task", "instruction", "instructions", "prompt", "question", "goal")


@dataclass(frozen=True)
class Place:
    """Who asks, and for which session."""

    principal: Principal | None = None
    named: str | None = None


class Speech(Protocol):
    """One version of the SDK, speaking for a bridge."""

    def http(self) -> contextlib.AbstractAsyncContextManager[Callable[..., Any]]:
        """Serve HTTP, by the ASGI application that is given."""
        ...

    async def stdio(self) -> None:
        """Serve standard input and output, until the former ends."""
        ...


class Bridge:
    """The environments of a server, for clients of MCP.

    Args:
        manager: Where sessions come from.
    """

    def __init__(self, manager: SessionManager) -> None:
        self.manager = manager
        self._lists: dict[str, Callable[[Seat], Awaitable[list[dict[str, Any]]]]] = {
            "tools": Seat.tools,
            "prompts": self._prompts,
            "resources": self._resources,
        }
        self._seats: dict[tuple[Principal | None, str | None, str | None], Seat] = {}
        self._owners: OrderedDict[str, Principal | None] = OrderedDict()  # of sessions of MCP
        self._owner: asyncio.Task[None] | None = None
        self._app: asyncio.Future[Callable[..., Any]] | None = None
        self._over: asyncio.Event | None = None

    # ------------------------------------------------------------------ transports

    async def serve_http(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        principal: Principal | None,
        named: str | None,
    ) -> None:
        """Serve a request to `/mcp`."""
        app = await self._started()
        scope[PLACE] = Place(principal, named)
        # Servers leave the blanks around a value there, which are no part of it (RFC 9110, 5.5).
        scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        mcp_session = header(scope, MCP_SESSION)
        if mcp_session is None:
            opening = _Opening(send, lambda session: self._note_owner(session, principal))
            await app(scope, receive, opening.send)
            if opening.is_refused:
                self._owners.pop(opening.session, None)
                await _end_session(app, scope, opening.session)
            return
        if not self._owns(principal, mcp_session):
            await app(_as_unknown(scope), receive, send)
            return

        async def send_of_stream(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                self.seat(scope[PLACE], mcp_session).hears = True
            await send(message)

        await app(scope, receive, send_of_stream if scope["method"] == "GET" else send)
        if scope["method"] == "DELETE":
            self._owners.pop(mcp_session, None)
            await self._end_of(principal, mcp_session)

    def _note_owner(self, mcp_session: str, principal: Principal | None) -> None:
        self._owners[mcp_session] = principal
        while len(self._owners) > MAX_SESSIONS:  # the SDK keeps no more
            self._owners.popitem(last=False)

    def _owns(self, principal: Principal | None, mcp_session: str) -> bool:
        """Whether a session of MCP was opened by whoever asks."""
        if mcp_session not in self._owners:
            return False
        self._owners.move_to_end(mcp_session)
        return self._owners[mcp_session] is principal

    async def serve_stdio(self) -> None:
        """Serve one agent over standard input and output; its session stays open."""
        speech = await asyncio.to_thread(_speech_of, self)
        await speech.stdio()

    async def _started(self) -> Callable[..., Any]:
        loop = asyncio.get_running_loop()
        if self._app is None or self._app.get_loop() is not loop:
            self._app, self._over, self._seats = loop.create_future(), asyncio.Event(), {}
            self._owners.clear()
            self._owner = asyncio.ensure_future(self._own(self._app, self._over))
        return await asyncio.shield(self._app)

    async def _own(self, started: asyncio.Future[Callable[..., Any]], over: asyncio.Event) -> None:
        try:
            speech = await asyncio.to_thread(_speech_of, self)
            async with speech.http() as app:
                started.set_result(app)
                await over.wait()
        except Exception as error:
            if started.done():
                raise
            self._app = None
            started.set_exception(error)

    async def aclose(self) -> None:
        """Leave all sessions, and end what is under way."""
        owner, self._owner, self._app = self._owner, None, None
        if owner is not None and owner.get_loop() is asyncio.get_running_loop():
            assert self._over is not None
            self._over.set()
            with contextlib.suppress(Exception):
                await asyncio.wait([owner], timeout=5.0)
            owner.cancel()
        seats, self._seats = list(self._seats.values()), {}
        for seat in seats:
            await seat.close()

    # ------------------------------------------------------------------ seats

    def seat(self, place: Place, mcp_session: str | None) -> Seat:
        """The seat of whoever asks.

        Args:
            place: Who asks, and for which session.
            mcp_session: Of a revision that has sessions, the id of it.
        """
        if mcp_session is None and place.named is not None:
            return Seat(self.manager, place.principal, place.named)
        key = (place.principal, place.named, mcp_session)
        seat = self._seats.get(key)
        if seat is None:
            self._forget_the_idle()
            seat = self._seats[key] = Seat(self.manager, place.principal, place.named)
        return seat

    def _forget_the_idle(self) -> None:
        idle_s = self.manager.idle_timeout_s
        if idle_s is None:
            return
        then = time.monotonic() - idle_s
        gone = [k for k, seat in self._seats.items() if seat.is_vacant and seat.used_at < then]
        for key in gone:
            del self._seats[key]

    async def _end_of(self, principal: Principal | None, mcp_session: str) -> None:
        ended = [key for key in self._seats if key[0] is principal and key[2] == mcp_session]
        for key in ended:
            await self._seats.pop(key).close()

    # ------------------------------------------------------------------ what is said of it

    @property
    def name(self) -> str:
        """The environment's name."""
        return self.manager.spec.name

    @property
    def instructions(self) -> str:
        """What a client may tell its model of the server."""
        cls = self.manager.spec.environment_class
        text = inspect.getdoc(cls) if isinstance(cls, type) else None
        return (
            f"{text or self.name}\n\nThe resource {OBSERVATION} holds what the last step has "
            f"shown, and the prompt {TASK!r} what is to be done."
        )

    def refusal(self, error: Exception) -> tuple[int, str, Any]:
        """The code, the message and the data by which JSON-RPC tells of a request that failed."""
        if isinstance(error, LookupError):
            return INVALID_PARAMS, str(error.args[0]), error.args[1] if error.args[1:] else None
        if isinstance(error, ServerRefused):
            return error.code, error.message, error.data
        self.manager.counters.failed(error)
        if isinstance(error, SessionNotFoundError):
            code = INVALID_PARAMS
        else:
            code = OVERLOADED if isinstance(error, OpenEnvError) else INTERNAL_ERROR
        return code, describe_error(error, debug=self.manager.debug), None

    # ------------------------------------------------------------------ what agents ask for

    async def listing(self, seat: Seat, kind: str) -> dict[str, Any]:
        """Answer ``tools/list``, ``resources/list`` or ``prompts/list``, and note what it was."""
        found = await self._lists[kind](seat)
        seat.listed[kind] = digest_of(found)
        return {kind: found}

    async def digest(self, seat: Seat, kind: str) -> bytes:
        """What tells such a list, as it is, from another one."""
        return digest_of(await self._lists[kind](seat))

    async def changed(self, seat: Seat, listed: dict[str, bytes]) -> list[str]:
        """The kinds of which the list is no longer what `listed` has, which is brought up to date.

        Nothing has changed for a seat whose session is not open.
        """
        changed = []
        with contextlib.suppress(OpenEnvError):  # the session may be ending just now
            for kind, before in list(listed.items()) if seat.current is not None else ():
                listed[kind] = await self.digest(seat, kind)
                if listed[kind] != before:
                    changed.append(kind)
        return changed

    async def call_tool(
        self,
        seat: Seat,
        name: str,
        arguments: dict[str, Any],
        meta: dict[str, Any],
        report: Callable[[float, float | None, str | None], Any] | None,
    ) -> dict[str, Any]:
        """Answer `tools/call`.

        Args:
            seat: Who asks.
            name: The tool.
            arguments: Its arguments.
            meta: The `_meta` of the request; `traceparent` in it may be a header's.
            report: Tells the client how far the call is; None where it does not want to know.

        Raises:
            LookupError: There is no such tool.
            OpenEnvError: There is no session.
        """
        timeout_s, trace = meta.get(TIMEOUT), meta.get(TRACE)
        trace = trace if isinstance(trace, str) else None
        if report is None:
            return await seat.call(name, arguments, timeout_s, trace=trace)
        reporter = Reporter(report)
        ticking = asyncio.ensure_future(_tick(reporter, report, timeout_s))
        try:
            return await seat.call(name, arguments, timeout_s, reporter, trace)
        finally:
            ticking.cancel()

    async def _resources(self, seat: Seat) -> list[dict[str, Any]]:
        found = [
            {
                "uri": OBSERVATION,
                "name": "observation",
                "title": "Observation",
                "description": "What the last step or the beginning of the episode has shown.",
                "mimeType": "application/json",
            }
        ]
        if readme_of(self.manager.spec) is not None:
            found.append(
                {
                    "uri": README,
                    "name": "readme",
                    "title": "README",
                    "description": "What its authors say of the environment.",
                    "mimeType": "text/markdown",
                }
            )
        return [*await _listed(seat, "resources"), *found]

    async def list_resource_templates(self, seat: Seat) -> dict[str, Any]:
        """Answer `resources/templates/list`."""
        return {
            "resourceTemplates": await _listed(seat, "resourceTemplates", "resources/templates")
        }

    async def read_resource(self, seat: Seat, uri: str) -> dict[str, Any]:
        """Answer `resources/read`.

        Raises:
            LookupError: There is no such resource.
            ServerRefused: The environment's own server will not have it read.
        """
        if uri == README and (text := readme_of(self.manager.spec)) is not None:
            return {"contents": [{"uri": uri, "mimeType": "text/markdown", "text": text}]}
        if uri != OBSERVATION:
            unknown = LookupError(f"Unknown resource: {uri}", {"uri": uri})
            if uri.startswith(OURS):
                raise unknown
            return await _asked(seat, "resources/read", {"uri": uri}, unknown)
        shown = await seat.look()
        if shown is None:
            return {"contents": [{"uri": uri, "mimeType": "application/json", "text": "null"}]}
        contents = []
        for block in shown["content"]:
            if block["type"] == "text":
                content = {"uri": uri, "mimeType": "application/json", "text": block["text"]}
            else:
                content = {"uri": uri, "mimeType": block["mimeType"], "blob": block["data"]}
            contents.append(content)
        return {"contents": contents}

    async def _prompts(self, seat: Seat) -> list[dict[str, Any]]:
        found = await _listed(seat, "prompts")
        if not any(one["name"] == TASK for one in found):
            described = "What is to be done in this environment, and where it stands."
            found.append({"name": TASK, "title": "Task", "description": described})
        return found

    async def get_prompt(
        self, seat: Seat, name: str, arguments: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """Answer `prompts/get`.

        Raises:
            LookupError: There is no such prompt.
            ServerRefused: The environment's own server refuses it.
        """
        unknown = LookupError(f"Unknown prompt: {name}")
        if any(one["name"] == name for one in await _listed(seat, "prompts")):
            params = {"name": name, **({"arguments": arguments} if arguments else {})}
            return await _asked(seat, "prompts/get", params, unknown)
        if name != TASK:
            raise unknown
        described, shown = await seat.described(), await seat.look()
        parts = [str(described.get("description") or self.name)]
        structured = (shown or {}).get("structuredContent") or {}
        parts += [
            str(structured[one]) for one in TASK_FIELDS if isinstance(structured.get(one), str)
        ]
        if shown is not None:
            parts.append(f"This is what the environment shows:\n{extract_text(shown)}")
        blocks: list[dict[str, Any]] = [{"type": "text", "text": "\n\n".join(parts)}]
        blocks += [one for one in (shown or {}).get("content", ()) if one["type"] != "text"]
        messages = [{"role": "user", "content": block} for block in blocks]
        return {"description": "What is to be done.", "messages": messages}

    async def complete(self, seat: Seat, params: dict[str, Any]) -> dict[str, Any]:
        """Answer `completion/complete`: none of our own prompts and resources has arguments.

        Raises:
            ServerRefused: The environment's own server knows no such prompt or template.
        """
        try:
            answer = await seat.ask("completion/complete", params)
        except ServerRefused as error:
            if error.code != METHOD_NOT_FOUND:
                raise
            answer = None
        return answer or {"completion": {"values": [], "total": 0, "hasMore": False}}


async def _listed(seat: Seat, kind: str, path: str = "") -> list[dict[str, Any]]:
    """What the environment's own server has of a kind; nothing where it knows no such kind."""
    try:
        answer = await seat.ask(f"{path or kind}/list", {})
    except ServerRefused as error:
        if error.code != METHOD_NOT_FOUND:
            raise
        return []
    return list((answer or {}).get(kind, ()))


async def _asked(
    seat: Seat, method: str, params: dict[str, Any], unknown: LookupError
) -> dict[str, Any]:
    """What the environment's own server answers.

    Raises:
        LookupError: It has none, or knows no such method; that is `unknown`.
        ServerRefused: It answers with any other error.
    """
    try:
        answer = await seat.ask(method, params)
    except ServerRefused as error:
        if error.code != METHOD_NOT_FOUND:
            raise
        answer = None
    if answer is None:
        raise unknown
    return answer


async def _tick(
    reporter: Reporter, report: Callable[[float, float | None, str | None], Any], total: Any
) -> None:
    """Say how long a call has been running, until its tool says better."""
    began = time.monotonic()
    while True:
        await asyncio.sleep(TICK_S)
        if reporter.has_told:
            return
        seconds = round(time.monotonic() - began, 3)
        with contextlib.suppress(Exception):  # the client may have left
            await report(seconds, total, f"running for {seconds:.0f} s")


class _Opening:
    """The answer to a request that names no session of MCP, and so may open one.

    Args:
        send: Sends it.
        opened: Called with the session before the client learns of it: its next request may be here
            before this answer is sent to the end.
    """

    def __init__(self, send: Send, opened: Callable[[str], None]) -> None:
        self._send = send
        self._opened = opened
        self._body = b""
        self.session = ""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.session = header(message, MCP_SESSION) or ""
            if self.session:
                self._opened(self.session)
        elif self.session:
            self._body += message.get("body", b"")
        await self._send(message)

    @property
    def is_refused(self) -> bool:
        """A session was opened for a handshake that was refused."""
        return bool(self.session) and b'"result":' not in self._body


async def _end_session(app: Callable[..., Any], opened_by: Scope, mcp_session: str) -> None:
    """End a session that nobody knows of: the SDK would keep it until it has idled for long."""
    headers = [(MCP_SESSION.encode(), mcp_session.encode()), (b"accept", b"application/json")]
    scope = {**opened_by, "method": "DELETE", "headers": headers}

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async def send(message: Message) -> None:
        """Nobody waits for an answer."""

    await app(scope, receive, send)


def _as_unknown(scope: Scope) -> Scope:
    """A request to another's session of MCP, as one to a session that does not exist."""
    named = MCP_SESSION.encode()
    headers = [(name, b"0" if name == named else value) for name, value in scope["headers"]]
    return {**scope, "headers": headers}


def _speech_of(bridge: Bridge) -> Speech:
    if sdk_version() >= 2:
        from openenv.server.mcp.sdk_v2 import SdkV2

        return SdkV2(bridge)
    from openenv.server.mcp.sdk_v1 import SdkV1

    return SdkV1(bridge)


def header(scope: Scope | Message, name: str) -> str | None:
    """The value of a header of a request or an answer, by its name in small letters."""
    key = name.encode()
    return next((value.decode("latin-1") for one, value in scope["headers"] if one == key), None)
