"""The codec of protocol version 0: messages to JSON text and back.

Observations are written straight to JSON by Pydantic's serializer, with no dictionary in between.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json

from openenv._internal.generics import once_per_class
from openenv._internal.lazy import lazy_module
from openenv.arrays import number_of
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
    TRUNCATED,
    ErrorReply,
    MCPReply,
    ObservationReply,
    Reply,
    Request,
    StateReply,
    Transition,
)
from openenv.protocol.values import describe_unwritable, outer_fields, to_wire_value
from openenv.reward import REWARD_INFO
from openenv.types import Observation, is_observation

if TYPE_CHECKING:
    import json

    from openenv._internal import quoting as _quoting
else:  # few frames need these
    json = lazy_module("json")
    _quoting = lazy_module("openenv._internal.quoting")


class JSONCodec:
    """Version 0: JSON text.

    Args:
        debug: Error messages include the text of internal errors.
        names_non_finite: Frames list the NaN and infinity that JSON writes as null; see
            `openenv.protocol.v0.non_finite`.
    """

    def __init__(self, *, debug: bool = False, names_non_finite: bool = False) -> None:
        self._debug = debug
        self._names_non_finite = names_non_finite

    # -------------------------------------------------------------- server side

    def decode_request(self, frame: str | bytes) -> Request:
        """Read a request.

        Raises:
            InvalidJSONError: The frame is not JSON.
            UnknownMessageTypeError: The protocol has no such `type`.
            InvalidMessageError: The frame is malformed in another way (an array, a binary frame,
                a missing or an extra key).
        """
        if not isinstance(frame, str):
            raise InvalidMessageError(
                [_quoting.problem("string_type", "Frames are JSON text, not binary", "<binary>")]
            )
        try:
            message = from_json(frame)
        except ValueError:
            message = parse_json(frame)
        if type(message) is dict and len(message) == 2:
            kind, data = message.get("type"), message.get("data")
            if type(data) is dict and kind in _WITH_DATA:
                return Request(kind, data)
        return self._validated(message)

    def _validated(self, message: Any) -> Request:
        """Read a message with its model, which reports what is wrong with it."""
        from openenv.protocol.v0.messages import REQUESTS  # clients need not load it

        if type(message) is not dict:
            raise InvalidMessageError(
                [_quoting.problem("model_type", "A frame is a JSON object", message)]
            )
        kind = message.get("type", "")
        model = REQUESTS.get(kind) if isinstance(kind, str) else None
        if model is None:
            raise UnknownMessageTypeError(f"Unknown message type: {_quoting.shortened(str(kind))}")
        try:
            fields = model.model_validate(message)
        except ValidationError as error:
            raise InvalidMessageError(_quoting.error_list(error)) from None
        return Request(cast(Any, kind), getattr(fields, "data", None) or {})

    def encode_reply(self, reply: Transition | StateReply | MCPReply) -> bytes:
        """Write the answer to a request.

        Raises:
            EncodingError: A value cannot be written as JSON.
        """
        if isinstance(reply, Transition):
            payload, kind = observation_payload(reply), b"observation"
        elif isinstance(reply, StateReply):
            payload, kind = state_payload(reply), b"state"
        else:
            return b'{"type":"mcp","data":%b}' % _to_json(reply.response, "response")
        if self._names_non_finite and b"null" in payload:
            payload += _non_finite_member(reply, payload)
        return b'{"type":"%b","data":%b}' % (kind, payload)

    def encode_error(self, error: BaseException) -> bytes:
        """Write an error frame."""
        from openenv._internal.incidents import error_data  # clients need not load it

        frame = {"type": "error", "data": error_data(error, debug=self._debug)}
        return to_json(frame, serialize_unknown=True, inf_nan_mode="null")

    # -------------------------------------------------------------- client side

    def encode_request(self, request: Request) -> bytes:
        """Write a request.

        Raises:
            EncodingError: A value cannot be written as JSON.
        """
        if request.type in ("state", "close"):
            return b'{"type":"%b"}' % request.type.encode()
        # NaN and infinity are not valid JSON, but servers of version 0 accept them, and null would
        # be another value.
        try:
            body = to_json(request.data, inf_nan_mode="constants", fallback=number_of)
        except (PydanticSerializationError, UnicodeEncodeError, ValueError):
            body = _to_json(request.data, f"{request.type} arguments", keep_nan=True)
        return b'{"type":"%b","data":%b}' % (request.type.encode(), body)

    def decode_reply(self, frame: str | bytes | bytearray) -> Reply:
        """Read an answer.

        Raises:
            ProtocolError: A server may not send such a frame.
        """
        try:
            message = from_json(frame)
        except ValueError:
            try:
                message = parse_json(frame)
            except InvalidJSONError as error:
                raise ProtocolError(f"The server sent a frame that is not JSON: {error}") from error
        data = message.get("data") if isinstance(message, dict) else None
        kind = message.get("type") if isinstance(message, dict) else None
        make = _REPLIES.get(kind) if isinstance(kind, str) else None
        if make is None or not isinstance(data, dict):
            raise ProtocolError(f"The server sent a frame of no known kind: {frame!r:.200}")
        if _NON_FINITE in message:
            from openenv.protocol.v0.non_finite import restore_non_finite  # rarely needed

            try:
                restore_non_finite(data, message[_NON_FINITE])
            except ValueError as error:
                raise ProtocolError(f"The server sent a frame in which {error}") from error
        return make(data)


_WITH_DATA = ("step", "reset", "mcp")
_NON_FINITE = "non_finite"

_REPLIES: dict[str, type[ObservationReply | StateReply | MCPReply | ErrorReply]] = {
    "observation": ObservationReply,
    "state": StateReply,
    "mcp": MCPReply,
    "error": ErrorReply,
}


def observation_payload(transition: Transition, *, empty_metadata: bytes = b"") -> bytes:
    """Write a transition as ``{"observation", "reward", "done"[, "metadata"]}``.

    If there is no metadata, `empty_metadata` (such as ``b',"metadata":null'``) is written.

    If several observation models have the same fields, ``observation_type`` names the model.
    Version 0 has no fields for `truncated`, `info`, `reward_info` and ignored arguments; they
    travel in ``metadata``, which is sent both beside the observation and inside it.
    """
    observation, metadata = transition.observation, transition.metadata
    kind = b',"observation_type":' + to_json(transition.kind) if transition.kind else b""
    if transition.truncated or transition.info or transition.ignored or transition.reward_info:
        extras = _extras(transition)
        metadata = {**metadata, **extras}
        # Entries that the environment itself has put there are not added again.
        if isinstance(observation, Observation) and not (
            extras.items() <= observation.metadata.items()
        ):
            nested = {**observation.metadata, **extras}
            observation = observation.model_copy(update={"metadata": nested})
    write, exclude = _writer(type(observation))
    try:
        if write is None:
            written = _to_json(observation, "observation")
        else:
            written = write(observation, exclude=exclude, fallback=number_of)
    except (PydanticSerializationError, UnicodeEncodeError) as error:
        raise EncodingError(
            describe_unwritable(
                observation,
                lambda name: write(observation, include={name}, fallback=number_of),  # type: ignore[misc]
                error,
            )
        ) from error
    return b'{"observation":%b%b,"reward":%b,"done":%b%b}' % (
        written,
        kind,
        to_json(transition.reward, inf_nan_mode="null"),
        b"true" if transition.done else b"false",
        b',"metadata":' + _to_json(metadata, "metadata") if metadata else empty_metadata,
    )


def state_payload(reply: StateReply) -> bytes:
    """Write a state in the same way as an observation: the fields by name."""
    state = reply.state
    if not isinstance(state, BaseModel):
        return _to_json(state, "state")
    write = type(state).__pydantic_serializer__.to_json
    try:
        return write(state, fallback=number_of)
    except (PydanticSerializationError, UnicodeError) as error:
        raise EncodingError(
            describe_unwritable(
                state, lambda name: write(state, include={name}, fallback=number_of), error
            )
        ) from error


def _non_finite_member(reply: Transition | StateReply, payload: bytes) -> bytes:
    """Write the member of a frame that names NaN and infinity in its data; empty without any.

    See `openenv.protocol.v0.non_finite`.
    """
    from openenv.protocol.v0 import non_finite  # rarely needed

    if isinstance(reply, Transition):
        observation, metadata = reply.observation, {**reply.metadata, **_extras(reply)}
        if not (non_finite.has_non_finite(observation) or non_finite.has_non_finite(metadata)):
            return b""
        exclude = outer_fields(type(observation)) if is_observation(type(observation)) else None
        value = {
            "observation": to_wire_value(observation, exclude),
            "metadata": to_wire_value(metadata),
        }
    elif non_finite.has_non_finite(reply.state):
        value = to_wire_value(reply.state)
    else:
        return b""
    pointers = non_finite.pointers_to_non_finite(value, from_json(payload))
    return b',"%b":%b' % (_NON_FINITE.encode(), to_json(pointers)) if pointers else b""


def _extras(transition: Transition) -> dict[str, Any]:
    extras: dict[str, Any] = {}
    if transition.truncated:
        extras[TRUNCATED] = True
    if transition.info:
        extras[INFO] = transition.info
    if transition.ignored:
        extras[IGNORED_ARGUMENTS] = list(transition.ignored)
    if transition.reward_info:
        extras[REWARD_INFO] = transition.reward_info
    return extras


@once_per_class
def _writer(cls: type[BaseModel]) -> tuple[Callable[..., bytes] | None, set[str]]:
    """Return the writer of a class's observations, and the fields to leave out."""
    if not is_observation(cls):
        return None, set()
    return cls.__pydantic_serializer__.to_json, outer_fields(cls)


def _to_json(value: Any, what: str, *, keep_nan: bool = False) -> bytes:
    try:
        mode: Literal["constants", "null"] = "constants" if keep_nan else "null"
        return to_json(value, inf_nan_mode=mode, fallback=number_of)
    except (PydanticSerializationError, UnicodeEncodeError, ValueError) as error:
        raise EncodingError(f"{what} cannot be written as JSON: {error}") from error


def parse_json(frame: str | bytes | bytearray) -> Any:
    """Read JSON.

    Raises:
        InvalidJSONError: The frame is not JSON; the message says where.
    """
    try:
        return from_json(frame)
    except ValueError as fast_error:
        # The standard library accepts JSON that the fast parser refuses (nesting past 200 levels),
        # and peers of version 0 show its error messages.
        try:
            value = json.loads(frame)
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise InvalidJSONError("Invalid JSON: a lone surrogate is no text") from fast_error
        except (ValueError, RecursionError) as error:
            raise InvalidJSONError(f"Invalid JSON: {error}") from fast_error
        return value
