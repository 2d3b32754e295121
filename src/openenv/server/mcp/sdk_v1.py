"""The adapter of `openenv.server.mcp.bridge` to version 1 of the official SDK.

Environments written for FastMCP 2 and 3 bring this version. It supports the revisions up to
2025-11-25, which begin with a handshake.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import mcp.server.lowlevel
import mcp.types
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import McpError  # type: ignore[attr-defined]
from mcp.shared.message import SessionMessage
from mcp.shared.version import SUPPORTED_PROTOCOL_VERSIONS  # type: ignore[import-not-found]
from pydantic import AnyUrl
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from openenv._internal.version import version
from openenv.server.mcp.bindings import AgentBinding
from openenv.server.mcp.bridge import (
    MAX_SESSIONS,
    MCP_SESSION,
    ORIGIN,
    REVISION,
    TRACE,
    Bridge,
    RequestOrigin,
    header,
)

types: Any = mcp.types  # type checkers see version 2, which has other names
lowlevel: Any = mcp.server.lowlevel

Answer = Callable[[Any, Any], Awaitable[dict[str, Any]]]

UNSUPPORTED_REVISION = -32022  # as of revision 2026-07-28; its clients then begin a handshake


class SdkV1:
    """The adapter for version 1; see `openenv.server.mcp.bridge.SDKAdapter`."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._methods = {"initialize", "ping"}
        self._server = lowlevel.Server(
            bridge.name, version=version(), instructions=bridge.instructions
        )
        # By default the SDK declares that its lists never change.
        self._server.create_initialization_options = functools.partial(
            self._server.create_initialization_options,
            lowlevel.NotificationOptions(True, True, True),
        )
        self._server.run = functools.partial(_run, self._server.run, self._methods)
        for kind in ("Tools", "Resources", "Prompts"):
            asked, result = (getattr(types, f"List{kind}{part}") for part in ("Request", "Result"))
            self._answer(asked, result, functools.partial(self._list, kind.lower()))
        self._answer(types.CallToolRequest, types.CallToolResult, self._call_tool)
        self._answer(
            types.ListResourceTemplatesRequest,
            types.ListResourceTemplatesResult,
            self._list_templates,
        )
        self._answer(types.ReadResourceRequest, types.ReadResourceResult, self._read_resource)
        self._answer(types.SubscribeRequest, types.EmptyResult, self._subscribe)
        self._answer(types.UnsubscribeRequest, types.EmptyResult, self._unsubscribe)
        self._answer(types.GetPromptRequest, types.GetPromptResult, self._get_prompt)
        self._answer(types.CompleteRequest, types.CompleteResult, self._complete)

    # ------------------------------------------------------------------ transports

    @contextlib.asynccontextmanager
    async def http(self) -> AsyncIterator[Callable[..., Any]]:
        manager = self._bridge.manager
        sessions = StreamableHTTPSessionManager(
            self._server,
            session_idle_timeout=manager.idle_timeout_s,
            max_request_body_size=manager.limits.max_message_bytes,
            max_sessions=MAX_SESSIONS,
        )

        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            revision = header(scope, REVISION)
            if revision is None or revision in SUPPORTED_PROTOCOL_VERSIONS:
                await sessions.handle_request(scope, receive, send)
                return
            error = {
                "code": UNSUPPORTED_REVISION,
                "message": "Unsupported protocol version",
                "data": {"supported": list(SUPPORTED_PROTOCOL_VERSIONS), "requested": revision},
            }
            refusal = JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 400)
            await refusal(scope, receive, send)

        transport = logging.getLogger("mcp.server.streamable_http")
        transport.addFilter(_is_news)
        try:
            async with sessions.run():
                yield serve
        finally:
            transport.removeFilter(_is_news)

    async def stdio(self) -> None:
        import anyio
        from mcp.server.stdio import stdio_server

        with _own_streams() as (stdin, stdout):
            streams = stdio_server(anyio.wrap_file(stdin), anyio.wrap_file(stdout))
            async with streams as (read, write):
                options = self._server.create_initialization_options()
                await self._server.run(read, write, options)

    # ------------------------------------------------------------------ requests

    def _answer(self, asked: Any, result: Any, answer: Answer) -> None:
        """Register a handler for a type of requests, with errors in JSON-RPC form."""

        async def handle(request: Any) -> Any:
            try:
                plain = await answer(self._server.request_context, request.params)
            except Exception as error:
                code, message, data = self._bridge.refusal(error)
                raise McpError(types.ErrorData(code=code, message=message, data=data)) from None
            return types.ServerResult(result.model_validate(plain))

        self._server.request_handlers[asked] = handle
        self._methods.add(asked.model_fields["method"].default)

    def _binding(self, context: Any) -> AgentBinding:
        request = context.request
        if request is None:  # over standard input and output, where a client always listens
            binding = self._bridge.binding(RequestOrigin(), None)
            binding.hears = True
            return binding
        return self._bridge.binding(request.scope[ORIGIN], request.headers.get(MCP_SESSION))

    async def _list(self, kind: str, context: Any, params: Any) -> dict[str, Any]:
        return await self._bridge.listing(self._binding(context), kind)

    async def _call_tool(self, context: Any, params: Any) -> dict[str, Any]:
        binding = self._binding(context)
        meta = {} if context.meta is None else context.meta.model_dump(exclude_none=True)
        if context.request is not None:
            meta = {TRACE: context.request.headers.get(TRACE), **meta}
        token = meta.get("progressToken")
        report = None
        if token is not None:
            send = functools.partial(context.session.send_progress_notification, token)
            report = functools.partial(send, related_request_id=str(context.request_id))
        result = await self._bridge.call_tool(
            binding, params.name, params.arguments or {}, meta, report
        )
        if binding.hears:
            for uri in list(binding.subscribed):
                await context.session.send_resource_updated(AnyUrl(uri))
            for kind in await self._bridge.changed(binding, binding.listed):
                await getattr(context.session, f"send_{kind.removesuffix('s')}_list_changed")()
        return result

    async def _list_templates(self, context: Any, params: Any) -> dict[str, Any]:
        return await self._bridge.list_resource_templates(self._binding(context))

    async def _read_resource(self, context: Any, params: Any) -> dict[str, Any]:
        return await self._bridge.read_resource(self._binding(context), str(params.uri))

    async def _subscribe(self, context: Any, params: Any) -> dict[str, Any]:
        self._binding(context).subscribe(str(params.uri))
        return {}

    async def _unsubscribe(self, context: Any, params: Any) -> dict[str, Any]:
        self._binding(context).subscribed.discard(str(params.uri))
        return {}

    async def _get_prompt(self, context: Any, params: Any) -> dict[str, Any]:
        binding = self._binding(context)
        return await self._bridge.get_prompt(binding, params.name, params.arguments)

    async def _complete(self, context: Any, params: Any) -> dict[str, Any]:
        asked = params.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"meta"})
        return await self._bridge.complete(self._binding(context), asked)


