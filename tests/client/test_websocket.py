"""The client's WebSocket, against servers and proxies that behave in every way."""

from __future__ import annotations

import asyncio
import base64
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.environments import Counter, CounterEnv, Do
from support.raw import address
from support.rawserver import Peer, http_proxy, raw_server, socks_proxy
from support.servers import serving
from support.ws import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT

from openenv import ConnectError, SessionLost, create_app
from openenv._internal.timing import new_event_loop
from openenv.client.connection import CallWaiter
from openenv.client.transports.base import TransportClosed
from openenv.client.transports.websocket import WebSocketOptions, WebSocketTransport
from openenv.client.vector import VectorEnv
from openenv.errors import MessageTooLarge

pytestmark = pytest.mark.anyio
WAIT_S = 5.0
PROXIES = ("http_proxy", "https_proxy", "ws_proxy", "wss_proxy", "socks_proxy", "all_proxy")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*PROXIES, "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


async def connected(port: int, **options: Any) -> WebSocketTransport:
    transport = WebSocketTransport(f"ws://127.0.0.1:{port}/ws", WebSocketOptions(**options))
    await transport.connect()
    return transport


# ------------------------------------------------------------------ what is sent, what comes


async def test_frames_come_in_order_whole_or_in_fragments() -> None:
    def serve(peer: Peer) -> None:
        peer.accept()
        peer.send(TEXT, b"one")
        peer.send(TEXT, b"t", fin=False)
        peer.send(PING, b"between")
        peer.send(CONTINUATION, b"w", fin=False)
        peer.send(CONTINUATION, b"o")
        peer.send(BINARY, b"\xff" * 100_000)
        assert peer.read() == (PONG, b"between")
        peer.send(TEXT, b"last")
        peer.read_until_end()

    with raw_server(serve) as port:
        transport = await connected(port)
        got = [bytes(await transport.receive(WAIT_S)) for _ in range(4)]  # type: ignore[arg-type]
        assert got == [b"one", b"two", b"\xff" * 100_000, b"last"]
        assert not transport.has_frame()
        await transport.close()
        await transport.close()
        with pytest.raises(TransportClosed):
            transport.send(b"x")


@pytest.mark.parametrize(("subprotocol", "kind"), [(None, TEXT), ("openenv.v1.msgpack", BINARY)])
async def test_the_handshake_tells_what_was_asked_for(subprotocol: str | None, kind: int) -> None:
    seen: list[Any] = []

    def serve(peer: Peer) -> None:
        peer.accept(**({} if subprotocol is None else {"Sec_WebSocket_Protocol": subprotocol}))
        seen.append(peer.headers)
        seen.extend(peer.read_until_end())

    with raw_server(serve) as port:
        offered = ("openenv.v1.msgpack", "openenv.v1.json")
        options = WebSocketOptions(headers={"X-Token": "t"}, subprotocols=offered)
        transport = WebSocketTransport(f"ws://me:p%40ss@127.0.0.1:{port}/a/ws", options)
        await transport.connect()
        assert transport.subprotocol == subprotocol
        transport.send(b"frame")
        await transport.close()
    headers, sent, last = seen
    assert headers["sec-websocket-protocol"] == ", ".join(offered)
    assert headers["x-token"] == "t"
    assert headers["authorization"] == "Basic " + base64.b64encode(b"me:p@ss").decode()
    assert sent == (kind, b"frame") and last[0] == CLOSE


@pytest.mark.parametrize("code", [1000, 1001, 1008, 1011, 1012, 4000, None])
async def test_a_close_frame_ends_it_after_what_came_before(code: int | None) -> None:
    answered: list[Any] = []

    def serve(peer: Peer) -> None:
        peer.accept()
        peer.send(TEXT, b"last words")
        peer.send(CLOSE, b"" if code is None else code.to_bytes(2, "big") + b"why")
        answered.extend(peer.read_until_end())

    with raw_server(serve) as port:
        transport = await connected(port)
        assert await transport.receive(WAIT_S) == b"last words"
        with pytest.raises(TransportClosed, match="1005" if code is None else "why") as caught:
            await transport.receive(WAIT_S)
        assert caught.value.code == (1005 if code is None else code)
        await transport.close()
    assert [kind for kind, _ in answered] == [CLOSE]


