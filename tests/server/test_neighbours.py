"""Whoever goes over a limit is stopped, and their neighbour notices nothing.

One server, in a process of its own, has every limit of the network set low (`support.limited`).
For each limit there is an attack, which goes over the limit and asserts what stops it. It is
repeated until a witness has taken `STEPS` steps: a session that plays over a connection of its own
all the while, and knows each answer beforehand.

The sandbox's limits are in `tests/sandbox/test_neighbours.py`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from fastapi import FastAPI
from msgspec.msgpack import Ext
from support.commands import environ, openenv_running
from support.environments import CounterEnv, Do
from support.limited import KEYS, LIMITS, RECORDED_BYTES, SLOTS, Chained, linked
from support.raw import connected, reset_connection
from support.servers import serving
from support.token_server import token_server
from support.waiting import wait_until
from support.ws import CLOSE, CONTINUATION, PING, PONG, TEXT, Raw, frame, raw
from support.zygote import PythonProcess
from websockets.sync.client import connect

from openenv import StepTimeout, create_app
from openenv._internal.fragments import Fragments
from openenv.capture import CaptureServer
from openenv.errors import ServerError
from openenv.execution.connections.base import REFUSED_FRAMES
from openenv.execution.principal import KeyLimits, Principal, Tenants
from openenv.server.heads import MAX_HEAD_BYTES
from openenv.tools import wrap

TESTS = Path(__file__).parents[1]
STEPS = 10  # that a witness takes, at least, while its neighbour is over a limit
MOST_BYTES = LIMITS.max_message_bytes


# ------------------------------------------------------------------ who is there


@dataclass
class Witness:
    """A session that is at work all the time, and must not notice anything."""

    url: str
    steps: int = 0
    failure: list[BaseException] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def play(self) -> None:
        try:
            with CounterEnv(base_url=self.url, api_key=KEYS["witness"].key) as env:
                for seed in itertools.count():
                    if self.over.is_set():
                        return
                    self._episode(env, seed)
        except BaseException as error:
            self.failure.append(error)

    def _episode(self, env: Any, seed: int) -> None:
        chain = linked("", str(seed))
        assert env.reset(seed=seed).observation.text == chain
        for number in range(1, 21):
            if self.over.wait(0.002):
                return
            chain = linked(chain, f"{seed}.{number}")
            result = env.step(Do(value=f"{seed}.{number}"))
            assert (result.observation.text, result.reward) == (chain, number)
            self.steps += 1
        assert env.state().step_count == 20


@contextlib.contextmanager
def witness(url: str) -> Iterator[Witness]:
    seen = Witness(url)
    thread = threading.Thread(target=seen.play)
    thread.start()
    try:
        wait_until(lambda: seen.steps or seen.failure)
        yield seen
    finally:
        seen.over.set()
        thread.join(20)
    assert not thread.is_alive() and seen.failure == []


def withstand(seen: Witness, attack: Callable[[], None]) -> None:
    """Attack until the witness has taken its steps, which it takes at the same time."""
    before = seen.steps
    while seen.steps < before + STEPS and not seen.failure:
        attack()


@dataclass
class Served:
    """The server under attack."""

    url: str
    recordings: Path

    def http(self, who: str = "rogue") -> httpx.Client:
        return httpx.Client(base_url=self.url, headers={"X-API-Key": KEYS[who].key}, timeout=20)

    @contextlib.contextmanager
    def raw(self, path: str = "/ws", subprotocol: str = "openenv.v1.json") -> Iterator[Raw]:
        headers = {"X_API_Key": KEYS["rogue"].key, "Sec_WebSocket_Protocol": subprotocol}
        with raw(self.url, path, **headers) as client:
            client.socket.settimeout(20)
            yield client

    @contextlib.contextmanager
    def socket(
        self, who: str = "rogue", subprotocol: str = "openenv.v1.json", path: str = "/ws"
    ) -> Iterator[Any]:
        with connect(
            f"ws{self.url[4:]}{path}",
            subprotocols=[subprotocol],  # type: ignore[list-item]
            additional_headers={"X-API-Key": KEYS[who].key},
            max_size=None,
            proxy=None,
        ) as client:
            yield client

    def held(self) -> dict[str, int]:
        with self.http() as http:
            counts: dict[str, int] = http.get("/held").json()
            return counts


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("limited")
    port_file, recordings = directory / "port", directory / "recordings"
    command = [sys.executable, "-m", "openenv.server.run", "support.limited:app", "--port", "0"]
    command += ["--port-file", str(port_file), "--app-dir", str(TESTS)]
    with (directory / "log").open("wb") as log:
        process = PythonProcess(
            command,
            env={**environ(TESTS), "LIMITED_RECORDINGS": str(recordings)},
            stdout=log,
            stderr=log,
        )
        try:
            wait_until(port_file.exists)
            served = Served(f"http://127.0.0.1:{port_file.read_text()}", recordings)
            wait_until(lambda: _answers(served.url))
            yield served
        finally:
            process.terminate()
            process.wait(20)


def _answers(url: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{url}/health").status_code == 200
    return False


def messages(received: Any) -> list[dict[str, Any]]:
    """The messages of a frame of either codec."""
    is_binary = isinstance(received, bytes) and received[:1] not in b"[{"
    found = msgspec.msgpack.decode(received) if is_binary else json.loads(received)
    return found if isinstance(found, list) else [found]


def close_code(client: Raw) -> int | None:
    """Read until the server says goodbye; gives its code."""
    while (got := client.read()).opcode != CLOSE:
        pass
    return got.code


def errors(client: Any, count: int) -> list[dict[str, Any]]:
    """Read until so many errors have come; gives what is told of each."""
    found: list[dict[str, Any]] = []
    while len(found) < count:
        found += [m["data"] for m in messages(client.recv()) if m["type"] == "error"]
    return found


def steps(count: int, **action: Any) -> list[dict[str, Any]]:
    return [{"type": "step", "id": number, "data": action} for number in range(1, count + 1)]


# ------------------------------------------------------------------ sizes


def message_too_large(served: Served) -> None:
    with served.raw() as client:
        client.send(frame(TEXT, b"x" * (MOST_BYTES + 1)))
        assert close_code(client) == 1009


def fragments_too_large(served: Served) -> None:
    with served.raw() as client:
        client.send(frame(TEXT, b"x" * 60_000, fin=False))
        with contextlib.suppress(ConnectionError):
            for _ in range(4):
                client.send(frame(CONTINUATION, b"x" * 60_000, fin=False))
        assert close_code(client) == 1009


def fragments_too_many(served: Served) -> None:
    """Empty ones: of them no byte is counted."""
    with served.raw() as client:
        client.send(frame(TEXT, b"", fin=False))
        with contextlib.suppress(ConnectionError):
            client.send(frame(CONTINUATION, b"", fin=False) * Fragments.MAX_FRAGMENTS)
        assert close_code(client) == 1009


def body_too_large(served: Served) -> None:
    with served.http() as http:
        for path in ("/step", "/web/step", "/mcp"):
            answer = http.post(path, content=b"x" * (MOST_BYTES + 1))
            assert answer.status_code == 413, path
            parts = http.post(path, content=iter([b"x" * MOST_BYTES, b"x" * 2]))
            assert parts.status_code == 413, path


def answer_too_large(served: Served) -> None:
    with served.socket() as client:
        action = {"what": "large", "value": 2 * MOST_BYTES}
        client.send(json.dumps([{"type": "open"}, *steps(1, **action)]))
        assert errors(client, 1)[0]["code"] == "TOO_LARGE"
    with served.http() as http:
        assert http.post("/step", json={"action": action}).json()["code"] == "TOO_LARGE"


def tasks_too_large(served: Served) -> None:
    with served.http() as http:
        answer = http.post("/chained/tasks", json={"split": "train"})
        assert answer.json()["code"] == "TOO_LARGE"


def head_too_large(served: Served) -> None:
    with connected(served.url) as stranger:
        stranger.sendall(b"GET /health HTTP/1.1\r\nX-A: ")
        with contextlib.suppress(ConnectionError):
            for _ in range(3):
                stranger.sendall(b"y" * (MAX_HEAD_BYTES // 2))
            assert stranger.recv(1000).startswith(b"HTTP/1.1 431 ")


# ------------------------------------------------------------------ times


def head_that_takes_too_long(served: Served) -> None:
    with connected(served.url) as silent, connected(served.url) as slow:
        slow.sendall(b"GET /health HTTP/1.1\r\nHost: loc")
        assert silent.recv(1000) == slow.recv(1000) == b""


def step_past_its_deadline(served: Served) -> None:
    with CounterEnv(base_url=served.url, api_key=KEYS["rogue"].key).sync() as env:
        env.reset()
        with pytest.raises(StepTimeout):
            env.step(Do(what="sleep", value=0.3), timeout_s=0.1)


def nobody_comes_back(served: Served) -> None:
    """Clients that are gone: their sessions end after the grace; most of those that never asked at
    once, see `MOST_UNHEARD`.
    """
    for number in range(6):
        with served.raw() as client:
            assert b"hello" in client.message()
            if number % 2:
                client.text('[{"type":"open"},{"type":"reset","id":1}]')
                while b"observation" not in client.message():
                    pass
            reset_connection(client.socket)
    wait_until(lambda: served.held()["connections"] == 1)
    wait_until(lambda: served.held()["sessions"] == 1)


# ------------------------------------------------------------------ readers


def reader_who_reads_nothing(served: Served) -> None:
    with served.raw() as client:
        client.text('{"type":"open"}')
        asked = json.dumps(steps(20, what="large", value=150_000))
        with pytest.raises(ConnectionError):  # and no TimeoutError
            while True:
                client.text(asked)


def reader_who_acknowledges_no_more(served: Served) -> None:
    with served.raw() as client:
        asked = steps(30, what="large", value=100_000)
        assert b"hello" in client.message()
        client.text(json.dumps([{"type": "ack", "ack": 1}, {"type": "open"}, *asked]))
        while b"acknowledged" not in client.read().payload:
            pass
        assert close_code(client) == 1002


def pongs_that_nobody_reads(served: Served) -> None:
    """Of the pings of who does not read, the last is answered."""
    with served.raw() as client:
        client.send(b"".join(frame(PING, b"%d" % number) for number in range(1000)) * 20)
        client.send(frame(PING, b"the last"))
        last = b""
        while last != b"the last":
            got = client.read()
            assert got.opcode != CLOSE
            last = got.payload if got.opcode == PONG else last


def requests_whose_answers_nobody_reads(served: Served) -> None:
    with connected(served.url) as stranger:
        stranger.settimeout(0.3)
        many = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000
        with pytest.raises(TimeoutError):  # no more of them is read
            for _ in range(10_000):
                stranger.sendall(many)


# ------------------------------------------------------------------ requests


def nonsense(served: Served) -> None:
    with served.raw() as client:
        client.send(frame(TEXT, b"{") * (REFUSED_FRAMES + 1))
        assert close_code(client) == 1002


def many_requests_in_a_frame(served: Served) -> None:
    """They are taken a few at a time; all are answered."""
    with served.socket() as client:
        asked = [{"type": "state", "session": n, "id": 1} for n in range(1, 4001)]
        client.send(json.dumps(asked))
        assert {one["code"] for one in errors(client, 4000)} == {"SESSION_ERROR"}


def keys_of_one_hash(served: Served) -> None:
    encode = msgspec.msgpack.encode
    keys = b"".join(
        b"\xdc\x00\x11" + bytes(0xFF if n >> bit & 1 else 0xFE for bit in range(17)) + b"\xc0"
        for n in range(6000)
    )
    head = b"\x83" + encode("type") + encode("step") + encode("id") + encode(2) + encode("data")
    with served.socket(subprotocol="openenv.v1.msgpack") as client:
        client.send(encode([{"type": "open"}, {"type": "reset", "id": 1}]))
        client.send(head + b"\x81" + encode("x") + b"\xdf" + struct.pack(">I", 6000) + keys)
        assert "keys of a map are texts" in errors(client, 1)[0]["message"]


def what_is_nested_for_ever(served: Served) -> None:
    with served.socket(subprotocol="openenv.v1.msgpack") as client:
        client.send(b"\x91" * 150_000 + b"\xc0")
        errors(client, 1)
    with served.socket() as client:
        client.send("[" * 150_000)
        errors(client, 1)
    with served.http() as http:
        assert http.post("/step", content=b"[" * 150_000).status_code == 422
        assert http.post("/mcp", content=b"[" * 150_000, headers=OF_MCP).status_code == 400


def arrays_that_cannot_be(served: Served) -> None:
    """They would take gigabytes: texts of which each is padded to the longest, rows of nothing."""
    shapes = [("S0", (10**9,)), ("V0", (10**9,)), ("<f8", (10**12, 0)), ("<U9", (10**9,))]
    with served.socket(subprotocol="openenv.v1.msgpack") as client:
        client.send(msgspec.msgpack.encode([{"type": "open"}, {"type": "reset", "id": 1}]))
        for number, (dtype, shape) in enumerate(shapes, 2):
            head = struct.pack(
                f"<BB{len(dtype)}s{len(shape)}Q", len(shape), len(dtype), dtype.encode(), *shape
            )
            step = {"type": "step", "id": number, "data": {"what": Ext(1, head)}}
            client.send(msgspec.msgpack.encode(step))
        told = errors(client, len(shapes))
    assert all("no array" in one["message"] for one in told)


def errors_that_would_quote_much(served: Served) -> None:
    with served.socket() as client:
        client.send(json.dumps([{"type": "open"}, {"type": "reset", "id": 1}]))
        client.send(json.dumps({"type": "step", "id": 2, "data": {"what": ["x" * 150_000]}}))
        more = {f"unknown{number}": 1 for number in range(5000)}
        client.send(json.dumps({"type": "step", "id": 3, "data": {"what": 1, **more}}))
        assert all(len(json.dumps(one)) < 60_000 for one in errors(client, 2))


def events_without_end(served: Served) -> None:
    with served.socket() as client:
        asked = steps(1, what="push", value=1001)
        client.send(json.dumps([{"type": "open"}, {"type": "reset", "id": 9}, *asked]))
        assert "OverflowError" in errors(client, 1)[0]["message"]


# ------------------------------------------------------------------ sessions


def more_sessions_than_slots(served: Served) -> None:
    """Two may wait for a slot, for so long."""
    wait_until(lambda: served.held()["sessions"] == 1)
    with served.socket() as client:
        patience = {"queue_timeout_s": 30}
        opened = [{"type": "open", "session": n, "data": patience} for n in range(1, SLOTS + 3)]
        client.send(json.dumps(opened))
        told = errors(client, 3)
    assert {one["code"] for one in told} == {"CAPACITY_REACHED"}
    assert [("wait already" in one["message"]) for one in told].count(True) == 1
    assert [("none came free" in one["message"]) for one in told].count(True) == 2


def more_sessions_than_a_key_may_have(served: Served) -> None:
    with served.socket("one session") as client, served.http("one session") as http:
        client.send(json.dumps([{"type": "open", "session": number} for number in (1, 2, 3)]))
        assert {one["code"] for one in errors(client, 2)} == {"CAPACITY_REACHED"}
        assert http.post("/reset").status_code == 429


def more_requests_than_a_key_may_send(served: Served) -> None:
    with served.http("few requests") as http:
        assert 429 in {http.get("/metadata").status_code for _ in range(60)}


def more_bytes_than_a_key_may_send(served: Served) -> None:
    with served.http("few bytes") as http:
        http.post("/step", json={"action": {"what": "echo", "value": "x" * 120_000}})
        assert http.get("/metadata").status_code == 429


# ------------------------------------------------------------------ MCP, watching, recording

OF_MCP = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2025-06-18",
}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "a", "version": "1"},
    },
}


def sessions_of_mcp(served: Served) -> None:
    with served.http() as http:
        opened = [http.post("/mcp", headers=OF_MCP, json=INITIALIZE) for _ in range(5)]
        named = [one.headers.get("mcp-session-id") for one in opened]
        assert [one.status_code for one in opened] == [200, 200, 200, 503, 503]
        for name in named[:3]:
            http.delete("/mcp", headers={**OF_MCP, "Mcp-Session-Id": name})


def subscriptions_of_an_agent(served: Served) -> None:
    with served.http() as http:
        session = http.post("/mcp", headers=OF_MCP, json=INITIALIZE).headers["mcp-session-id"]
        headers = {**OF_MCP, "Mcp-Session-Id": session}

        def subscribe(number: int) -> str:
            params = {"uri": f"openenv://{number}"}
            call = {"jsonrpc": "2.0", "id": number, "method": "resources/subscribe"}
            return http.post("/mcp", headers=headers, json={**call, "params": params}).text

        told = [subscribe(number) for number in range(4)]
        assert ["at most" in one for one in told] == [False, False, False, True], told
        http.delete("/mcp", headers=headers)


def watcher_who_sends_too_much(served: Served) -> None:
    with served.raw("/web/watch", "openenv.watch") as client:
        client.text("x" * (2**16 + 1))
        assert close_code(client) == 1009


def watcher_who_asks_and_does_not_read(served: Served) -> None:
    with served.raw("/web/watch", "openenv.watch") as client:
        client.socket.settimeout(0.3)
        ask = frame(TEXT, b'{"type":"follow","data":{"session_id":"%b"}}' % (b"x" * 200))
        with pytest.raises(TimeoutError):  # no more of it is read
            for _ in range(1000):
                client.send(ask * 1000)


def watcher_who_misses_events(served: Served) -> None:
    """It is told of an event that is too large, and how many of very many it has missed."""
    with served.socket() as client:
        client.send(json.dumps([{"type": "open"}, {"type": "reset", "id": 1000}]))
        while "observation" not in client.recv():
            pass
        with served.raw("/web/watch", "openenv.watch") as watching:
            (session,) = json.loads(watching.message())["data"]["sessions"]
            follow = {"type": "follow", "data": {"session_id": session["session_id"]}}
            watching.text(json.dumps(follow))
            while b'"following"' not in watching.message():
                pass
            large = {"type": "step", "id": 1001, "data": {"what": "large", "value": 150_000}}
            client.send(json.dumps(large))
            while b'"omitted"' not in watching.message():
                pass
            client.send(json.dumps(steps(200, what="large", value=90_000)))
            answered = 0
            while answered < 201:  # while nobody reads the events
                answered += sum(m["type"] == "observation" for m in messages(client.recv()))
            while b'"missed"' not in watching.message():
                pass


def recordings_beyond_their_room(served: Served) -> None:
    with served.socket() as client:
        client.send(json.dumps([{"type": "open"}, {"type": "reset", "id": 1000}]))
        client.send(json.dumps(steps(20, what="large", value=150_000)))
        answered = 0
        while answered < 21:
            answered += sum(m["type"] == "observation" for m in messages(client.recv()))
    room = RECORDED_BYTES + 2 * MOST_BYTES

    def size() -> int:
        return sum(file.stat().st_size for file in served.recordings.rglob("*") if file.is_file())

    wait_until(lambda: size() < room, shown=size)


ATTACKS = [
    message_too_large,
    fragments_too_large,
    fragments_too_many,
    body_too_large,
    answer_too_large,
    tasks_too_large,
    head_too_large,
    head_that_takes_too_long,
    step_past_its_deadline,
    nobody_comes_back,
    reader_who_reads_nothing,
    reader_who_acknowledges_no_more,
    pongs_that_nobody_reads,
    requests_whose_answers_nobody_reads,
    nonsense,
    many_requests_in_a_frame,
    keys_of_one_hash,
    what_is_nested_for_ever,
    arrays_that_cannot_be,
    errors_that_would_quote_much,
    events_without_end,
    more_sessions_than_slots,
    more_sessions_than_a_key_may_have,
    more_requests_than_a_key_may_send,
    more_bytes_than_a_key_may_send,
    sessions_of_mcp,
    subscriptions_of_an_agent,
    watcher_who_sends_too_much,
    watcher_who_asks_and_does_not_read,
    watcher_who_misses_events,
    recordings_beyond_their_room,
]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda one: one.__name__)
def test_who_goes_over_a_limit_harms_no_neighbour(
    served: Served, attack: Callable[[Served], None]
) -> None:
    with witness(served.url) as seen:
        withstand(seen, lambda: attack(served))


# ------------------------------------------------------------------ through a gateway


@pytest.fixture(scope="module")
def fronted(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A gateway in front of the server, with the same keys."""
    directory = tmp_path_factory.mktemp("gateway")
    files = {
        "own": [
            {"key": key.key, "name": name, **_limits(key)}
            for name, key in KEYS.items()
            if name != "gateway"
        ],
        "servers": [{"key": KEYS["gateway"].key}],
    }
    for name, entries in files.items():
        (directory / name).write_text("\n".join(map(json.dumps, entries)))
        (directory / name).chmod(0o600)
    options = ["gateway", served.url, "--port", "0", "--json"]
    options += ["--api-key-file", str(directory / "own")]
    options += ["--server-key-file", str(directory / "servers")]
    with openenv_running(*options, cwd=directory, log=directory / "log") as running:
        yield Served(running.first_line()["url"], served.recordings)
    assert "Traceback" not in running.words()


