"""Models as people write them: each feature of Pydantic, in both directions, over every transport.

A cell is right where the environment gets an action equal to the one that was sent, or the client
an observation equal to the one that was returned. Otherwise it is refused by an error that says
what to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Literal

import jsonschema  # type: ignore[import-untyped]
import numpy as np
import pytest
from fastapi.testclient import TestClient
from pydantic import BaseModel, Field, SecretStr, computed_field
from pydantic_core import from_json, to_json
from support.pydantic_features import FEATURES, Feature, of_type
from support.servers import serving

from openenv import Action, EnvClient, Environment, Observation, VectorEnv, create_app
from openenv._internal.generics import members
from openenv._internal.models import ACTION_TYPE, wire_schema
from openenv.client import codec
from openenv.client.transports.asgi import ASGITransport
from openenv.errors import (
    EncodingError,
    ExecutionFailed,
    InvalidActionError,
    OpenEnvError,
    ValidationFailed,
)
from openenv.execution.commands import GetState, GetView, Reset, Step
from openenv.execution.recorded import request_text
from openenv.execution.session import Session
from openenv.execution.spec import EnvironmentSpec
from openenv.execution.tools import action_tools, build_call_command, read_outcome, tool_name
from openenv.integrations.trl import environment_factory
from openenv.integrations.typed_tools import identifiers
from openenv.protocol.messages import ACTION_TYPES, StateReply
from openenv.protocol.v0.codec import observation_payload, state_payload
from openenv.protocol.values import to_wire_value
from openenv.testing.environment import (
    KINDS_ARE_TOLD_APART,
    PROMISES,
    VALUES_ROUND_TRIP,
    CheckFailed,
    check_environment,
)
from openenv.web.episode import WebInterfaceManager

JSON_1, MSGPACK = "openenv.v1.json", "openenv.v1.msgpack"


class Subject:
    """An environment whose models have a feature, and a client class that knows them.

    Args:
        feature: The feature.
        sent: The action; by default one that has the feature.
        shown: What observations and states have; by default the same.
    """

    def __init__(
        self, feature: Feature, sent: Action | None = None, shown: Feature | None = None
    ) -> None:
        self.feature = feature
        self.sent = sent if sent is not None else feature.action(**feature.fields)
        seen = shown or feature
        self.shown = seen
        self.received: list[Any] = []
        subject = self

        class Told(Environment[feature.action, seen.observation, seen.state]):  # type: ignore[name-defined]
            SUPPORTS_CONCURRENT_SESSIONS = True

            def reset(self, seed: int | None = None) -> Any:  # type: ignore[override]
                return seen.observation(**seen.fields)

            def step(self, action: Any) -> Any:  # type: ignore[override]
                subject.received.append(action)
                return seen.observation(**seen.fields)

            @property
            def state(self) -> Any:
                return seen.state(**seen.fields)

        class Client(EnvClient[Any, Any, Any]):
            action_types = members(feature.action)
            observation_type = seen.observation
            state_type = seen.state

        self.environment, self.client = Told, Client
        self.spec = EnvironmentSpec.of(Told, feature.action, seen.observation, state_cls=seen.state)
        self.schema = self.spec.action_schema()

    @property
    def app(self) -> Any:
        return create_app(
            self.environment,
            self.feature.action,
            self.shown.observation,
            state_cls=self.shown.state,
        )

    @property
    def payload(self) -> dict[str, Any]:
        """The action as JSON, as the schema has it."""
        fields = codec.action_payload(self.sent, self.client, capabilities=[ACTION_TYPES])
        found: dict[str, Any] = from_json(to_json(fields, inf_nan_mode="constants"))
        return found

    @property
    def tool(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The tool that the action is, and its arguments."""
        tool = action_tools(self.spec)[tool_name(type(self.sent))]
        known = {*tool.fixed, ACTION_TYPE}
        arguments = {name: one for name, one in self.payload.items() if name not in known}
        return tool.description, arguments


