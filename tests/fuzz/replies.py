"""A server that lies: what it answers, as clients of both versions read it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from fuzz.expanding import APART, expanded, repeated, size
from fuzz.invariants import Watch
from openenv.errors import OpenEnvError
from openenv.protocol.messages import Request
from openenv.protocol.v0.connection import ClientConnection
from openenv.protocol.v1.codec import codec_named
from openenv.protocol.v1.connection import Multiplexer

HELLO: dict[str, Any] = {
    "type": "hello",
    "data": {
        "version": 1,
        "connection": "c",
        "resume_token": "t",
        "grace_s": 5.0,
        "server": "s",
        "max_sessions": 4,
        "max_message_bytes": 1000,
        "capabilities": [],
    },
}
ANSWERS: list[dict[str, Any]] = [
    HELLO,
    {"type": "opened", "session": 0, "id": 0, "data": {}},
    {"type": "queued", "session": 0, "id": 0, "data": {"position": 2, "waiting": 3}},
    {
        "type": "observation",
        "session": 0,
        "id": 1,
        "data": {
            "observation": {"text": "a"},
            "reward": 0.5,
            "done": False,
            "truncated": True,
            "info": {},
            "metadata": {"a": 1},
            "ignored_arguments": ["b"],
        },
    },
    {"type": "state", "session": 0, "id": 1, "data": {"episode_id": "e", "step_count": 1}},
    {"type": "snapshot", "session": 0, "id": 1, "data": {"snapshot": "AAAA"}},
    {"type": "render", "session": 0, "id": 1, "data": {"media_type": "text/plain", "text": "a"}},
    {"type": "mcp", "session": 0, "id": 1, "data": {"jsonrpc": "2.0", "id": 1, "result": {}}},
    {"type": "error", "session": 0, "id": 1, "data": {"code": "SESSION_BUSY", "message": "no"}},
    {"type": "error", "data": {"code": "EXECUTION_ERROR", "message": "no", "incident": "i"}},
    {"type": "closed", "session": 0, "id": 2, "data": {}},
    {"type": "ack", "data": {"received": 2}},
    {"type": "resumed", "data": {"received": 1}},
    {"type": "gone", "data": {"reason": "over"}},
]
ATTEMPTS = 3  # to read one frame
_KINDS = ("v0", "openenv.v1.json", "openenv.v1.msgpack")


@contextlib.contextmanager
def opened() -> Iterator[Watch]:
    """What tries an input."""
    yield Watch(read, lambda data: ATTEMPTS * size(data[1:]), reads_only=True)


def read(data: bytes) -> bytes:
    """Read answers: the first byte says of which version and encoding."""
    kind = _KINDS[data[0] % len(_KINDS)] if data else "v0"
    told: list[str] = []
    try:
        frames = expanded(data[1:]).split(APART)
        told.extend(repr(found)[:10_000] for found in _found(kind, frames))
    except OpenEnvError as error:
        told.append(str(error))
    return "\n".join(told).encode(errors="replace")


def _found(kind: str, frames: list[bytes]) -> Iterator[Any]:
    if kind == "v0":
        client = ClientConnection()
        for frame in frames:
            client.request(Request("state"))
            yield client.receive(frame.decode(errors="replace"))
        return
    codec = codec_named(kind)

    def as_sent(frame: bytes) -> str | bytes:
        return frame if codec.is_binary else frame.decode(errors="replace")

    encoder: Any = msgspec.msgpack if codec.is_binary else msgspec.json
    first = encoder.encode(HELLO)
    multiplexer = Multiplexer(codec, first if codec.is_binary else first.decode())
    multiplexer.request([Request("reset")])
    for frame in frames:
        attempts: list[Callable[[str | bytes], Any]] = [
            multiplexer.receive,
            multiplexer.resume,
            multiplexer.resumed,
        ]
        for attempt in attempts:
            try:
                yield attempt(as_sent(frame))
            except OpenEnvError as error:
                yield str(error)
        yield multiplexer.acknowledgement()


def seeds() -> list[bytes]:
    """An answer of each kind, in each encoding."""
    found = []
    for number, kind in enumerate(_KINDS):
        codec: Any = msgspec.msgpack if kind.endswith("msgpack") else msgspec.json
        first = bytes([number])
        for answer in ANSWERS:
            taken = answer if number else {"type": answer["type"], "data": answer.get("data")}
            found.append(first + codec.encode(taken))
        found.append(first + codec.encode(ANSWERS))
    return [
        *found,
        b"\x00" + repeated(b"[", b'{"type":"observation","data":'),
        b"\x01" + repeated(b'{"type":"ack","data":{"received":%d}},', b"[", b"{}]"),
        b"\x02" + repeated(b"\x91"),
    ]