def _limits(key: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(key.limits).items() if value is not None}


def body_of_mcp_too_large(served: Served) -> None:
    """The gateway looks into it: whether it opens a session."""
    with served.http() as http:
        answer = http.post("/mcp", headers=OF_MCP, content=b" " * (2**20 + 1))
        assert answer.status_code == 413
        assert http.post("/mcp", headers=OF_MCP, content=b"[" * 150_000).status_code == 400


def more_sessions_than_a_key_has_over_all_servers(served: Served) -> None:
    with served.http("one session") as http:
        opened = [http.post("/reset", headers={"Cookie": ""}) for _ in range(3)]
        assert 429 in {one.status_code for one in opened}
        for one in opened:
            if one.status_code == 200:
                named = {"OpenEnv-Session-Id": one.headers["OpenEnv-Session-Id"]}
                http.delete("/session", headers=named)


@pytest.mark.parametrize(
    "attack",
    [
        head_too_large,
        message_too_large,
        body_of_mcp_too_large,
        reader_who_reads_nothing,
        nonsense,
        more_sessions_than_a_key_has_over_all_servers,
        more_requests_than_a_key_may_send,
        more_bytes_than_a_key_may_send,
    ],
    ids=lambda one: one.__name__,
)
def test_behind_a_gateway_it_harms_no_neighbour_either(
    fronted: Served, attack: Callable[[Served], None]
) -> None:
    with witness(fronted.url) as seen:
        withstand(seen, lambda: attack(fronted))


