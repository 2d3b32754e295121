"""Version 1 of the wire: its codecs, and either side of a connection of many sessions.

`openenv.protocol.messages` shows the frames.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast, get_args

import msgspec
from msgspec.msgpack import Ext
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_jsonable_python

from openenv._internal.generics import once_per_class
from openenv.arrays import Kept, as_base64, holds_arrays, pack_array, unpack_array
from openenv.errors import (
    EncodingError,
    InvalidJSONError,
    InvalidMessageError,
    OpenEnvError,
    ProtocolError,
    TooLargeError,
    UnknownMessageTypeError,
    server_error,
)
from openenv.protocol.codecs import culprit, left_out
from openenv.protocol.messages import (
    IGNORED_ARGUMENTS,
    INFO,
    OBSERVATION_TYPE,
    TRUNCATED,
    ErrorReply,
    Hello,
    MCPReply,
    Notice,
    ObservationReply,
    RenderReply,
    Reply,
    Request,
    RequestType,
    SnapshotReply,
    StateReply,
    Transition,
)
from openenv.protocol.renderings import as_data, from_data
from openenv.protocol.resend_buffer import ResendBuffer
from openenv.reward import REWARD_INFO
from openenv.types import is_observation

__all__ = [
    "SUBPROTOCOLS",
    "Codec",
    "JSONCodec1",
    "MsgpackCodec",
    "Multiplexer",
    "Plain",
    "Queued",
    "codec_named",
    "is_binary",
    "offered",
    "snapshot_bytes",
]

ARRAY, BIG_INTEGER = 1, 2  # MessagePack extension types

UNENCODABLE = (TypeError, ValueError, RecursionError, PydanticSerializationError)
UNDECODABLE = (ValueError, TypeError, RecursionError, ImportError, msgspec.MsgspecError)

REQUEST_TYPES = get_args(RequestType)

# An answer of this size is acknowledged at once, not with the next request, so that the server need
# not keep it while the policy thinks.
LARGE_BYTES = 2**16


class _ServerMessage(msgspec.Struct):
    """A message of a server; a later version may add fields."""

    type: str
    session: int | None = None
    id: int | None = None
    data: Any = None


# ------------------------------------------------------------------ values


def plain(
    value: Any, exclude: set[str] | None = None, options: dict[str, Any] | None = None
) -> Any:
    """Write a value as JSON would, but keep arrays and declared bytes as they are.

    What a client gets must not depend on the version that it speaks. `options` are further ones of
    `model_dump`, for a model.

    Raises:
        PydanticSerializationError: JSON has no form for it.
    """
    write = _quick_writer(type(value)) if options is None else None
    if write is not None:
        try:
            return write(value, mode="json", exclude=exclude)
        except PydanticSerializationError:
            pass  # it may hold arrays all the same
    kept = Kept()
    if not isinstance(value, BaseModel):
        return kept.put_back(to_jsonable_python(value, context=kept, fallback=kept.fallback))
    write = type(value).__pydantic_serializer__.to_python
    context: dict[str, Any] = {"context": kept, "fallback": kept.fallback, **(options or {})}
    return kept.put_back(write(value, mode="json", exclude=exclude, **context))


@once_per_class
def _quick_writer(cls: type) -> Callable[..., Any] | None:
    """Return the compiled writer of a model without arrays; None for any other class."""
    if not issubclass(cls, BaseModel) or holds_arrays(cls):
        return None
    return cls.__pydantic_serializer__.to_python


class Plain(dict[str, Any]):
    """Fields that `plain` has written. Written again, the bytes in them would become text."""

    __slots__ = ()


_PLAIN = frozenset({str, int, float, bool, type(None)})


def _plainly(values: dict[str, Any]) -> dict[str, Any]:
    if type(values) is Plain:
        return values
    for value in values.values():
        if type(value) not in _PLAIN:
            return _made_plain(values)
    return values


def _made_plain(values: dict[str, Any]) -> dict[str, Any]:
    """Write fields as JSON would, but keep arrays and bytes."""
    kept = Kept()
    aside = {
        name: kept.keep(value) if type(value) is bytes else value for name, value in values.items()
    }
    try:
        made: dict[str, Any] = kept.put_back(
            to_jsonable_python(aside, context=kept, fallback=kept.fallback)
        )
    except UNENCODABLE as error:
        raise EncodingError(f"a value cannot be sent: {error}") from error
    return made


def _array_extension(value: Any) -> Ext:
    return Ext(ARRAY, pack_array(value))


def _extension(code: int, data: memoryview) -> Any:
    if code == ARRAY:
        return unpack_array(data)
    if code == BIG_INTEGER:
        return int(bytes(data))
    raise ValueError(f"unknown extension type {code}")


def _with_big_integers(value: Any) -> Any:
    """The same value, with integers beyond 64 bits as extensions."""
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return Ext(BIG_INTEGER, str(value).encode())
    if isinstance(value, dict):
        # As a key, an extension cannot be told from any other when it is read.
        return {_big_key(key): _with_big_integers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_big_integers(item) for item in value]
    if isinstance(value, msgspec.Struct):
        return _with_big_integers(msgspec.structs.asdict(value))
    return value


def _big_key(key: Any) -> Any:
    return str(key) if isinstance(key, int) and not -(2**63) <= key < 2**64 else key


@once_per_class
def _observation_writer(cls: type) -> tuple[Callable[..., Any] | None, set[str] | None]:
    """Return what writes observations without arrays of a class, and the fields to leave out."""
    return _quick_writer(cls), left_out(cls) if is_observation(cls) else None


def _add_details(value: dict[str, Any], transition: Transition) -> None:
    """Add what a transition holds beside observation, reward and done."""
    if transition.kind:
        value[OBSERVATION_TYPE] = transition.kind
    if transition.truncated:
        value[TRUNCATED] = True
    if transition.metadata:
        value["metadata"] = plain(transition.metadata)
    if transition.info is not None:
        value[INFO] = plain(transition.info)
    if transition.reward_info:
        value[REWARD_INFO] = plain(transition.reward_info)
    if transition.ignored:
        value[IGNORED_ARGUMENTS] = transition.ignored


# ------------------------------------------------------------------ codecs


class Codec:
    """Turns messages of version 1 into bytes and back.

    Args:
        debug: Errors say what the text of an incident is.

    Attributes:
        name: The WebSocket subprotocol.
        is_binary: Frames are binary messages, not text.
    """

    name: str
    is_binary: bool
    _encoder: Any
    _requests: Any
    _answers: Any
    _anything: Any

    def __init__(self, *, debug: bool = False) -> None:
        self.debug = debug
        self._refused: tuple[Any, list[dict[Any, Any]]] | None = None  # the frame refused last

    def _encode(self, value: Any) -> bytes:
        raise NotImplementedError

    def frame(self, answers: Sequence[tuple[str, int | None, int | None, bytes]]) -> bytes:
        """Write a frame of answers: their kinds, sessions, numbers and encoded data."""
        raise NotImplementedError

    def _check(self, frame: Any) -> None:
        """Refuse what must not be decoded."""

    # -------------------------------------------------------------- server side

    def decode_requests(self, frame: str | bytes) -> list[Request]:
        """Read the requests of a frame.

        Raises:
            InvalidJSONError: The frame cannot be decoded.
            UnknownMessageTypeError: The type of one is none of this protocol's.
            InvalidMessageError: One of them is malformed; none is to be served.
        """
        try:
            if len(frame) > FEW_ARRAYS:
                self._check(frame)
            found = self._requests.decode(frame)
        except msgspec.ValidationError as error:
            from openenv._internal.quoting import shortened  # which a client need not load

            messages = self._messages(frame, is_checked=True)
            self._refused = frame, messages  # for `addresses`, which comes next
            for message in messages:
                kind = message.get("type")
                if isinstance(kind, str) and kind not in REQUEST_TYPES:
                    raise UnknownMessageTypeError(
                        f"Unknown message type: {shortened(kind)}"
                    ) from None
            raise _invalid(shortened(str(error))) from None
        except UNDECODABLE as error:
            self._refused = frame, []
            raise InvalidJSONError(f"Invalid frame: {error}") from None
        return found if type(found) is list else [found]

    def _messages(self, frame: str | bytes, *, is_checked: bool) -> list[dict[Any, Any]]:
        """The messages of a frame, however malformed."""
        try:
            if not is_checked:
                self._check(frame)
            found = self._anything.decode(frame)
        except UNDECODABLE:
            return []
        return [m for m in (found if type(found) is list else [found]) if type(m) is dict]

    def addresses(self, frame: str | bytes) -> list[tuple[int | None, int | None]]:
        """The sessions and numbers in a frame that `decode_requests` refused, as far as they can be
        read, so that the refusal reaches whoever waits.
        """
        refused, self._refused = self._refused, None
        if refused is not None and refused[0] is frame:  # looking through it takes long
            messages = refused[1]
        else:
            messages = self._messages(frame, is_checked=False)
        known = [(m.get("session", 0), m.get("id", 0)) for m in messages]
        return [a for a in known if all(type(n) is int for n in a)] or [(None, None)]

    def encode_data(self, reply: Transition | Reply | Any) -> bytes:
        """Write the ``data`` of an answer.

        Raises:
            EncodingError: A value in it cannot be carried.
        """
        if type(reply) is Transition:
            try:
                observation = reply.observation
                write, exclude = _observation_writer(type(observation))
                fields: Any = None
                if write is not None:
                    try:
                        fields = write(observation, mode="json", exclude=exclude)
                    except PydanticSerializationError:
                        write = None  # it may hold arrays all the same
                if write is None:
                    fields = plain(observation, exclude)
                value = {"observation": fields, "reward": reply.reward, "done": reply.done}
                has_details = reply.kind or reply.truncated or reply.metadata or reply.ignored
                if has_details or reply.info is not None or reply.reward_info:
                    _add_details(value, reply)
                try:
                    return self._encoder.encode(value)  # type: ignore[no-any-return]
                except OverflowError:
                    return self._encode(value)
            except (EncodingError, *UNENCODABLE) as error:
                raise EncodingError(self._culprit(reply.observation, error)) from error
        if type(reply) is StateReply:
            return self._encode_plain(reply.state)
        if type(reply) is SnapshotReply:
            return self._encode(reply)
        if type(reply) is RenderReply:
            return self._encode(as_data(reply.rendering))
        return self._encode_plain(reply.response if type(reply) is MCPReply else reply)

    def _encode_plain(self, value: Any) -> bytes:
        try:
            return self._encode(plain(value))
        except UNENCODABLE as error:
            raise EncodingError(f"a value cannot be sent: {error}") from error

    def _culprit(self, observation: Any, error: Exception) -> str:
        def write(name: str) -> bytes:
            return self._encode_plain({name: getattr(observation, name)})

        return culprit(observation, write, error)

    def answer(self, kind: str, session: int | None, number: int | None, data: bytes) -> bytes:
        """Write a frame of one answer whose data are encoded already."""
        return self.frame([(kind, session, number, data)])

    def error_data(self, error: BaseException) -> bytes:
        """Write the ``data`` of an error."""
        from openenv._internal.incidents import error_data  # which a client need not load

        readable = to_jsonable_python(error_data(error, debug=self.debug), serialize_unknown=True)
        return self._encode(readable)

    def error(self, session: int | None, number: int | None, error: BaseException) -> bytes:
        """Write a frame of one error."""
        return self.answer("error", session, number, self.error_data(error))

    def __reduce__(self) -> tuple[Any, ...]:
        return codec_named, (self.name, self.debug)  # one each is enough, in every process

    # -------------------------------------------------------------- client side

    def encode_requests(self, requests: Sequence[Request]) -> bytes:
        """Write a frame of requests.

        Raises:
            EncodingError: A value in one of them cannot be carried.
        """
        for request in requests:
            if request.type != "restore":  # whose bytes stay bytes
                data = request.data
                if type(data) is not Plain and not _PLAIN.issuperset(map(type, data.values())):
                    request.data = _made_plain(data)
                if request.arguments:
                    request.arguments = _plainly(request.arguments)
        value = requests[0] if len(requests) == 1 else requests
        try:
            return cast(bytes, self._encoder.encode(value))
        except (OverflowError, *UNENCODABLE):
            return self._encode(value)

    def decode_answers(self, frame: str | bytes | bytearray) -> list[_ServerMessage]:
        """Read the messages of a server's frame.

        Raises:
            ProtocolError: The frame is none that a server may send.
        """
        try:
            if len(frame) > FEW_ARRAYS:
                self._check(frame)
            found = self._answers.decode(frame)
        except ImportError as error:
            raise ProtocolError(f"the server sent an array; install numpy ({error})") from error
        except UNDECODABLE as error:
            raise ProtocolError(f"The server sent a frame that cannot be read: {error}") from error
        return found if type(found) is list else [found]


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


def _encoded(*texts: str) -> bytes:
    return b"".join(map(msgspec.msgpack.encode, texts))


# A frame of MessagePack is looked through before it is decoded where more bytes of it than these
# could begin an array: `openenv.protocol.msgpack` says what for.
FEW_ARRAYS = 256
_ARRAY_HEADS = bytes([*range(0x90, 0xA0), 0xDC, 0xDD])

# A map of four fields (MessagePack: fixmap), of which the first stands already.
_HEADS = {kind: b"\x84" + _encoded("type", kind, "session") for kind in ANSWERS}
_ID, _DATA = _encoded("id"), _encoded("data")


class MsgpackCodec(Codec):
    """``openenv.v1.msgpack``: MessagePack in binary messages."""

    name = "openenv.v1.msgpack"
    is_binary = True

    _encoder = msgspec.msgpack.Encoder(enc_hook=_array_extension)
    _requests = msgspec.msgpack.Decoder(list[Request] | Request, ext_hook=_extension)
    _answers = msgspec.msgpack.Decoder(list[_ServerMessage] | _ServerMessage, ext_hook=_extension)
    _anything = msgspec.msgpack.Decoder(ext_hook=_extension)

    def _encode(self, value: Any) -> bytes:
        try:
            return self._encoder.encode(value)
        except OverflowError:
            return self._encode_big(value)
        except UNENCODABLE as error:
            raise EncodingError(f"a value cannot be sent: {error}") from error

    def _check(self, frame: Any) -> None:
        if isinstance(frame, str):  # which the decoder refuses
            return
        if len(frame) - len(frame.translate(None, _ARRAY_HEADS)) > FEW_ARRAYS:
            from openenv.protocol.msgpack import check_keys  # which few frames need

            check_keys(frame)

    def _encode_big(self, value: Any) -> bytes:
        try:
            return self._encoder.encode(_with_big_integers(value))
        except (OverflowError, *UNENCODABLE) as error:
            raise EncodingError(f"a value cannot be sent: {error}") from error

    def frame(self, answers: Sequence[tuple[str, int | None, int | None, bytes]]) -> bytes:
        encode, count = self._encoder.encode, len(answers)
        parts = [] if count == 1 else [b"\xdd" + count.to_bytes(4, "big")]
        for kind, session, number, data in answers:
            parts += (_HEADS[kind], encode(session), _ID, encode(number), _DATA, data)
        return b"".join(parts)


class JSONCodec1(Codec):
    """``openenv.v1.json``: JSON text, for those who want to read along."""

    name = "openenv.v1.json"
    is_binary = False

    _encoder = msgspec.json.Encoder(enc_hook=as_base64)
    _requests = msgspec.json.Decoder(list[Request] | Request)
    _answers = msgspec.json.Decoder(list[_ServerMessage] | _ServerMessage)
    _anything = msgspec.json.Decoder()

    def _encode(self, value: Any) -> bytes:
        try:
            return self._encoder.encode(value)
        except UNENCODABLE as error:
            raise EncodingError(f"a value cannot be sent: {error}") from error

    def frame(self, answers: Sequence[tuple[str, int | None, int | None, bytes]]) -> bytes:
        encode = self._encoder.encode
        messages = [
            b'{"type":"%b","session":%b,"id":%b,"data":%b}'
            % (kind.encode(), encode(session), encode(number), data)
            for kind, session, number, data in answers
        ]
        return messages[0] if len(messages) == 1 else b"[%b]" % b",".join(messages)


_CODECS: dict[tuple[str, bool], Codec] = {
    (kind.name, debug): kind(debug=debug)
    for kind in (MsgpackCodec, JSONCodec1)
    for debug in (False, True)
}
SUBPROTOCOLS = (MsgpackCodec.name, JSONCodec1.name)


def codec_named(name: str, debug: bool = False) -> Codec:
    """The codec of a subprotocol; with `debug`, errors say what the text of an incident is."""
    return _CODECS[name, debug]


def offered(version: int) -> tuple[str, ...]:
    """The subprotocols that a client offers whose newest protocol version this is."""
    return (MsgpackCodec.name,) if version >= 1 else ()


def is_binary(subprotocol: str | None) -> bool:
    """Frames of a connection are binary messages; those of version 0, which is None, are text."""
    return subprotocol is not None and codec_named(subprotocol).is_binary


def snapshot_bytes(data: dict[Any, Any]) -> bytes:
    """The bytes in the data of `restore`, or of the answer to `snapshot`; JSON has them as base64.

    Raises:
        InvalidMessageError: There are none.
    """
    found = data.get("snapshot")
    if isinstance(found, str):
        try:
            return base64.b64decode(found, validate=True)
        except ValueError as error:
            raise _invalid(f"snapshot is no base64: {error}") from None
    if not isinstance(found, bytes):
        raise _invalid(f"snapshot is to be bytes, not {type(found).__name__}")
    return found


def _invalid(why: str) -> InvalidMessageError:
    return InvalidMessageError([{"type": "message", "loc": [], "msg": why, "input": None}])


# ------------------------------------------------------------------ the client's end


class Multiplexer:
    """The client's end of a connection of many sessions: numbers for sessions and requests.

    Sessions are opened by their first request: nobody waits for that. It outlives its socket: what
    was sent and has not come is sent again on the next one.

    Args:
        codec: Reads and writes.
        hello: The server's first frame.
        opening: What each ``open`` says.
        ends: The addresses and ports of this end and of the server's, as they are seen here.

    Attributes:
        hello: What the server has said of itself.
        is_direct: Nothing stands between the two, such as a proxy.
        is_owing: Something large has come that should be acknowledged at once.
        route: Which server of a gateway's the connection goes to; None without one.
        gone: Why the server keeps nothing to be resumed any more.

    Raises:
        ProtocolError: The first frame is no hello.
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

    def request(self, requests: Sequence[Request]) -> bytes:
        """Number requests and write a frame of all, which is sent now.

        The opening of a session whose first request is among them is written before it.

        Raises:
            EncodingError: A value in a request cannot be carried.
            TooLargeError: The server takes nothing as large.
        """
        frame = self.write(requests)
        for request in requests:
            self._last[request.session] = request.id
        self._ledger.keep(frame)
        return frame

    def write(self, requests: Sequence[Request]) -> bytes:
        """Do as `request`, without taking the frame for sent: `note_sent` follows if it is."""
        last, opening = self._last, False
        for request in requests:
            number = last.get(request.session)
            if number is None:
                opening, number = True, 0
            request.id = number + 1
        messages = self._with_openings(requests) if opening else requests
        messages[0].ack = self._ledger.received
        self.is_owing = False
        frame = self.codec.encode_requests(messages)
        limit = self.hello.max_message_bytes
        if limit is not None and len(frame) > limit:
            cure = "raise OPENENV_MAX_MESSAGE_BYTES of the server, or send less at a time"
            raise TooLargeError(f"frame of {len(requests)} requests", len(frame), limit, cure)
        return frame

    def _with_openings(self, requests: Sequence[Request]) -> list[Request]:
        messages = []
        for request in requests:
            if request.session not in self._last:
                messages.append(Request("open", self._opening, session=request.session))
            messages.append(request)
        return messages

    def note_sent(self, requests: Sequence[Request], frame: bytes) -> None:
        """Note that a frame, which `write` has written, is sent now."""
        for request in requests:
            self._last[request.session] = request.id
        self._ledger.keep(frame)

    def content(self, request: Request) -> bytes | None:
        """Write the content of a request, without what differs from time to time.

        Returns:
            The same as `sent_content` of an equal request; None if it cannot be read back.

        Raises:
            EncodingError: A value in the request cannot be carried.
        """
        alone = _without_circumstances(request)
        return self.sent_content(self.codec.encode_requests([alone]), alone)

    def sent_content(self, frame: bytes, request: Request) -> bytes | None:
        """Read the content of a request from the frame of the request, as `content` writes.

        The frame is read, and not the request: the caller may have changed since what the request
        was made of, such as an array that is used for each action.
        """
        try:
            found = self.codec.decode_requests(frame if self.codec.is_binary else frame.decode())
        except OpenEnvError:  # the server will say why
            return None
        for one in found:
            is_it = one.session == request.session and one.id == request.id
            if is_it and one.type != "open":
                return self.codec.encode_requests([_without_circumstances(one)])
        return None

    def acknowledgement(self) -> bytes:
        """Write a frame that only says what has come."""
        self.is_owing = False
        frame = self.codec.encode_requests([Request("ack", ack=self._ledger.received)])
        self._ledger.keep(frame)
        return frame

    def knows(self, session: int) -> bool:
        """The session has been opened, or is about to be."""
        return session in self._last

    def forget(self, session: int) -> None:
        """Note that a session is closed, or could not be opened; the number is free again."""
        self._last.pop(session, None)

    def receive(
        self, frame: str | bytes | bytearray
    ) -> list[tuple[int | None, int | None, Reply | Notice]]:
        """Read a frame: the session, the number of the request and the answer of each message."""
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
        """Take a message into account that concerns the connection itself."""
        if notice.kind == "ack":
            self._ledger.acknowledge(_count(notice.data))
        elif notice.kind == "gone":
            self.gone = str((notice.data or {}).get("reason", "the server keeps nothing"))

    # ------------------------------------------------------------------ on another socket

    @property
    def is_resumable(self) -> bool:
        """True if the server keeps the sessions for a while when the socket breaks."""
        return self.gone is None and self.hello.grace_s > 0

    def resume(self, hello: str | bytes | bytearray) -> bytes | None:
        """Write the frame that asks to go on, for a server that said `hello` on another socket;
        None where that is another process, which knows nothing of it.
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
        """Read the answer to that; gives the frames that have to be sent again.

        Raises:
            ServerError: The server refuses.
            ProtocolError: It is no such answer.
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


