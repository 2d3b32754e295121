"""A connection of protocol version 1: the state that both ends keep, and the client's end."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from openenv.errors import (
    InvalidMessageError,
    OpenEnvError,
    ProtocolError,
    TooLargeError,
    server_error,
)
from openenv.protocol.messages import (
    IGNORED_ARGUMENTS,
    INFO,
    TRUNCATED,
    ErrorReply,
    MCPReply,
    ObservationReply,
    RenderReply,
    Reply,
    Request,
    SnapshotReply,
    StateReply,
)
from openenv.protocol.renderings import from_data
from openenv.protocol.v1.codec import Codec, snapshot_bytes
from openenv.protocol.v1.messages import ANSWERS, Hello, Notice, ServerMessage
from openenv.reward import REWARD_INFO

# An answer of this size is acknowledged at once and not with the next request, so that the server
# need not keep it while the policy thinks.
LARGE_BYTES = 2**16
OVERHEAD_BYTES = 48  # of a bytes object that holds a frame


class ResendBuffer:
    """The frames that a side of a connection keeps until the other side acknowledges them.

    Both sides count the frames that they send and receive, and keep a copy of each sent frame until
    the other side acknowledges it. After a break each side reports its count, and the other resends
    the rest: no frame is lost, and none arrives twice. (XMPP does the same: XEP-0198.)

    Attributes:
        acknowledged: Number of frames that the other side has acknowledged.
        received: Number of frames received from the other side.
        kept_bytes: Approximate memory of the frames not yet acknowledged.
    """

    __slots__ = ("_kept", "acknowledged", "kept_bytes", "received")

    def __init__(self) -> None:
        self.received = 0
        self.acknowledged = 0
        self.kept_bytes = 0
        self._kept: list[bytes] = []  # mostly one frame: a deque takes 600 bytes

    def keep(self, frame: bytes) -> None:
        """Keep a frame that is sent now."""
        self._kept.append(frame)
        self.kept_bytes += len(frame) + OVERHEAD_BYTES

    def acknowledge(self, count: int) -> None:
        """Note that the other side has received `count` frames in total.

        Raises:
            ProtocolError: Fewer frames than `count` were sent.
        """
        kept, fresh = self._kept, count - self.acknowledged
        if fresh == len(kept):  # nearly always
            self.acknowledged = count
            self.kept_bytes = 0
            kept.clear()
        elif fresh > len(kept):
            raise ProtocolError(
                f"{count} frames are said to have come, of {self.acknowledged + len(kept)} sent"
            )
        elif fresh > 0:
            self.acknowledged = count
            self.kept_bytes -= sum(map(len, kept[:fresh])) + fresh * OVERHEAD_BYTES
            del kept[:fresh]

    def forget(self) -> None:
        """Drop all kept frames: the other side will never ask for them."""
        self.acknowledged += len(self._kept)
        self._kept.clear()
        self.kept_bytes = 0

    def missing(self, count: int) -> list[bytes]:
        """Return the frames that the other side lacks after receiving `count` frames.

        Raises:
            ProtocolError: The other side asks for frames that it has acknowledged.
        """
        if count < self.acknowledged:
            raise ProtocolError(f"frames after {count} are asked for again; they are gone")
        self.acknowledge(count)
        return list(self._kept)


class Multiplexer:
    """The client's end of a connection with many sessions: numbers for sessions and requests.

    The first request of a session opens it, so that the client need not wait for that. A
    `Multiplexer` outlives its socket: frames that did not arrive are resent on the next one.

    Args:
        opening: The data of each ``open``.
        ends: The addresses and ports of this end and of the server's, as seen from here.

    Attributes:
        hello: The server's hello.
        is_direct: There is no proxy or other relay between the two ends.
        largest: Size limit in bytes of a frame that the server accepts; None if unknown.
        is_owing: A large frame has arrived that should be acknowledged at once.
        route: The gateway's server that the connection leads to; None without a gateway.
        gone: Why the server no longer keeps anything to resume; None while it does.

    Raises:
        ProtocolError: The first frame is not a hello.
    """

    version = 1

    def __init__(
        self,
        codec: Codec,
        hello: str | bytes | bytearray,
        opening: dict[str, Any] | None = None,
        ends: list[str] | None = None,
    ) -> None:
        self.codec = codec
        self.hello = _hello(codec.decode_answers(hello))
        self.is_direct = ends is not None and ends == self.hello.ends
        self.largest = self.hello.max_message_bytes
        self.is_owing = False
        self.route: str | None = None
        self.gone: str | None = None
        self._opening = opening or {}
        self._ledger = ResendBuffer()
        self._ledger.received = 1
        self._last: dict[int, int] = {}

    @property
    def capabilities(self) -> frozenset[str]:
        """The server's capabilities, from the hello."""
        return frozenset(self.hello.capabilities)

    @property
    def room(self) -> int | None:
        """The number of sessions that the server holds; None if unknown."""
        is_one_of_several = self.hello.siblings or self.route is not None
        return None if is_one_of_several else self.hello.max_sessions

    @property
    def server(self) -> str:
        """The server's process, as it identifies itself."""
        return self.hello.server

    @property
    def max_sessions(self) -> int | None:
        """The number of sessions that the process holds; None if unknown."""
        return self.hello.max_sessions

    @property
    def may_have_siblings(self) -> bool:
        """Whether another connection to the same address may lead to another process."""
        return self.hello.siblings or not self.is_direct

    def request(self, requests: Sequence[Request]) -> bytes:
        """Number requests and write one frame with all of them, which is sent now.

        If a request is the first of its session, the session's ``open`` is written before it.

        Raises:
            EncodingError: A value in a request cannot be carried.
            TooLargeError: The frame is larger than the server accepts.
        """
        frame = self.write(requests)
        for request in requests:
            self._last[request.session] = request.id
        self._ledger.keep(frame)
        return frame

    def write(self, requests: Sequence[Request]) -> bytes:
        """Write a frame like `request`, without counting it as sent.

        If the frame is sent, call `note_numbers` and `keep` at once.
        """
        last, opening = self._last, False
        for request in requests:
            number = last.get(request.session)
            if number is None:
                opening, number = True, 0
            request.id = number + 1
        messages = requests
        if opening:
            messages = []
            for request in requests:
                if request.session not in last:
                    messages.append(Request("open", self._opening, session=request.session))
                messages.append(request)
        messages[0].ack = self._ledger.received
        self.is_owing = False
        frame = self.codec.encode_requests(messages)
        limit = self.largest
        if limit is not None and len(frame) > limit:
            cure = "raise OPENENV_MAX_MESSAGE_BYTES of the server, or send less at a time"
            raise TooLargeError(f"frame of {len(requests)} requests", len(frame), limit, cure)
        return frame

    def note_numbers(self, requests: Sequence[Request]) -> None:
        """Note that the numbers that `write` gave to requests are taken."""
        for request in requests:
            self._last[request.session] = request.id

    def keep(self, frame: bytes) -> None:
        """Note that a frame is sent now."""
        self._ledger.keep(frame)

    def join(self, frames: Sequence[bytes]) -> bytes:
        """Join frames that `write` wrote into one frame, which is sent now."""
        frame = frames[0] if len(frames) == 1 else self.codec.join(frames)
        self._ledger.keep(frame)
        return frame

    def content(self, request: Request) -> bytes | None:
        """Write the content of a request, without the parts that differ between repetitions.

        Returns:
            The same bytes as `sent_content` of an equal request; None if they cannot be read back.

        Raises:
            EncodingError: A value in the request cannot be carried.
        """
        alone = _without_circumstances(request)
        return self.sent_content(self.codec.encode_requests([alone]), alone)

    def sent_content(self, frame: bytes, request: Request) -> bytes | None:
        """Return the content of a sent request, in the form of `content`, read from its frame.

        The frame is read instead of the request, because the caller may have changed the objects in
        the request since, such as an array that is reused for each action.
        """
        try:
            found = self.codec.decode_requests(frame if self.codec.is_binary else frame.decode())
        except OpenEnvError:  # the server will report the reason
            return None
        for one in found:
            is_it = one.session == request.session and one.id == request.id
            if is_it and one.type != "open":
                return self.codec.encode_requests([_without_circumstances(one)])
        return None

    def acknowledgement(self) -> bytes:
        """Write a frame that only acknowledges the received frames."""
        self.is_owing = False
        frame = self.codec.encode_requests([Request("ack", ack=self._ledger.received)])
        self._ledger.keep(frame)
        return frame

    def knows(self, session: int) -> bool:
        """Return whether the session has been opened, or is about to be."""
        return session in self._last

    def forget(self, session: int) -> None:
        """Note that a session is closed or could not be opened; its number is free again."""
        self._last.pop(session, None)

    def receive(
        self, frame: str | bytes | bytearray
    ) -> list[tuple[int | None, int | None, Reply | Notice]]:
        """Read a frame: the session, the request's number and the content of each message."""
        self._ledger.received += 1
        if len(frame) >= LARGE_BYTES:
            self.is_owing = True
        messages: list[tuple[int | None, int | None, Reply | Notice]] = []
        for answer in self.codec.decode_answers(frame):
            data = answer.data
            if answer.type == "observation" and type(data) is dict and data.keys() <= _PLAIN_FIELDS:
                messages.append((answer.session, answer.id, ObservationReply(data)))
            else:
                messages.append(_read(answer))
        return messages

    def heed(self, notice: Notice) -> None:
        """Handle a message about the connection itself."""
        if notice.kind == "ack":
            self._ledger.acknowledge(_count(notice.data))
        elif notice.kind == "gone":
            self.gone = str((notice.data or {}).get("reason", "the server keeps nothing"))

    # ------------------------------------------------------------------ resumption

    @property
    def is_resumable(self) -> bool:
        """Whether the server keeps the sessions for a while after the socket breaks."""
        return self.gone is None and self.hello.grace_s > 0

    def resume(self, hello: str | bytes | bytearray) -> bytes | None:
        """Write the frame that asks a server to resume, given its `hello` on another socket; None
        if the hello is from another process, which does not have the sessions.
        """
        if _hello(self.codec.decode_answers(hello)).server != self.hello.server:
            return None
        data = {
            "connection": self.hello.connection,
            "token": self.hello.resume_token,
            "received": self._ledger.received,
        }
        return self.codec.encode_requests([Request("resume", data)])

    def resumed(self, frame: str | bytes | bytearray) -> list[bytes]:
        """Read the answer to `resume`, and return the frames to send again.

        Raises:
            ServerError: The server refuses to resume.
            ProtocolError: The answer is invalid.
        """
        answers = self.codec.decode_answers(frame)
        if not answers:
            raise ProtocolError("The server answered resume with an empty frame")
        answer = answers[0]
        if answer.type == "error" and type(answer.data) is dict:
            raise server_error(answer.data)
        if answer.type != "resumed":
            raise ProtocolError(f"The server answered resume with {answer.type}")
        return self._ledger.missing(_count(answer.data))


