"""Messages to a server that runs in this process, and its answers: sockets, HTTP, MCP, bytes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import msgspec
from fastapi import Depends
from support.raw import address
from support.servers import serving
from support.ws import BINARY, CLOSE, PING, PONG, TEXT, Raw, frame

from fuzz.expanding import APART, expanded, repeated, size
from fuzz.invariants import CANARY, WAIT_S, Finding, LongestTurn, Watch
from openenv import create_app
from openenv.arrays import pack_array
from openenv.client.generic import GenericEnvClient
from openenv.execution.limits import Limits
from openenv.server import Key

KEYS = [Key("the-fuzzers-own-key-01", name="fuzzer"), Key(CANARY, name="neighbour")]
OWN_SESSION = 987_654_321


class Served:
    """A server, a neighbour who plays on it, and inputs for it.

    Args:
        environment: What is served; its `PLAY` is what the neighbour does.
        send: Sends one input; gives the answers.
    """

    def __init__(self, environment: Any, send: Callable[[Served, bytes], bytes]) -> None:
        self._send = send
        self._action = environment.PLAY
        app = create_app(
            environment,
            max_concurrent_envs=64,
            keys=KEYS,
            limits=Limits(resume_grace_s=0.0, max_message_bytes=2**20),
            web=True,
        )
        loops: list[Any] = []
        app.add_api_route("/loop", lambda: None, dependencies=[Depends(_noting_loop(loops))])
        self.stack = contextlib.ExitStack()
        self.url = self.stack.enter_context(serving(app, loop="asyncio"))
        httpx.get(f"{self.url}/loop", headers={"X-API-Key": CANARY})
        self._clock = LongestTurn(loops[0])
        client = GenericEnvClient(base_url=self.url, api_key=CANARY).sync()
        self.neighbour = self.stack.enter_context(client)
        self.neighbour.reset()
        self.steps = 0

    def close(self) -> None:
        self.stack.close()

    def watch(self) -> Watch:
        """What runs inputs here."""
        return Watch(self.run, size, self._clock)

    def run(self, data: bytes) -> bytes:
        """Send one input while a neighbour plays."""
        told = self._send(self, expanded(data))
        self.steps += 1
        found = self.neighbour.step(self._action, timeout_s=WAIT_S)
        if f"mine, {self.steps}" not in json.dumps(found.observation):
            raise Finding(f"a neighbour's step {self.steps} became {found}")
        return told

    @contextlib.contextmanager
    def connection(self) -> Iterator[Raw]:
        """A connection of TCP."""
        with socket.create_connection(address(self.url), WAIT_S) as connected:
            yield Raw(connected)


def _noting_loop(loops: list[Any]) -> Callable[[], Any]:
    async def note() -> None:
        loops.append(asyncio.get_running_loop())

    return note


def _until_it_closes(client: Raw) -> bytes:
    """Read all that comes until the server closes."""
    with contextlib.suppress(ConnectionError, EOFError):
        while True:
            client._more()
    return client.buffer


# ------------------------------------------------------------------ bytes


def send_bytes(served: Served, data: bytes) -> bytes:
    """Send bytes as they are, and then nothing more."""
    with served.connection() as client:
        with contextlib.suppress(OSError):
            client.socket.sendall(data)
            client.socket.shutdown(socket.SHUT_WR)
        return _until_it_closes(client)


def send_request(served: Served, data: bytes) -> bytes:
    """Send a request of HTTP with a key, and read the answer; see `_request`."""
    with served.connection() as client:
        with contextlib.suppress(ConnectionError):
            client.socket.sendall(_request(data))
        return _until_it_closes(client)


def _request(data: bytes) -> bytes:
    """A request: its first line, its headers, an empty line, a body. What it lacks is added."""
    head, _, body = data.partition(b"\n\n")
    first, *headers = head.replace(b"\r", b"").split(b"\n")
    named = {line.partition(b":")[0].strip().lower() for line in headers}
    for name, value in (
        (b"Host", b"localhost"),
        (b"X-API-Key", KEYS[0].key.encode()),
        (b"Content-Type", b"application/json"),
    ):
        if name.lower() not in named:
            headers.append(name + b": " + value)
    headers += [b"Content-Length: %d" % len(body), b"Connection: close"]
    method, _, path = first.partition(b" ")
    line = b"%b %b HTTP/1.1" % (method or b"GET", path.replace(b" ", b"%20") or b"/")
    return b"\r\n".join([line, *headers, b"", body])


# ------------------------------------------------------------------ sockets


def _talk(served: Served, data: bytes, subprotocol: str | None) -> bytes:
    """Send frames to an episode, and read until what comes after them is answered."""
    prelude, mark, sentinel = _AROUND[subprotocol]
    frames = [*prelude, *data.split(APART), sentinel]
    return _exchange(served, "/ws", subprotocol, frames, mark)


def _exchange(
    served: Served, path: str, subprotocol: str | None, frames: list[bytes], mark: bytes
) -> bytes:
    """Send frames, and read until one comes with a mark in it, or the last one."""
    opcode = BINARY if subprotocol == "openenv.v1.msgpack" else TEXT
    with served.connection() as client:
        headers = {"X_API_Key": KEYS[0].key, "Sec_WebSocket_Protocol": subprotocol}
        status, _ = client.handshake(path, **headers)
        if status != 101:
            raise Finding(f"a handshake after other inputs gave {status}")
        told: list[bytes] = []
        with contextlib.suppress(ConnectionError, EOFError):
            client.send(b"".join(frame(opcode, one) for one in frames))
            while True:
                got = client.read()
                told.append(got.payload)
                if got.opcode == PING:
                    client.send(frame(PONG, got.payload))
                if got.opcode == CLOSE or mark in got.payload:
                    break
        with contextlib.suppress(OSError):  # it is over already
            client.send(frame(CLOSE, (1000).to_bytes(2, "big")))
            client.socket.shutdown(socket.SHUT_WR)
        return b"".join(told)


def _as(codec: Any, *messages: Any) -> bytes:
    return bytes(codec.encode(messages[0] if len(messages) == 1 else list(messages)))


def _around(codec: Any) -> tuple[list[bytes], bytes, bytes]:
    """What is sent before in version 1, what tells its last answer, and what is sent after."""
    prelude = [_as(codec, {"type": "open"}, {"type": "reset", "id": 1, "data": {"seed": 1}})]
    return (
        prelude,
        _as(codec, OWN_SESSION),
        _as(codec, {"type": "open", "session": OWN_SESSION}),
    )


_TOKEN = "after-all-of-it"
_AROUND: dict[str | None, tuple[list[bytes], bytes, bytes]] = {
    None: (
        [b'{"type":"reset","data":{"seed":1}}'],
        _TOKEN.encode(),
        json.dumps(
            {"type": "mcp", "data": {"jsonrpc": "2.0", "id": _TOKEN, "method": "tools/list"}}
        ).encode(),
    ),
    "openenv.v1.json": _around(msgspec.json),
    "openenv.v1.msgpack": _around(msgspec.msgpack),
}


def send_watch(served: Served, data: bytes) -> bytes:
    """Send texts to `/web/watch`, by which a page is told of sessions."""
    mark = _TOKEN.encode()
    sentinel = b'{"type":"follow","data":{"session_id":"%b"}}' % mark
    return _exchange(served, "/web/watch", "openenv.watch", [*data.split(APART), sentinel], mark)


def send_v0(served: Served, data: bytes) -> bytes:
    """Send texts of version 0."""
    return _talk(served, data, None)


def send_v1_json(served: Served, data: bytes) -> bytes:
    """Send texts of version 1."""
    return _talk(served, data, "openenv.v1.json")


def send_v1_msgpack(served: Served, data: bytes) -> bytes:
    """Send frames of MessagePack."""
    return _talk(served, data, "openenv.v1.msgpack")


# ------------------------------------------------------------------ MCP


def send_mcp(served: Served, data: bytes) -> bytes:
    """Post a message to `/mcp`; an agent's if it does not begin with a dash."""
    is_agent = not data.startswith(b"-")
    body = data if is_agent else data[1:]
    headers = b"Accept: application/json, text/event-stream\n" if is_agent else b""
    headers += b"MCP-Protocol-Version: 2025-06-18\n" if is_agent else b""
    return send_request(served, b"POST /mcp\n" + headers + b"\n" + body)


