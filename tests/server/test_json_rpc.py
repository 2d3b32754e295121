"""Tools by the older JSON-RPC, over WebSockets: what the public server was recorded to answer.

Over HTTP it is replayed with all else of HTTP, in `test_http.py`.
"""

from __future__ import annotations

import contextlib
import json
import platform
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from compat.record_peer import APPS
from support.recorded import PEER, TOOLS, UUID, Deviation, Exchange, comparable, is_same
from support.servers import serving
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

pytestmark = pytest.mark.skipif(
    not is_same("pydantic"), reason="recorded answers quote the words of another pydantic"
)

RECORDED = [
    *(one for one in PEER["websocket"] if one["env"] in ("tools", "calls")),
    *PEER["json_rpc"],
]
# The words for what is no JSON are the interpreter's.
SAME_PYTHON = PEER["versions"]["python"].split(".")[:2] == platform.python_version().split(".")[:2]
ANSWERS_WITHIN_S = 30.0  # importing FastMCP takes a while


def code_in(answer: Any) -> int | None:
    code: int | None = (answer.get("error") or {}).get("code")
    return code


# The first that concerns an exchange decides about it.
DEVIATIONS = {
    **TOOLS,
    "a mistake in an argument": Deviation(
        "its kind is told by what was raised, not by words in its text",
        lambda exchange: (
            '"execution_error"' in exchange["answer"] and "[type=" in exchange["answer"]
        ),
        lambda status, answer, recorded: (
            answer == json.loads(recorded["answer"].replace("execution_error", "invalid_args"))
        ),
    ),
    "a frame that is no object": Deviation(
        "it is answered as the mistake that it is, and the session goes on",
        lambda exchange: "must be a mapping" in exchange["answer"],
        lambda status, answer, _: code_in(answer) == -32600,
    ),
    "a binary frame": Deviation(
        "it is JSON as well, and is served",
        lambda exchange: "'text'" in exchange["answer"],
        lambda status, answer, _: code_in(answer) == -32601,
    ),
    "what to do about a full server": Deviation(
        "the refusal says how to have more sessions",
        lambda exchange: "at capacity" in exchange["answer"],
        lambda status, answer, recorded: (
            code_in(answer) == -32000
            and answer["error"]["data"] == json.loads(recorded["answer"])["error"]["data"]
            and "SUPPORTS_CONCURRENT_SESSIONS" in answer["error"]["message"]
        ),
    ),
    "a factory's failure": Deviation(
        "it is told of which kind it is, and under which id the log has it",
        lambda exchange: "failing_factory" in exchange["answer"],
        lambda status, answer, _: (
            code_in(answer) == -32000
            and "RuntimeError; incident" in answer["error"]["message"]
            and answer["error"]["data"] == {"factory_name": "failing_factory"}
        ),
    ),
}
# After these the recorded server closed the connection; ours goes on.
SURVIVED = {"a frame that is no object", "a binary frame"}


def deviation_of(exchange: Exchange) -> str | None:
    return next((name for name, one in DEVIATIONS.items() if one.concerns(exchange)), None)


@pytest.fixture(scope="module")
def urls() -> Iterator[Callable[[str], str]]:
    """Servers of the recorded environments, each started when first asked for."""
    with contextlib.ExitStack() as stack:
        known: dict[str, str] = {}

        def url_of(name: str) -> str:
            if name not in known:
                known[name] = stack.enter_context(serving(APPS[name]()))
            return known[name].replace("http://", "ws://")

        yield url_of


def exchanges(recording: Any) -> Iterator[tuple[str | bytes | None, Exchange]]:
    """What was sent, if anything, and what was answered, in order."""
    sent: str | bytes | None = None
    for event in recording["events"]:
        if "client" in event:
            sent = event["client"]
        elif "client_binary_hex" in event:
            sent = bytes.fromhex(event["client_binary_hex"])
        elif "server" in event:
            body = sent.decode() if isinstance(sent, bytes) else sent or ""
            yield sent, {"body": body, "answer": event["server"], "status": 200}
            sent = None


@contextlib.contextmanager
def held(url: str, count: int) -> Iterator[None]:
    """Have other sessions open."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            connection = stack.enter_context(connect(f"{url}/ws", proxy=None))
            connection.send('{"type":"state"}')
            connection.recv(ANSWERS_WITHIN_S)
        yield


def in_order(text: str) -> Any:
    """JSON as it is read, with the order of its keys. Ours is written without spaces."""
    return json.loads(text, object_pairs_hook=list)


@pytest.mark.parametrize("recording", RECORDED, ids=lambda r: f"{r['path']} {r['name']}")
def test_frames_are_answered_as_recorded(urls: Callable[[str], str], recording: Any) -> None:
    url = urls(recording["env"])
    with (
        held(url, recording["already_open"]),
        connect(url + recording["path"], proxy=None, max_size=None) as connection,
    ):
        names = replay(connection, recording)
        last = recording["events"][-1]
        if "closed" in last and not names & SURVIVED:
            if recording["path"] == "/ws":
                connection.send('{"type":"close"}')
            assert closing_code(connection) == last["closed"]


def replay(connection: ClientConnection, recording: Any) -> set[str | None]:
    """Send what was recorded, and compare what is answered; the deviations that were met."""
    session_id, met = "", set()
    for sent, recorded in exchanges(recording):
        if sent is not None:
            connection.send(sent.replace("<uuid>", session_id) if isinstance(sent, str) else sent)
        answer = str(connection.recv(ANSWERS_WITHIN_S))
        found = UUID.search(answer)
        session_id = found.group() if found else session_id
        ours = comparable(UUID.sub("<uuid>", answer))
        name = deviation_of(recorded)
        met.add(name)
        if name is not None:
            assert in_order(ours) != in_order(recorded["answer"]), f"no longer a deviation: {name}"
            assert DEVIATIONS[name].holds(200, json.loads(ours), recorded), ours
        elif recording["path"] == "/ws":
            assert ours == recorded["answer"]
        elif SAME_PYTHON or "-32700" not in ours:
            assert in_order(ours) == in_order(recorded["answer"])
        else:
            assert code_in(json.loads(ours)) == code_in(json.loads(recorded["answer"]))
    return met


def closing_code(connection: ClientConnection) -> int | None:
    with pytest.raises(ConnectionClosed):
        connection.recv(ANSWERS_WITHIN_S)
    return connection.close_code


def test_every_listed_deviation_is_met() -> None:
    every = [recorded for recording in RECORDED for _, recorded in exchanges(recording)]
    assert {deviation_of(recorded) for recorded in every} == {None, *DEVIATIONS}
