"""The messages of protocol version 1.

Client and server agree on version 1 in the handshake, by the WebSocket subprotocol
``openenv.v1.msgpack`` or ``openenv.v1.json``. A frame holds one message or an array of messages.
One connection carries many sessions, each under a number that the client chooses. The requests of
a session are numbered too, and each answer carries both numbers. A session is served in order;
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
    {type: close, session: 3, id: 9,            {type: closed, session: 3, id: 9}
     data: {cancel}}
                                                {type: error, session: 3, id: 2,
                                                 data: {message, code, ...}}

If all slots are taken, ``open`` waits, and ``queued`` reports its place. The ``timeout_s`` of a
step is its deadline: when it passes, the error ``STEP_TIMEOUT`` comes at once. With
``is_running: true`` the step continues, and its own answer comes later, under the same number.

Both sides count the frames of a connection. In ``ack``, the first message of a client's frame
acknowledges the server's frames; the server acknowledges from time to time with a message. A client
whose socket broke opens another. Its first frame there, which does not count, asks to resume. Then
each side resends the frames that the other lacks; see `openenv.protocol.v1.connection`.

    {type: resume, data: {connection, token,    {type: resumed, data: {received}}
     received}}                                  or {type: error, data: ...}
    {type: ack, ack: 7}                         {type: ack, data: {received: 64}}
                                                {type: gone, data: {reason}}  nothing to resume

Besides these three, the data of an observation hold ``truncated``, ``metadata``, ``info``,
``reward_info`` (see `openenv.reward`) and ``ignored_arguments``, if they are not empty. In
MessagePack an array is extension type 1 (`openenv.arrays.pack_array`), an integer beyond 64 bits
extension type 2 (its decimal digits), and bytes are bytes. In JSON an array is ``{"dtype", "shape",
"data"}`` with base64 data, and bytes are base64. A server that records on request records a session
if the data of its ``open`` hold ``"record": true``.
"""

from __future__ import annotations

from typing import Any, NamedTuple, get_args

import msgspec

from openenv.errors import ProtocolError
from openenv.protocol.messages import RequestType

REQUEST_TYPES = get_args(RequestType)
ANSWERS = (
    "hello",
    "opened",
    "queued",
    "observation",
    "state",
    "snapshot",
    "render",
    "view",
    "mcp",
    "closed",
    "error",
    "ack",
    "resumed",
    "gone",
)

# How often a waiting session is told its place in the queue, even if nothing has changed.
HEARTBEAT_S = 5.0


class ServerMessage(msgspec.Struct):
    """A message of a server; a later version may add fields."""

    type: str
    session: int | None = None
    id: int | None = None
    data: Any = None


class Hello(msgspec.Struct):
    """The first message of a server of version 1; a later version may add fields.

    Attributes:
        connection: The id of the connection, used to resume it.
        resume_token: A secret that proves that the connection is the client's own.
        grace_s: Seconds for which sessions are kept after a break; 0 if they are not kept.
        server: The id of the server's process.
        siblings: Other processes serve the same address.
        ends: The addresses and ports of the client and of the server, as the server sees them. If
            the client sees the same, there is no relay between the two.
        max_sessions: Number of sessions that the process holds.
        max_message_bytes: Size limit of a message that the server accepts; None if unknown.
        capabilities: Further features that the server supports.
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


class Notice(msgspec.Struct):
    """A message of version 1 that does not answer a call, such as opened or queued."""

    kind: str
    data: dict[str, Any] | None = None


class Queued(NamedTuple):
    """The place of a session that waits for a slot of the server.

    Attributes:
        position: The session's place in the queue; 1 is next.
        length: Number of sessions that wait.
    """

    position: int
    length: int

    @classmethod
    def of(cls, notice: Notice) -> Queued:
        """Read the place from a message.

        Raises:
            ProtocolError: The message holds no valid place.
        """
        data = notice.data or {}
        position, length = data.get("position"), data.get("length")
        if type(position) is not int or type(length) is not int:
            raise ProtocolError(f"The server sent queued with {data}; expected two numbers")
        return cls(position, length)
