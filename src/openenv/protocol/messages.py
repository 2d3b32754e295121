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
                                                {type: hello, data: {version, connection,
                                                 resume_token, grace_s, server, ends,
                                                 max_sessions, max_message_bytes, ...}}
    {type: open, session: 3,                    {type: queued, session: 3,
     data: {queue_timeout_s,                     data: {position, length}}
            max_message_bytes}}                 {type: opened, session: 3, data: {session_id}}
    {type: reset, session: 3, id: 1,            {type: observation, session: 3, id: 1,
     data: {arguments}}                          data: {observation, reward, done}}
    {type: step, session: 3, id: 2,             ...
     data: {action}, arguments: {...},
     trace: "00-..."}
    {type: state, session: 3, id: 3}            {type: state, session: 3, id: 3, data: {...}}
    {type: mcp, session: 3, id: 4, data: ...}   {type: mcp, session: 3, id: 4, data: ...}
    {type: snapshot, session: 3, id: 5}         {type: snapshot, session: 3, id: 5,
                                                 data: {snapshot: bytes}}
    {type: restore, session: 3, id: 6,          {type: state, session: 3, id: 6, data: {...}}
     data: {snapshot: bytes}}
    {type: render, session: 3, id: 7}           {type: render, session: 3, id: 7,
                                                 data: {text} or {array}
                                                 or {media_type, bytes}}
    {type: view, session: 3, id: 8}             {type: view, session: 3, id: 8,
                                                 data: {html, moves, action}}
    {type: close, session: 3, id: 9}            {type: closed, session: 3, id: 9}
                                                {type: error, session: 3, id: 2,
                                                 data: {message, code, ...}}

While all slots are taken, ``open`` waits, and ``queued`` says where it stands. The ``timeout_s`` of
a step is its deadline: when it is over, the error ``STEP_TIMEOUT`` comes at once; with
``is_running: true`` the step goes on, and its own answer comes later, under the same number.

Both sides count the frames of a connection. The first message of a client's frame says by ``ack``
how many of the server's have come; the server says it by a message of its own, now and then. A
client whose socket broke opens another, and its first frame there, which does not count, asks to
go on. Then each sends again what the other lacks; see `openenv.protocol.resend_buffer`.

    {type: resume, data: {connection, token,    {type: resumed, data: {received}}
     received}}                                  or {type: error, data: ...}
    {type: ack, ack: 7}                         {type: ack, data: {received: 64}}
                                                {type: gone, data: {reason}}  nothing to resume

Beside the three, the data of an observation hold ``truncated``, ``metadata``, ``info``,
``reward_info`` (see `openenv.reward`) and ``ignored_arguments`` where there is anything to say. In
MessagePack an array is extension type 1 (`openenv.arrays.pack_array`), an integer beyond 64 bits
extension type 2 (its decimal digits), and bytes are bytes. In JSON an array is ``{"dtype", "shape",
"data"}`` with base64 data, and bytes are base64. A server that records sessions on request does so
where the data of ``open`` hold ``"record": true``.

Where an environment has several action models that take the same fields, the action names its model
by the field ``openenv_action``. The schema of the action says so, and so do the capabilities of
``hello``, by ``action_types``. Likewise the data of an observation name its model by
``observation_type``, in either version, where another one has the same fields.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from openenv.arrays import Rendering
from openenv.errors import ErrorCode

__all__ = [
    "ACTION_TYPES",
    "IGNORED_ARGUMENTS",
    "INFO",
    "OBSERVATION_TYPE",
    "TRUNCATED",
    "ErrorReply",
    "Hello",
    "MCPReply",
    "Notice",
    "ObservationReply",
    "RenderReply",
    "Reply",
    "Request",
    "RequestType",
    "SnapshotReply",
    "StateReply",
    "Transition",
]

# Keys under which version 0 carries, inside ``metadata``, what it has no field for.
TRUNCATED = "truncated"
INFO = "info"
IGNORED_ARGUMENTS = "ignored_arguments"

