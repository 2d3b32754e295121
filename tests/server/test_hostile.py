"""Clients that mean harm: what they get, what they cost, and that their neighbours go on."""

from __future__ import annotations

import asyncio
import json
import resource
import struct
import threading
from collections import Counter as Count
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import msgspec
import pytest
from msgspec.msgpack import Ext
from support.environments import Counter, CounterEnv, Do, Seen
from support.raw import connected
from support.servers import NotAdopted, serving
from support.ws import CLOSE, PING, PONG, TEXT, Raw, frame, raw
from websockets.exceptions import ConnectionClosedError
from websockets.sync.client import connect

from openenv import Action, create_app
from openenv.execution.connections.base import REFUSED_FRAMES
from openenv.server import Key, KeyLimits, Role

encode, decode = msgspec.msgpack.encode, msgspec.msgpack.decode
KEYS = {
    "trainer": Key("the-trainers-own-key", name="trainer"),
    "other": Key("another-tenants-key", name="other"),
    "guest": Key("a-guests-own-key-of-20", name="guest", limits=KeyLimits(requests_per_s=20)),
    "monitor": Key("a-monitors-own-key", Role.OBSERVER, "monitor"),
}


@pytest.fixture
def app() -> Any:
    return create_app(Counter)


@pytest.fixture
def guarded() -> Any:
    return create_app(Counter, keys=KEYS.values(), web=True)


def socket_of(
    url: str, subprotocol: str = "openenv.v1.json", key: str | None = None, path: str = "/ws"
) -> Any:
    headers = {} if key is None else {"X-API-Key": KEYS[key].key}
    return connect(
        f"ws{url[4:]}{path}",
        subprotocols=[subprotocol],  # type: ignore[list-item]
        additional_headers=headers,
        max_size=None,
    )


def array(dtype: str, shape: tuple[int, ...], data: bytes = b"") -> Ext:
    head = struct.pack(
        f"<BB{len(dtype)}s{len(shape)}Q", len(shape), len(dtype), dtype.encode(), *shape
    )
    return Ext(1, head + data)


# ------------------------------------------------------------------ what they read


def test_no_array_shows_what_is_in_the_servers_memory(app: Any) -> None:
    """Many attempts, beside requests whose key lies in memory that was just given back."""
    key = "a-key-that-is-in-memory-0123456789"
    with serving(app) as url, socket_of(url, "openenv.v1.msgpack") as client:
        client.send(encode([{"type": "open"}, {"type": "reset", "id": 1}]))
        answers: list[Any] = []
        for number in range(2, 100):
            httpx.get(f"{url}/health", headers={"Authorization": f"Bearer {key}"})
            for dtype in ("S0", "U0", "V0"):
                data = {"what": array(dtype, (500 + number,))}
                client.send(encode({"type": "step", "id": number, "data": data}))
        while len(answers) < 3 * 98:
            answers += [m for m in messages(client.recv()) if m["type"] == "error"]
    told = json.dumps(answers)
    assert key not in told and "\\u0000" not in told
    assert all("no array" in answer["data"]["message"] for answer in answers)


def messages(received: Any) -> list[dict[str, Any]]:
    """The messages of a frame of either codec."""
    found = decode(received) if isinstance(received, bytes) else json.loads(received)
    return found if isinstance(found, list) else [found]


def test_an_error_quotes_no_more_than_it_must(app: Any) -> None:
    with serving(app) as url, socket_of(url) as client:
        client.send(json.dumps([{"type": "open"}, {"type": "reset", "id": 1}]))
        client.send(json.dumps({"type": "step", "id": 2, "data": {"what": ["x" * 10**6]}}))
        client.send(json.dumps({"type": "x" * 10**6, "id": 3}))
        errors: list[str] = []
        while len(errors) < 2:
            received = client.recv()
            errors += [received for m in messages(received) if m["type"] == "error"]
    assert all(len(error) < 10_000 for error in errors)


# ------------------------------------------------------------------ what they cost


@pytest.mark.parametrize("subprotocol", ["openenv.v1.json", "openenv.v1.msgpack", ""])
def test_who_sends_nothing_that_can_be_read_is_cut_off(app: Any, subprotocol: str) -> None:
    nonsense = b"\xc1" if subprotocol.endswith("msgpack") else "{"
    with (
        serving(app) as url,
        connect(
            f"ws{url[4:]}/ws",
            subprotocols=[subprotocol] if subprotocol else None,  # type: ignore[list-item]
        ) as client,
    ):
        for _ in range(REFUSED_FRAMES - 1):
            client.send(nonsense)
        is_binary = subprotocol.endswith("msgpack")
        state = {"type": "reset"} if not subprotocol else {"type": "open"}
        client.send(encode(state) if is_binary else json.dumps(state))  # which can be read
        for _ in range(REFUSED_FRAMES):
            client.send(nonsense)
        answered = 0
        with pytest.raises(ConnectionClosedError) as caught:
            while True:
                answered += len(messages(client.recv()))
        assert caught.value.rcvd is not None and caught.value.rcvd.code == 1002
    assert answered >= 2 * REFUSED_FRAMES - 1


