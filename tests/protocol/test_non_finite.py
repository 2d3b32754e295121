"""NaN and infinity in answers: version 0 names what its JSON has null for, to clients that ask."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import pytest
from pydantic import Field
from support.servers import serving
from websockets.sync.client import connect

from openenv import EnvClient, Environment, GenericEnvClient, NDArray, create_app
from openenv.errors import ProtocolError
from openenv.protocol.messages import NON_FINITE_HEADER, StateReply, Transition
from openenv.protocol.v0.codec import JSONCodec
from openenv.protocol.v0.non_finite import has_non_finite, restore_non_finite
from openenv.types import Action, Observation, State

NAN, INF = math.nan, math.inf


@dataclass
class Point:
    x: float
    y: float | None = None


class Market(Observation):
    price: float
    bid: float | None = None
    ask: float | None = None
    depth: dict[str, list[float]] = Field(default_factory=dict)
    at: Point | None = None
    curve: NDArray | None = None


class Ledger(State):
    balance: float | None = None


class Exchange(Environment[Action, Market, Ledger]):
    def reset(self, **kwargs: Any) -> Market:  # type: ignore[override]
        return Market(
            price=NAN,
            bid=INF,
            depth={"a/b~c": [1.0, -INF]},
            at=Point(NAN),
            curve=np.array([[INF, 1.0], [NAN, -INF]]),
            metadata={"volatility": NAN},
        )

    def step(self, action: Action, **kwargs: Any) -> Market:  # type: ignore[override]
        return Market(price=1.0)

    @property
    def state(self) -> Ledger:
        return Ledger(balance=-INF)


class ExchangeEnv(EnvClient[Action, Market, Ledger]): ...


def check_typed(env: Any) -> None:
    seen = env.reset().observation
    assert math.isnan(seen.price) and seen.bid == INF and seen.ask is None
    assert seen.depth == {"a/b~c": [1.0, -INF]}
    assert math.isnan(seen.at.x) and seen.at.y is None
    np.testing.assert_array_equal(seen.curve, [[INF, 1.0], [NAN, -INF]])
    assert env.step(Action()).observation.price == 1.0
    assert env.state().balance == -INF


@pytest.fixture(params=["0", "1"], autouse=True)
def protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("OPENENV_PROTOCOL", request.param)
    return str(request.param)


def test_they_arrive_over_a_websocket() -> None:
    with serving(create_app(Exchange)) as url, ExchangeEnv(base_url=url).sync() as env:
        check_typed(env)


@pytest.mark.parametrize("source", [Exchange, create_app(Exchange)])
def test_they_arrive_within_the_process(source: Any) -> None:
    with ExchangeEnv.local(source).sync() as env:
        check_typed(env)


def test_a_client_without_models_gets_them_too() -> None:
    with GenericEnvClient.local(Exchange).sync() as env:
        result = env.reset()
        assert math.isnan(result.observation["price"]) and result.observation["bid"] == INF
        assert result.metadata is not None and math.isnan(result.metadata["volatility"])
        assert env.state()["balance"] == -INF


def test_a_client_that_does_not_ask_gets_the_frames_of_old(protocol: str) -> None:
    if protocol == "1":
        pytest.skip("version 1 has no such clients")
    with serving(create_app(Exchange)) as url:
        address = f"ws{url.removeprefix('http')}/ws"
        for headers, is_told in (({}, False), ({NON_FINITE_HEADER: "1"}, True)):
            with connect(address, additional_headers=headers, proxy=None) as socket:
                socket.send('{"type":"reset","data":{}}')
                frame = json.loads(socket.recv())
                socket.send('{"type":"step","data":{}}')
                assert "non_finite" not in json.loads(socket.recv())
            assert frame["data"]["observation"]["depth"] == {"a/b~c": [1.0, None]}
            assert frame["data"]["observation"]["price"] is None
            assert ("non_finite" in frame) is is_told
        assert frame["non_finite"]["/observation/depth/a~1b~0c/1"] == "-Infinity"
        assert frame["non_finite"]["/metadata/volatility"] == "NaN"
        assert httpx.post(f"{url}/reset", json={}).json()["observation"]["price"] is None


@pytest.mark.parametrize(
    "named",
    [
        [],
        {"/observation/other": "NaN"},
        {"/observation/x": "nan"},
        {"/observation/x": 1},
        {"/observation/y": "NaN"},
        {"/observation/z/1": "NaN"},
        {"/observation/z/a": "NaN"},
        {"": "NaN"},
    ],
)
def test_a_place_that_is_not_there_is_refused(named: Any) -> None:
    data = {"observation": {"x": None, "y": 1.0, "z": [None]}}
    frame = {"type": "observation", "data": data, "non_finite": named}
    with pytest.raises(ProtocolError, match="non_finite"):
        JSONCodec().decode_reply(json.dumps(frame))


def test_numbers_are_put_back_into_lists_and_objects() -> None:
    data: Any = {"a": [None, {"b/c": None}], "": None}
    restore_non_finite(data, {"/a/0": "Infinity", "/a/1/b~1c": "-Infinity", "/": "NaN"})
    assert data["a"] == [INF, {"b/c": -INF}] and math.isnan(data[""])


def test_what_has_none_is_not_looked_through_twice() -> None:
    codec = JSONCodec(names_non_finite=True)
    assert "non_finite" not in codec.encode_reply(Transition(Market(price=1.0))).decode()
    assert "non_finite" not in codec.encode_reply(StateReply(Ledger())).decode()
    finite: list[Any] = [None, 1, "a", 1.5, [1.0, 2, "a", None], {"a": [None]}, np.ones(2)]
    assert not any(map(has_non_finite, [*finite, {10**400}, finite]))
    others: list[Any] = [NAN, [1.0, -INF], {"a": [None, NAN]}, np.array([1.0, INF]), Point(NAN)]
    assert all(map(has_non_finite, others))
