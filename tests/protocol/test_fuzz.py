"""Whatever a peer sends, the protocol answers with a frame or a typed error, never otherwise."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.amounts import examples

from openenv import Observation
from openenv.errors import EncodingError, OpenEnvError, ProtocolError
from openenv.protocol.messages import Request, StateReply, Transition
from openenv.protocol.v0.codec import JSONCodec
from openenv.protocol.v0.connection import ClientConnection, Phase, ServerConnection

pytestmark = pytest.mark.slow

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=[])),  # lone surrogates too
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
almost_frames = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["reset", "step", "state", "close", "mcp", "error", ""])
        | json_values
    },
    optional={"data": json_values, "id": json_values},
)
frames = (
    st.text()
    | st.binary()
    | json_values.map(json.dumps)
    | almost_frames.map(json.dumps)
    | almost_frames.map(json.dumps).map(lambda frame: frame[: len(frame) // 2])
)


def opened() -> ServerConnection:
    connection = ServerConnection()
    connection.accept()
    return connection


@examples(500)
@given(frames)
def test_a_server_reads_a_request_or_answers_with_an_error_frame(frame: str | bytes) -> None:
    connection = opened()
    try:
        request = connection.receive(frame)
    except OpenEnvError as error:
        answer = json.loads(connection.codec.encode_error(error))
        assert answer["type"] == "error"
        assert answer["data"]["code"] in ("INVALID_JSON", "UNKNOWN_TYPE", "VALIDATION_ERROR")
        assert connection.phase is Phase.OPEN
    else:
        assert isinstance(request.data, dict)
        expected = Phase.CLOSED if request.type == "close" else Phase.OPEN
        assert connection.phase is expected


@examples(300)
@given(frames)
def test_a_client_reads_an_answer_or_raises_a_protocol_error(frame: str | bytes) -> None:
    client = ClientConnection()
    ticket, _ = client.request(Request("state"))
    try:
        [(owner, _)] = client.receive(frame)
    except ProtocolError:
        return
    assert owner == ticket


class Anything(Observation):
    value: Any = None


@examples(300)
@given(json_values, st.none() | st.integers() | st.floats(), st.booleans(), st.booleans())
def test_an_observation_is_written_as_json_or_refused_by_name(
    value: Any, reward: float | None, done: bool, truncated: bool
) -> None:
    codec = JSONCodec()
    transition = Transition(Anything(value=value), reward, done, truncated)
    try:
        frame = codec.encode_reply(transition)
    except EncodingError as error:
        assert "Anything.value" in str(error) or "reward" in str(error)
        return
    data = json.loads(frame)["data"]
    assert set(data) - {"metadata"} == {"observation", "reward", "done"}
    assert data["done"] is done
    assert set(data["observation"]) == {"metadata", "value"}
    assert data.get("metadata", {}).get("truncated", False) is truncated


@examples(200)
@given(json_values)
def test_a_state_is_written_as_json_or_refused(value: Any) -> None:
    try:
        frame = JSONCodec().encode_reply(StateReply({"value": value}))
    except EncodingError:
        return
    assert json.loads(frame)["type"] == "state"
