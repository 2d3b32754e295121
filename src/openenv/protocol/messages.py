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

Version 1 is agreed in the handshake, by the WebSocket subprotocol ``openenv.v1.msgpack`` or
``openenv.v1.json``. A frame holds one message, or an array of messages for as many steps. One
connection carries many sessions, each under a number that the client chooses; requests of a
session are numbered too, and their answers carry both numbers. A session is served in order;
sessions do not wait for each other.

    client                                      server
                                                {type: hello, data: {version, sessions}}
    {type: open, session: 3}                    {type: opened, session: 3, data: {session_id}}
    {type: reset, session: 3, id: 1,            {type: observation, session: 3, id: 1,
     data: {arguments}}                          data: {observation, reward, done}}
    {type: step, session: 3, id: 2,             ...
     data: {action}, arguments: {...},
     trace: "00-..."}
    {type: state, session: 3, id: 3}            {type: state, session: 3, id: 3, data: {...}}
    {type: mcp, session: 3, id: 4, data: ...}   {type: mcp, session: 3, id: 4, data: ...}
    {type: close, session: 3, id: 5}            {type: closed, session: 3, id: 5}
                                                {type: error, session: 3, id: 2,
                                                 data: {message, code, ...}}

Beside the three, the data of an observation hold ``truncated``, ``metadata``, ``info`` and
``ignored_arguments`` where there is anything to say. In MessagePack an array is extension type 1
(`openenv.arrays.pack_array`), an integer beyond 64 bits extension type 2 (its decimal digits), and
bytes are bytes. In JSON an array is ``{"dtype", "shape", "data"}`` with base64 data.
"""

from __future__ import annotations

from typing import Any

import msgspec

from openenv.errors import ErrorCode

__all__ = [
    "IGNORED_ARGUMENTS",
    "INFO",
    "TRUNCATED",
    "ErrorReply",
    "MCPReply",
    "Notice",
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


class Request(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A request of either version, decoded; in version 1 this is what is on the wire.

    Attributes:
        type: Which of the requests: open, reset, step, state, close or mcp.
        data: Arguments of `reset`, the action of `step`, the JSON-RPC request of `mcp`.
        arguments: Further arguments of `step`; version 0 carries none.
        id: The request's number in its session; version 0 has none.
        session: Which of the connection's sessions it is for; version 0 has one.
        trace: The client's span, as W3C's ``traceparent``; version 0 carries none.
    """

    type: str
    data: dict[Any, Any] = {}  # MessagePack has keys of any type; the action's model refuses them
    arguments: dict[str, Any] = {}
    id: int = 0
    session: int = 0
    trace: str = ""


class Transition(msgspec.Struct):
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
    metadata: dict[str, Any] = {}
    info: dict[str, Any] | None = None
    ignored: tuple[str, ...] = ()


class ObservationReply(msgspec.Struct):
    """An observation frame, decoded by a client: the payload as clients' hooks expect it."""

    payload: dict[str, Any]


class StateReply(msgspec.Struct):
    """A state frame: the state (server side: any model; client side: a dict)."""

    state: Any


class MCPReply(msgspec.Struct):
    """An mcp frame: a JSON-RPC response."""

    response: Any


class Notice(msgspec.Struct):
    """A message of version 1 that is no answer to a call: hello, opened, closed."""

    kind: str
    data: dict[str, Any] | None = None


class ErrorReply(msgspec.Struct):
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
