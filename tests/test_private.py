"""Private fields: left out wherever they are, and nothing else is."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import httpx
import pytest
from fastmcp import FastMCP
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client, MCPError
from pydantic import BaseModel, Field, TypeAdapter, computed_field, model_serializer
from support.environments import Counter

from openenv import Action, Environment, Observation, Private, State, create_app, public_view
from openenv.tools import MCPEnvironment, tool
from openenv.types import public_schema

if TYPE_CHECKING:
    from decimal import Decimal

    import numpy as np

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


@dataclass
class Quote:
    """Names in its annotations what type checkers alone import."""

    amount: Decimal
    rates: dict[str, np.ndarray | None]
    bought_at: Annotated[Decimal, Private]
    notes: Annotated[list[Decimal], Private] = field(default_factory=list)


@dataclass
class Reduced(Quote):
    percent: float = 0.0


class Offers(Observation):
    offers: list[Any] = Field(default_factory=list)


def test_a_dataclass_may_name_what_only_type_checkers_import() -> None:
    for quote in (Quote, Reduced):
        offers = Offers(offers=[quote(3, {}, 2)])  # type: ignore[arg-type]
        (shown,) = public_view(offers)["offers"]
        assert shown.keys() == {"amount", "rates"} | ({"percent"} if quote is Reduced else set())
        assert shown["amount"] == 3


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


# ------------------------------------------------------------------ every way out to an agent


class Table2(BaseModel):
    """What only a private field refers to: its name is none of an agent's business either."""

    banana_count: int = 0


class Score(BaseModel):
    points: int = 1
    secret: Annotated[str, Private] = SECRET
    behind: Annotated[Table2, Private] = Table2()
    default: dict[str, int] = {}


class Parlour(MCPEnvironment):
    """Its tools return what is private in every form that a value can have."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    @property
    def state(self) -> Table:
        return Table(seats=[Seat()])

    @tool
    def model(self) -> Score:
        """Give a model."""
        return Score()

    @tool
    def models(self) -> list[Score]:
        """Give a list of them."""
        return [Score(), Score()]

    @tool
    def by_name(self) -> dict[str, Score]:
        """Give them by name."""
        return {"a": Score()}

    @tool
    def either(self) -> Score | None:
        """Give one, or nothing."""
        return Score()

    @tool
    def card(self) -> Card:
        """Give a dataclass."""
        return Card()

    @tool
    def seen(self) -> Dealt:
        """Give an observation."""
        return Dealt(table=Table(seats=[Seat(cards=[Card()])]))

    @tool
    def whatever(self):  # type: ignore[no-untyped-def]  # its schema says nothing
        """Give what no annotation says."""
        return [{"deep": (Score(), Card())}]

    @tool
    def take(self, score: Score) -> str:
        """Take a model."""
        return "taken"


TOOLS = ("model", "models", "by_name", "either", "card", "seen", "whatever")


class Deal(Action):
    pass


class House(Environment[Deal, Dealt, Table]):
    """Its actions are tools, and what a step shows is what they return."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Dealt:  # type: ignore[override]
        return Dealt(table=Table(seats=[Seat(cards=[Card()])]))

    def step(self, action: Deal) -> Dealt:  # type: ignore[override]
        return Dealt(table=Table(by_name={"a": Seat()}), done=False)

    @property
    def state(self) -> Table:
        return Table()


@pytest.mark.anyio
@pytest.mark.parametrize("environment", [Parlour, House])
async def test_nothing_that_an_agent_is_told_holds_what_is_private(
    serve: Callable[[Any], str], environment: Any
) -> None:
    """Whatever there is to be listed, read and called by MCP, once each."""
    url = serve(create_app(environment))
    told: list[Any] = []
    async with Client(f"{url}/mcp") as agent:
        tools = await agent.list_tools()
        told += [tools, await agent.list_resources(), await agent.list_prompts()]
        for name in TOOLS if environment is Parlour else ("deal",):
            result = await agent.call_tool(name, {})
            assert not result.is_error and result.content
            told.append(result)
        for resource in (await agent.list_resources()).resources:
            told.append(await agent.read_resource(resource.uri))
        told.append(await agent.get_prompt("task"))
        with pytest.raises(MCPError) as caught:
            await agent.call_tool("no such tool", {"secret": 1})
        told.append(caught.value.error)
    written = " ".join(one.model_dump_json() for one in told).lower()
    assert "banana" not in written and "secret" not in written and "hidden" not in written
    assert "points" in written or environment is House


def test_a_schema_without_private_fields_is_otherwise_the_same() -> None:
    schema = TypeAdapter(list[Score]).json_schema(mode="serialization")
    shown = public_schema(schema)
    assert list(shown["$defs"]) == ["Score"]
    assert list(shown["$defs"]["Score"]["properties"]) == ["points", "default"]
    plain_schema = TypeAdapter(Table2).json_schema()
    assert public_schema(plain_schema) == plain_schema


def test_a_server_that_writes_its_results_itself_may_not_return_private_fields() -> None:
    server = FastMCP("parlour")

    @server.tool
    def model() -> Score:
        """Give a model."""
        return Score()

    with pytest.raises(TypeError, match="'model' returns a model with private fields"):
        MCPEnvironment(server)