def check_same(one: Any, other: Any) -> None:
    """See that two values are of one type, and equal."""
    assert type(one) is type(other), f"{one!r} and {other!r}"
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype and np.array_equal(one, other)
    elif isinstance(one, BaseModel):
        for name in type(one).model_fields:
            if name not in ("done", "reward", "metadata", "truncated"):
                check_same(getattr(one, name), getattr(other, name))
        assert one.model_extra == other.model_extra
    else:
        assert one == other


def check_received(subject: Subject) -> None:
    (action,) = subject.received
    check_same(action, subject.sent)


def check_seen(subject: Subject, observation: Any) -> None:
    check_same(observation, subject.shown.observation(**subject.shown.fields))


# ------------------------------------------------------------------ transports


def connected(subject: Subject, *subprotocols: str) -> EnvClient[Any, Any, Any]:
    """A client of the subject's application, which speaks one of these, or version 0."""
    app = subject.app
    client = subject.client("local://app")
    client._open_transport = lambda: ASGITransport(app, headers={}, subprotocols=subprotocols)
    return client


def over_websocket(subject: Subject, *subprotocols: str) -> None:
    with connected(subject, *subprotocols) as env:
        check_seen(subject, env.reset().observation)
        check_seen(subject, env.step(subject.sent).observation)
        check_same(env.state(), subject.shown.state(**subject.shown.fields))


def over_http(subject: Subject) -> None:
    with TestClient(subject.app) as http:
        http.post("/reset", json={}).raise_for_status()
        answer = http.post("/step", json={"action": subject.payload})
        assert answer.status_code == 200, answer.text
        check_seen(subject, codec.parse_result(answer.json(), subject.client).observation)
        state = codec.parse_state(http.get("/state").json(), subject.client)
        check_same(state, subject.shown.state(**subject.shown.fields))


async def in_session(subject: Subject, *commands: Any) -> Any:
    session = Session(subject.spec)
    await session.open()
    try:
        await session.handle(Reset({}))
        found = None
        for command, encode in commands:
            found = await session.handle(command, encode=encode)
        return found
    finally:
        await session.close()


def as_tool(subject: Subject) -> None:
    tool, arguments = subject.tool
    if subject.feature.is_described:
        jsonschema.validate(arguments, tool["inputSchema"])
    command = build_call_command(subject.spec, tool["name"], arguments)
    reply = asyncio.run(in_session(subject, (command, read_outcome)))
    assert not reply.result["isError"], reply.result
    if subject.feature.is_described:
        jsonschema.validate(reply.result["structuredContent"], tool["outputSchema"])
    written = from_json(to_json(reply.result["structuredContent"]))
    check_seen(subject, codec.parse_result({"observation": written}, subject.client).observation)


def by_form(subject: Subject) -> None:
    manager = WebInterfaceManager(
        subject.environment, subject.feature.action, subject.shown.observation
    )

    async def play() -> dict[str, Any]:
        await manager.reset_environment()
        try:
            return await manager.step_environment(subject.payload)
        finally:
            await manager.aclose()

    told = asyncio.run(play())
    check_seen(subject, codec.parse_result(told, subject.client).observation)


def written_state(reply: StateReply) -> tuple[Any, Any]:
    """A state as version 0 has it, and its keys as version 1 has them."""
    return from_json(state_payload(reply)), to_wire_value(reply.state).keys()


def by_trl(subject: Subject) -> None:
    made = environment_factory(subject.environment)
    try:
        place: Any = made()
        place.reset()
        tool, arguments = subject.tool
        words = identifiers(tool["inputSchema"]["properties"], taken=("self",))
        call = getattr(place, tool["name"])
        call(**{words[name]: value for name, value in arguments.items()})
    finally:
        made.close()


