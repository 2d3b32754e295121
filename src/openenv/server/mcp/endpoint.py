"""`/mcp`: the tools of environments, over the Model Context Protocol and the older JSON-RPC.

Both use the same address, and headers tell them apart: an MCP client names its protocol revision or
its session, or accepts an event stream, as the specification demands. Any other request is JSON-RPC
as clients of the public package speak it; see
`openenv.execution.connections.json_rpc`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from openenv._internal.net.responses import JSON, read_body
from openenv._internal.traces import serving
from openenv.errors import EnvironmentCrashed, TooLargeError
from openenv.execution.connections.json_rpc import (
    NO_SESSION_ID,
    JsonRpcCommand,
    build_tool_command,
    check_may_control,
    encode_json_rpc,
    issue_agent_key,
    json_rpc_error,
    parse_request,
    read_json_rpc,
)
from openenv.execution.connections.v0.connection import JsonRpcConnection
from openenv.execution.manager import SessionManager
from openenv.execution.principal import Principal, principal_of
from openenv.execution.session import Session
from openenv.protocol.http import SESSION_HEADER
from openenv.server.mcp.bridge import Bridge, RequestOrigin, header
from openenv.server.refusals import error_response
from openenv.server.websocket import query_of, websocket_route
from openenv.tools.types import AGENT_KEY, CLOSE, CREATE, JsonRpcRequest, JsonRpcResponse
from openenv.tools.types import JsonRpcErrorCode as Code


def mcp_routes(manager: SessionManager) -> tuple[list[BaseRoute], MCPEndpoint]:
    """Build the routes of `/mcp`; return also the HTTP endpoint, which has to be closed."""
    endpoint = MCPEndpoint(manager)
    route = Route("/mcp", endpoint, include_in_schema=False)
    return [route, websocket_route(manager, "/mcp", JsonRpcConnection)], endpoint


class MCPEndpoint:
    """An ASGI application that serves `/mcp` over HTTP."""

    def __init__(self, manager: SessionManager) -> None:
        self._manager = manager
        self._bridge = Bridge(manager)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if speaks_mcp(scope):
            principal = principal_of(scope)
            origin = RequestOrigin(principal, session_named(scope, principal))
            await self._bridge.serve_http(scope, receive, send, origin)
            return
        if scope["method"] != "POST":
            headers = {"Allow": "POST"}
            refusal = JSONResponse({"detail": "Method Not Allowed"}, 405, headers=headers)
            await refusal(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except TooLargeError as error:
            await error_response(error, self._manager)(scope, receive, send)
            return
        except ClientDisconnect:
            return
        body = encode_json_rpc(response)
        await Response(body, media_type=JSON)(scope, receive, send)

    async def aclose(self) -> None:
        """End all requests and MCP sessions."""
        await self._bridge.aclose()

    # ------------------------------------------------------------------ the older JSON-RPC

    async def _answer(self, request: Request) -> JsonRpcResponse:
        data = read_json_rpc(await read_body(request, self._manager.limits.max_message_bytes))
        if isinstance(data, JsonRpcResponse) or not isinstance(data, dict):
            return JsonRpcResponse.error_response(Code.PARSE_ERROR)
        rpc = parse_request(data)
        if isinstance(rpc, JsonRpcResponse):
            return rpc
        try:
            return await self._serve_request(request, rpc)
        except Exception as error:
            self._manager.counters.failed(error)
            return json_rpc_error(error, rpc.id, debug=self._manager.debug)

    async def _serve_request(self, http: Request, request: JsonRpcRequest) -> JsonRpcResponse:
        principal = principal_of(http.scope)
        if request.method in (CREATE, CLOSE, AGENT_KEY):
            check_may_control(request, principal)
            if request.method == CREATE:
                session = await self._manager.create(principal=principal)
                return JsonRpcResponse.success({"session_id": session.id}, request.id)
            return await self._on_session(request, principal)
        spec = self._manager.spec
        own = None if principal is None else principal.session_id
        named = own or request.params.get("session_id") or session_named(http.scope, principal)
        is_clear = spec.environment_class is not None or not request.method.startswith("tools/")
        if is_clear and not named:
            early = build_tool_command(spec, request, principal)
            if isinstance(early, JsonRpcResponse):
                return early
        async with self._session(named, principal) as session:
            command = build_tool_command(session.spec, request, principal)
            if isinstance(command, JsonRpcResponse):
                return command
            return await self._ask(http, session, command)

    async def _ask(
        self, http: Request, session: Session, command: JsonRpcCommand
    ) -> JsonRpcResponse:
        trace = http.headers.get("traceparent")
        try:
            with serving("openenv.tools", trace, session.attributes()) as span:
                response = await session.handle(command.command, encode=command.respond, trace=span)
        except EnvironmentCrashed:
            await self._manager.close(session.id)  # no one else would free its slot
            raise
        assert isinstance(response, JsonRpcResponse)
        return response

    @contextlib.asynccontextmanager
    async def _session(self, named: Any, principal: Principal | None) -> AsyncIterator[Session]:
        if named:
            yield self._manager.get(str(named), principal=principal)
        else:
            async with self._manager.throwaway(principal) as session:
                yield session

    async def _on_session(
        self, request: JsonRpcRequest, principal: Principal | None
    ) -> JsonRpcResponse:
        session_id = request.params.get("session_id")
        if session_id is None:
            return JsonRpcResponse.error_response(
                Code.INVALID_PARAMS, NO_SESSION_ID, request_id=request.id
            )
        session = self._manager.get(str(session_id), principal=principal)
        if request.method == AGENT_KEY:
            return issue_agent_key(self._manager, session, request)
        closed: dict[str, Any] = {"session_id": session_id}
        if session.is_busy:
            self._manager.begin_to_close(session)
            closed |= {"closed": False, "closing": True}
        else:
            await self._manager.close(session.id)
            closed |= {"closed": True}
        return JsonRpcResponse.success(closed, request.id)


def speaks_mcp(scope: Scope) -> bool:
    """Return whether the request comes from a client of the Model Context Protocol."""
    for name, value in scope["headers"]:
        if name in (b"mcp-protocol-version", b"mcp-session-id"):
            return True
        if name == b"accept" and b"text/event-stream" in value.lower():
            return True
    return False


def session_named(scope: Scope, principal: Principal | None) -> str | None:
    """Return the id of the session that a request names, if any.

    An agent's key is bound to a session. Otherwise the URL or the header names the session.
    """
    if principal is not None and principal.session_id is not None:
        return principal.session_id
    named = query_of(scope, "session_id")
    if named:
        return named
    return header(scope, SESSION_HEADER.lower())
