"""Tool actions and observations, and the JSON-RPC 2.0 messages that carry them.

JSON-RPC: https://www.jsonrpc.org/specification. Tools: https://modelcontextprotocol.io.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_serializer,
    model_serializer,
)

from openenv.tools.results import ToolText
from openenv.types import Action, Observation

__all__ = [
    "AGENT_KEY",
    "CLOSE",
    "CREATE",
    "NO_TOOLS",
    "RESERVED_TOOL_NAMES",
    "CallToolAction",
    "CallToolObservation",
    "JsonRpcError",
    "JsonRpcErrorCode",
    "JsonRpcRequest",
    "JsonRpcResponse",
    "ListToolsAction",
    "ListToolsObservation",
    "McpMethod",
    "Tool",
    "ToolError",
    "ToolErrorType",
]

RESERVED_TOOL_NAMES = frozenset({"reset", "step", "state", "close"})
# Session methods of the older JSON-RPC interface, in addition to those of `McpMethod`.
CREATE, CLOSE = "openenv/session/create", "openenv/session/close"
# Our own method: returns a key for an agent's access to a session's tools, if keys are in use.
AGENT_KEY = "openenv/session/agent_key"
# The answer for an environment without tools.
NO_TOOLS = "Environment does not support MCP"


class JsonRpcErrorCode(int, Enum):
    """The codes of JSON-RPC 2.0, section 5.1."""

    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL_ERROR = -32603
    SERVER_ERROR = -32000


_DEFAULT_MESSAGES = {
    JsonRpcErrorCode.PARSE_ERROR: "Parse error",
    JsonRpcErrorCode.INVALID_REQUEST: "Invalid Request",
    JsonRpcErrorCode.METHOD_NOT_FOUND: "Method not found",
    JsonRpcErrorCode.INVALID_PARAMS: "Invalid params",
    JsonRpcErrorCode.INTERNAL_ERROR: "Internal error",
    JsonRpcErrorCode.SERVER_ERROR: "Server error",
}


class McpMethod(str, Enum):
    """The tool methods of MCP."""

    TOOLS_LIST = "tools/list"
    TOOLS_CALL = "tools/call"


class JsonRpcError(BaseModel):
    """The `error` member of a JSON-RPC response."""

    model_config = ConfigDict(extra="forbid")

    code: int
    message: str
    data: Any = None

    @classmethod
    def from_code(
        cls, code: JsonRpcErrorCode, message: str | None = None, data: Any = None
    ) -> JsonRpcError:
        """Build an error with the standard message of `code`, unless `message` is given."""
        return cls(code=code.value, message=message or _DEFAULT_MESSAGES[code], data=data)


class JsonRpcRequest(BaseModel):
    """A JSON-RPC request. A missing id counts as null, and the request is answered."""

    model_config = ConfigDict(extra="forbid")

    jsonrpc: Literal["2.0"]
    method: str
    params: dict[str, Any] = Field(default_factory=dict)
    id: str | int | None = None


class JsonRpcResponse(BaseModel):
    """A JSON-RPC response with either `result` or `error`."""

    model_config = ConfigDict(extra="forbid")

    jsonrpc: Literal["2.0"] = "2.0"
    id: str | int | None = None
    result: Any = None
    error: JsonRpcError | None = None

    @model_serializer(mode="wrap")
    def _one_outcome(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = handler(self)
        fields.pop("result" if self.error is not None else "error")
        return fields

    @classmethod
    def success(cls, result: Any, request_id: str | int | None = None) -> JsonRpcResponse:
        """Answer with a result."""
        return cls(result=result, id=request_id)

    @classmethod
    def error_response(
        cls,
        code: JsonRpcErrorCode,
        message: str | None = None,
        data: Any = None,
        request_id: str | int | None = None,
    ) -> JsonRpcResponse:
        """Answer with an error."""
        return cls(error=JsonRpcError.from_code(code, message, data), id=request_id)


class Tool(BaseModel):
    """A tool's name, purpose and JSON schema of arguments."""

    model_config = ConfigDict(extra="forbid")

    name: str
    description: str
    input_schema: dict[str, Any]


class ToolErrorType(str, Enum):
    """The kinds of failed tool calls."""

    EXECUTION_ERROR = "execution_error"
    INVALID_ARGS = "invalid_args"
    TRANSPORT_ERROR = "transport_error"
    TOOL_NOT_FOUND = "tool_not_found"
    TIMEOUT = "timeout"


class ToolError(BaseModel):
    """A failed tool call."""

    model_config = ConfigDict(extra="forbid")

    error_type: ToolErrorType
    message: str


class ListToolsAction(Action):
    """A request for the list of tools."""

    type: Literal["list_tools"] = "list_tools"


class CallToolAction(Action):
    """A call of a tool."""

    type: Literal["call_tool"] = "call_tool"
    tool_name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


TOOL_ACTIONS: dict[str, type[Action]] = {
    "list_tools": ListToolsAction,
    "call_tool": CallToolAction,
}


def select_action_model(action_cls: type[Action], data: Any) -> type[Action]:
    """Return the model that validates `data`, for an environment whose action is `action_cls`.

    If `action_cls` is `Action` itself or a tool action, the ``type`` in the data selects a tool
    action; any other class validates the data itself.
    """
    if action_cls in (Action, *TOOL_ACTIONS.values()) and isinstance(data, Mapping):
        return TOOL_ACTIONS.get(str(data.get("type")), action_cls)
    return action_cls


class ListToolsObservation(Observation):
    """A list of tools."""

    tools: list[Tool]


class CallToolObservation(Observation):
    """The result of a tool call: `result`, or `error` after a failure.

    On a client, the result of a tool that returned text is that text, with the rest of MCP's result
    as attributes and keys: see `openenv.tools.results.ToolText`.
    """

    tool_name: str
    result: Any = None
    error: ToolError | None = None

    @field_serializer("result", mode="wrap")
    def _write_result(self, value: Any, handler: SerializerFunctionWrapHandler) -> Any:
        return handler(value.dump if isinstance(value, ToolText) else value)
