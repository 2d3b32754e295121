"""Frames recorded from the public 0.10.0 package, replayed against `protocol/`: bytes alone."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pydantic
import pytest

from openenv.errors import (
    EnvironmentFactoryError,
    InvalidJSONError,
    OpenEnvError,
    SessionCapacityError,
    SessionNotFoundError,
    UnknownMessageTypeError,
)
from openenv.protocol.messages import (
    ErrorReply,
    MCPReply,
    ObservationReply,
    RenderReply,
    Request,
    SnapshotReply,
    StateReply,
    Transition,
)
from openenv.protocol.v0.codec import JSONCodec
from openenv.protocol.v0.connection import ClientConnection, Phase, ServerConnection

RECORDED = json.loads((Path(__file__).parents[1] / "data" / "peer_0_10_0.json").read_text())
SAME_PYDANTIC = RECORDED["versions"]["pydantic"].split(".")[:2] == pydantic.VERSION.split(".")[:2]
# How deep JSON may be nested, and the words for what is none, are the interpreter's.
SAME_PYTHON = RECORDED["versions"]["python"].split(".")[:2] == [*map(str, sys.version_info[:2])]

# Frames that the recorded package answers by destroying the session, and we by an error frame
# on a session that lives on; and frames that it takes for requests while we refuse them.
DEVIATIONS = {
    "SESSION_ERROR": "a frame that is no object is a VALIDATION_ERROR, and the session survives",
}


def exchanges() -> list[Any]:
    """Every (client frame, server frame) that stand next to each other in a recording."""
    found = []
    for recording in RECORDED["websocket"]:
        events = recording["events"]
        for i, (sent, answered) in enumerate(pairwise(events)):
            if "client" in sent and "server" in answered:
                name = f"{recording['name']}[{i}]"
                found.append(pytest.param(sent["client"], answered["server"], id=name))
    return found


def _code(frame: Any) -> str | None:
    message = json.loads(frame)
    return message["data"].get("code") if message["type"] == "error" else None


def server() -> ServerConnection:
    connection = ServerConnection()
    connection.accept()
    return connection


def server_side(reply: ObservationReply | StateReply | MCPReply) -> Any:
    """What a server must have had in hand to send `reply`."""
    if isinstance(reply, ObservationReply):
        payload = reply.payload
        return Transition(
            payload["observation"],
            payload["reward"],
            payload["done"],
            metadata=payload.get("metadata", {}),
        )
    return reply


def answers() -> list[Any]:
    # A lone surrogate is no Unicode text: it is refused as JSON, wherever it stands.
    return [
        p for p in exchanges() if _code(p.values[1]) is None and "\\ud800" not in str(p.values[0])
    ]


def test_a_lone_surrogate_is_refused_wherever_it_stands() -> None:
    with pytest.raises(InvalidJSONError, match="surrogate"):
        server().receive('{"type":"reset","data":{"foo":"\\ud800"}}')


@pytest.mark.parametrize(("sent", "answered"), answers())
def test_a_recorded_answer_is_written_byte_for_byte(sent: str, answered: str) -> None:
    [(_, reply)] = client_that_asked().receive(answered)
    assert not isinstance(reply, ErrorReply | SnapshotReply | RenderReply)
    connection = server()
    connection.receive(sent)
    assert connection.encode(server_side(reply)).decode() == answered


@pytest.mark.parametrize("kind", ["snapshot", "restore", "render", "view"])
def test_version_0_knows_none_of_the_later_requests(kind: str) -> None:
    with pytest.raises(UnknownMessageTypeError, match=kind):
        server().receive(json.dumps({"type": kind, "data": {}}))


def client_that_asked() -> ClientConnection:
    client = ClientConnection()
    client.request(Request("state"))
    return client


def malformed() -> list[Any]:
    codes = {"INVALID_JSON", "UNKNOWN_TYPE", "SESSION_ERROR"}
    return [
        p
        for p in exchanges()
        if _code(p.values[1]) in codes
        or (_code(p.values[1]) == "VALIDATION_ERROR" and _is_envelope(p.values[1]))
    ]


def _is_envelope(frame: Any) -> bool:
    """The error is about the frame, not about the action in it (whose `loc` is a field of it)."""
    errors = json.loads(frame)["data"]["errors"]
    return all(
        e["loc"][:1] in (["data"], ["type"]) or e["type"] == "extra_forbidden" for e in errors
    )


@pytest.mark.parametrize(("sent", "answered"), malformed())
def test_a_malformed_frame_is_answered_as_recorded(sent: str, answered: str) -> None:
    connection = server()
    expected = json.loads(answered)
    try:
        request = connection.receive(sent)
    except OpenEnvError as error:
        frame = json.loads(connection.codec.encode_error(error))
    else:
        # Only what an action's model refuses gets this far.
        if not SAME_PYTHON and "maximum recursion depth" in answered:
            return
        assert request.type == "step" and expected["data"]["code"] == "VALIDATION_ERROR"
        return
    assert connection.phase is Phase.OPEN, "the session survives every malformed frame"
    if expected["data"]["code"] in DEVIATIONS:
        assert frame["data"]["code"] in ("VALIDATION_ERROR", "INVALID_JSON", "UNKNOWN_TYPE")
        return
    assert frame["data"]["code"] == expected["data"]["code"]
    if expected["data"]["code"] == "VALIDATION_ERROR" and not SAME_PYDANTIC:
        assert [e["type"] for e in frame["data"]["errors"]] == [
            e["type"] for e in expected["data"]["errors"]
        ]
    elif expected["data"]["code"] != "INVALID_JSON" or SAME_PYTHON:
        assert frame == expected


def refusals() -> list[Any]:
    """Frames that the recorded server sent before any request of the client."""
    return [
        pytest.param(json.loads(r["events"][0]["server"])["data"], id=r["name"])
        for r in RECORDED["websocket"]
        if "server" in r["events"][0]
    ]


@pytest.mark.parametrize("recorded", refusals())
def test_a_refusal_has_the_recorded_code_and_details(recorded: dict[str, Any]) -> None:
    errors: dict[str, OpenEnvError] = {
        "CAPACITY_REACHED": SessionCapacityError(*_counts(recorded)),
        "FACTORY_ERROR": EnvironmentFactoryError("failing_factory"),
        "SESSION_ERROR": SessionNotFoundError("nope"),
    }
    connection = ServerConnection(JSONCodec(debug=True))
    ours = json.loads(connection.refuse(errors[recorded["code"]]))["data"]
    assert connection.phase is Phase.CLOSED
    # The recorded words for a full server name no cure; ours do.
    assert ours["message"].startswith(recorded["message"].partition(". ")[0])
    assert {k: v for k, v in ours.items() if k not in ("message", "type", "incident")} == {
        k: v for k, v in recorded.items() if k != "message"
    }


def _counts(recorded: dict[str, Any]) -> tuple[int, int]:
    return recorded.get("active_sessions", 0), recorded.get("max_sessions", 0)


def test_every_recorded_server_frame_is_understood_by_our_client() -> None:
    kinds = set()
    for recording in RECORDED["websocket"]:
        for event in recording["events"]:
            if "server" in event:
                [(_, reply)] = client_that_asked().receive(event["server"])
                kinds.add(type(reply))
    assert kinds == {ObservationReply, StateReply, MCPReply, ErrorReply}


def test_our_client_writes_the_frames_that_were_recorded() -> None:
    recorded = {
        event["client"]
        for recording in RECORDED["websocket"]
        for event in recording["events"]
        if "client" in event
    }
    client = ClientConnection()
    compact = {json.dumps(json.loads(f), separators=(",", ":")) for f in recorded if _is_json(f)}
    for request in (
        Request("reset"),
        Request("state"),
        Request("reset", {"seed": 1}),
        Request("step", {"msg": "hi", "n": 0}),
        Request("close"),
    ):
        _, frame = client.request(request)
        assert frame.decode() in compact, frame


def _is_json(frame: str) -> bool:
    try:
        json.loads(frame)
    except (ValueError, RecursionError):
        return False
    return True