# ------------------------------------------------------------------ a capture proxy


def test_a_program_over_the_limits_of_a_capture_proxy_harms_no_other() -> None:
    """Its body, its answers, its calls, and how many sessions there may be."""
    limits: dict[str, Any] = {"max_body_bytes": 10_000, "max_sessions": 2, "max_output_tokens": 50}
    with (
        token_server("well") as upstream,
        CaptureServer(llm_url=upstream.url, model="toy", port=0, **limits) as proxy,
        httpx.Client(base_url=proxy.url, trust_env=False, timeout=20) as http,
    ):
        registry = proxy.registry
        keys = registry.create().session_id, registry.create(max_model_calls=1).session_id
        witness, rogue = ({"authorization": f"Bearer {key}"} for key in keys)
        chat = {"model": "toy", "messages": [{"role": "user", "content": "hello"}]}
        over = threading.Event()
        answers: list[str] = []
        failure: list[BaseException] = []

        def play() -> None:
            try:
                while not over.is_set():
                    answer = http.post("/v1/chat/completions", json=chat, headers=witness)
                    answers.append(answer.json()["choices"][0]["message"]["content"])
            except BaseException as error:
                failure.append(error)

        def attack() -> None:
            with httpx.Client(base_url=proxy.url, trust_env=False, timeout=20) as own:
                ask: Any = {"url": "/v1/chat/completions", "headers": rogue}
                assert own.post(content=b"x" * 10_001, **ask).status_code == 413
                assert own.post(content=iter([b"x" * 10_000, b"x"]), **ask).status_code == 413
                own.post(json={**chat, "max_tokens": 10**6}, **ask)
                assert "Step budget exhausted" in own.post(json=chat, **ask).text
                assert own.post("/sessions", json={}).status_code == 429

        thread = threading.Thread(target=play)
        thread.start()
        try:
            while len(answers) < STEPS and not failure:
                attack()
        finally:
            over.set()
            thread.join(20)
        assert failure == [] and set(answers) == {"well"}
        asked = [dict(one.body).get("max_tokens") for one in upstream.asked]
        assert max(number for number in asked if number is not None) <= 50


