"""The values that version 1 carries: those of JSON, and arrays and declared bytes as they are."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
from collections import deque
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, field_serializer
from support.amounts import examples

from openenv import Observation, State
from openenv.errors import EncodingError
from openenv.protocol.messages import Request, StateReply, Transition
from openenv.protocol.v0.codec import JSONCodec
from openenv.protocol.v1.codec import SUBPROTOCOLS, Codec, codec_named

MSGPACK, JSON = map(codec_named, SUBPROTOCOLS)
both = pytest.mark.parametrize("codec", [MSGPACK, JSON], ids=["msgpack", "json"])


class Seen(Observation):
    value: Any = None


def there(codec: Codec, value: Any) -> Any:
    """What a client finds in an observation that holds `value`."""
    data = codec.encode_data(Transition(Seen(value=value)))
    [answer] = codec.decode_answers(codec.answer("observation", 0, 1, data))
    return answer.data["observation"]["value"]


def there_by_version_0(value: Any) -> Any:
    frame = JSONCodec().encode_reply(Transition(Seen(value=value)))
    return json.loads(frame)["data"]["observation"]["value"]


class Color(Enum):
    RED = "red"


class Inner(BaseModel):
    when: date = date(2026, 1, 2)
    tags: set[str] = {"a"}


@dataclasses.dataclass
class Point:
    x: int = 2**70


SAME: list[Any] = [
    None,
    True,
    0,
    -(2**63),
    2**64 - 1,
    2**64,
    -(2**200),
    -0.0,
    1e300,
    "é☃🤖\x00",
    [],
    {},
]
CHANGED: list[tuple[Any, Any]] = [
    (date(2026, 1, 2), "2026-01-02"),
    (datetime(2026, 1, 2, 3), "2026-01-02T03:00:00"),
    (timedelta(seconds=3), "PT3S"),
    (UUID(int=5), "00000000-0000-0000-0000-000000000005"),
    (Decimal("1.50"), "1.50"),
    (Color.RED, "red"),
    ({1}, [1]),
    ((1, (2,)), [1, [2]]),
    (deque([1]), [1]),
    (Path("/x"), "/x"),
    (Inner(), {"when": "2026-01-02", "tags": ["a"]}),
    ([Inner(), 2**70], [{"when": "2026-01-02", "tags": ["a"]}, 2**70]),
    (Point(), {"x": 2**70}),
    ({2**70: 1}, {str(2**70): 1}),
    (np.float32(1.5), 1.5),
    (np.int8(-3), -3),
    (np.bool_(True), True),
    (np.str_("x"), "x"),
    (np.array(5), 5),
]


@both
@pytest.mark.parametrize("value", SAME, ids=repr)
def test_a_plain_value_arrives_as_it_is(codec: Codec, value: Any) -> None:
    for sent in (value, [value], {"key": value}):
        arrived = there(codec, sent)
        assert arrived == sent and type(arrived) is type(sent)
    assert math.copysign(1, there(codec, -0.0)) == -1


@both
@pytest.mark.parametrize(("value", "expected"), CHANGED, ids=lambda value: repr(value)[:30])
def test_other_values_arrive_in_their_simplest_form(
    codec: Codec, value: Any, expected: Any
) -> None:
    assert there(codec, value) == expected
    info = codec.encode_data(Transition(Seen(), info={"it": value}))
    state = codec.encode_data(StateReply(State.model_validate({"it": value})))
    for data in (info, state):
        [answer] = codec.decode_answers(codec.answer("state", 0, 1, data))
        assert answer.data.get("info", answer.data)["it"] == expected
    frame = codec.encode_requests([Request("step", {"it": value})])
    assert codec.decode_requests(frame)[0].data["it"] == expected


AS_IN_JSON: list[tuple[Any, Any]] = [
    (math.nan, None),
    (-math.inf, None),
    (b"text", "text"),
    (datetime(2026, 1, 2, tzinfo=timezone.utc), "2026-01-02T00:00:00Z"),
    ({1: 2}, {"1": 2}),
    ({(1, 2): 3}, {"1,2": 3}),
    ({Color.RED: 1}, {"red": 1}),
]


@both
@pytest.mark.parametrize(("value", "expected"), AS_IN_JSON, ids=repr)
def test_what_json_has_no_form_for_arrives_as_in_version_0(
    codec: Codec, value: Any, expected: Any
) -> None:
    assert there(codec, value) == there_by_version_0(value) == expected


def test_an_array_arrives_as_an_array_or_as_an_object() -> None:
    array = np.arange(3)
    assert np.array_equal(there(MSGPACK, [array])[0], array)
    encoded = base64.b64encode(array.tobytes()).decode()
    assert there(JSON, array) == {"dtype": array.dtype.str, "shape": [3], "data": encoded}


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.integers(), inner, max_size=4)
    ),
    max_leaves=10,
)


@pytest.mark.slow
@examples(200)
@given(values)
def test_no_value_depends_on_the_version(value: Any) -> None:
    try:
        expected = there_by_version_0(value)
    except EncodingError:
        for codec in (MSGPACK, JSON):
            with pytest.raises(EncodingError):
                there(codec, value)
        return
    assert repr(there(MSGPACK, value)) == repr(there(JSON, value)) == repr(expected)


circular: list[Any] = []
circular.append(circular)

UNSENDABLE: list[Any] = [
    object(),
    np.add,
    np.array([object()]),
    circular,
    "\ud800",
    b"\xff",
    10**5000,
    lambda: 0,
    int,
]


@both
@pytest.mark.parametrize("value", UNSENDABLE, ids=lambda value: type(value).__name__)
def test_a_value_that_cannot_be_sent_is_named(codec: Codec, value: Any) -> None:
    with pytest.raises(EncodingError, match=r"Seen\.value"):
        codec.encode_data(Transition(Seen(value=value)))
    with pytest.raises(EncodingError):
        codec.encode_data(Transition(Seen(), info={"it": value}))
    with pytest.raises(EncodingError):
        codec.encode_data(StateReply({"it": value}))
    if isinstance(value, bytes):  # a client's stay bytes, since only its model knows what they are
        return
    with pytest.raises(EncodingError):
        codec.encode_requests([Request("step", {"it": value})])


def test_bytes_of_a_request_stay_bytes() -> None:
    for value in (b"\xff", b"abcd"):  # the other one could be text
        (read,) = MSGPACK.decode_requests(MSGPACK.encode_requests([Request("step", {"it": value})]))
        assert read.data == {"it": value}


class Odd(BaseModel):
    x: int = 1

    @field_serializer("x", when_used="json")
    def written(self, value: int) -> str:
        return f"<{value}>"


class OddSeen(Observation):
    x: int = 1
    inner: Odd = Odd()
    seen: frozenset[int] = frozenset({1})

    @field_serializer("x", when_used="json")
    def written(self, value: int) -> str:
        return f"<{value}>"


class OddState(State):
    inner: Odd = Odd()


@both
def test_models_that_write_json_in_their_own_way_do_so(codec: Codec) -> None:
    for reply in (Transition(OddSeen()), StateReply(OddState()), StateReply(Odd())):
        [answer] = codec.decode_answers(codec.answer("state", 0, 1, codec.encode_data(reply)))
        version_0 = json.loads(JSONCodec().encode_reply(reply))
        assert answer.data == version_0["data"]


@both
def test_a_field_that_pydantic_cannot_write_is_named(codec: Codec) -> None:
    class Broken(OddSeen):
        value: Any = None

    with pytest.raises(EncodingError, match=r"Broken\.value"):
        codec.encode_data(Transition(Broken(value=object())))
