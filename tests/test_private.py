"""Private fields: left out wherever they are, and nothing else is."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, computed_field, model_serializer
from support.environments import Counter

from openenv import Observation, Private, State, create_app, public_view

SECRET = "the word is BANANA"


@dataclass
class Card:
    rank: int = 0
    hidden: Annotated[str, Private] = SECRET


class Seat(BaseModel):
    public: Any = None
    secret: Annotated[str, Private] = SECRET
    cards: list[Card] = []


class Table(State):
    seats: list[Seat] = Field(default_factory=list)
    by_name: dict[str, Seat] = Field(default_factory=dict)
    anything: Any = None
    secret: Annotated[str | None, Private] = SECRET

    @computed_field  # type: ignore[prop-decorator]
    @property
    def derived(self) -> Annotated[str, Private]:
        return SECRET.lower()


class Dealt(Observation):
    secret: Annotated[str, Private] = SECRET
    table: Table = Table()


plain = st.none() | st.integers() | st.text(max_size=5).filter(lambda t: "BANANA" not in t)
cards = st.builds(Card, rank=st.integers())


def seats_of(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Seat]:
    return st.builds(Seat, public=inner, cards=st.lists(cards, max_size=2))


values = st.recursive(
    plain | cards,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
        | seats_of(inner)
        | st.builds(Table, anything=inner, extra=inner)
    ),
    max_leaves=12,
)


def without(value: Any) -> Any:
    """What JSON has of a value, with what is private taken out by name."""
    if isinstance(value, dict):
        hidden = ("secret", "hidden", "derived")
        return {k: without(v) for k, v in value.items() if k not in hidden}
    return [without(v) for v in value] if isinstance(value, list) else value


@pytest.mark.slow
@given(values, st.lists(seats_of(values), max_size=2), st.dictionaries(st.text(), seats_of(values)))
def test_what_is_private_is_left_out_and_nothing_else(
    anything: Any, seats: list[Seat], by_name: dict[str, Seat]
) -> None:
    table = Table(anything=anything, seats=seats, by_name=by_name, **{"more": anything})
    for model in (table, Dealt(table=table)):
        view = public_view(model)
        assert "banana" not in json.dumps(view).lower()
        assert view == without(model.model_dump(mode="json"))


def test_a_model_that_writes_itself_may_not_have_private_fields() -> None:
    class Odd(BaseModel):
        secret: Annotated[str, Private] = SECRET

        @model_serializer
        def write(self) -> dict[str, str]:
            return {"shown": self.secret}

    class Plain(BaseModel):
        @model_serializer
        def write(self) -> dict[str, str]:
            return {"shown": "this"}

    with pytest.raises(TypeError, match="Odd"):
        public_view(Table(anything=[Odd()]))
    assert public_view(Table(anything=[Plain()]))["anything"] == [{"shown": "this"}]


def test_neither_may_what_is_in_a_set() -> None:
    @dataclass(frozen=True)
    class Chip:
        secret: Annotated[str, Private] = SECRET

    with pytest.raises(TypeError, match="set"):
        public_view(Table(anything={Chip()}))
    assert public_view(Table(anything={1}))["anything"] == [1]


def test_whoever_drives_the_environment_sees_them_as_ever(serve: Callable[[Any], str]) -> None:
    schema = httpx.get(serve(create_app(Counter, state_cls=Table)) + "/schema").json()["state"]
    assert "secret" in schema["properties"] and "Private" not in json.dumps(schema)
    assert Table().model_dump()["secret"] == SECRET