def as_schema(subject: Subject) -> None:
    """See that what is on the wire is what ``/schema`` says."""
    fields = asyncio.run(in_session(subject, (Step(subject.payload), observation_payload)))
    if subject.feature.is_described:
        jsonschema.validate(subject.payload, subject.schema)
        state, keys = asyncio.run(in_session(subject, (GetState(), written_state)))
        jsonschema.validate(state, wire_schema(subject.shown.state, "serialization"))
        assert keys == state.keys()
        schema = wire_schema(subject.shown.observation, "serialization")
        jsonschema.validate(from_json(fields)["observation"], schema)


def by_check(subject: Subject) -> None:
    wanted = (VALUES_ROUND_TRIP, KINDS_ARE_TOLD_APART)
    skip = [one for one in PROMISES if one not in wanted]
    check_environment(subject.environment, actions=[subject.sent], skip=skip, max_steps=1)


TRANSPORTS: dict[str, Callable[[Subject], None]] = {
    "http": over_http,
    "version 0": over_websocket,
    "version 1, JSON": lambda subject: over_websocket(subject, JSON_1),
    "version 1, MessagePack": lambda subject: over_websocket(subject, MSGPACK),
    "MCP": as_tool,
    "form": by_form,
    "TRL": by_trl,
    "schema": as_schema,
    "check_environment": by_check,
}


# A tool takes the arguments that its schema names, so TRL's have no others.
CELLS = [
    pytest.param(one, transport, id=f"{one}-{transport}")
    for one in FEATURES
    for transport in TRANSPORTS
    if (one.name, transport) != ("extra allowed", "TRL")
]


@pytest.mark.parametrize(("feature", "transport"), CELLS)
def test_a_model_arrives_as_it_was(feature: Feature, transport: str) -> None:
    subject = Subject(feature)
    TRANSPORTS[transport](subject)
    check_received(subject)


# ------------------------------------------------------------------ unions of actions


class Attack(Action):
    unit: int


class Retreat(Action):
    unit: int


class Move(Action):
    unit: int
    steps: int = 1


class Name(Action):
    unit: str


class Wait(Action):
    pass


class Skip(Action):
    pass


class Buy(Action):
    kind: Literal["buy"] = "buy"
    unit: int


class Sell(Action):
    kind: Literal["sell"] = "sell"
    unit: int


class Send(Action):
    to_: str = Field(alias="to")

    @computed_field  # type: ignore[prop-decorator]
    @property
    def length(self) -> int:
        return len(self.to_)


class Fetch(Action):
    to_: str = Field(alias="to")


UNIONS: dict[str, tuple[Any, Action]] = {
    "the same fields": (Attack | Retreat, Retreat(unit=3)),
    "the first one": (Attack | Retreat, Attack(unit=3)),
    "one has more": (Attack | Move, Move(unit=3)),
    "one has less": (Move | Attack, Attack(unit=3)),
    "other types": (Attack | Name, Name(unit="3")),
    "no fields": (Wait | Skip | Attack, Skip()),
    "constants": (Buy | Sell, Sell(unit=3)),
    "discriminated": (Annotated[Buy | Sell, Field(discriminator="kind")], Sell(unit=3)),
    "aliases and computed fields": (Fetch | Send, Send.model_validate({"to": "me"})),
}
TOLD_BY_NOTHING = {"the same fields", "no fields", "aliases and computed fields", "one has less"}


class Text(Observation):
    text: str = "seen"


def union_of(name: str) -> Subject:
    action, sent = UNIONS[name]
    feature = of_type(name, str, "seen")
    feature.action = action
    return Subject(feature, sent)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("name", UNIONS)
def test_one_of_several_actions_arrives_as_itself(name: str, transport: str) -> None:
    subject = union_of(name)
    if transport == "version 0" and name in TOLD_BY_NOTHING:
        with pytest.raises(EncodingError, match=r"would take this .* kind: Literal"):
            TRANSPORTS[transport](subject)
        assert subject.received == []
        return
    if transport == "version 0" and name == "the first one":
        with pytest.raises(ValidationFailed, match=ACTION_TYPE):  # it may be either
            TRANSPORTS[transport](subject)
        assert subject.received == []
        return
    TRANSPORTS[transport](subject)
    check_received(subject)


