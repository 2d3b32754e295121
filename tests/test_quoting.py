"""What errors, logs and terminals show of what a peer sent."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError
from support.amounts import examples

from openenv._internal.quoting import MAX_QUOTED, error_list, printable, quoted, shortened
from openenv.errors import InvalidArgumentError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=200,
)


@given(JSON)
@examples(100)
def test_what_is_quoted_is_json_within_bounds(value: Any) -> None:
    written = json.dumps(quoted(value), allow_nan=False, ensure_ascii=False)
    assert len(written) <= 3 * MAX_QUOTED  # of a text that is cut, quotes are written as two


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": [1, None, "x", 0.5, True]}, {"a": [1, None, "x", 0.5, True]}),
        (float("nan"), None),
        ("\ud800", "?"),
        (b"text", "text"),
        (b"\xff" * 3, "<3 bytes>"),
        (np.zeros((2, 3), "uint8"), "<array of uint8, shape (2, 3)>"),
        (1 << 5000, "<integer of 5001 bits>"),
        (object(), "<object>"),
        ({(1, 2): 3}, {"<tuple>": 3}),
    ],
)
def test_a_value_is_shown_and_an_object_is_named(value: Any, expected: Any) -> None:
    assert quoted(value) == expected


def test_what_is_long_is_cut_and_what_is_deep_is_named() -> None:
    assert quoted("x" * 10_000).startswith('"xxxx') and len(quoted("x" * 10_000)) < 2100
    assert len(quoted(list(range(10**6)))) < 2100
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert "<list>" in json.dumps(quoted(deep))


def test_control_characters_are_shown_as_escapes() -> None:
    assert printable("a\x1b[2J\x07\x9b1m\u202eb\tc\nd") == "a\\x1b[2J\\x07\\x9b1m\\u202eb\tc\nd"
    assert shortened("abc", 2) == "ab... (3 characters)" and shortened("ab", 2) == "ab"


class Talk(BaseModel):
    """A model as an author writes one."""

    text: str
    number: int = 0


def test_errors_of_a_model_tell_no_object_of_this_process() -> None:
    """Pydantic's own way to write them quotes the `repr` of an array: its memory."""
    with pytest.raises(ValidationError) as caught:
        Talk.model_validate({"text": np.array([b"secret"]), "number": "x" * 10**6})
    told = error_list(caught.value)
    assert told[0]["input"] == "<array of |S6, shape (1,)>" and told[0]["loc"] == ["text"]
    assert len(json.dumps(told)) < 10_000 and "secret" not in json.dumps(told)


def test_of_a_thousand_errors_a_hundred_are_told() -> None:
    class Many(BaseModel):
        numbers: list[int]

    with pytest.raises(ValidationError) as caught:
        Many.model_validate({"numbers": ["x"] * 1000})
    told = error_list(caught.value)
    assert len(told) == 101 and told[-1]["msg"] == "and 900 more"


def test_names_that_nobody_takes_are_told_within_bounds() -> None:
    error = InvalidArgumentError(
        "reset", ["x" * 10**6, *(f"name{n}" for n in range(1000))], ["seed"]
    )
    assert len(str(error)) < 2000 and "and 981 more" in str(error)
    assert len(json.dumps(error.details())) < 3000