def test_what_cannot_be_read_counts_against_a_keys_limit(guarded: Any) -> None:
    with serving(guarded) as url, socket_of(url, key="guest") as client:
        client.send(json.dumps([{"type": "bogus", "id": number} for number in range(2000)]))
        codes: Count[str] = Count()
        while sum(codes.values()) < 2000:
            codes.update(m["data"]["code"] for m in messages(client.recv()) if m["type"] == "error")
    assert codes["RATE_LIMITED"] > 1900 and 0 < codes["UNKNOWN_TYPE"] < 100


@pytest.mark.slow("sends hundreds of thousands of pings")
@pytest.mark.parametrize("path", ["/ws", "/web/watch"])  # picows's channel, and uvicorn's
def test_pongs_that_nobody_reads_are_not_kept(path: str) -> None:
    """Of the pings of who does not read, the last one is answered once they do."""
    with (
        serving(create_app(Counter, web=True)) as url,
        CounterEnv(base_url=url).sync() as neighbour,
        raw(url, path, Sec_WebSocket_Protocol="openenv.v1.json") as client,
    ):
        neighbour.reset()
        client.socket.settimeout(20)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        pings = b"".join(frame(PING, b"%d" % number) for number in range(1000))
        for _ in range(600):
            client.socket.sendall(pings)
        client.socket.sendall(frame(PING, b"the last"))
        assert neighbour.step(Do()).reward == 1.0
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB
        last = b""
        while last != b"the last":
            answer = client.read()
            assert answer.opcode != CLOSE
            last = answer.payload if answer.opcode == PONG else last


def test_nothing_is_compressed_that_was_not_asked_to_be(app: Any) -> None:
    """A message of zeros grows a thousandfold once it is unpacked."""
    offer = "permessage-deflate; client_max_window_bits"
    with serving(create_app(Counter, web=True), ws_per_message_deflate=True) as url:
        for path in ("/ws", "/web/watch", "/ws/ui", "/mcp"):
            with connected(url) as connection:
                status, headers = Raw(connection).handshake(path, Sec_WebSocket_Extensions=offer)
            assert status == 101 and "sec-websocket-extensions" not in headers, path


@pytest.mark.parametrize("way", ["socket", "asgi"])
def test_keys_of_one_hash_hold_up_no_neighbour(app: Any, way: str) -> None:
    """A dict of these would take seconds, in which nobody is served."""
    keys = b"".join(
        b"\xdc\x00\x11" + bytes(0xFF if n >> bit & 1 else 0xFE for bit in range(17)) + b"\xc0"
        for n in range(8000)
    )
    head = b"\x83" + encode("type") + encode("step") + encode("id") + encode(2) + encode("data")
    hostile = head + b"\x81" + encode("x") + b"\xdf" + struct.pack(">I", 8000) + keys
    with (
        serving(app if way == "socket" else NotAdopted(app)) as url,
        CounterEnv(base_url=url).sync() as neighbour,
        socket_of(url, "openenv.v1.msgpack") as client,
    ):
        neighbour.reset()
        client.send(encode([{"type": "open"}, {"type": "reset", "id": 1}]))
        client.send(hostile)
        assert neighbour.step(Do(), timeout_s=2.0).reward == 1.0
        found: list[Any] = []
        while not found:
            found = [m for m in messages(client.recv()) if m["type"] == "error"]
        assert "keys of a map are texts" in found[0]["data"]["message"]


@pytest.mark.parametrize("kind", ["open", "state", "close", "render"])
def test_many_requests_in_one_frame_leave_others_their_turn(kind: str) -> None:
    """They are taken a few at a time, and all of them are answered."""
    count, answered, seen = 50_000, set[int](), set[int]()
    app = create_app(Counter, max_concurrent_envs=8)
    (manager,) = app.state.openenv_managers
    watches, is_over = threading.Event(), threading.Event()

    @app.get("/turns")
    async def turns() -> None:
        """See how many frames the server has sent, whenever it is another's turn."""
        watches.set()
        while not is_over.is_set():
            seen.add(manager.counters.frames_out)
            await asyncio.sleep(0)

    with (
        serving(app) as url,
        socket_of(url) as client,
        ThreadPoolExecutor(1) as beside,
    ):
        watching = beside.submit(httpx.get, f"{url}/turns", trust_env=False, timeout=60)
        assert watches.wait(10)
        numbers = range(1, count + 1)
        client.send(json.dumps([{"type": kind, "session": n, "id": 1} for n in numbers]))
        while len(answered) < count:
            told = messages(client.recv())
            answered |= {one["session"] for one in told if one["session"] is not None}
        is_over.set()
        assert watching.result(60).status_code == 200
    assert len(seen) > 50


