"""The messages of protocol version 1.

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
    {type: close, session: 3, id: 9,            {type: closed, session: 3, id: 9}
     data: {cancel}}
                                                {type: error, session: 3, id: 2,
                                                 data: {message, code, ...}}

While all slots are taken, ``open`` waits, and ``queued`` says where it stands. The ``timeout_s`` of
a step is its deadline: when it is over, the error ``STEP_TIMEOUT`` comes at once; with
``is_running: true`` the step goes on, and its own answer comes later, under the same number.

Both sides count the frames of a connection. The first message of a client's frame says by ``ack``
how many of the server's have come; the server says it by a message of its own, now and then. A
client whose socket broke opens another, and its first frame there, which does not count, asks to
go on. Then each sends again what the other lacks; see `openenv.protocol.v1.connection`.

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

# How often a session that waits for a slot is told so, though nothing has changed.
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


class Notice(msgspec.Struct):
    """A message of version 1 that is no answer to a call, such as opened or queued."""

    kind: str
    data: dict[str, Any] | None = None


class Queued(NamedTuple):
    """The place of a session that waits for a slot of the server.

    Attributes:
        position: How many are served before it, and itself: 1 is the next.
        length: How many wait.
    """

    position: int
    length: int

    @classmethod
    def of(cls, notice: Notice) -> Queued:
        """Read the place from a message.

        Raises:
            ProtocolError: It is none.
        """
        data = notice.data or {}
        position, length = data.get("position"), data.get("length")
        if type(position) is not int or type(length) is not int:
            raise ProtocolError(f"The server sent queued with {data}; expected two numbers")
        return cls(position, length)
