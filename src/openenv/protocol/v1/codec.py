"""The codecs of protocol version 1: messages to bytes and back, as MessagePack or JSON."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec
from msgspec.msgpack import Ext
from pydantic_core import PydanticSerializationError, to_jsonable_python

from openenv._internal.generics import once_per_class
from openenv.arrays import Kept, as_base64, pack_array, unpack_array
from openenv.errors import (
    EncodingError,
    InvalidJSONError,
    InvalidMessageError,
    ProtocolError,
    UnknownMessageTypeError,
)
from openenv.protocol.messages import (
    IGNORED_ARGUMENTS,
    INFO,
    OBSERVATION_TYPE,
    TRUNCATED,
    MCPReply,
    RenderReply,
    Reply,
    Request,
    SnapshotReply,
    StateReply,
    Transition,
)
from openenv.protocol.renderings import as_data
from openenv.protocol.v1.messages import ANSWERS, REQUEST_TYPES, ServerMessage
from openenv.protocol.values import (
    WireFields,
    describe_unwritable,
    outer_fields,
    quick_writer,
    to_wire_value,
)
from openenv.reward import REWARD_INFO
from openenv.types import is_observation

ARRAY, BIG_INTEGER = 1, 2  # MessagePack extension types

UNENCODABLE = (TypeError, ValueError, RecursionError, PydanticSerializationError)
UNDECODABLE = (ValueError, TypeError, RecursionError, ImportError, msgspec.MsgspecError)

# A MessagePack frame is checked before decoding if more than this many of its bytes could begin an
# array; `openenv.protocol.v1.msgpack` explains why.
FEW_ARRAYS = 256
_ARRAY_HEADS = bytes([*range(0x90, 0xA0), 0xDC, 0xDD])

_SCALARS = frozenset({str, int, float, bool, type(None)})


def _cannot_send(error: Exception) -> EncodingError:
    return EncodingError(f"a value cannot be sent: {error}")


def _to_wire_fields(values: dict[str, Any]) -> dict[str, Any]:
    """Write fields as JSON would, but keep arrays and bytes."""
    kept = Kept()
    aside = {
        name: kept.keep(value) if type(value) is bytes else value for name, value in values.items()
    }
    try:
        written = to_jsonable_python(aside, context=kept, fallback=kept.fallback)
        return kept.put_back(written)  # type: ignore[no-any-return]
    except UNENCODABLE as error:
        raise _cannot_send(error) from error


def _read_extension(code: int, data: memoryview) -> Any:
    if code == ARRAY:
        return unpack_array(data)
    if code == BIG_INTEGER:
        return int(bytes(data))
    raise ValueError(f"unknown extension type {code}")


def _is_big(value: Any) -> bool:
    return isinstance(value, int) and not -(2**63) <= value < 2**64


def _with_big_integers(value: Any) -> Any:
    """Return the same value, with integers beyond 64 bits as MessagePack extensions."""
    if _is_big(value):
        return Ext(BIG_INTEGER, str(value).encode())
    if isinstance(value, dict):
        # As a key, an extension would be read back as the raw extension.
        return {
            str(key) if _is_big(key) else key: _with_big_integers(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_with_big_integers(item) for item in value]
    if isinstance(value, msgspec.Struct):
        return _with_big_integers(msgspec.structs.asdict(value))
    return value


@once_per_class
def _observation_writer(cls: type) -> tuple[Callable[..., Any] | None, set[str] | None]:
    """Return the writer of a class's observations without arrays, and the fields to leave out."""
    return quick_writer(cls), outer_fields(cls) if is_observation(cls) else None