def _hello(answers: list[_ServerMessage]) -> Hello:
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


def _render_reply(data: dict[str, Any]) -> RenderReply:
    return RenderReply(from_data(data))


_READ: dict[str, Any] = {kind: partial(Notice, kind) for kind in ANSWERS} | {
    "observation": ObservationReply,
    "state": StateReply,
    "snapshot": _snapshot_reply,
    "render": _render_reply,
    "mcp": MCPReply,
    "error": ErrorReply,
}
_WITHOUT_DATA = frozenset({"state", "closed"})
_PLAIN_FIELDS = frozenset({"observation", "reward", "done", "metadata"})


def _read(answer: _ServerMessage) -> tuple[int | None, int | None, Reply | Notice]:
    try:
        make = _READ[answer.type]
    except KeyError:
        raise ProtocolError(f"The server sent a message of no known type: {answer.type}") from None
    data = answer.data
    if answer.type == "error" and answer.session is None:  # it could not tell whose it was
        raise ProtocolError(f"The server could not read a frame: {data}")
    if type(data) is not dict:
        if answer.type not in _WITHOUT_DATA:
            raise ProtocolError(f"The server sent {answer.type} without data")
    elif make is ObservationReply and not data.keys() <= _PLAIN_FIELDS:
        data = _as_version_0(data)
    return answer.session, answer.id, make(data)


_EXTRAS = (TRUNCATED, INFO, REWARD_INFO, IGNORED_ARGUMENTS)


def _as_version_0(data: dict[str, Any]) -> dict[str, Any]:
    """The payload that clients' hooks know, where the metadata say what else there is to say."""
    metadata = {**(data.get("metadata") or {})}
    metadata |= {name: data[name] for name in _EXTRAS if name in data}
    payload = {name: value for name, value in data.items() if name not in _EXTRAS}
    return {**payload, "metadata": metadata}


# How often a session that waits for a slot is told so, though nothing has changed.
HEARTBEAT_S = 5.0


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
