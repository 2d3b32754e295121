"""The WebSocket endpoint, byte by byte: RFC 6455 on every way that a server may serve it."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import msgspec
import pytest
from server.sockets import MAX_BYTES, STATE, assert_serves
from support.logs import tracebacks
from support.raw import connected, reset_connection
from support.ws import (
    ACCEPT,
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    Frame,
    Raw,
    close,
    frame,
    raw,
    request_for,
)

# ------------------------------------------------------------------ the handshake


def test_the_handshake_is_answered_as_the_rfc_says(url: str) -> None:
    with connected(url) as connection:
        status, headers = Raw(connection).handshake()
        assert status == 101 and headers["sec-websocket-accept"] == ACCEPT
        assert headers["upgrade"].lower() == "websocket"
        assert "sec-websocket-protocol" not in headers
        assert "sec-websocket-extensions" not in headers


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec_WebSocket_Key": None},
        {"Sec_WebSocket_Key": "short"},
        {"Sec_WebSocket_Version": "12"},
        {"Sec_WebSocket_Version": "8"},
        {"Sec_WebSocket_Version": "13\u00bd"},
        {"Sec_WebSocket_Version": None},
    ],
    ids=str,
)
def test_a_bad_handshake_is_refused(url: str, headers: dict[str, str | None]) -> None:
    with tracebacks() as logged:
        with connected(url) as connection:
            client = Raw(connection)
            status, _ = client.handshake("/ws", **headers)
            assert status in (400, 426)
            while connection.recv(1000):  # until it is closed
                pass
        with raw(url) as client:
            assert_serves(client)
    assert logged == []


@pytest.mark.parametrize("connection", ["Upgrade", "keep-alive, Upgrade", "upgrade,x"])
def test_a_browser_may_ask_for_more_than_the_upgrade(url: str, connection: str) -> None:
    """Firefox does (RFC 9110, section 7.6.1: a list, whose names have no case)."""
    with raw(url, Connection=connection) as client:
        assert_serves(client)


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ("openenv.v1.msgpack", "openenv.v1.msgpack"),
        ("openenv.v1.json, openenv.v1.msgpack", "openenv.v1.json"),
        ("chat, openenv.v9.json,openenv.v1.msgpack", "openenv.v1.msgpack"),
        ("chat", None),
        ("OPENENV.V1.JSON", None),
    ],
)
def test_a_subprotocol_of_ours_is_chosen(url: str, offered: str, chosen: str | None) -> None:
    with connected(url) as connection:
        client = Raw(connection)
        status, headers = client.handshake(Sec_WebSocket_Protocol=offered)
        assert status == 101 and headers.get("sec-websocket-protocol") == chosen
        if chosen is None:
            assert_serves(client)
        else:
            hello = client.read()
            assert hello.opcode == (BINARY if chosen.endswith("msgpack") else TEXT)
            assert b"hello" in hello.payload


@pytest.mark.parametrize("cut", [1, 20, 100, None])
@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_connection_that_breaks_in_the_handshake_harms_nobody(
    url: str, cut: int | None, how: str
) -> None:
    with tracebacks() as logged:
        for _ in range(5):
            with connected(url) as connection:
                connection.sendall(request_for("/ws")[:cut])
                if how == "reset":
                    reset_connection(connection)
        with raw(url) as client:
            assert_serves(client)
    assert logged == []


def test_data_that_come_too_early_harm_nobody(url: str) -> None:
    """The RFC allows none before the handshake is answered; uvicorn drops them."""
    with connected(url) as connection:
        client = Raw(connection)
        client.send(request_for("/ws") + frame(TEXT, STATE.encode()))
        assert client.answer()[0] == 101
        assert_serves(client)


# ------------------------------------------------------------------ frames


def test_a_message_may_come_in_fragments_with_pings_between_them(url: str) -> None:
    with raw(url) as client:
        client.send(frame(TEXT, b'{"type"', fin=False))
        client.send(frame(PING, b"are you there?"))
        client.send(frame(CONTINUATION, b"", fin=False))
        client.send(frame(CONTINUATION, b':"state"}'))
        assert client.read() == Frame(PONG, b"are you there?")
        assert json.loads(client.read().payload)["type"] == "state"
        assert_serves(client)


def test_a_message_may_come_in_very_many_fragments(url: str) -> None:
    """The work must not grow with their square."""
    with raw(url) as client:
        begun = time.perf_counter()
        client.send(frame(TEXT, b" ", fin=False) + frame(CONTINUATION, b" ", fin=False) * 40_000)
        client.send(frame(CONTINUATION, STATE.encode()))
        assert json.loads(client.read().payload)["type"] == "state"
        assert time.perf_counter() - begun < 4


def test_a_frame_may_come_byte_by_byte(url: str) -> None:
    with raw(url) as client:
        for byte in frame(TEXT, STATE.encode()):
            client.send(bytes([byte]))
        assert json.loads(client.read().payload)["type"] == "state"


def test_pongs_that_nobody_asked_for_are_ignored(url: str) -> None:
    with raw(url) as client:
        client.send(frame(PONG, b"x"))
        assert_serves(client)


@pytest.mark.parametrize("code", [1000, 1001, 1008, 1011, 3000, 4999])
def test_a_close_frame_is_echoed(url: str, code: int) -> None:
    with raw(url) as client:
        client.send(close(code, b"bye"))
        assert client.close_code() == code


def test_an_empty_close_frame_is_answered(url: str) -> None:
    with raw(url) as client:
        client.send(frame(CLOSE))
        assert client.close_code() in (None, 1000)


WRONG: dict[str, tuple[bytes, set[int]]] = {
    "unmasked": (frame(TEXT, STATE.encode(), masked=False), {1002}),
    "reserved bit": (frame(TEXT, STATE.encode(), rsv=4), {1002}),
    "reserved opcode": (frame(3, b"x"), {1002}),
    "reserved control opcode": (frame(11, b"x"), {1002}),
    "fragmented ping": (frame(PING, b"x", fin=False), {1002}),
    "long ping": (frame(PING, b"x" * 126), {1002}),
    "long close": (frame(CLOSE, b"\x03\xe8" + b"x" * 124), {1002}),
    "close of one byte": (frame(CLOSE, b"\x03"), {1002}),
    "close with a code that may not be sent": (close(1006), {1002}),
    "close with a code that is none": (close(5), {1002}),
    "close with a reason that is no text": (close(1000, b"\xff"), {1002, 1007}),
    "continuation of nothing": (frame(CONTINUATION, b"x"), {1002}),
    "message within a message": (frame(TEXT, b"{", fin=False) + frame(TEXT, b"}"), {1002}),
    "no UTF-8": (frame(TEXT, b"\xff\xfe"), {1007}),
    "no UTF-8 in fragments": (
        frame(TEXT, b"\xc3", fin=False) + frame(CONTINUATION, b"("),
        {1007},
    ),
    "too big": (frame(TEXT, b"x" * (MAX_BYTES + 1)), {1009}),
    "too big, and more": (
        frame(TEXT, STATE.ljust(MAX_BYTES + 1).encode()) + frame(TEXT, STATE.encode()),
        {1009},
    ),
    "too big in fragments": (
        frame(TEXT, b"x" * MAX_BYTES, fin=False) + frame(CONTINUATION, b"xx"),
        {1009},
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_the_rfc_forbids_ends_the_connection(url: str, what: str) -> None:
    data, codes = WRONG[what]
    with tracebacks() as logged, raw(url) as client:
        client.send(data)
        got = client.read()
        assert (got.opcode, got.code in codes) == (CLOSE, True), "nothing was served"
        client.assert_ended()
    with raw(url) as client:
        assert_serves(client)
    assert [line for line in logged if "Invalid UTF-8 sequence" not in line] == []  # uvicorn's own


def test_a_message_of_just_the_limit_is_taken(url: str) -> None:
    with raw(url) as client:
        client.text(json.dumps({"type": "nothing", "x": ""}).ljust(MAX_BYTES))
        assert json.loads(client.read().payload)["data"]["code"] == "UNKNOWN_TYPE"
        client.send(frame(TEXT, b" " * (MAX_BYTES - 100), fin=False))
        client.send(frame(CONTINUATION, STATE.encode()))
        assert json.loads(client.read().payload)["type"] == "state"


def test_a_binary_frame_under_version_0_is_an_error_frame(url: str) -> None:
    with raw(url) as client:
        client.send(frame(BINARY, STATE.encode()))
        error = json.loads(client.read().payload)
        assert error["type"] == "error" and error["data"]["code"] == "VALIDATION_ERROR"
        assert_serves(client)


def test_a_text_frame_under_messagepack_is_an_error_frame(url: str) -> None:
    with raw(url, Sec_WebSocket_Protocol="openenv.v1.msgpack") as client:
        client.read()
        client.text(STATE)
        error = msgspec.msgpack.decode(client.read().payload)
        assert error["data"]["code"] == "INVALID_JSON"
        client.send(frame(BINARY, msgspec.msgpack.encode({"type": "open"})))
        assert msgspec.msgpack.decode(client.read().payload)["type"] == "opened"


def test_a_malformed_request_of_version_1_is_answered_by_its_number(url: str) -> None:
    with raw(url, Sec_WebSocket_Protocol="openenv.v1.json") as client:
        client.read()
        client.text('[{"type":"open","session":4},{"type":"step","session":4,"id":7,"data":3}]')
        refused, opened = (json.loads(client.read().payload) for _ in range(2))
        told = (refused["session"], refused["id"], refused["data"]["code"])
        assert told == (4, 7, "VALIDATION_ERROR")
        assert (opened["type"], opened["session"]) == ("opened", 4), "others are served"


# ------------------------------------------------------------------ how much


@pytest.mark.slow
def test_10000_requests_without_a_pause_are_answered_in_order(url: str) -> None:
    with raw(url) as client:
        steps = b"".join(
            frame(TEXT, b'{"type":"step","data":{"what":"echo","value":%d}}' % number)
            for number in range(10_000)
        )
        sender = threading.Thread(target=client.send, args=(steps,), daemon=True)
        sender.start()
        for number in range(10_000):
            data = json.loads(client.message())["data"]
            assert data["observation"]["value"] == number
        sender.join(5)


@pytest.mark.slow
def test_10000_requests_of_version_1_are_answered_in_order(url: str) -> None:
    """More than may be under way at a time: meanwhile the server does not listen."""
    with raw(url, Sec_WebSocket_Protocol="openenv.v1.json") as client:
        assert b"hello" in client.read().payload
        step = '{"type":"step","id":%d,"data":{"what":"echo","value":%d}}'
        frames = [frame(TEXT, b'{"type":"open"}')]
        frames += [frame(TEXT, (step % (n, n)).encode()) for n in range(1, 10_001)]
        sender = threading.Thread(target=client.send, args=(b"".join(frames),), daemon=True)
        sender.start()
        answers: list[Any] = []
        while len(answers) < 10_001:
            read = json.loads(client.message())
            read = read if isinstance(read, list) else [read]
            answers += [answer for answer in read if answer["type"] != "ack"]
        values = [answer["data"]["observation"]["value"] for answer in answers[1:]]
        assert values == [answer["id"] for answer in answers[1:]] == list(range(1, 10_001))
        sender.join(5)


@pytest.mark.slow
def test_a_client_that_never_reads_is_not_served_for_ever(url: str) -> None:
    """What is not read stays in the kernel, not in the server: it stops listening."""
    request = frame(TEXT, b'{"type":"step","data":{"what":"echo","value":"%b"}}' % (b"x" * 50_000))
    with raw(url) as client:
        client.socket.settimeout(0.5)
        sent = 0
        with pytest.raises(TimeoutError):
            while sent < 2000:
                client.socket.sendall(request)
                sent += 1
        with raw(url) as other:
            assert_serves(other)