# ------------------------------------------------------------------ what they begin with

REQUESTS: list[dict[str, Any]] = [
    {"type": "reset", "data": {"seed": 3, "episode_id": "one", "size": 2, "bogus": [1]}},
    {
        "type": "step",
        "data": {
            "text": "Grüße\n",
            "numbers": [1, 2.5, -3e300],
            "choice": "left",
            "named": {"a": 1},
            "anything": {"deep": [[[None, True]]]},
        },
    },
    {"type": "state"},
    {"type": "mcp", "data": {"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {}}},
    {"type": "close"},
]
ONLY_V1: list[dict[str, Any]] = [
    {"type": "open", "data": {"queue_s": 0.0, "episode_id": "x"}},
    {"type": "snapshot"},
    {"type": "restore", "data": {"snapshot": "AAAA"}},
    {"type": "render"},
    {"type": "view", "data": {}},
    {"type": "ack", "data": {"received": 3}},
    {"type": "resume", "data": {"connection": "c", "token": "t", "received": 0}},
    {"type": "step", "data": {"text": "a"}, "arguments": {"timeout_s": 0.5}, "trace": "00-1-2-01"},
]


def seeds_v0() -> list[bytes]:
    texts = [json.dumps(one).encode() for one in REQUESTS]
    return [
        *texts,
        APART.join(texts[:4]),
        b"not json",
        repeated(b"[", b'{"type":"step","data":{"anything":'),
        repeated(b'"%d":1,', b'{"type":"step","data":{"named":{', b'"x":2}}}'),
        repeated(b'"x",', b'{"type":"step","data":{"numbers":[', b"1]}}"),
        repeated(b"9", b'{"type":"step","data":{"anything":', b"}}"),
        repeated(b"\\u0000", b'{"type":"', b'"}'),
    ]


def _of_v1(codec: Any) -> list[bytes]:
    messages = [
        {**one, "id": number, "session": number % 2}
        for number, one in enumerate([*REQUESTS, *ONLY_V1], 2)
    ]
    return [*(_as(codec, one) for one in messages), _as(codec, *messages[:7])]


def seeds_v1_json() -> list[bytes]:
    return [
        *_of_v1(msgspec.json),
        b'{"type":"step","id":2,"data":{"grid":{"dtype":"<i8","shape":[1,1],"data":"AAAAAAAAAAA="}}}',
        repeated(b"[", b'{"type":"step","id":2,"data":{"anything":'),
        repeated(b'"%d":1,', b'{"type":"step","id":2,"data":{"named":{', b'"x":2}}}'),
        repeated(b'"x",', b'{"type":"step","id":2,"data":{"numbers":[', b"1]}}"),
        repeated(b'{"type":"open","session":%d},', b"[", b'{"type":"ack"}]'),
        repeated(b'{"type":"state","id":%d},', b"[", b'{"type":"ack"}]'),
    ]


def seeds_v1_msgpack() -> list[bytes]:
    import numpy as np

    pack = msgspec.msgpack.encode
    arrays = [np.arange(6).reshape(2, 3), np.zeros((0, 4)), np.array(["ab", "c"]), np.array(1.5)]
    found = _of_v1(msgspec.msgpack)
    for number, array in enumerate(arrays, 2):
        ext = msgspec.msgpack.Ext(1, pack_array(array))
        data = {"grid": ext, "anything": [ext]}
        found.append(pack({"type": "step", "id": number, "data": data}))
    head = b"\x83" + pack("type") + pack("step") + pack("id") + pack(2) + pack("data") + b"\x81"
    grid = pack(msgspec.msgpack.Ext(1, pack_array(arrays[0])))
    return [
        *found,
        repeated(b"\x91", head + pack("anything")),
        repeated(b"\xc0", head + pack("anything") + b"\xdd\x00\x01\x86\xa0"),
        repeated(grid, head + pack("anything") + b"\xdc\x04\x00"),
        repeated(b"\xd9\x05%d", head + pack("named") + b"\xdf\x00\x00\x40\x00"),
    ]


MCP: list[tuple[str, Any]] = [
    (
        "initialize",
        {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "a", "version": "1"},
        },
    ),
    ("tools/list", {}),
    ("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2.5}}),
    ("tools/call", {"name": "echo", "arguments": {"value": [1, {"x": "y"}], "named": {"a": [1]}}}),
    (
        "tools/call",
        {"name": "choose", "arguments": {"side": "left", "act": {"text": "z"}}, "_meta": {}},
    ),
    ("resources/list", {}),
    ("resources/read", {"uri": "openenv://state"}),
    ("prompts/get", {"name": "p", "arguments": {}}),
    ("completion/complete", {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {}}),
    ("logging/setLevel", {"level": "debug"}),
    ("ping", {}),
    ("openenv/session/create", {}),
    ("openenv/session/close", {"session_id": "x"}),
]


def seeds_watch() -> list[bytes]:
    return [
        b'{"type":"follow","data":{"session_id":"x"}}',
        b'{"type":"unfollow"}',
        b'{"type":1}',
        repeated(b"[", b'{"type":"follow","data":{"session_id":'),
        repeated(b"y", b'{"type":"follow","data":{"session_id":"', b'"}}'),
    ]


def seeds_mcp() -> list[bytes]:
    texts = [
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()
        for number, (method, params) in enumerate(MCP)
    ]
    return [
        *texts,
        *(b"-" + text for text in texts),
        b"[" + b",".join(texts[:3]) + b"]",
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}',
        repeated(b"[", b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":'),
        repeated(b"[", b'-{"jsonrpc":"2.0","id":1,"method":"tools/call","params":'),
        repeated(b"9", b'-{"jsonrpc":"2.0","id":', b',"method":"ping"}'),
    ]


PATHS = [
    "GET /health",
    "GET /metrics",
    "GET /metadata",
    "GET /schema",
    "GET /openapi.json",
    "GET /state",
    "GET /render",
    "GET /web",
    "GET /web/assets/app.js",
    "GET /web/assets/..%2f..%2fpyproject.toml",
    "GET /web/assets/%2e%2e/%2e%2e/app.py",
    "GET /sessions",
    "GET /tasks?split=train&start=0&stop=5",
    "DELETE /session",
    "OPTIONS /reset",
    "HEAD /health",
]


def seeds_requests() -> list[bytes]:
    bodies = [
        b'POST /reset\n\n{"seed":1}',
        b'POST /step\nX-Session-ID: abc\n\n{"action":{"text":"a"},"timeout_s":1}',
        b"POST /web/reset\nOrigin: http://localhost\n\n{}",
        b'POST /web/step\nContent-Encoding: gzip\n\n{"action":{}}',
        b"POST /mcp\nX-API-Key: wrong\n\n{}",
        b"GET /health\nHost: evil@localhost\nForwarded: for=1\nX-Forwarded-Host: a\n\n",
        b"GET /ws\nUpgrade: websocket\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\n\n",
        b"POST /reset\nContent-Type: multipart/form-data; boundary=a\n\n--a\r\n\r\n--a--",
        b'GET /health\nRange: bytes=0-9\nIf-None-Match: "a"\nCookie: a=b; openenv_session=z\n\n',
    ]
    return [
        *(path.encode() + b"\n\n" for path in PATHS),
        *bodies,
        repeated(b"[", b'POST /step\n\n{"action":'),
        repeated(b'"%d":1,', b'POST /step\n\n{"action":{"named":{', b'"x":2}}}'),
        repeated(b"/a%d", b"GET /web/assets", b"\n\n"),
        repeated(b"X-%d: y\n", b"GET /health\n", b"\n"),
    ]


def seeds_bytes() -> list[bytes]:
    key = b"X-API-Key: " + KEYS[0].key.encode() + b"\r\n"
    upgrade = (
        b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n" + key
    )

    def masked(opcode: int, payload: bytes) -> bytes:
        return frame(opcode, payload)

    hello = masked(TEXT, b'{"type":"open"}')
    json_socket = upgrade + b"Sec-WebSocket-Protocol: openenv.v1.json\r\n\r\n"
    deflate = b"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n\r\n"
    return [
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + key + b"\r\n",
        b"POST /reset HTTP/1.1\r\nHost: localhost\r\n"
        + key
        + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"POST /reset HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"GET / HTTP/1.0\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
        upgrade + b"\r\n" + masked(TEXT, b'{"type":"reset"}') + masked(CLOSE, b"\x03\xe8"),
        json_socket + hello + masked(PING, b"x" * 125) + masked(PONG, b""),
        json_socket
        + frame(TEXT, b'{"type":', fin=False)
        + frame(0, b'"open"}')
        + masked(CLOSE, b""),
        upgrade + deflate + frame(TEXT, b"\xaaV*\xa9,HU\xb2R*J-N-Q\xaa\x05\x00", rsv=4),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ]
