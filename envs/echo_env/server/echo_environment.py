"""The echo environment itself."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

from openenv.environment import Environment
from openenv.mcp.types import (
    CallToolAction,
    CallToolObservation,
    ListToolsAction,
    ListToolsObservation,
    Tool,
    ToolError,
    ToolErrorType,
)
from openenv.types import Observation, State

from ..models import EchoAction, EchoObservation

READY = "Echo environment ready!"
REWARD_PER_CHARACTER = 0.1


def echo_message(message: str) -> str:
    """Echo back the provided message."""
    return message


def echo_with_length(message: str) -> dict[str, Any]:
    """Echo back the message with its length."""
    return {"message": message, "length": len(message)}


TOOLS: dict[str, Callable[[str], Any]] = {
    "echo_message": echo_message,
    "echo_with_length": echo_with_length,
}

_ARGUMENTS = {
    "type": "object",
    "properties": {"message": {"type": "string", "description": "The message to echo back"}},
    "required": ["message"],
    "additionalProperties": False,
}


class EchoEnvironment(
    Environment[EchoAction | CallToolAction | ListToolsAction, Observation, State]
):
    """Repeats messages, said as an `EchoAction` or by calling a tool.

    An `EchoAction` is rewarded with 0.1 a character; a tool call is not scored. An episode
    never ends by itself.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State(episode_id=str(uuid.uuid4()))

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> EchoObservation:
        self._state = State(episode_id=episode_id or str(uuid.uuid4()))
        return EchoObservation(
            echoed_message=READY, reward=0.0, metadata={"status": "ready", "message": READY}
        )

    def step(
        self,
        action: EchoAction | CallToolAction | ListToolsAction,
        timeout_s: float | None = None,
        **kwargs: Any,
    ) -> Observation:
        self._state.step_count += 1
        if isinstance(action, ListToolsAction):
            return _list_tools()
        if isinstance(action, CallToolAction):
            return _call_tool(action)
        message = action.message
        return EchoObservation(
            echoed_message=message,
            message_length=len(message),
            reward=round(len(message) * REWARD_PER_CHARACTER, 10),
        )

    @property
    def state(self) -> State:
        return self._state

    def snapshot(self) -> bytes:
        """Store the episode, which is its state."""
        return self._state.model_dump_json().encode()

    def restore(self, data: bytes) -> None:
        """Go on with a stored episode."""
        self._state = State.model_validate_json(data)


def _list_tools() -> ListToolsObservation:
    return ListToolsObservation(
        tools=[
            Tool(name=name, description=tool.__doc__ or "", input_schema=_ARGUMENTS)
            for name, tool in TOOLS.items()
        ]
    )


def _call_tool(action: CallToolAction) -> CallToolObservation:
    tool = TOOLS.get(action.tool_name)
    if tool is None:
        return _failed(action, ToolErrorType.TOOL_NOT_FOUND, f"Unknown tool: {action.tool_name!r}")
    arguments = dict(action.arguments)
    message = arguments.pop("message", None)
    if not isinstance(message, str) or arguments:
        return _failed(
            action,
            ToolErrorType.INVALID_ARGS,
            f"{action.tool_name} takes one argument, message: str; got {action.arguments!r:.200}",
        )
    return CallToolObservation(tool_name=action.tool_name, result=_tool_result(tool(message)))


def _failed(action: CallToolAction, kind: ToolErrorType, message: str) -> CallToolObservation:
    return CallToolObservation(
        tool_name=action.tool_name, error=ToolError(error_type=kind, message=message)
    )


def _tool_result(data: str | dict[str, Any]) -> dict[str, Any]:
    """A tool's result in the form that MCP clients of this environment know."""
    is_text = isinstance(data, str)
    text = data if is_text else json.dumps(data, separators=(",", ":"))
    return {
        "content": [{"type": "text", "text": text, "annotations": None, "meta": None}],
        "structured_content": {"result": data} if is_text else data,
        "meta": {"fastmcp": {"wrap_result": True}} if is_text else None,
        "data": data,
        "is_error": False,
    }