@pytest.mark.parametrize("fragments", [1, 4])
async def test_a_message_over_the_limit_is_said_to_be_too_big(fragments: int) -> None:
    answered: list[Any] = []

    def serve(peer: Peer) -> None:
        peer.accept()
        for number in range(fragments):
            kind = CONTINUATION if number else TEXT
            peer.send(kind, b"x" * (2000 // fragments), fin=number == fragments - 1)
        answered.extend(peer.read_until_end())

    with raw_server(serve) as port:
        transport = await connected(port, max_message_bytes=1000)
        with pytest.raises(TransportClosed, match="1000") as caught:
            await transport.receive(WAIT_S)
        assert caught.value.code == 1009
        await transport.close()
    assert answered[0][1][:2] == (1009).to_bytes(2, "big")


async def test_an_observation_over_the_limit_is_refused_with_the_sizes(serve: Any) -> None:
    async with CounterEnv(serve(create_app(Counter)), max_message_size_mb=0.01) as env:
        await env.reset()
        with pytest.raises(MessageTooLarge, match="max_message_size_mb") as caught:
            await env.step(Do(what="echo", value="x" * 20_000))
        assert caught.value.data["size"] > 20_000 > caught.value.data["limit"] > 10_000
        assert (await env.step(Do())).reward == 2.0, "the session goes on"


async def test_an_observation_over_the_limit_is_a_loss_that_says_so_under_version_0(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENENV_PROTOCOL", "0")
    async with CounterEnv(serve(create_app(Counter)), max_message_size_mb=0.01) as env:
        await env.reset()
        with pytest.raises(SessionLost, match="max_message_size_mb"):
            await env.step(Do(what="echo", value="x" * 20_000))
        await env.reset()
        assert (await env.step(Do())).reward == 1.0


async def test_a_receive_that_is_cancelled_or_too_late_loses_no_frame() -> None:
    def serve(peer: Peer) -> None:
        peer.accept()
        for number in range(100):
            assert peer.read()[0] == TEXT
            peer.send(TEXT, str(number).encode())
        peer.read_until_end()

    with raw_server(serve) as port:
        transport = await connected(port)
        for number in range(100):
            waiting = asyncio.ensure_future(transport.receive())
            await asyncio.sleep(0)
            transport.send(b"next")
            if number % 2 == 0:
                waiting.cancel()
                await asyncio.wait([waiting])
                try:
                    got = await transport.receive(0)
                except asyncio.TimeoutError:
                    got = await transport.receive(WAIT_S)
            else:
                got = await asyncio.wait_for(waiting, WAIT_S)
            assert got == str(number).encode()
        await transport.close()


# ------------------------------------------------------------------ is the server there?


async def test_a_server_that_answers_no_ping_is_given_up() -> None:
    def serve(peer: Peer) -> None:
        peer.accept()
        peer.read_until_end()

    with raw_server(serve) as port:
        transport = await connected(port, ping_interval_s=0.05, ping_timeout_s=0.1)
        with pytest.raises(TransportClosed, match="ping"):
            await transport.receive(WAIT_S)


async def test_a_server_that_answers_pings_may_be_silent() -> None:
    pings: list[int] = []

    def serve(peer: Peer) -> None:
        peer.accept()
        while (got := peer.read())[0] == PING:
            pings.append(1)
            peer.send(PONG, got[1])
            if len(pings) == 8:
                peer.send(TEXT, b"at last")

    with raw_server(serve) as port:
        transport = await connected(port, ping_interval_s=0.03, ping_timeout_s=0.1)
        assert await transport.receive(WAIT_S) == b"at last"
        await transport.close()


# ------------------------------------------------------------------ no connection


def _hang_up(peer: Peer) -> None:
    peer.read_head()


def _not_found(peer: Peer) -> None:
    peer.read_head()
    peer.socket.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno")


def _no_http(peer: Peer) -> None:
    peer.socket.sendall(b"220 mail.example.com ESMTP\r\n")
    peer.read_until_end()


def _wrong_accept(peer: Peer) -> None:
    peer.headers["sec-websocket-key"] = ""
    peer.read_head()
    peer.headers["sec-websocket-key"] = "other"
    peer.socket.sendall(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("serve", [_hang_up, _not_found, _no_http, _wrong_accept])
async def test_what_is_no_websocket_server_is_a_connect_error(
    serve: Callable[[Peer], None],
) -> None:
    with raw_server(serve) as port, pytest.raises(ConnectError):
        await connected(port, connect_timeout_s=0.5)


async def test_a_server_that_never_answers_is_given_up_in_time() -> None:
    def serve(peer: Peer) -> None:
        peer.read_until_end()

    with raw_server(serve) as port, pytest.raises(ConnectError, match="in time"):
        await connected(port, connect_timeout_s=0.1)


@pytest.mark.parametrize("url", ["ws://127.0.0.1:99999/ws", "ws:///ws", "ws://[::1/ws"])
async def test_an_address_that_cannot_be_is_a_connect_error(url: str) -> None:
    with pytest.raises(ConnectError):
        await WebSocketTransport(url, WebSocketOptions(connect_timeout_s=2.0)).connect()


async def test_a_redirect_is_followed() -> None:
    def final(peer: Peer) -> None:
        peer.accept()
        peer.send(TEXT, b"here")
        peer.read_until_end()

    with raw_server(final) as target:

        def redirect(peer: Peer) -> None:
            peer.read_head()
            where = f"http://127.0.0.1:{target}/ws"
            peer.socket.sendall(
                f"HTTP/1.1 307 Temporary Redirect\r\nLocation: {where}\r\n"
                "Content-Length: 0\r\n\r\n".encode()
            )

        with raw_server(redirect) as port:
            transport = await connected(port)
            assert await transport.receive(WAIT_S) == b"here"
            await transport.close()


# ------------------------------------------------------------------ on the way


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "ws_proxy"])
async def test_a_proxy_of_the_environment_is_used(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv("OPENENV_ALLOWED_HOSTS", "env.test")
    seen: list[Any] = []
    with serving(create_app(Counter)) as url, raw_server(http_proxy(address(url), seen)) as port:
        monkeypatch.setenv(variable, f"http://me:secret@127.0.0.1:{port}")
        async with CounterEnv("http://env.test:8000") as env:
            assert (await env.reset()).observation.text == "ready"
        async with CounterEnv(url) as env:  # this host needs none
            await env.reset()
    token = "Basic " + base64.b64encode(b"me:secret").decode()
    assert seen == [("CONNECT env.test:8000 HTTP/1.1", token)]


async def test_a_socks_proxy_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENENV_ALLOWED_HOSTS", "env.test")
    seen: list[Any] = []
    with serving(create_app(Counter)) as url, raw_server(socks_proxy(address(url), seen)) as port:
        monkeypatch.setenv("socks_proxy", f"socks5://127.0.0.1:{port}")
        async with CounterEnv("http://env.test:8000") as env:
            assert (await env.reset()).observation.text == "ready"
    assert seen == [(b"env.test", 8000)]


async def test_a_host_may_be_exempt_from_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    with raw_server(http_proxy(("127.0.0.1", 9), seen)) as port:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("no_proxy", "env.invalid")
        with pytest.raises(ConnectError):
            await WebSocketTransport("ws://env.invalid/ws").connect()
    assert seen == []


async def test_a_proxy_that_refuses_is_a_connect_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with raw_server(http_proxy(("127.0.0.1", 9), [], refuses=True)) as port:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        with pytest.raises(ConnectError, match="403"):
            await WebSocketTransport("ws://env.test/ws").connect()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of 127.0.0.1, and its key in the same file."""
    if shutil.which("openssl") is None:
        pytest.skip("makes a certificate with openssl")
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-keyout",
            "key",
            "-out",
            "cert",
            "-subj",
            "/CN=test",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
        ],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        timeout=30,
    )
    return tmp_path


async def test_tls_is_checked(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files: dict[str, Any] = {
        "ssl_certfile": certificate / "cert",
        "ssl_keyfile": certificate / "key",
    }
    with serving(create_app(Counter), **files) as url:
        secure = url.replace("http:", "https:")
        with pytest.raises(ConnectError, match=r"(?i)certificate"):
            async with CounterEnv(secure):
                pass
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert"))
        async with CounterEnv(secure) as env:
            assert (await env.reset()).observation.text == "ready"
            big = "x" * 300_000
            assert (await env.step(Do(what="echo", value=big))).observation.value == big
        await asyncio.to_thread(_play_vector, secure)


def _play_vector(url: str) -> None:
    with VectorEnv(url, 3, client=CounterEnv) as envs:
        envs.reset()
        assert envs.step([Do()] * 3)[1].tolist() == [1, 1, 1]


def test_a_deadline_of_now_may_be_followed_by_a_later_one() -> None:
    """uvloop's handles do not say when they are due, where that is at once."""

    async def watched() -> None:
        expired: list[int] = []
        waiter = CallWaiter(lambda: expired.append(1))
        waiter.begin(0)
        waiter.begin(0.05)
        await asyncio.sleep(0.01)
        assert not expired
        await asyncio.sleep(0.1)
        assert expired == [1]

    for loop in (asyncio.new_event_loop(), new_event_loop()):
        loop.run_until_complete(watched())
        loop.close()
