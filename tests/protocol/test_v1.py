"""Version 1 of the wire, byte by byte; no loop, no socket."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.amounts import examples

from openenv import Observation
from openenv.arrays import Picture
from openenv.errors import (
    EncodingError,
    InvalidJSONError,
    InvalidMessageError,
    OpenEnvError,
    ProtocolError,
    Refused,
    SessionCreationError,
    UnknownMessageTypeError,
)
from openenv.protocol.messages import (
    ErrorReply,
    MCPReply,
    ObservationReply,
    RenderReply,
    Request,
    StateReply,
    Transition,
)
from openenv.protocol.v0.codec import JSONCodec
from openenv.protocol.v1.codec import SUBPROTOCOLS, Codec, codec_named
from openenv.protocol.v1.connection import Multiplexer
from openenv.protocol.v1.messages import Notice

MSGPACK, JSON = map(codec_named, SUBPROTOCOLS)
both = pytest.mark.parametrize("codec", [MSGPACK, JSON], ids=["msgpack", "json"])


class Seen(Observation):
    value: Any = None


def frame_of(codec: Codec, message: Any) -> Any:
    """A message as a peer that is not ours would write it."""
    return msgspec.msgpack.encode(message) if codec.is_binary else json.dumps(message)


# ------------------------------------------------------------------ what is on the wire

STEP = Request("step", {"to": 3}, {"fast": True}, id=2, session=7)


def test_a_request_in_json_is_these_bytes() -> None:
    assert JSON.encode_requests([STEP]) == (
        b'{"type":"step","data":{"to":3},"arguments":{"fast":true},"id":2,"session":7}'
    )
    assert JSON.encode_requests([Request("state", id=1), Request("close", id=2)]) == (
        b'[{"type":"state","id":1},{"type":"close","id":2}]'
    )


def test_a_request_in_messagepack_is_these_bytes() -> None:
    assert MSGPACK.encode_requests([STEP]) == (
        b"\x85"
        b"\xa4type\xa4step"
        b"\xa4data\x81\xa2to\x03"
        b"\xa9arguments\x81\xa4fast\xc3"
        b"\xa2id\x02"
        b"\xa7session\x07"
    )
    assert MSGPACK.encode_requests([Request("state", id=1), Request("close", id=2)]) == (
        b"\x92\x82\xa4type\xa5state\xa2id\x01\x82\xa4type\xa5close\xa2id\x02"
    )


def test_an_answer_in_json_is_these_bytes() -> None:
    data = JSON.encode_data(Transition(Seen(value=1), 0.5, True, truncated=True, info={"a": 1}))
    assert JSON.answer("observation", 7, 2, data) == (
        b'{"type":"observation","session":7,"id":2,"data":'
        b'{"observation":{"metadata":{},"value":1},"reward":0.5,"done":true,'
        b'"truncated":true,"info":{"a":1}}}'
    )
    one = JSON.answer("closed", 1, 2, b"null")
    assert JSON.frame([("closed", 1, 2, b"null")] * 2) == b"[%b,%b]" % (one, one)
    assert JSON.error(None, None, Refused("oh")) == (
        b'{"type":"error","session":null,"id":null,"data":'
        b'{"message":"oh","code":"EXECUTION_ERROR"}}'
    )


def test_an_answer_in_messagepack_is_these_bytes() -> None:
    frame = np.array([[1, 2], [3, 4]], "uint8")
    data = MSGPACK.encode_data(Transition(Seen(value=frame), None, False))
    assert MSGPACK.answer("observation", 7, 2, data) == (
        b"\x84\xa4type\xabobservation\xa7session\x07\xa2id\x02\xa4data\x83"
        b"\xabobservation\x82\xa8metadata\x80\xa5value"
        # ext 8 of 25 bytes, type 1: two axes, three letters of dtype, the lengths, the elements
        b"\xc7\x19\x01\x02\x03|u1"
        b"\x02\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x01\x02\x03\x04"
        b"\xa6reward\xc0\xa4done\xc2"
    )
    assert MSGPACK.encode_data({"big": 2**64}) == (b"\x81\xa3big\xc7\x14\x0218446744073709551616")
    closed = ("closed", 1, 2, MSGPACK.encode_data(None))
    one = MSGPACK.frame([closed])
    assert one == MSGPACK.answer(*closed)
    assert one == b"\x84\xa4type\xa6closed\xa7session\x01\xa2id\x02\xa4data\xc0"
    assert MSGPACK.frame([closed, closed]) == b"\xdd\0\0\0\x02" + one + one


def test_a_rendering_in_json_is_these_bytes() -> None:
    assert JSON.encode_requests([Request("render", id=3, session=7)]) == (
        b'{"type":"render","id":3,"session":7}'
    )
    drawn: dict[str | Picture, bytes] = {
        "a\nb": b'{"text":"a\\nb"}',
        "<svg/>": b'{"text":"<svg/>"}',
        Picture("image/gif", b"GIF8"): b'{"media_type":"image/gif","bytes":"R0lGOA=="}',
    }
    for rendering, data in drawn.items():
        assert JSON.encode_data(RenderReply(rendering)) == data
    pixels = np.array([[1, 2], [3, 4]], "uint8")
    assert JSON.answer("render", 7, 3, JSON.encode_data(RenderReply(pixels))) == (
        b'{"type":"render","session":7,"id":3,"data":'
        b'{"array":{"dtype":"|u1","shape":[2,2],"data":"AQIDBA=="}}}'
    )


def test_a_rendering_in_messagepack_is_these_bytes() -> None:
    assert MSGPACK.encode_requests([Request("render", id=3, session=7)]) == (
        b"\x83\xa4type\xa6render\xa2id\x03\xa7session\x07"
    )
    assert MSGPACK.encode_data(RenderReply("a")) == b"\x81\xa4text\xa1a"
    gif = MSGPACK.encode_data(RenderReply(Picture("image/gif", b"GIF8")))
    assert gif == b"\x82\xaamedia_type\xa9image/gif\xa5bytes\xc4\x04GIF8"
    pixels = np.array([[1, 2], [3, 4]], "uint8")
    assert MSGPACK.answer("render", 7, 3, MSGPACK.encode_data(RenderReply(pixels))) == (
        b"\x84\xa4type\xa6render\xa7session\x07\xa2id\x03\xa4data\x81\xa5array"
        b"\xc7\x19\x01\x02\x03|u1"
        b"\x02\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x01\x02\x03\x04"
    )


@both
def test_each_end_reads_what_the_other_has_written(codec: Codec) -> None:
    requests = [STEP, Request("reset", {"seed": 1}, id=3), Request("open", session=9)]
    frame = codec.encode_requests(requests)
    assert codec.decode_requests(frame if codec.is_binary else frame.decode()) == requests
    many = [Request("step", {"i": i}, id=i, session=i) for i in range(1000)]
    assert codec.decode_requests(codec.encode_requests(many)) == many
    answers = [("state", i, i, codec.encode_data({"i": i})) for i in range(1000)]
    read = codec.decode_answers(bytearray(codec.frame(answers)))
    assert [(a.session, a.id, a.data) for a in read] == [(i, i, {"i": i}) for i in range(1000)]


# ------------------------------------------------------------------ what a server reads


@both
@pytest.mark.parametrize(
    "message",
    [
        {"type": "step", "extra": 1},
        {"type": "step", "data": []},
        {"type": "step", "id": "1"},
        {"type": "step", "session": None},
        {"type": 3},
        {"data": {}},
        {},
        [{"type": "step"}, {"type": "step", "data": 3}],
        3,
        None,
        [[{"type": "step"}]],
    ],
    ids=str,
)
def test_a_malformed_request_is_refused(codec: Codec, message: Any) -> None:
    with pytest.raises(InvalidMessageError):
        codec.decode_requests(frame_of(codec, message))


@both
def test_a_type_that_is_unknown_is_refused(codec: Codec) -> None:
    with pytest.raises(UnknownMessageTypeError, match="jump"):
        codec.decode_requests(frame_of(codec, [{"type": "step"}, {"type": "jump"}]))


@both
def test_what_is_no_frame_is_refused(codec: Codec) -> None:
    wrong_kind = "{}" if codec.is_binary else b"\x80\xff"
    deep = b"\x91" * 100_000 if codec.is_binary else "[" * 100_000
    for frame in (b"", b"\xc1", b"\x85\xa4type", wrong_kind, deep):
        with pytest.raises(OpenEnvError) as caught:
            codec.decode_requests(frame)
        assert isinstance(caught.value, InvalidJSONError | InvalidMessageError)
        with pytest.raises(ProtocolError):
            codec.decode_answers(frame)


def extension(kind: int, data: bytes) -> bytes:
    value = msgspec.msgpack.Ext(kind, data)
    return msgspec.msgpack.encode({"type": "step", "data": {"value": value}})


@pytest.mark.parametrize(
    "frame",
    [
        extension(3, b""),
        extension(1, b""),
        extension(1, b"\x01\x03|u1\xff\xff\xff\xff\xff\xff\xff\xff"),
        extension(1, b"\x00\x02|O" + bytes(8)),
        extension(1, b"\x01\x03|u1" + (2**63).to_bytes(8, "little")),
        extension(1, b"\x02\x03|u1" + bytes(8) + b"\xff" * 8),
        extension(1, b"\x00\x04junk"),
        extension(1, b"\x00\x01("),
        extension(2, b"x"),
        extension(2, b"1" * 5000),
    ],
)
def test_an_extension_that_makes_no_sense_is_refused(frame: bytes) -> None:
    with pytest.raises(OpenEnvError):
        MSGPACK.decode_requests(frame)
    with pytest.raises(ProtocolError):
        MSGPACK.decode_answers(frame)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
messages = st.fixed_dictionaries(
    {"type": st.sampled_from(["open", "step", "error", "observation", ""]) | values},
    optional=dict.fromkeys(("data", "id", "session", "arguments", "more"), values),
)


def packed(value: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(value)
    except OverflowError:
        return b"\xc1"


frames = (
    st.binary()
    | st.text()
    | (messages | st.lists(messages, max_size=3)).map(packed)
    | (messages | st.lists(messages)).map(lambda m: json.dumps(m, default=lambda b: b.hex()))
    | st.builds(extension, st.integers(0, 3), st.binary())
)


@pytest.mark.slow
@examples(200)
@given(frames, st.booleans(), st.integers(0, 40))
def test_anything_is_read_or_refused_with_a_typed_error(
    frame: str | bytes, is_binary: bool, cut: int
) -> None:
    codec = MSGPACK if is_binary else JSON
    for one in (frame, frame[:cut]):
        try:
            assert all(isinstance(r, Request) for r in codec.decode_requests(one))
        except OpenEnvError as error:
            assert b"INVALID_JSON" in (answer := codec.error(1, 2, error)) or (
                b"UNKNOWN_TYPE" in answer or b"VALIDATION_ERROR" in answer
            )
        with contextlib.suppress(ProtocolError):
            greeted(codec).receive(one)


# ------------------------------------------------------------------ what a client reads


@both
def test_later_fields_of_a_server_are_ignored(codec: Codec) -> None:
    message = {"type": "state", "session": 1, "id": 2, "data": {"a": 1}, "since": 5, "z": {}}
    [(session, number, reply)] = greeted(codec).receive(frame_of(codec, message))
    assert (session, number, reply) == (1, 2, StateReply({"a": 1}))


@both
def test_each_type_of_answer_is_read(codec: Codec) -> None:
    data = {"message": "full", "code": "CAPACITY_REACHED"}
    answers = [
        ({"type": "hello", "data": {"version": 1}}, Notice("hello", {"version": 1})),
        ({"type": "opened", "session": 1, "data": {}}, Notice("opened", {})),
        ({"type": "closed", "session": 1, "data": None}, Notice("closed", None)),
        ({"type": "mcp", "session": 1, "id": 1, "data": {}}, MCPReply({})),
        ({"type": "error", "session": 1, "id": 1, "data": data}, ErrorReply(data)),
    ]
    for message, expected in answers:
        [(_, _, reply)] = greeted(codec).receive(frame_of(codec, message))
        assert reply == expected
    assert isinstance(reply, ErrorReply) and reply.is_fatal


@both
def test_each_form_of_a_rendering_is_read(codec: Codec) -> None:
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    for drawn in ("a", "<svg/>", Picture("image/gif", b"GIF8"), pixels):
        frame = codec.answer("render", 0, 1, codec.encode_data(RenderReply(drawn)))
        [(_, _, reply)] = greeted(codec).receive(frame)
        assert isinstance(reply, RenderReply) and type(reply.rendering) is type(drawn)
        assert np.array_equal(reply.rendering, drawn)  # type: ignore[arg-type]


@both
def test_an_observation_says_in_its_metadata_what_version_0_has_no_field_for(codec: Codec) -> None:
    transition = Transition(Seen(value=1), 1.0, True, True, {"k": 1}, {"i": 2}, ("x",))
    frame = codec.answer("observation", 0, 1, codec.encode_data(transition))
    [(_, _, reply)] = greeted(codec).receive(frame)
    assert isinstance(reply, ObservationReply)
    metadata = {"k": 1, "truncated": True, "info": {"i": 2}, "ignored_arguments": ["x"]}
    assert reply.payload == {
        "observation": {"metadata": {}, "value": 1},
        "reward": 1.0,
        "done": True,
        "metadata": metadata,
    }


@both
@pytest.mark.parametrize(
    "message",
    [
        {"type": "step"},
        {"type": "observation"},
        {"type": "opened", "data": []},
        {"type": "state", "session": "x"},
        {"type": "render", "session": 0, "id": 1, "data": None},
        {"type": "render", "session": 0, "id": 1, "data": {}},
        {"type": "error", "data": {"message": "what?", "code": "INVALID_JSON"}},
        3,
    ],
    ids=str,
)
def test_what_no_server_may_send_is_a_protocol_error(codec: Codec, message: Any) -> None:
    with pytest.raises(ProtocolError):
        greeted(codec).receive(frame_of(codec, message))


@both
def test_a_refusal_finds_whoever_waits(codec: Codec) -> None:
    good, bad = {"type": "step", "session": 1, "id": 2}, {"type": "step", "data": 3, "id": 4}
    assert codec.addresses(frame_of(codec, bad)) == [(0, 4)]
    assert codec.addresses(frame_of(codec, [good, bad])) == [(1, 2), (0, 4)]
    for frame in (b"\xc1", frame_of(codec, 3), frame_of(codec, {"session": []})):
        assert codec.addresses(frame) == [(None, None)]


# ------------------------------------------------------------------ numbers


def greeted(codec: Codec, ends: list[str] | None = None, **said: Any) -> Multiplexer:
    data = {"version": 1, "ends": said.pop("server_sees", None), **said}
    hello = codec.answer("hello", None, None, codec.encode_data(data))
    return Multiplexer(codec, hello, ends=ends)


@both
def test_a_proxy_that_happens_to_have_the_clients_port_is_told_apart(codec: Codec) -> None:
    mine = ["127.0.0.1:50000", "127.0.0.1:8000"]
    assert greeted(codec, mine, server_sees=mine).is_direct
    assert not greeted(codec, mine, server_sees=["127.0.0.1:50000", "127.0.0.1:8001"]).is_direct
    assert not greeted(codec, mine).is_direct and not greeted(codec).is_direct


@both
def test_a_session_is_opened_by_its_first_request(codec: Codec) -> None:
    client = greeted(codec)

    def sent(*requests: Request) -> list[tuple[str, int, int]]:
        found = codec.decode_requests(client.request(requests))
        return [(request.type, request.session, request.id) for request in found]

    assert sent(Request("reset", session=3)) == [("open", 3, 0), ("reset", 3, 1)]
    assert sent(Request("step", session=3), Request("reset", session=4)) == [
        ("step", 3, 2),
        ("open", 4, 0),
        ("reset", 4, 1),
    ]
    client.forget(3)
    assert not client.knows(3) and client.knows(4)
    assert sent(Request("reset", session=3)) == [("open", 3, 0), ("reset", 3, 1)]


@both
def test_a_request_that_cannot_be_sent_changes_no_number(codec: Codec) -> None:
    client = greeted(codec)
    client.request([Request("reset", session=1)])
    bad = Request("step", {"value": object()}, session=2)
    with pytest.raises(EncodingError):
        client.request([Request("step", session=1), bad, Request("reset", session=3)])
    assert not client.knows(2) and not client.knows(3)
    frame = client.request([Request("step", session=1), Request("reset", session=3)])
    assert [(r.type, r.session, r.id) for r in codec.decode_requests(frame)] == [
        ("step", 1, 2),
        ("open", 3, 0),
        ("reset", 3, 1),
    ]


@both
def test_a_client_of_one_session_matches_answers_by_number(codec: Codec) -> None:
    client = greeted(codec)
    assert not client.knows(0), "there is nothing to say goodbye to"
    first, second = Request("reset"), Request("step")
    client.request([first])
    client.request([second])
    numbers = (second.id, first.id)
    answers = [("state", 0, n, codec.encode_data({"n": n})) for n in numbers]
    ack = ("ack", None, None, codec.encode_data({"received": 2}))
    notice, *read = client.receive(codec.frame([ack, *answers]))
    assert notice == (None, None, Notice("ack", {"received": 2}))
    assert read == [(0, 2, StateReply({"n": 2})), (0, 1, StateReply({"n": 1}))]
    [closed] = client.receive(codec.answer("closed", 0, 3, codec.encode_data(None)))
    assert closed == (0, 3, Notice("closed"))


@both
def test_an_error_tells_its_code_and_details(codec: Codec) -> None:
    for error in (
        RuntimeError("oh"),
        SessionCreationError("oh"),
        InvalidMessageError([{"msg": "bad"}]),
    ):
        [answer] = codec.decode_answers(codec.error(1, 2, error))
        version_0 = json.loads(JSONCodec().encode_error(error))
        assert (answer.type, answer.session, answer.id) == ("error", 1, 2)
        assert answer.data == version_0["data"]
