"""The messages of protocol version 0, as the models with which a server validates them.

A frame is one JSON object in one WebSocket text message.

    client                                      server
    {"type": "reset", "data": {arguments}}      {"type": "observation", "data": {...}}
    {"type": "step", "data": {action}}          {"type": "observation", "data": {...}}
    {"type": "state"}                           {"type": "state", "data": {...}}
    {"type": "mcp", "data": {JSON-RPC}}         {"type": "mcp", "data": {JSON-RPC}}
    {"type": "close"}                           (closes with 1000)
                                                {"type": "error", "data": {message, code, ...}}

Exactly one frame answers each request except ``close``, in order. The ``data`` of an observation
is ``{"observation": {...}, "reward": r, "done": d}`` and, if it is not empty,
``"metadata": {...}``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class BaseMessage(BaseModel):
    """A frame refuses keys that it does not know."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)


class ResetMessage(BaseMessage):
    """Begin an episode; `data` holds the arguments of `reset`."""

    type: Literal["reset"] = "reset"
    data: dict[str, Any] = Field(default_factory=dict)


class StepMessage(BaseMessage):
    """Take a step; `data` is the action."""

    type: Literal["step"] = "step"
    data: dict[str, Any]


class StateMessage(BaseMessage):
    """Ask for the state."""

    type: Literal["state"] = "state"


class CloseMessage(BaseMessage):
    """End the session."""

    type: Literal["close"] = "close"


class MCPMessage(BaseMessage):
    """A JSON-RPC request to the session's tools."""

    type: Literal["mcp"] = "mcp"
    data: dict[str, Any]


# The requests that drive an episode; tool requests (`MCPMessage`) are separate.
IncomingMessage = Annotated[
    ResetMessage | StepMessage | StateMessage | CloseMessage, Field(discriminator="type")
]


class ObservationResponse(BaseModel):
    """Answers reset and step."""

    type: Literal["observation"] = "observation"
    data: dict[str, Any]


class StateResponse(BaseModel):
    """Answers state."""

    type: Literal["state"] = "state"
    data: dict[str, Any]


class MCPResponse(BaseModel):
    """Answers mcp."""

    type: Literal["mcp"] = "mcp"
    data: dict[str, Any]


class ErrorResponse(BaseModel):
    """Answers any request that failed; `data` holds `message`, `code` and details."""

    type: Literal["error"] = "error"
    data: dict[str, Any]


REQUESTS: dict[str, type[BaseMessage]] = {
    "reset": ResetMessage,
    "step": StepMessage,
    "state": StateMessage,
    "close": CloseMessage,
    "mcp": MCPMessage,
}
