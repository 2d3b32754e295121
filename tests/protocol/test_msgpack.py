"""Frames of MessagePack are looked through: their maps have keys that are texts."""

from __future__ import annotations

import contextlib
import random
import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.amounts import examples

from openenv.errors import InvalidJSONError, OpenEnvError
from openenv.protocol.v1.codec import codec_named
from openenv.protocol.v1.msgpack import check_keys

encode = msgspec.msgpack.encode
CODEC = codec_named("openenv.v1.msgpack")

NUMBERS = st.integers(-(2**63), 2**64 - 1)  # that MessagePack has
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.floats() | st.text() | st.binary(max_size=300),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=40), inner),
    max_leaves=30,
)


@given(VALUES)
@examples(200)
def test_whatever_has_texts_for_keys_is_taken(value: Any) -> None:
    check_keys(encode(value))


@given(VALUES, NUMBERS | st.floats() | st.tuples(NUMBERS), st.integers(0, 3))
@examples(100)
def test_any_other_key_is_found_wherever_it_stands(value: Any, key: Any, depth: int) -> None:
    key = key % 2**63 if isinstance(key, int) else key
    hostile: Any = {key: 1}
    for _ in range(depth):
        hostile = {"a": value, "b": [hostile, value]}
    with pytest.raises(ValueError, match="keys of a map are texts"):
        check_keys(encode(hostile))


@given(st.binary(max_size=2000))
@examples(300)
def test_any_bytes_are_looked_through_or_left_to_the_decoder(data: bytes) -> None:
    """It ends, and raises nothing but what `decode_requests` makes an answer of."""
    with contextlib.suppress(ValueError, RecursionError):
        check_keys(data)


def test_values_of_every_length_are_passed_over() -> None:
    sizes = (0, 1, 31, 32, 255, 256, 65_535, 65_536)
    texts = [["x" * size, b"x" * size, {"k" * size: 1}] for size in sizes]
    extensions = [msgspec.msgpack.Ext(5, b"x" * size) for size in (0, 1, 2, 3, 4, 8, 16, 300)]
    numbers = [0, -1, 127, 128, 2**16, 2**32, -(2**7) - 1, -(2**15) - 1, -(2**31) - 1, 1.5, None]
    frame = encode([texts, extensions, numbers * 50, [random.random()] * 1000])
    check_keys(frame)
    with pytest.raises(ValueError, match="texts"):
        check_keys(frame[:1] + b"\x81\x01" + frame[1:])  # the first element is a map by now


def test_keys_of_one_hash_are_refused_before_they_are_a_dict() -> None:
    keys = b"".join(
        b"\xdc\x00\x0d" + bytes(0xFF if number >> bit & 1 else 0xFE for bit in range(13)) + b"\xc0"
        for number in range(5000)
    )
    frame = b"\x82" + encode("type") + encode("step") + encode("data")
    frame += b"\x81" + encode("x") + b"\xdf" + struct.pack(">I", 5000) + keys
    with pytest.raises(InvalidJSONError, match="keys of a map are texts"):
        CODEC.decode_requests(frame)
    assert CODEC.addresses(frame) == [(None, None)]  # nor is it decoded to find out whose it is


def test_what_is_nested_for_ever_is_refused() -> None:
    with pytest.raises(OpenEnvError):
        CODEC.decode_requests(b"\x91" * 1_000_000)


def test_a_key_of_a_request_itself_is_a_text() -> None:
    with pytest.raises(OpenEnvError):
        CODEC.decode_requests(encode({"type": "step", "data": {1: 2}}))
