"""The JSON-RPC of clients of the public package.

The methods are ``tools/list`` and ``tools/call``, ``openenv/session/create`` and ``close``, and our
own ``openenv/session/agent_key``. There is no handshake and there are no notifications. Requests
arrive by POST `/mcp`, by WebSocket `/mcp`, and in `mcp` frames of `/ws`. A request becomes a
command (`JsonRpcCommand`), so that the session serves it in its turn, like a step. Only
environments that have tools, or accept actions that are tool calls, answer such requests. With the
standard protocol (`openenv.server.mcp.bridge`), every environment answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import to_json

from openenv._internal.incidents import describe_error, incident_of, is_incident, log_incident
from openenv.errors import (
    EnvironmentFactoryError,
    InvalidJSONError,
    NotPermittedError,
    OpenEnvError,
    SessionCapacityError,
    SessionNotFoundError,
    StepTimeout,
)
from openenv.execution.commands import Command, Encode
from openenv.execution.manager import SessionManager
from openenv.execution.principal import Principal, Role
from openenv.execution.session import Session
from openenv.execution.spec import EnvironmentSpec, ToolSupport
from openenv.execution.tools import (
    build_call_command,
    build_list_command,
    read_outcome,
    read_tools,
)
from openenv.protocol.messages import MCPReply
from openenv.protocol.v0.codec import parse_json
from openenv.tools.types import AGENT_KEY, CLOSE, CREATE, NO_TOOLS, JsonRpcRequest, JsonRpcResponse
from openenv.tools.types import JsonRpcErrorCode as Code

NO_SESSION_ID = "Invalid params - 'session_id' is required"
OWN_SESSION = "Cannot close active WebSocket-managed session via MCP method"

RequestId = str | int | None


def read_json_rpc(frame: str | bytes) -> Any:
    """Read the JSON of a frame; return an error response if it is invalid or an array."""
    try:
        data = parse_json(frame)
    except InvalidJSONError as error:
        why = str(error).removeprefix("Invalid JSON: ")
        return JsonRpcResponse.error_response(Code.PARSE_ERROR, f"Parse error: {why}")
    if isinstance(data, list):
        why = "Invalid request: an array; requests are sent one by one"
        return JsonRpcResponse.error_response(Code.INVALID_REQUEST, why)
    return data


def encode_json_rpc(reply: MCPReply | JsonRpcResponse) -> bytes:
    """Write a response as JSON."""
    response = reply.response if isinstance(reply, MCPReply) else reply
    return to_json(response, inf_nan_mode="null")


def parse_request(data: Any) -> JsonRpcRequest | JsonRpcResponse:
    """Read a request; return an error response if it is invalid."""
    try:
        return JsonRpcRequest.model_validate(data)
    except ValidationError as error:
        return JsonRpcResponse.error_response(Code.INVALID_REQUEST, f"Invalid request: {error}")


@dataclass(frozen=True, slots=True)
class JsonRpcCommand:
    """The command for a JSON-RPC request.

    Attributes:
        command: The command for the session.
        respond: Converts the session's reply to a response, where the environment lives.
    """

    command: Command
    respond: JsonRpcResponder

    def encoder(self, encode: Encode) -> Encode:
        """Return an encoder of replies that encodes the response with `encode`."""
        return JsonRpcEncoder(self.respond, encode)


@dataclass(frozen=True, slots=True)
class JsonRpcResponder:
    """Converts a session's reply to a response. Agents get neither the reward nor `done`."""

    method: str
    support: ToolSupport
    id: RequestId
    for_agent: bool

    def __call__(self, value: Any) -> JsonRpcResponse:
        if self.method == "tools/list":
            write = _full_tool if self.support is ToolSupport.TOOLS else _short_tool
            tools = [write(tool) for tool in read_tools(value)]
            return JsonRpcResponse.success({"tools": tools}, self.id)
        outcome = read_outcome(value)
        observation = outcome.observation or {}
        if self.support is ToolSupport.TOOL_ACTIONS:
            score = {} if self.for_agent else {"done": outcome.done, "reward": outcome.reward}
            return JsonRpcResponse.success({**score, **observation}, self.id)
        if observation.get("error"):
            message = observation["error"]["message"]
            return JsonRpcResponse.error_response(Code.INTERNAL_ERROR, message, request_id=self.id)
        return JsonRpcResponse.success(observation.get("result"), self.id)


@dataclass(frozen=True, slots=True)
class JsonRpcEncoder:
    """Converts a session's reply to an encoded response."""

    respond: JsonRpcResponder
    encode: Encode

    def __call__(self, value: Any) -> Any:
        return self.encode(MCPReply(self.respond(value)))


# The fields of a tool in MCP, in the order of the public package, which has another name for
# `_meta`.
TOOL_FIELDS = (
    *("name", "title", "description", "inputSchema", "outputSchema"),
    *("icons", "annotations", "_meta", "execution"),
)


