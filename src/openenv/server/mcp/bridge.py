"""Environments as MCP servers: the official SDK speaks the protocol, bindings act on sessions.

Tools are those of the environment. If the environment wraps an MCP server, so are its resources,
prompts and completions. We add two resources, ``openenv://observation`` (the observation of the
last step) and ``openenv://readme``, and one prompt, ``task``. `reset`, `step`, `state` and `close`
are not tools.

The SDK is imported on a thread when the first client comes: that takes half a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
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
from openenv.server.mcp.bindings import AgentBinding, Reporter, digest_of, readme_of
from openenv.tools.connections import ServerRefused, sdk_version
from openenv.tools.progress import OnProgress
from openenv.tools.results import extract_text

ORIGIN = "openenv.mcp.origin"  # the key of the `RequestOrigin` in a scope
MCP_SESSION, REVISION = "mcp-session-id", "mcp-protocol-version"  # headers
MAX_SESSIONS = 10_000  # MCP sessions
OBSERVATION, README = "openenv://observation", "openenv://readme"
OBSERVATION_RESOURCE = {
    "uri": OBSERVATION,
    "name": "observation",
    "title": "Observation",
    "description": "What the last step or the beginning of the episode has shown.",
    "mimeType": "application/json",
}
README_RESOURCE = {
    "uri": README,
    "name": "readme",
    "title": "README",
    "description": "What its authors say of the environment.",
    "mimeType": "text/markdown",
}
OURS = "openenv://"
TASK = "task"
TIMEOUT, TRACE = "openenv/timeout_s", "traceparent"  # keys in the `_meta` of a call
INVALID_PARAMS, INTERNAL_ERROR, OVERLOADED = -32602, -32603, -32000
TICK_S = 1.0  # between progress reports of how long a call has been running
METHOD_NOT_FOUND = -32601
TASK_FIELDS = ("task", "instruction", "instructions", "prompt", "question", "goal")


_NOBODY = object()


@dataclass(frozen=True)
class RequestOrigin:
    """The client and the session of a request."""

    principal: Principal | None = None
    named: str | None = None


class SDKAdapter(Protocol):
    """Connects a bridge to a version of the SDK."""

    def http(self) -> contextlib.AbstractAsyncContextManager[Callable[..., Any]]:
        """Serve HTTP within the context, through the ASGI application that it returns."""
        ...

    async def stdio(self) -> None:
        """Serve standard input and output until the input ends."""
        ...


class Bridge:
    """The environments of a server, for MCP clients."""

    def __init__(self, manager: SessionManager) -> None:
        self.manager = manager
        self._lists: dict[str, Callable[[AgentBinding], Awaitable[list[dict[str, Any]]]]] = {
            "tools": AgentBinding.tools,
            "prompts": self._prompts,
            "resources": self._resources,
        }
        self._bindings: dict[tuple[Principal | None, str | None, str | None], AgentBinding] = {}
        self._owners: OrderedDict[str, Principal | None] = OrderedDict()  # of MCP sessions
        self._owner: asyncio.Task[None] | None = None
        self._app: asyncio.Future[Callable[..., Any]] | None = None
        self._over: asyncio.Event | None = None

    # ------------------------------------------------------------------ transports

    async def serve_http(
        self, scope: Scope, receive: Receive, send: Send, origin: RequestOrigin
    ) -> None:
        """Serve a request to `/mcp`."""
        app, principal = await self._started(), origin.principal
        scope[ORIGIN] = origin
        # Servers keep the whitespace around header values, which is no part of them (RFC 9110, 5.5)
        scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        mcp_session = header(scope, MCP_SESSION)
        if mcp_session is None:

            def note_owner(mcp_session: str) -> None:
                self._owners[mcp_session] = principal
                while len(self._owners) > MAX_SESSIONS:  # the SDK keeps no more than that
                    self._owners.popitem(last=False)

            opening = _Opening(send, note_owner)
            await app(scope, receive, opening.send)
            if opening.is_refused:
                self._owners.pop(opening.session, None)
                await _end_session(app, scope, opening.session)
            return
        if mcp_session in self._owners:
            self._owners.move_to_end(mcp_session)
        if self._owners.get(mcp_session, _NOBODY) is not principal:
            headers = [(k, b"0" if k == MCP_SESSION.encode() else v) for k, v in scope["headers"]]
            await app({**scope, "headers": headers}, receive, send)  # as for an unknown session
            return

        async def send_of_stream(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                self.binding(origin, mcp_session).hears = True
            await send(message)

        await app(scope, receive, send_of_stream if scope["method"] == "GET" else send)
        if scope["method"] == "DELETE":
            self._owners.pop(mcp_session, None)
            ended = [k for k in self._bindings if k[0] is principal and k[2] == mcp_session]
            for key in ended:
                await self._bindings.pop(key).close()

    async def serve_stdio(self) -> None:
        """Serve an agent over standard input and output; the session stays open."""
        adapter = await asyncio.to_thread(_build_adapter, self)
        await adapter.stdio()

    async def _started(self) -> Callable[..., Any]:
        loop = asyncio.get_running_loop()
        if self._app is None or self._app.get_loop() is not loop:
            self._app, self._over, self._bindings = loop.create_future(), asyncio.Event(), {}
            self._owners.clear()
            self._owner = asyncio.ensure_future(self._own(self._app, self._over))
        return await asyncio.shield(self._app)

    async def _own(self, started: asyncio.Future[Callable[..., Any]], over: asyncio.Event) -> None:
        try:
            adapter = await asyncio.to_thread(_build_adapter, self)
            async with adapter.http() as app:
                started.set_result(app)
                await over.wait()
        except Exception as error:
            if started.done():
                raise
            self._app = None
            started.set_exception(error)

    async def aclose(self) -> None:
        """Leave all sessions, and end all requests."""
        owner, self._owner, self._app = self._owner, None, None
        if owner is not None and owner.get_loop() is asyncio.get_running_loop():
            assert self._over is not None
            self._over.set()
            with contextlib.suppress(Exception):
                await asyncio.wait([owner], timeout=5.0)
            owner.cancel()
        bindings, self._bindings = list(self._bindings.values()), {}
        for binding in bindings:
            await binding.close()

    # ------------------------------------------------------------------ bindings

    def binding(self, origin: RequestOrigin, mcp_session: str | None) -> AgentBinding:
        """Return a client's binding; `mcp_session` is None in revisions without sessions."""
        key = (origin.principal, origin.named, mcp_session)
        binding = self._bindings.get(key)
        if binding is None:
            binding = AgentBinding(self.manager, origin.principal, origin.named)
            if mcp_session is not None or origin.named is None:
                self._forget_idle()
                self._bindings[key] = binding
        return binding

    def _forget_idle(self) -> None:
        idle_s, now = self.manager.idle_timeout_s, time.monotonic()
        for key, binding in list(self._bindings.items()):
            if idle_s is not None and binding.used_at < now - idle_s and binding.current is None:
                del self._bindings[key]

    # ------------------------------------------------------------------ description

    @property
    def name(self) -> str:
        """The environment's name."""
        return self.manager.spec.name

    @property
    def instructions(self) -> str:
        """The server's description for the client's model."""
        text = _own_docstring(self.manager.spec.environment_class) or self.name
        return (
            f"{text}\n\nThe resource {OBSERVATION} holds what the last step has "
            f"shown, and the prompt {TASK!r} what is to be done."
        )

    def refusal(self, error: Exception) -> tuple[int, str, Any]:
        """Return the code, message and data of the JSON-RPC error for a failed request."""
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

    # ------------------------------------------------------------------ requests of agents

    async def listing(self, binding: AgentBinding, kind: str) -> dict[str, Any]:
        """Answer ``tools/list``, ``resources/list`` or ``prompts/list``, and store its digest."""
        found = await self._lists[kind](binding)
        binding.listed[kind] = digest_of(found)
        return {kind: found}

    async def digest(self, binding: AgentBinding, kind: str) -> bytes:
        """Return the digest of the current list."""
        return digest_of(await self._lists[kind](binding))

    async def changed(self, binding: AgentBinding, listed: dict[str, bytes]) -> list[str]:
        """Return the kinds of lists that differ from the digests in `listed`, and update `listed`.

        For a binding whose session is not open, no list has changed.
        """
        changed = []
        with contextlib.suppress(OpenEnvError):  # the session may be ending just now
            for kind, before in list(listed.items()) if binding.current is not None else ():
                listed[kind] = await self.digest(binding, kind)
                if listed[kind] != before:
                    changed.append(kind)
        return changed

    async def call_tool(
        self,
        binding: AgentBinding,
        name: str,
        arguments: dict[str, Any],
        meta: dict[str, Any],
        report: OnProgress | None,
    ) -> dict[str, Any]:
        """Answer `tools/call`.

        Args:
            meta: The `_meta` of the request; its `traceparent` may come from a header.
            report: Sends progress to the client; None if the client does not want progress.

        Raises:
            LookupError: There is no such tool.
            OpenEnvError: No session is available for the call.
        """
        timeout_s, trace = meta.get(TIMEOUT), meta.get(TRACE)
        trace = trace if isinstance(trace, str) else None
        if report is None:
            return await binding.call(name, arguments, timeout_s, trace=trace)
        reporter = Reporter(report)
        ticking = asyncio.ensure_future(_tick(reporter, report, timeout_s))
        try:
            return await binding.call(name, arguments, timeout_s, reporter, trace)
        finally:
            ticking.cancel()

    async def _resources(self, binding: AgentBinding) -> list[dict[str, Any]]:
        has_readme = readme_of(self.manager.spec) is not None
        own = [OBSERVATION_RESOURCE, *([README_RESOURCE] if has_readme else ())]
        return [*await _list(binding, "resources"), *own]

    async def list_resource_templates(self, binding: AgentBinding) -> dict[str, Any]:
        """Answer `resources/templates/list`."""
        kind = "resourceTemplates"
        return {kind: await _list(binding, kind, "resources/templates/list")}

    async def read_resource(self, binding: AgentBinding, uri: str) -> dict[str, Any]:
        """Answer `resources/read`.

        Raises:
            LookupError: There is no such resource.
            ServerRefused: The environment's own MCP server refuses to read it.
        """
        if uri == README and (text := readme_of(self.manager.spec)) is not None:
            return {"contents": [{"uri": uri, "mimeType": "text/markdown", "text": text}]}
        if uri != OBSERVATION:
            is_own = uri.startswith(OURS)
            found = None if is_own else await _ask(binding, "resources/read", {"uri": uri})
            if found is None:
                raise LookupError(f"Unknown resource: {uri}", {"uri": uri})
            return found
        shown = await binding.look()
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

    async def _prompts(self, binding: AgentBinding) -> list[dict[str, Any]]:
        found = await _list(binding, "prompts")
        if not any(one["name"] == TASK for one in found):
            described = "What is to be done in this environment, and where it stands."
            found.append({"name": TASK, "title": "Task", "description": described})
        return found

    async def get_prompt(
        self, binding: AgentBinding, name: str, arguments: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """Answer `prompts/get`.

        Raises:
            LookupError: There is no such prompt.
            ServerRefused: The environment's own MCP server refuses the request.
        """
        if any(one["name"] == name for one in await _list(binding, "prompts")):
            params = {"name": name, **({"arguments": arguments} if arguments else {})}
            if (found := await _ask(binding, "prompts/get", params)) is not None:
                return found
            raise LookupError(f"Unknown prompt: {name}")
        if name != TASK:
            raise LookupError(f"Unknown prompt: {name}")
        described, shown = await binding.described(), await binding.look()
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

    async def complete(self, binding: AgentBinding, params: dict[str, Any]) -> dict[str, Any]:
        """Answer `completion/complete`. Our own prompts and resources have no arguments.

        Raises:
            ServerRefused: The environment's own MCP server refuses the request.
        """
        answer = await _ask(binding, "completion/complete", params)
        return answer or {"completion": {"values": [], "total": 0, "hasMore": False}}


async def _list(binding: AgentBinding, kind: str, method: str = "") -> list[dict[str, Any]]:
    """Return a list of the environment's MCP server; empty if it does not know the method."""
    return list((await _ask(binding, method or f"{kind}/list", {}) or {}).get(kind, ()))


async def _ask(binding: AgentBinding, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """Return the answer of the environment's MCP server; None without a server or such a method.

    Raises:
        ServerRefused: The server answered with another error.
    """
    try:
        return await binding.ask(method, params)
    except ServerRefused as error:
        if error.code != METHOD_NOT_FOUND:
            raise
        return None


async def _tick(reporter: Reporter, report: OnProgress, total: Any) -> None:
    """Report how long a call has been running, until the tool reports progress."""
    began = time.monotonic()
    while True:
        await asyncio.sleep(TICK_S)
        if reporter.has_reported:
            return
        seconds = round(time.monotonic() - began, 3)
        with contextlib.suppress(Exception):  # the client may have left
            await report(seconds, total, f"running for {seconds:.0f} s")


class _Opening:
    """The response to a request without an MCP session id, which may open a session.

    Args:
        opened: Called with the session before the client learns about it: the client's next request
            may arrive before this response has been sent completely.
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
        """Whether a session was opened for a handshake that was then refused."""
        return bool(self.session) and b'"result":' not in self._body


async def _end_session(app: Callable[..., Any], opened_by: Scope, mcp_session: str) -> None:
    """End a session of the SDK, which would otherwise keep it until a long idle timeout."""
    headers = [(MCP_SESSION.encode(), mcp_session.encode()), (b"accept", b"application/json")]
    scope = {**opened_by, "method": "DELETE", "headers": headers}

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async def send(message: Message) -> None:
        """Ignore the response."""

    await app(scope, receive, send)


def _own_docstring(cls: type | None) -> str:
    """Return the docstring of an environment's class or of a base class outside openenv."""
    for one in cls.__mro__ if cls is not None else ():
        package = one.__module__.partition(".")[0]
        if package == "openenv":
            break
        if package not in ("abc", "builtins", "typing") and (text := one.__doc__):
            return inspect.cleandoc(text)
    return ""


def _build_adapter(bridge: Bridge) -> SDKAdapter:
    if sdk_version() >= 2:
        from openenv.server.mcp.sdk_v2 import SdkV2

        return SdkV2(bridge)
    from openenv.server.mcp.sdk_v1 import SdkV1

    return SdkV1(bridge)


def header(scope: Scope | Message, name: str) -> str | None:
    """Return a header's value in a request or a response; `name` must be in lower case."""
    key = name.encode()
    return next((value.decode("latin-1") for one, value in scope["headers"] if one == key), None)
