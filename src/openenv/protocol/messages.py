"""Every frame of the wire protocol, once. Wire names appear here and nowhere else.

Version 0: a frame is one JSON object in one WebSocket text message.

    client                                      server
    {"type": "reset", "data": {arguments}}      {"type": "observation", "data": {...}}
    {"type": "step", "data": {action}}          {"type": "observation", "data": {...}}
    {"type": "state"}                           {"type": "state", "data": {...}}
    {"type": "mcp", "data": {JSON-RPC}}         {"type": "mcp", "data": {JSON-RPC}}
    {"type": "close"}                           (closes with 1000)
                                                {"type": "error", "data": {message, code, ...}}

Every request but ``close`` is answered by exactly one frame, in order. The ``data`` of an
observation is ``{"observation": {...}, "reward": r, "done": d}`` and, where it is not empty,
``"metadata": {...}``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from openenv.errors import ErrorCode

__all__ = [
    "IGNORED_ARGUMENTS",
    "INFO",
    "TRUNCATED",
    "ErrorReply",
    "MCPReply",
    "ObservationReply",
    "Reply",
    "Request",
    "StateReply",
    "Transition",
]

# Keys under which version 0 carries, inside ``metadata``, what it has no field for.
TRUNCATED = "truncated"
INFO = "info"
IGNORED_ARGUMENTS = "ignored_arguments"


RequestType = Literal["reset", "step", "state", "close", "mcp"]


@dataclass(slots=True)
class Request:
    """A request of either version, decoded.

    Attributes:
        type: Which of the requests.
        data: Arguments of `reset`, the action of `step`, the JSON-RPC request of `mcp`.
        id: Request id; version 0 has none.
    """

    type: RequestType
    data: dict[str, Any] = field(default_factory=dict)
    id: int | None = None


@dataclass(slots=True)
class Transition:
    """What `reset` or `step` came to, normalised; not yet encoded.

    Attributes:
        observation: An `Observation`, or any value that JSON can carry.
        reward: A number, or None where there is none.
        done: The episode is over.
        truncated: It was cut off by a limit outside the task.
        metadata: What is sent beside the observation.
        info: Diagnostics, or None.
        ignored: Names of arguments that were passed and not taken.
    """

    observation: Any
    reward: bool | int | float | None = None
    done: bool = False
    truncated: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)
    info: dict[str, Any] | None = None
    ignored: tuple[str, ...] = ()


@dataclass(slots=True)
class ObservationReply:
    """An observation frame, decoded by a client: the payload as clients' hooks expect it."""

    payload: dict[str, Any]


@dataclass(slots=True)
class StateReply:
    """A state frame: the state (server side: any model; client side: a dict)."""

    state: Any


@dataclass(slots=True)
class MCPReply:
    """An mcp frame: a JSON-RPC response."""

    response: Any


@dataclass(slots=True)
class ErrorReply:
    """An error frame: `data` holds message, code and details."""

    data: dict[str, Any]

    @property
    def is_fatal(self) -> bool:
        """The server closes the connection after an error of this kind."""
        return self.data.get("code") in _FATAL


_FATAL = {
    code.value
    for code in (ErrorCode.CAPACITY_REACHED, ErrorCode.FACTORY_ERROR, ErrorCode.SESSION_ERROR)
}

Reply = ObservationReply | StateReply | MCPReply | ErrorReply
