"""Tools of a session as MCP messages, for a harness that speaks MCP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import to_jsonable_python

from openenv.rollouts.harness.sessions import ResourceSession
from openenv.tools.types import RESERVED_TOOL_NAMES, JsonRpcErrorCode


class _JsonRpcRefusal(Exception):
    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(message)


class SessionMCPBridge:
    """An MCP endpoint (``tools/list``, ``tools/call``; JSON-RPC 2.0) for a session's tools.

    A result has the fields ``data``, ``done``, ``metadata`` and ``error`` of a `ToolResult`.
    """

    def __init__(self, session: ResourceSession) -> None:
        self.session = session

    def handle_request(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer one request.

        Errors are -32600 for an invalid request, -32601 for an unknown method or tool, -32602 for
        arguments that the tool does not accept and for reserved tool names, and -32603 if the tool
        failed.
        """
        number = request.get("id") if isinstance(request, Mapping) else None
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": number}
        try:
            return {**answer, "result": self._result(request)}
        except _JsonRpcRefusal as refused:
            code, message = refused.code, str(refused)
        return {**answer, "error": {"code": code, "message": message, "data": None}}

    def _result(self, request: Any) -> dict[str, Any]:
        if not isinstance(request, Mapping) or request.get("jsonrpc") != "2.0":
            raise _JsonRpcRefusal(JsonRpcErrorCode.INVALID_REQUEST.value, "Invalid Request")
        method = request.get("method")
        if method == "tools/list":
            listed = [
                (one.name, one.description, one.input_schema) for one in self.session.list_tools()
            ]
            names = ("name", "description", "inputSchema")
            return {"tools": [dict(zip(names, one, strict=True)) for one in listed]}
        if method == "tools/call":
            return self._called(request.get("params"))
        raise _JsonRpcRefusal(JsonRpcErrorCode.METHOD_NOT_FOUND.value, "Method not found")

    def _called(self, params: Any) -> dict[str, Any]:
        params = params if isinstance(params, Mapping) else {}
        name, arguments = params.get("name"), params.get("arguments")
        invalid = JsonRpcErrorCode.INVALID_PARAMS.value
        if not isinstance(name, str) or not name:
            raise _JsonRpcRefusal(invalid, "Missing tool name")
        if name in RESERVED_TOOL_NAMES:
            raise _JsonRpcRefusal(invalid, f"Reserved orchestration tool: {name}")
        if arguments is not None and not isinstance(arguments, Mapping):
            raise _JsonRpcRefusal(
                invalid, f"arguments of {name}: expected an object, not {arguments!r}"
            )
        try:
            result = self.session.call_tool(name, dict(arguments or {}))
        except KeyError as error:
            words = str(error.args[0]) if error.args else str(error)
            raise _JsonRpcRefusal(JsonRpcErrorCode.METHOD_NOT_FOUND.value, words) from error
        except ValueError as error:
            raise _JsonRpcRefusal(invalid, str(error)) from error
        except Exception as error:
            words = str(error) or type(error).__name__
            raise _JsonRpcRefusal(JsonRpcErrorCode.INTERNAL_ERROR.value, words) from error
        plain: dict[str, Any] = to_jsonable_python(result, bytes_mode="base64", fallback=str)
        return plain