# Beside an observation: the name of its model, where another one has the same fields.
OBSERVATION_TYPE = "observation_type"

# What a server can do, as its hello says, that wants the model of an action named by the field
# ``openenv_action`` where several models take the same fields.
ACTION_TYPES = "action_types"


RequestType = Literal[
    "open",
    "reset",
    "step",
    "state",
    "snapshot",
    "restore",
    "render",
    "view",
    "close",
    "mcp",
    "ack",
    "resume",
]


class Request(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A request of either version, decoded; in version 1 this is what is on the wire.

    Attributes:
        type: Which of the requests: open, reset, step, state, snapshot, restore, render, view,
            close or mcp; or ack or resume.
        data: Arguments of `reset`, the action of `step`, the JSON-RPC request of `mcp`, what
            `restore` goes back to, the message of `view`, how to `open`.
        arguments: Further arguments of `step`; version 0 carries none.
        id: The request's number in its session; version 0 has none.
        session: Which of the connection's sessions it is for; version 0 has one.
        ack: How many frames of the server had come when it was sent; the first of a frame has it.
        trace: The client's span, as W3C's ``traceparent``; version 0 carries none.
    """

    type: RequestType
    data: dict[str, Any] = {}
    arguments: dict[str, Any] = {}
    id: int = 0
    session: int = 0
    trace: str = ""
    ack: int = 0


class Hello(msgspec.Struct):
    """The first message of a server of version 1; a later version may add fields.

    Attributes:
        connection: Identifies the connection, to resume it.
        resume_token: Proves that it is one's own.
        grace_s: Seconds for which its sessions are kept once it is broken; 0 is not at all.
        server: Identifies the server's process, as long as it lives.
        siblings: Other processes serve the same address.
        ends: The addresses and ports of the client and of the server, as the server sees them.
            Where the client sees the same, nothing stands between the two.
        max_sessions: Sessions that it holds.
        max_message_bytes: Largest message that it takes; None is not known.
        capabilities: What else it can do.
    """

    version: int = 1
    connection: str = ""
    resume_token: str = ""
    grace_s: float = 0.0
    server: str = ""
    siblings: bool = False
    ends: list[str] | None = None
    max_sessions: int | None = None
    max_message_bytes: int | None = None
    capabilities: list[str] = []


class Transition(msgspec.Struct):
    """The result of `reset` or `step`, normalized; not yet encoded.

    Attributes:
        observation: An `Observation`, or any value that JSON can carry.
        reward: A number, or None where there is none.
        done: The episode is over.
        truncated: It was cut off by a limit outside the task.
        metadata: What is sent beside the observation.
        info: Diagnostics, or None.
        ignored: Names of arguments that were passed and not taken.
        reward_info: What is known of the reward beside the number, or None.
        kind: The name of the observation's model, where another one has the same fields.
    """

    observation: Any
    reward: bool | int | float | None = None
    done: bool = False
    truncated: bool = False
    metadata: dict[str, Any] = {}
    info: dict[str, Any] | None = None
    ignored: tuple[str, ...] = ()
    reward_info: dict[str, Any] | None = None
    kind: str = ""


class ObservationReply(msgspec.Struct):
    """An observation frame, decoded by a client: the payload as clients' hooks expect it."""

    payload: dict[str, Any]


class StateReply(msgspec.Struct):
    """A state frame: the state (server side: any model; client side: a dict)."""

    state: Any


class SnapshotReply(msgspec.Struct):
    """A snapshot frame: the bytes that `restore` takes."""

    snapshot: bytes


class RenderReply(msgspec.Struct):
    """A render frame: what shows people where the episode stands."""

    rendering: Rendering


class MCPReply(msgspec.Struct):
    """An mcp frame: a JSON-RPC response."""

    response: Any


class Notice(msgspec.Struct):
    """A message of version 1 that is no answer to a call, such as opened or queued."""

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

Reply = ObservationReply | StateReply | SnapshotReply | RenderReply | MCPReply | ErrorReply