def test_a_watcher_who_asks_and_does_not_read_is_not_listened_to(guarded: Any) -> None:
    with (
        serving(guarded) as url,
        CounterEnv(base_url=url, api_key=KEYS["trainer"].key).sync() as neighbour,
        raw(
            url,
            "/web/watch",
            X_API_Key=KEYS["trainer"].key,
            Sec_WebSocket_Protocol="openenv.watch",
        ) as client,
    ):
        neighbour.reset()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        ask = frame(TEXT, b'{"type":"follow","data":{"session_id":"%b"}}' % (b"x" * 200))
        client.socket.settimeout(2)
        with pytest.raises(TimeoutError):
            for _ in range(1000):
                client.socket.sendall(ask * 1000)
        assert neighbour.step(Do()).reward == 1.0
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KiB
        deep = b'{"type":"follow","data":' + b"[" * 50_000
    with serving(create_app(Counter, web=True)) as url, raw(url, "/web/watch") as client:
        client.send(frame(TEXT, deep))
        while b"cannot be read" not in client.message():
            pass


def test_errors_of_many_values_cost_little_and_tell_the_first(app: Any) -> None:
    with serving(create_app(Numbers, Listed)) as url, socket_of(url) as client:
        client.send(json.dumps([{"type": "open"}, {"type": "reset", "id": 1}]))
        data = {"numbers": ["x"] * 20_000}
        client.send(json.dumps({"type": "step", "id": 2, "data": data}))
        found: list[Any] = []
        while not found:
            found = [m for m in messages(client.recv()) if m["type"] == "error"]
    errors = found[0]["data"]["errors"]
    assert len(errors) == 101 and errors[-1]["msg"] == "and 19900 more"
    assert errors[7]["loc"] == ["numbers", 7] and errors[7]["type"] == "float_parsing"


class Listed(Action):
    """Many numbers."""

    numbers: list[float]


class Numbers(Counter):
    """Takes them."""

    def step(self, action: Listed) -> Seen:  # type: ignore[override]
        return Seen()


# ------------------------------------------------------------------ what is another's


def test_a_key_watches_its_own_sessions_and_an_observer_sees_none_of_their_content(
    guarded: Any,
) -> None:
    with (
        serving(guarded) as url,
        CounterEnv(base_url=url, api_key=KEYS["trainer"].key).sync() as env,
    ):
        env.reset()
        (session,) = guarded.state.openenv_managers[0].sessions()
        seen = {
            who: watched(url, who, session.id, lambda: env.step(Do(what="echo", value="A-SECRET")))
            for who in ("trainer", "other", "monitor")
        }
    assert seen["trainer"][0] == [session.id] and "A-SECRET" in seen["trainer"][1]
    assert seen["other"] == ([], "")
    listed, event = seen["monitor"]
    assert listed == [session.id] and "A-SECRET" not in event
    told = json.loads(event)["data"]
    assert told["event"] == "step" and told["reward"] is None
    assert told["action"] is told["observation"] is told["metadata"] is None


def watched(
    url: str, who: str, session_id: str, act: Callable[[], object]
) -> tuple[list[str], str]:
    """The ids of the sessions that a key is shown, and the next event of one."""
    with socket_of(url, "openenv.watch", who, "/web/watch") as client:
        board = json.loads(client.recv())
        listed = [one["session_id"] for one in board["data"]["sessions"]]
        client.send(json.dumps({"type": "follow", "data": {"session_id": session_id}}))
        while (said := json.loads(client.recv()))["type"] not in ("following", "error"):
            pass
        if said["type"] == "error":
            assert "A-SECRET" not in json.dumps(said)
            return listed, ""
        act()
        while json.loads(event := client.recv())["type"] != "event":
            pass
        return listed, str(event)


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
LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}


def test_a_session_of_mcp_is_that_of_the_key_that_opened_it(guarded: Any) -> None:
    def headers(who: str, session: str | None = None) -> dict[str, str]:
        named = {} if session is None else {"Mcp-Session-Id": session}
        accepts = {"Accept": "application/json, text/event-stream"}
        version = {"MCP-Protocol-Version": "2025-06-18"}
        return {"X-API-Key": KEYS[who].key, **accepts, **version, **named}

    with serving(guarded) as url, httpx.Client(base_url=url, timeout=20) as client:
        opened = client.post("/mcp", headers=headers("trainer"), json=INITIALIZE)
        session = opened.headers["mcp-session-id"]
        unknown = client.post("/mcp", headers=headers("other", "0" * 32), json=LIST)
        foreign = client.post("/mcp", headers=headers("other", session), json=LIST)
        assert foreign.status_code == unknown.status_code == 404
        assert foreign.json() == unknown.json()  # nor does it tell that there is one
        assert client.get("/mcp", headers=headers("other", session)).status_code == 404
        assert client.delete("/mcp", headers=headers("other", session)).status_code == 404
        assert (
            client.post("/mcp", headers=headers("trainer", session), json=LIST).status_code == 200
        )
