"""What machines read of docs/protocol/ is well formed, and what goes over the wire fits it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from openapi_spec_validator import validate as validate_openapi
from support.environments import Counter, CounterEnv, Do, Progress, Seen
from support.servers import serving
from websockets.sync.client import ClientConnection, connect

from openenv import create_app
from openenv.errors import IgnoredArgumentWarning, OpenEnvError
from openenv.execution.connections.v0.connection import ServedConnectionV0
from openenv.execution.connections.v1.connection import ServedConnectionV1
from openenv.execution.limits import Limits
from openenv.protocol.v0.codec import JSONCodec
from openenv.protocol.v1.codec import JSONCodecV1
from openenv.server.socket import SocketChannel

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs" / "protocol"
TRY_LATER = 75  # the registry of npm cannot be reached


def read(name: str) -> Any:
    return json.loads((DOCS / name).read_text(encoding="utf-8"))


def validator(version: int, whose: str) -> jsonschema.Draft202012Validator:
    schema = {**read(f"v{version}.schema.json"), "anyOf": [{"$ref": f"#/$defs/{whose}"}]}
    return jsonschema.Draft202012Validator(schema)


FRAMES = {(v, whose): validator(v, whose) for v in (0, 1) for whose in ("client", "server")}


@pytest.mark.slow
def test_the_documents_are_what_the_code_says() -> None:
    command = [sys.executable, "scripts/protocol.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("version", [0, 1])
def test_the_schemas_are_json_schemas(version: int) -> None:
    jsonschema.Draft202012Validator.check_schema(read(f"v{version}.schema.json"))


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_document_of_the_sockets_is_asyncapi() -> None:
    command = [sys.executable, "scripts/npx.py", "node", "--version"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    if done.returncode == TRY_LATER:
        pytest.skip("the registry of npm cannot be reached")
    assert done.returncode == 0, done.stderr
    specs = ROOT / ".npm" / "node_modules" / "@asyncapi" / "specs" / "schemas"
    schema = json.loads((specs / "3.0.0-without-$id.json").read_text(encoding="utf-8"))
    document = read("asyncapi.json")
    jsonschema.Draft7Validator(schema).validate(document)
    broken = {**document, "operations": {"x": {"action": "jump"}}}
    assert not jsonschema.Draft7Validator(schema).is_valid(broken)
    assert [ref for ref in _references(document) if not _leads_somewhere(ref, document)] == []


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for item in value.values():
            yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


def _leads_somewhere(reference: str, document: Any) -> bool:
    for part in reference.removeprefix("#/").split("/"):
        document = document.get(part)
    return document is not None


def test_the_document_of_the_routes_is_openapi() -> None:
    validate_openapi(read("openapi.json"))


# ------------------------------------------------------------------ frames


Said = list[tuple[str, Any]]


def _noting(frames: Said, receive: Any) -> Any:
    def receiving(self: Any, message: Any) -> None:
        frames.append(("client", message))
        receive(self, message)

    return receiving


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Said:
    """Every frame of text that a server gets and sends, by whose it is."""
    frames: Said = []
    send = SocketChannel.send

    def sending(self: SocketChannel, frame: bytes) -> None:
        frames.append(("server", frame))
        send(self, frame)

    monkeypatch.setattr(SocketChannel, "send", sending)
    for connection in (ServedConnectionV0, ServedConnectionV1):
        monkeypatch.setattr(connection, "receive", _noting(frames, connection.receive))
    return frames


@pytest.fixture
def url() -> Iterator[str]:
    limits = Limits(max_message_bytes=4000)
    app = create_app(
        Counter, Do, Seen, state_cls=Progress, max_concurrent_envs=2, limits=limits, debug=True
    )
    with serving(app) as url:
        yield url


WORDS = ("count", "reward", "annotate", "truncate", "raise", "nothing", "unencodable", "done")


def test_a_conversation_of_version_0_fits_its_schema(
    said: Said, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENENV_PROTOCOL", "0")
    with CounterEnv(base_url=url) as env:
        with pytest.warns(IgnoredArgumentWarning):
            env.reset(seed=1, other=2)
        for what in WORDS:
            _try(env, what)
        _try(env, "large", 9000)
        env.state()
    with connect(url.replace("http", "ws") + "/ws") as socket:
        socket.send('{"type":"mcp","data":{"jsonrpc":"2.0","id":1,"method":"tools/list"}}')
        socket.recv(5)
    kinds = check(said, 0)
    assert kinds == {"observation", "state", "mcp", "error", "reset", "step", "close"}


def _try(env: CounterEnv, what: str, value: Any = None) -> None:
    with contextlib.suppress(OpenEnvError):
        env.step(Do(what=what, value=value))


def test_a_conversation_of_version_1_fits_its_schema(said: Said, url: str) -> None:
    with v1(url) as first, v1(url) as second:
        ask(first, {"type": "open", "ack": 1})
        steps = [
            {"type": "step", "id": i + 2, "data": {"what": what}} for i, what in enumerate(WORDS)
        ]
        ask(first, [{"type": "reset", "id": 1, "data": {"seed": 1, "other": 2}}, *steps])
        others = ("state", "snapshot", "render", "view")
        ask(first, [{"type": kind, "id": 20 + i} for i, kind in enumerate(others)])
        rpc = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        ask(first, {"type": "mcp", "id": 30, "data": rpc})
        ask(first, {"type": "open", "session": 1})
        ask(second, {"type": "open", "session": 7, "data": {"queue_timeout_s": 5}}, until="queued")
        deadline = {"what": "sleep", "value": 0.1}
        late = {"type": "step", "id": 31, "data": deadline, "arguments": {"timeout_s": 0.01}}
        ask(first, late, until="observation")
        ask(first, {"type": "close", "session": 1}, until="closed")
        ask(second, {"type": "ack", "ack": 2}, until="opened")
        ask(second, {"type": "close", "session": 7, "id": 1}, until="closed")
    with v1(url) as third:
        nothing = {"connection": "none", "token": "none", "received": 1}
        ask(third, {"type": "resume", "data": nothing})
    kinds = check(said, 1)
    answers = {"hello", "opened", "queued", "observation", "error", "closed", "mcp"}
    assert answers <= kinds, "and so are these"


def v1(url: str) -> ClientConnection:
    return connect(url.replace("http", "ws") + "/ws", subprotocols=["openenv.v1.json"])  # type: ignore[list-item]


def ask(socket: ClientConnection, request: Any, until: str | None = None) -> None:
    """Send a frame, and read until as many answers have come, or one of a type."""
    socket.send(json.dumps(request))
    wanted = len(request) if isinstance(request, list) else 1
    while wanted > 0:
        frame = json.loads(socket.recv(5))
        for answer in frame if isinstance(frame, list) else [frame]:
            if until is None:
                wanted -= answer["type"] != "hello"
            elif answer["type"] == until:
                wanted = 0


def check(said: Said, version: int) -> set[str]:
    """See that frames fit the schema; gives the types of messages that were among them."""
    kinds: set[str] = set()
    for whose, frame in said:
        found = json.loads(frame)
        FRAMES[version, whose].validate(found)
        kinds |= {one["type"] for one in (found if isinstance(found, list) else [found])}
    return kinds


@pytest.mark.parametrize(
    "frame",
    [
        {},
        {"type": "jump"},
        {"type": "step", "data": 3},
        {"type": "reset", "data": {}, "extra": 1},
        {"type": "close", "data": 1},
        3,
    ],
    ids=str,
)
def test_what_a_server_refuses_no_schema_of_requests_takes(frame: Any) -> None:
    for version, read_by in ((0, JSONCodec().decode_request), (1, JSONCodecV1().decode_requests)):
        with pytest.raises(OpenEnvError):
            read_by(json.dumps(frame))
        assert not FRAMES[version, "client"].is_valid(frame)


WRONG_ANSWERS: list[tuple[int, Any]] = [
    (0, {"type": "observation", "data": {"reward": 1}}),
    (0, {"type": "observation", "data": {"observation": {}, "reward": "1", "done": False}}),
    (0, {"type": "error", "data": {"message": "no code"}}),
    (0, {"type": "mcp", "data": {"jsonrpc": "2.0", "id": 1}}),
    (0, [{"type": "state", "data": {}}]),
    (1, {"type": "hello", "session": None, "id": None, "data": {"version": 2}}),
    (1, {"type": "queued", "session": 1, "id": None, "data": {"position": 0, "length": 1}}),
    (1, {"type": "opened", "session": None, "id": 0, "data": {"session_id": "a"}}),
    (1, {"type": "error", "session": 1, "id": 1, "data": {"message": "", "code": "STEP_TIMEOUT"}}),
    (1, {"type": "render", "session": 1, "id": 1, "data": {}}),
    (1, []),
]


@pytest.mark.parametrize(("version", "frame"), WRONG_ANSWERS, ids=str)
def test_a_schema_refuses_wrong_answers(version: int, frame: Any) -> None:
    assert not FRAMES[version, "server"].is_valid(frame)


def test_a_later_answer_fits() -> None:
    later = {"type": "state", "session": 0, "id": 1, "data": {}, "since": 3}
    assert FRAMES[1, "server"].is_valid(later)
