"""The key that a client sends: where it comes from, and where it never goes."""

from __future__ import annotations

import asyncio
import gc
import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from server.sockets import app_of
from support.environments import Counter, CounterEnv, Do
from support.rawserver import Peer, raw_server
from support.servers import serving

from openenv import (
    AuthenticationError,
    ConnectError,
    GenericEnvClient,
    PermissionRefused,
    VectorEnv,
    create_app,
)
from openenv._internal.net.keys import forget_key, note_key
from openenv.client.transports.websocket import WebSocketOptions, WebSocketTransport
from openenv.server import Key, Role

KEY, OBSERVER = "planted-key-of-tests", "planted-observers"
KEYS = [Key(KEY), Key(OBSERVER, Role.OBSERVER)]


@pytest.fixture(autouse=True)
def no_key_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENENV_API_KEY", raising=False)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(app_of(keys=KEYS)) as url:
        yield url


# ------------------------------------------------------------------ where it comes from


@pytest.mark.parametrize("version", ["0", "1"])
def test_it_may_be_given(url: str, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENENV_PROTOCOL", version)
    with CounterEnv(url, api_key=KEY) as env:
        env.reset()
        assert env.step(Do()).reward == 1.0
        sibling: Any = env.new_session()
        assert sibling.reset().observation is not None
    with VectorEnv(url, 4, client=CounterEnv, api_key=KEY) as envs:
        envs.reset()
        assert list(envs.step([Do()] * 4)[1]) == [1.0] * 4

    async def play() -> float | None:
        async with GenericEnvClient(url, api_key=KEY) as env:
            await env.reset()
            return (await env.step({})).reward

    assert asyncio.run(play()) == 1.0


def test_it_comes_from_the_variable(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENENV_API_KEY", KEY)
    with CounterEnv(url) as env:
        env.reset()
    with VectorEnv(url, 2, client=CounterEnv) as envs:
        envs.reset()
    monkeypatch.setenv("OPENENV_API_KEY", "planted-wrong")
    with CounterEnv(url, api_key=KEY) as env:
        env.reset()


def test_that_of_a_server_started_here_is_known(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENENV_API_KEY", "planted-wrong")
    note_key(url, KEY)
    try:
        for address in (url, f"{url}/", url.replace("http://", "ws://"), url[len("http://") :]):
            with CounterEnv(address) as env:
                env.reset()
    finally:
        forget_key(url)
    with pytest.raises(AuthenticationError):
        CounterEnv(url).reset()


@pytest.mark.parametrize("given", [True, False])
def test_an_application_in_this_process_is_asked_with_it_too(
    given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = create_app(Counter, keys=KEYS)
    if not given:
        monkeypatch.setenv("OPENENV_API_KEY", KEY)
    options: Any = {"api_key": KEY} if given else {}
    with CounterEnv.local(app, **options) as env:
        env.reset()
    with VectorEnv.local(app, client=CounterEnv, **options) as envs:
        envs.reset()
    with pytest.raises(AuthenticationError, match="does not know"):
        CounterEnv.local(app, api_key="planted-wrong").reset()


# ------------------------------------------------------------------ what goes wrong


@pytest.mark.parametrize("connect", [CounterEnv, VectorEnv])
@pytest.mark.parametrize("options", [{}, {"api_key": "planted-wrong"}], ids=["none", "wrong"])
def test_a_missing_or_wrong_key_is_said_and_so_is_the_cure(
    url: str, connect: Any, options: dict[str, str]
) -> None:
    with pytest.raises(AuthenticationError) as caught:
        connect(url, **options).reset()
    words = str(caught.value)
    assert isinstance(caught.value, ConnectError) and "api_key=" in words
    assert "OPENENV_API_KEY" in words and "401" in words and "planted" not in words
    assert str(pickle.loads(pickle.dumps(caught.value))) == words


def test_a_role_that_may_not_is_said(url: str) -> None:
    with pytest.raises(PermissionRefused, match="observer") as caught:
        CounterEnv(url, api_key=OBSERVER).reset()
    assert "planted" not in str(caught.value)
    with pytest.raises(PermissionRefused):
        CounterEnv.local(app_of(keys=KEYS), api_key=OBSERVER).reset()


@pytest.mark.parametrize("bad", [f"{KEY}\n", "planted\r\nX-More: 1", "schlüssel-planted"])
def test_a_key_that_no_header_carries_is_not_sent(bad: str) -> None:
    def serve(peer: Peer) -> None:
        raise AssertionError("it was sent")

    with raw_server(serve) as port, pytest.raises(ConnectError, match="printable") as caught:
        CounterEnv(f"http://127.0.0.1:{port}", api_key=bad).reset()
    assert "planted" not in str(caught.value)


# ------------------------------------------------------------------ how it is sent, and to whom


def seen_by_a_server(options: WebSocketOptions, user: str = "") -> dict[str, str]:
    seen: list[dict[str, str]] = []

    def serve(peer: Peer) -> None:
        peer.accept()
        seen.append(peer.headers)
        peer.read_until_end()

    async def connect(port: int) -> None:
        transport = WebSocketTransport(f"ws://{user}127.0.0.1:{port}/ws", options)
        await transport.connect()
        await transport.close()

    with raw_server(serve) as port:
        asyncio.run(connect(port))
    return seen[0]


def test_it_goes_where_the_callers_own_headers_do_not_stand() -> None:
    headers = seen_by_a_server(WebSocketOptions(api_key=KEY))
    assert headers["authorization"] == f"Bearer {KEY}" and "x-api-key" not in headers
    gateway = {"AUTHORIZATION": "Bearer of-the-gateway"}
    headers = seen_by_a_server(WebSocketOptions(api_key=KEY, headers=gateway))
    assert headers["authorization"] == "Bearer of-the-gateway" and headers["x-api-key"] == KEY
    headers = seen_by_a_server(WebSocketOptions(api_key=KEY), user="me:pw@")
    assert headers["authorization"].startswith("Basic ") and headers["x-api-key"] == KEY
    both = {**gateway, "X-API-Key": "the caller's"}
    headers = seen_by_a_server(WebSocketOptions(api_key=KEY, headers=both))
    assert headers["x-api-key"] == "the caller's"
    headers = seen_by_a_server(WebSocketOptions())
    assert "authorization" not in headers and "x-api-key" not in headers


@pytest.mark.anyio
@pytest.mark.parametrize("gateway", [{}, {"Authorization": "Bearer planted-gateway"}], ids=str)
async def test_no_other_host_gets_it_by_a_redirect(gateway: dict[str, str]) -> None:
    seen: list[dict[str, str]] = []

    def there(peer: Peer) -> None:
        peer.accept()
        seen.append(peer.headers)
        peer.read_until_end()

    with raw_server(there) as other:

        def here(peer: Peer) -> None:
            peer.read_head()
            seen.append(peer.headers)
            is_first = peer.first.startswith("GET /ws")
            where = "/moved" if is_first else f"http://127.0.0.1:{other}/ws"
            answer = f"HTTP/1.1 307 Moved\r\nLocation: {where}\r\nContent-Length: 0\r\n\r\n"
            peer.socket.sendall(answer.encode())

        with raw_server(here) as port:
            options = WebSocketOptions(api_key=KEY, headers=gateway)
            transport = WebSocketTransport(f"ws://127.0.0.1:{port}/ws", options)
            await transport.connect()
            await transport.close()
    first, second, third = seen
    for headers in (first, second):
        assert KEY in " ".join(headers.values())
    assert "planted" not in " ".join(third.values())


def test_a_server_started_here_that_wants_none_is_sent_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENENV_API_KEY", KEY)
    seen: list[dict[str, str]] = []

    def serve(peer: Peer) -> None:
        peer.accept()
        seen.append(peer.headers)
        peer.read_until_end()

    with raw_server(serve) as port:
        url = f"http://127.0.0.1:{port}"
        note_key(url, None)
        try:
            with CounterEnv(url):
                pass
        finally:
            forget_key(url)
    assert "authorization" not in seen[0] and "x-api-key" not in seen[0]


# ------------------------------------------------------------------ what is not shown


def test_neither_key_nor_password_is_shown() -> None:
    options = WebSocketOptions(api_key=KEY, headers={"Authorization": "planted-header"})
    transport = WebSocketTransport("ws://me:planted-password@127.0.0.1:1/ws", options)
    assert "planted" not in repr(options) + str(transport)
    with pytest.raises(ConnectError) as caught:
        asyncio.run(transport.connect())
    assert "127.0.0.1:1/ws" in str(caught.value) and "planted" not in str(caught.value)


def test_nor_are_they_in_the_warning_of_a_client_that_was_never_closed(url: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        address = url.replace("http://", "http://me:planted-password@")
        env = CounterEnv(address, api_key=KEY)
        env.reset()
        del env
        gc.collect()
    words = [str(one.message) for one in caught if one.category is ResourceWarning]
    assert any("never closed" in word for word in words) and "planted" not in str(words)