def test_fields_that_fit_several_actions_are_refused_with_the_cure() -> None:
    spec = EnvironmentSpec.of(Subject(FEATURES[0]).environment, Attack | Move | Name, Text)
    assert '"openenv_action": "Attack" or "Move"' in refusal(spec, {"unit": 3})
    assert spec.decode_action({"unit": "3"}) == Name(unit="3")
    assert spec.decode_action({"unit": 3, "steps": 2}) == Move(unit=3, steps=2)
    assert spec.decode_action({"unit": 3, ACTION_TYPE: "Attack"}) == Attack(unit=3)
    misspelt = {"unit": 3, ACTION_TYPE: "Atack"}
    assert "expected Attack or Move or Name" in refusal(spec, misspelt)
    told = EnvironmentSpec.of(spec.factory, Buy | Sell, Text)
    assert "give 'kind'" in refusal(told, {"unit": 3})


def refusal(spec: EnvironmentSpec, data: dict[str, Any]) -> str:
    with pytest.raises(InvalidActionError) as caught:
        spec.decode_action(data)
    return str(caught.value.errors)


class Won(Observation):
    score: int = 0


class Lost(Observation):
    score: int = 0


@pytest.mark.parametrize("subprotocols", [(), (JSON_1,), (MSGPACK,)])
def test_one_of_several_observations_is_read_as_itself(subprotocols: tuple[str, ...]) -> None:
    feature = of_type("observations", str, "a")
    shown = of_type("shown", str, "a")
    shown.observation = Won | Lost
    subject = Subject(feature, shown=shown)
    environment: Any = subject.environment
    environment.reset = lambda self, seed=None: Won(score=1)
    environment.step = lambda self, action: Lost(score=1)
    with connected(subject, *subprotocols) as env:
        assert type(env.reset().observation) is Won
        assert type(env.step(subject.sent).observation) is Lost
    with TestClient(subject.app) as http:
        answer = http.post("/reset", json={}).json()
        assert answer["observation_type"] == "Won"
        assert type(codec.parse_result(answer, subject.client).observation) is Won


class Forward(BaseModel):
    unit: int


class Backward(BaseModel):
    unit: int


def test_models_of_a_field_that_nothing_tells_apart_are_refused_and_found() -> None:
    feature = of_type("order", list[Forward | Backward], [Forward(unit=1), Backward(unit=2)])
    subject = Subject(feature, shown=of_type("plain", str, "a"))
    with connected(subject, MSGPACK) as env:
        env.reset()
        with pytest.raises(EncodingError, match=r"value, of Forward or Backward.*kind: Literal"):
            env.step(subject.sent)
        env.step(feature.action(value=[Forward(unit=1)]))
    with pytest.raises(CheckFailed, match="Forward or Backward"):
        by_check(subject)


def test_check_environment_tells_of_actions_with_the_same_fields() -> None:
    subject = union_of("the same fields")
    skip = [one for one in PROMISES if one != KINDS_ARE_TOLD_APART]
    report = check_environment(subject.environment, actions=[subject.sent], skip=skip)
    assert "Attack, Retreat take the same fields" in str(report)


def test_a_page_is_given_actions_that_say_which_they_are() -> None:
    subject = union_of("the same fields")
    moves = [("back", Retreat(unit=1)), ("on", Attack(unit=1))]
    environment: Any = subject.environment
    environment.web_actions = lambda self, observation: moves
    environment.message_to_action = lambda self, message: Retreat(unit=2)
    view = asyncio.run(in_session(subject, (GetView("go back"), to_wire_value)))
    assert [one["action"][ACTION_TYPE] for one in view["moves"]] == ["Retreat", "Attack"]
    assert subject.spec.decode_action(view["action"]) == Retreat(unit=2)