def _full_tool(tool: dict[str, Any]) -> dict[str, Any]:
    full = {**dict.fromkeys(TOOL_FIELDS), **tool}
    return {("meta" if name == "_meta" else name): value for name, value in full.items()}


def _short_tool(tool: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": tool["name"],
        "description": tool["description"],
        "input_schema": tool["inputSchema"],
    }


def build_json_rpc_command(
    manager: SessionManager,
    session: Session,
    request: JsonRpcRequest,
    principal: Principal | None,
) -> JsonRpcCommand | JsonRpcResponse:
    """Return the command for a session, or the response if the session is not needed."""
    if request.method == CREATE:
        return JsonRpcResponse.success({"session_id": session.id}, request.id)
    if request.method == AGENT_KEY:
        try:
            check_may_control(request, principal)
        except NotPermittedError as error:
            return json_rpc_error(error, request.id)
        return issue_agent_key(manager, session, request)
    if request.method == CLOSE:
        return _close_own(session, request)
    return build_tool_command(session.spec, request, principal)


def issue_agent_key(
    manager: SessionManager, session: Session, request: JsonRpcRequest
) -> JsonRpcResponse:
    """Respond to `AGENT_KEY` with a new key for an agent of the session."""
    key = None if manager.keys is None else manager.issue_agent_key(session.id)
    return JsonRpcResponse.success({"session_id": session.id, "key": key}, request.id)


def check_may_control(request: JsonRpcRequest, principal: Principal | None) -> None:
    """Check that the client is not an agent.

    Raises:
        NotPermittedError: The client is an agent.
    """
    if is_agent(principal):
        raise NotPermittedError(f"{request.method} is for those who drive the environment")


def is_agent(principal: Principal | None) -> bool:
    """Return whether a key is an agent's."""
    return principal is not None and principal.role is Role.AGENT


def build_tool_command(
    spec: EnvironmentSpec, request: JsonRpcRequest, principal: Principal | None
) -> JsonRpcCommand | JsonRpcResponse:
    """Return the command for a request about tools, for any session, or an error response."""
    fail = partial(JsonRpcResponse.error_response, request_id=request.id)
    if request.method not in ("tools/list", "tools/call"):
        return fail(Code.METHOD_NOT_FOUND, f"Method not found: {request.method}")
    respond = JsonRpcResponder(request.method, spec.tool_support, request.id, is_agent(principal))
    if request.method == "tools/list":
        command = build_list_command(spec)
        if command is None:
            return fail(Code.INTERNAL_ERROR, NO_TOOLS)
        return JsonRpcCommand(command, respond)
    name, arguments = request.params.get("name"), request.params.get("arguments") or {}
    why = None
    if not name:
        why = "Missing 'name' in params"
    elif not isinstance(name, str):
        why = f"'name' must be a string; got {name!r:.100}"
    elif not isinstance(arguments, dict):
        why = f"'arguments' must be an object; got {arguments!r:.100}"
    if why is not None:
        return fail(Code.INVALID_PARAMS, why)
    assert isinstance(name, str)
    if spec.tool_support is ToolSupport.ACTIONS:
        return fail(Code.INTERNAL_ERROR, NO_TOOLS)
    return JsonRpcCommand(build_call_command(spec, name, arguments), respond)


def _close_own(session: Session, request: JsonRpcRequest) -> JsonRpcResponse:
    """Refuse to close the session of this socket: a client closes the socket instead."""
    wanted = request.params.get("session_id")
    if wanted is None:
        code, message = Code.INVALID_PARAMS, NO_SESSION_ID
    elif wanted == session.id:
        code, message = Code.INVALID_REQUEST, OWN_SESSION
    else:
        code, message = Code.INVALID_PARAMS, f"Unknown session_id: {wanted}"
    return JsonRpcResponse.error_response(code, message, request_id=request.id)


def json_rpc_error(
    error: BaseException, request_id: RequestId = None, *, debug: bool = False
) -> JsonRpcResponse:
    """Return the response that reports an error."""
    code, data = Code.INTERNAL_ERROR, cast("Any", None)
    if isinstance(error, SessionCapacityError):
        code = Code.SERVER_ERROR
        data = {"active_sessions": error.active_sessions, "max_sessions": error.max_sessions}
    elif isinstance(error, EnvironmentFactoryError):
        code, data = Code.SERVER_ERROR, {"factory_name": error.factory_name}
    elif isinstance(error, SessionNotFoundError):
        why = f"Unknown session_id: {error.session_id}"
        return JsonRpcResponse.error_response(Code.INVALID_PARAMS, why, request_id=request_id)
    elif not isinstance(error, OpenEnvError | StepTimeout) and is_incident(error):
        incident = incident_of(error) or log_incident(error, "tools")
        data = {"type": incident.type, "incident": incident.id}
    return JsonRpcResponse.error_response(
        code, describe_error(error, debug=debug), data, request_id=request_id
    )