# ------------------------------------------------------------------ the episode that all share


def test_an_episode_that_is_told_to_all_is_told_within_bounds_and_harms_no_neighbour() -> None:
    """What `/ws/ui` tells of it is the last steps, as far as they are a mebibyte."""
    action = {"action": {"what": "echo", "value": "x" * 200_000}}
    with serving(create_app(Chained, web=True)) as url, httpx.Client(base_url=url) as http:

        def attack() -> None:
            assert http.post("/web/reset").status_code == 200
            for _ in range(8):
                assert http.post("/web/step", json=action).status_code == 200
            with connect(f"ws{url[4:]}/ws/ui", max_size=None, proxy=None) as listening:
                told = json.loads(listening.recv())["episode_state"]
            assert told["step_count"] == 8 and 1 <= len(told["action_logs"]) < 8

        with witness(url) as seen:
            withstand(seen, attack)


# ------------------------------------------------------------------ a wrapped MCP server

LISTS = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    answer = {}
    if asked["method"] == "initialize":
        answer = {
            "protocolVersion": asked["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "lister", "version": "1"},
        }
    elif asked["method"] == "tools/list":
        schema = {"type": "object"}
        count = 12_000 if sys.argv[1] == "tools" else 1
        answer = {"tools": [{"name": f"t{n}", "inputSchema": schema} for n in range(count)]}
        if sys.argv[1] == "pages":
            answer["nextCursor"] = "on"
        while sys.argv[1] == "bytes":
            sys.stdout.write("x" * 2**16)
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answer}), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("tools", "lists 12000 tools; at most 1000 are taken"),
        ("pages", "tools/list does not end after 100 pages"),
        ("bytes", "a message of over 1048576 bytes"),
    ],
    ids=["tools", "pages", "bytes"],
)
def test_a_wrapped_server_that_lists_too_much_harms_no_neighbour(
    what: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are mounted in one application, on one event loop."""
    monkeypatch.setattr("openenv.tools.connections.MAX_PAGES", 100)
    monkeypatch.setattr("openenv.tools.transports.MAX_MESSAGE_BYTES", 2**20)
    app = FastAPI()
    app.mount("/other", create_app(Chained))
    app.mount("/wrapped", create_app(wrap([sys.executable, "-c", LISTS, what])))

    def attack() -> None:
        with (
            CounterEnv(base_url=f"{url}/wrapped").sync() as env,
            pytest.raises(ServerError, match=told),
        ):
            env.reset()

    with serving(app) as url, witness(f"{url}/other") as seen:
        withstand(seen, attack)


# ------------------------------------------------------------------ those of a gateway


def test_of_very_many_tenants_those_that_have_sessions_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A gateway may speak for anybody: who has done nothing for the longest is forgotten."""
    monkeypatch.setattr("openenv.execution.principal.MAX_TENANTS", 3)
    tenants = Tenants()

    def describe(name: str) -> Principal:
        return Principal(name, limits=KeyLimits(max_sessions=2))

    neighbour = tenants.find(None, describe("neighbour"))
    neighbour.sessions = 1
    first = tenants.find(None, describe("0"))
    for number in range(1, 100):
        tenants.find(None, describe(f"{number}"))
    assert tenants.find(None, describe("neighbour")) is neighbour
    assert len(tenants._known) == 3
    assert tenants.find(None, describe("0")) is not first


def test_a_tenant_is_the_same_at_each_request_however_many_are_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the limits of its key would begin anew with each request."""
    monkeypatch.setattr("openenv.execution.principal.MAX_TENANTS", 2)
    tenants = Tenants()
    for name in ("one", "two", "three"):
        tenants.find(None, Principal(name)).sessions = 1
    late = tenants.find(None, Principal("late"))
    assert tenants.find(None, Principal("late")) is late