def test_the_call_of_a_tool_is_recorded_as_the_action_that_it_was() -> None:
    subject = union_of("the same fields")
    step = build_call_command(subject.spec, "retreat", {"unit": 3})
    recorded = from_json(b"{%b}" % (request_text(step) or b""))
    assert subject.spec.decode_action(recorded["action"]) == Retreat(unit=3)


def test_two_actions_of_one_name_that_nothing_tells_apart_are_not_served() -> None:
    other = type("Attack", (Action,), {"__annotations__": {"unit": int}, "__module__": __name__})
    with pytest.raises(TypeError, match="two action models are called Attack"):
        create_app(Subject(FEATURES[0]).environment, Attack | other, Text)


def test_a_union_steps_in_a_vector_each_as_itself() -> None:
    subject = union_of("the same fields")
    with serving(subject.app) as url, VectorEnv(url, 2, client=subject.client) as envs:
        envs.reset()
        envs.step([Attack(unit=1), Retreat(unit=2)])
    assert sorted(map(repr, subject.received)) == sorted(
        map(repr, [Attack(unit=1), Retreat(unit=2)])
    )


# ------------------------------------------------------------------ what cannot be sent


@pytest.mark.parametrize("subprotocols", [(), (JSON_1,), (MSGPACK,)])
@pytest.mark.parametrize("state", [None, 5, "text", [1]])
def test_a_state_without_fields_is_an_error_of_the_environment(
    state: Any, subprotocols: tuple[str, ...]
) -> None:
    subject = Subject(of_type("plain", str, "a"))
    environment: Any = subject.environment
    environment.state = property(lambda self: state)
    found = "None" if state is None else type(state).__name__
    with connected(subject, *subprotocols) as env:
        env.reset()
        with pytest.raises(ExecutionFailed, match=rf"Told\.state returned {found}; it must return"):
            env.state()
        env.reset()  # the session goes on
    with TestClient(subject.app) as http:
        answer = http.get("/state")
        assert answer.status_code == 500 and f"returned {found}" in answer.json()["detail"]


UNSENDABLE = {
    "bytes of no text": (bytes, b"\xff\xfe", "Blob"),
    "a secret": (SecretStr, SecretStr("word"), "asterisks"),
    "keys of several values": (dict[tuple[int, int], str], {(1, 2): "a"}, "value"),
}


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("name", UNSENDABLE)
def test_what_cannot_be_sent_is_refused_with_its_field(name: str, version: int) -> None:
    annotation, value, cure = UNSENDABLE[name]
    feature, plain = of_type(name, annotation, value), of_type("plain", str, "a")
    if name != "a secret":  # which an observation shows as asterisks, as Pydantic has it
        with pytest.raises(OpenEnvError, match=cure):
            over_websocket(Subject(plain, shown=feature), *[MSGPACK][:version])
    subject = Subject(feature, shown=plain)
    with pytest.raises(OpenEnvError, match=cure):
        over_websocket(subject, *[MSGPACK][:version])
    assert subject.received == []


@pytest.mark.parametrize("subprotocols", [(), (JSON_1,), (MSGPACK,)])
def test_numbers_of_numpy_go_wherever_a_number_goes(subprotocols: tuple[str, ...]) -> None:
    numbers = {"half": np.float32(0.5), "count": np.int64(3), "is": np.bool_(True)}
    feature = of_type("numbers", Any, [np.uint8(2), numbers])
    subject = Subject(feature, feature.action(value=[np.uint8(2), numbers]))
    with connected(subject, *subprotocols) as env:
        assert env.reset(seed=np.int64(3)).observation.value == [2, {**numbers, "half": 0.5}]
        env.step(subject.sent)
        env.step({"value": [np.uint8(2), numbers]})
    assert [one.value for one in subject.received] == [
        [2, {"half": 0.5, "count": 3, "is": True}]
    ] * 2