def _without_circumstances(request: Request) -> Request:
    """Return a request without number, session, trace and time limit."""
    kept = {name: value for name, value in request.arguments.items() if name != "timeout_s"}
    return Request(request.type, request.data, kept)


def _hello(answers: list[ServerMessage]) -> Hello:
    if len(answers) == 1 and answers[0].type == "hello":
        with contextlib.suppress(msgspec.ValidationError):
            return msgspec.convert(answers[0].data, Hello)
    raise ProtocolError("The server's first frame is no hello")


def _count(data: Any) -> int:
    received = data.get("received") if type(data) is dict else None
    if type(received) is not int:
        raise ProtocolError(f"The server said received: {received!r}; expected a number")
    return received


def _snapshot_reply(data: dict[str, Any]) -> SnapshotReply:
    try:
        return SnapshotReply(snapshot_bytes(data))
    except InvalidMessageError:
        raise ProtocolError("The server sent a snapshot without bytes") from None


_READ: dict[str, Any] = {kind: partial(Notice, kind) for kind in ANSWERS} | {
    "observation": ObservationReply,
    "state": StateReply,
    "snapshot": _snapshot_reply,
    "render": lambda data: RenderReply(from_data(data)),
    "mcp": MCPReply,
    "error": ErrorReply,
}
_WITHOUT_DATA = frozenset({"state", "closed"})
_PLAIN_FIELDS = frozenset({"observation", "reward", "done", "metadata"})
_EXTRAS = (TRUNCATED, INFO, REWARD_INFO, IGNORED_ARGUMENTS)


def _read(answer: ServerMessage) -> tuple[int | None, int | None, Reply | Notice]:
    try:
        make = _READ[answer.type]
    except KeyError:
        raise ProtocolError(f"The server sent a message of no known type: {answer.type}") from None
    data = answer.data
    if answer.type == "error" and answer.session is None:  # the server could not tell whose it was
        raise ProtocolError(f"The server could not read a frame: {data}")
    if type(data) is not dict:
        if answer.type not in _WITHOUT_DATA:
            raise ProtocolError(f"The server sent {answer.type} without data")
    elif make is ObservationReply and not data.keys() <= _PLAIN_FIELDS:
        # Clients' hooks expect the payload of version 0, whose metadata holds everything else.
        metadata = {**(data.get("metadata") or {})}
        metadata |= {name: data[name] for name in _EXTRAS if name in data}
        data = {name: value for name, value in data.items() if name not in _EXTRAS}
        data["metadata"] = metadata
    return answer.session, answer.id, make(data)