class Codec:
    """Turns messages of version 1 into bytes and back.

    Args:
        debug: Error messages include the text of internal errors.

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
    _parts: Any

    def __init__(self, *, debug: bool = False) -> None:
        self.debug = debug
        self._refused: tuple[Any, list[dict[Any, Any]]] | None = None  # the last refused frame

    def _encode(self, value: Any) -> bytes:
        try:
            try:
                return cast(bytes, self._encoder.encode(value))
            except OverflowError:
                return cast(bytes, self._encoder.encode(_with_big_integers(value)))
        except (OverflowError, *UNENCODABLE) as error:
            raise _cannot_send(error) from error

    def frame(self, answers: Sequence[tuple[str, int | None, int | None, bytes]]) -> bytes:
        """Write a frame of answers: a type, session, number and encoded data for each."""
        raise NotImplementedError

    def _check(self, frame: Any) -> None:
        """Raise an error for a frame that must not be decoded."""

    # -------------------------------------------------------------- server side

    def decode_requests(self, frame: str | bytes) -> list[Request]:
        """Read the requests of a frame.

        Raises:
            InvalidJSONError: The frame cannot be decoded.
            UnknownMessageTypeError: The protocol has no such message type.
            InvalidMessageError: A request is malformed; `split` separates the messages.
        """
        try:
            if len(frame) > FEW_ARRAYS:
                self._check(frame)
            found = self._requests.decode(frame)
        except msgspec.ValidationError as error:
            from openenv._internal.quoting import shortened  # clients need not load it

            messages = self._messages(frame, is_checked=True)
            self._refused = frame, messages  # for `addresses`, which is called next
            for message in messages:
                kind = message.get("type")
                if isinstance(kind, str) and kind not in REQUEST_TYPES:
                    why = f"Unknown message type: {shortened(kind)}"
                    raise UnknownMessageTypeError(why) from None
            raise _invalid(shortened(str(error))) from None
        except ImportError as error:  # NumPy is missing; the addresses can still be read
            self._refused = None
            raise InvalidJSONError(f"Invalid frame: {error}") from None
        except UNDECODABLE as error:
            self._refused = frame, []
            raise InvalidJSONError(f"Invalid frame: {error}") from None
        return found if type(found) is list else [found]

    def split(self, frame: str | bytes) -> list[bytes]:
        """Return the messages of a frame as separate frames; empty if they cannot be separated."""
        try:
            return [bytes(one) for one in self._parts.decode(frame)]
        except UNDECODABLE:
            return []

    def _messages(self, frame: str | bytes, *, is_checked: bool) -> list[dict[Any, Any]]:
        """Return the messages of a frame, even malformed ones."""
        try:
            if not is_checked:
                self._check(frame)
            found = self._anything.decode(frame)
        except UNDECODABLE:
            return []
        return [m for m in (found if type(found) is list else [found]) if type(m) is dict]

    def addresses(self, frame: str | bytes) -> list[tuple[int | None, int | None]]:
        """Return the sessions and numbers in a frame that `decode_requests` refused, as far as they
        can be read, so that the error reaches the caller that waits.
        """
        refused, self._refused = self._refused, None
        if refused is not None and refused[0] is frame:  # checking the frame again is slow
            messages = refused[1]
        else:
            messages = self._messages(frame, is_checked=False)
        known = [(m.get("session", 0), m.get("id", 0)) for m in messages]
        return [a for a in known if all(type(n) is int for n in a)] or [(None, None)]

    def encode_data(self, reply: Transition | Reply | Any) -> bytes:
        """Write the ``data`` of an answer.

        Raises:
            EncodingError: A value cannot be carried.
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
                        write = None  # it may still hold arrays
                if write is None:
                    fields = to_wire_value(observation, exclude)
                value = {"observation": fields, "reward": reply.reward, "done": reply.done}
                has_details = reply.kind or reply.truncated or reply.metadata or reply.ignored
                if has_details or reply.info is not None or reply.reward_info:
                    _add_details(value, reply)
                try:
                    return self._encoder.encode(value)  # type: ignore[no-any-return]
                except OverflowError:
                    return self._encode(value)
            except (EncodingError, *UNENCODABLE) as error:
                why = describe_unwritable(
                    reply.observation,
                    lambda name: self._encode_value({name: getattr(reply.observation, name)}),
                    error,
                )
                raise EncodingError(why) from error
        if type(reply) is StateReply:
            return self._encode_value(reply.state)
        if type(reply) is SnapshotReply:
            return self._encode(reply)
        if type(reply) is RenderReply:
            return self._encode(as_data(reply.rendering))
        return self._encode_value(reply.response if type(reply) is MCPReply else reply)

    def _encode_value(self, value: Any) -> bytes:
        try:
            return self._encode(to_wire_value(value))
        except UNENCODABLE as error:
            raise _cannot_send(error) from error

    def answer(self, kind: str, session: int | None, number: int | None, data: bytes) -> bytes:
        """Write a frame with one answer whose data are already encoded."""
        return self.frame([(kind, session, number, data)])

    def error_data(self, error: BaseException) -> bytes:
        """Write the ``data`` of an error."""
        from openenv._internal.incidents import error_data  # clients need not load it

        readable = to_jsonable_python(error_data(error, debug=self.debug), serialize_unknown=True)
        return self._encode(readable)

    def error(self, session: int | None, number: int | None, error: BaseException) -> bytes:
        """Write a frame with one error."""
        return self.answer("error", session, number, self.error_data(error))

    def __reduce__(self) -> tuple[Any, ...]:
        return codec_named, (self.name, self.debug)  # each process needs only one of each kind

    # -------------------------------------------------------------- client side

    def encode_requests(self, requests: Sequence[Request]) -> bytes:
        """Write a frame of requests.

        Raises:
            EncodingError: A value in a request cannot be carried.
        """
        for request in requests:
            if request.type == "restore":  # its bytes stay bytes
                continue
            data, arguments = request.data, request.arguments
            if type(data) is not WireFields and not _SCALARS.issuperset(map(type, data.values())):
                request.data = _to_wire_fields(data)
            if (
                arguments
                and type(arguments) is not WireFields
                and not _SCALARS.issuperset(map(type, arguments.values()))
            ):
                request.arguments = _to_wire_fields(arguments)
        value = requests[0] if len(requests) == 1 else requests
        try:
            return cast(bytes, self._encoder.encode(value))
        except (OverflowError, *UNENCODABLE):
            return self._encode(value)

    def join(self, frames: Sequence[bytes]) -> bytes:
        """Write one frame with the messages of several that `encode_requests` wrote."""
        raise NotImplementedError

    def decode_answers(self, frame: str | bytes | bytearray) -> list[ServerMessage]:
        """Read the messages of a server's frame.

        Raises:
            ProtocolError: A server may not send such a frame.
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


def _add_details(value: dict[str, Any], transition: Transition) -> None:
    """Add the fields of a transition besides observation, reward and done."""
    if transition.kind:
        value[OBSERVATION_TYPE] = transition.kind
    if transition.truncated:
        value[TRUNCATED] = True
    if transition.metadata:
        value["metadata"] = to_wire_value(transition.metadata)
    if transition.info is not None:
        value[INFO] = to_wire_value(transition.info)
    if transition.reward_info:
        value[REWARD_INFO] = to_wire_value(transition.reward_info)
    if transition.ignored:
        value[IGNORED_ARGUMENTS] = transition.ignored


def _packed(*texts: str) -> bytes:
    return b"".join(map(msgspec.msgpack.encode, texts))


# A map of four fields (a MessagePack fixmap), up to the key of the second.
_HEADS = {kind: b"\x84" + _packed("type", kind, "session") for kind in ANSWERS}
_ID, _DATA = _packed("id"), _packed("data")


class MsgpackCodec(Codec):
    """``openenv.v1.msgpack``: MessagePack in binary messages."""

    name = "openenv.v1.msgpack"
    is_binary = True

    _encoder = msgspec.msgpack.Encoder(enc_hook=lambda array: Ext(ARRAY, pack_array(array)))
    _requests = msgspec.msgpack.Decoder(list[Request] | Request, ext_hook=_read_extension)
    _answers = msgspec.msgpack.Decoder(
        list[ServerMessage] | ServerMessage, ext_hook=_read_extension
    )
    _anything = msgspec.msgpack.Decoder(ext_hook=lambda code, data: None)  # only for addresses
    _parts = msgspec.msgpack.Decoder(list[msgspec.Raw])

    def _check(self, frame: Any) -> None:
        if isinstance(frame, str):  # the decoder will refuse it
            return
        if len(frame) - len(frame.translate(None, _ARRAY_HEADS)) > FEW_ARRAYS:
            from openenv.protocol.v1.msgpack import check_keys  # few frames need it

            check_keys(frame)

    def frame(self, answers: Sequence[tuple[str, int | None, int | None, bytes]]) -> bytes:
        encode, count = self._encoder.encode, len(answers)
        parts = [] if count == 1 else [b"\xdd" + count.to_bytes(4, "big")]
        for kind, session, number, data in answers:
            parts += (_HEADS[kind], encode(session), _ID, encode(number), _DATA, data)
        return b"".join(parts)

    def join(self, frames: Sequence[bytes]) -> bytes:
        count, parts = 0, [b""]
        for frame in frames:
            length, start = _array_head(frame)
            count += length
            parts.append(frame[start:] if start else frame)
        parts[0] = b"\xdd" + count.to_bytes(4, "big")
        return b"".join(parts)


def _array_head(frame: bytes) -> tuple[int, int]:
    """Return the number of messages in a MessagePack frame, and the offset of the first one."""
    kind = frame[0]
    if 0x90 <= kind < 0xA0:
        return kind - 0x90, 1
    if kind == 0xDC:
        return int.from_bytes(frame[1:3], "big"), 3
    if kind == 0xDD:
        return int.from_bytes(frame[1:5], "big"), 5
    return 1, 0  # a map: a single message


class JSONCodecV1(Codec):
    """``openenv.v1.json``: JSON text, for people who want to read the messages."""

    name = "openenv.v1.json"
    is_binary = False

    _encoder = msgspec.json.Encoder(enc_hook=as_base64)
    _requests = msgspec.json.Decoder(list[Request] | Request)
    _answers = msgspec.json.Decoder(list[ServerMessage] | ServerMessage)
    _anything = msgspec.json.Decoder()
    _parts = msgspec.json.Decoder(list[msgspec.Raw])

    def frame(self, answers: Sequence[tuple[str, int | None, int | None, bytes]]) -> bytes:
        encode = self._encoder.encode
        messages = [
            b'{"type":"%b","session":%b,"id":%b,"data":%b}'
            % (kind.encode(), encode(session), encode(number), data)
            for kind, session, number, data in answers
        ]
        return messages[0] if len(messages) == 1 else b"[%b]" % b",".join(messages)

    def join(self, frames: Sequence[bytes]) -> bytes:
        return b"[%b]" % b",".join(one[1:-1] if one[:1] == b"[" else one for one in frames)


_CODECS: dict[tuple[str, bool], Codec] = {
    (kind.name, debug): kind(debug=debug)
    for kind in (MsgpackCodec, JSONCodecV1)
    for debug in (False, True)
}
SUBPROTOCOLS = (MsgpackCodec.name, JSONCodecV1.name)


def codec_named(name: str, debug: bool = False) -> Codec:
    """Return the codec of a subprotocol; with `debug`, errors include internal errors' text."""
    return _CODECS[name, debug]


def offered(version: int) -> tuple[str, ...]:
    """Return the subprotocols that a client offers if `version` is its newest protocol version."""
    return (MsgpackCodec.name,) if version >= 1 else ()


def is_binary(subprotocol: str | None) -> bool:
    """Return whether frames are binary messages; in version 0 (None) they are text."""
    return subprotocol is not None and codec_named(subprotocol).is_binary


def snapshot_bytes(data: dict[Any, Any]) -> bytes:
    """Return the bytes in the data of `restore`, or of an answer to `snapshot`; base64 in JSON.

    Raises:
        InvalidMessageError: The data hold no bytes.
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