async def _run(run: Any, methods: set[str], read: Any, write: Any, *args: Any, **kw: Any) -> None:
    """Serve a client, refusing unknown methods, which the SDK would report as invalid requests."""
    await run(_Known(read, write, methods), write, *args, **kw)


class _Known:
    """The messages of a client, without requests of unknown methods."""

    def __init__(self, read: Any, write: Any, methods: set[str]) -> None:
        self._read, self._write, self._methods = read, write, methods

    async def __aenter__(self) -> _Known:
        await self._read.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._read.__aexit__(*error)

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for message in self._read:
            request: Any = getattr(getattr(message, "message", None), "root", None)
            if isinstance(request, types.JSONRPCRequest) and request.method not in self._methods:
                error = types.ErrorData(
                    code=types.METHOD_NOT_FOUND, message=f"Method not found: {request.method}"
                )
                refusal = types.JSONRPCError(jsonrpc="2.0", id=request.id, error=error)
                await self._write.send(SessionMessage(types.JSONRPCMessage(refusal)))
            else:
                yield message


def _is_news(record: logging.LogRecord) -> bool:
    """Return whether a log record reports more than the departure of a listening client."""
    error = record.exc_info[1] if record.exc_info else None
    return type(error).__name__ != "ClosedResourceError"


@contextlib.contextmanager
def _own_streams() -> Iterator[tuple[Any, Any]]:
    """Take over stdin and stdout for the block; other output goes to stderr."""
    sys.stdout.flush()
    stdin = os.fdopen(os.dup(0), encoding="utf-8", errors="replace")
    stdout = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    try:
        yield stdin, stdout
    finally:
        sys.stdout.flush()
        os.dup2(stdin.fileno(), 0)
        os.dup2(stdout.fileno(), 1)
        stdin.close()
        stdout.close()
