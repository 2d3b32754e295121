"""Which proxy leads to a server: decided in one place, for every command and client."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.commands import COMMAND, environ
from support.dice import Dice, DiceEnv, Roll
from support.environments import Counter, CounterEnv
from support.llm_server import llm_server
from support.rawserver import Peer, raw_server, socks_proxy
from support.servers import serving
from support.zygote import run_python

from openenv import create_app
from openenv._internal.net.http import HTTPClient, NoAnswerError, ask
from openenv._internal.net.proxies import connect_through, direct_mounts, proxy_for
from openenv.errors import ConnectError
from openenv.providers.engines import find_engine
from openenv.rewards.llm import AnthropicClient, OpenAIClient
from openenv.tasks import TaskAPIClient
from openenv.tools.sources import Address
from openenv.tools.transports import connect_address

KINDS = ("http", "https", "ws", "wss", "socks", "all", "no")
DEAD = "http://127.0.0.1:9"  # where nobody listens


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower() in [f"{kind}_proxy" for kind in KINDS]:
            monkeypatch.delenv(name)


@pytest.fixture(params=["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all"])
def dead(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Variables that name a proxy that is not there."""
    every = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
    names = every if request.param == "all" else [request.param]
    variables = dict.fromkeys(names, DEAD)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return variables


# ------------------------------------------------------------------ the decision

P, Q, S = "http://p:1", "http://q:2", "socks5://s:3"


@pytest.mark.parametrize(
    ("variables", "url", "found"),
    [
        ({}, "http://h", None),
        ({"HTTP_PROXY": P}, "http://h", P),
        ({"HTTP_PROXY": P}, "ws://h:8000/ws", P),
        ({"HTTP_PROXY": P}, "https://h", None),
        ({"HTTPS_PROXY": P}, "https://h", P),
        ({"HTTPS_PROXY": P}, "wss://h", P),
        ({"HTTPS_PROXY": P}, "http://h", None),
        ({"HTTPS_PROXY": P}, "ws://h", None),
        ({"HTTP_PROXY": P, "http_proxy": Q}, "http://h", Q),
        ({"HTTP_PROXY": P, "http_proxy": ""}, "http://h", None),
        ({"HTTP_PROXY": P, "WS_PROXY": Q}, "ws://h", Q),
        ({"HTTP_PROXY": P, "WS_PROXY": Q}, "http://h", P),
        ({"ALL_PROXY": S}, "http://h", S),
        ({"all_proxy": S}, "wss://h", S),
        ({"ALL_PROXY": S, "HTTP_PROXY": P}, "http://h", P),
        ({"ALL_PROXY": S, "HTTP_PROXY": P}, "https://h", S),
        ({"ALL_PROXY": "socks://s:3"}, "http://h", S),
        ({"ALL_PROXY": "socks5h://s:3"}, "http://h", S),
        ({"ALL_PROXY": "socks5://s"}, "http://h", "socks5://s:1080"),
        ({"HTTP_PROXY": "p:1"}, "http://h", P),
        ({"HTTP_PROXY": "http://u:w@p:1/"}, "http://h", "http://u:w@p:1"),
    ],
)
def test_variables_name_the_proxy_of_a_scheme(
    variables: dict[str, str], url: str, found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    proxy = proxy_for(url)
    assert (proxy and proxy.url) == found


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "LOCALHOST", "localhost.", "a.localhost", "127.0.0.1", "127.8.9.1"),
        *("[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]", "127.1", "2130706433", "0x7f000001"),
    ],
)
@pytest.mark.parametrize("scheme", ["http", "https", "ws", "wss"])
def test_no_proxy_leads_to_this_machine(
    host: str, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in KINDS[:-1]:
        monkeypatch.setenv(f"{kind}_proxy", DEAD)
    monkeypatch.setenv("no_proxy", "elsewhere")
    assert proxy_for(f"{scheme}://{host}:8000/ws") is None


@pytest.mark.parametrize(
    "host", ["localhost.example", "notlocalhost", "128.0.0.1", "[::2]", "1270.0.0.1", "abc.de"]
)
def test_a_proxy_leads_to_other_machines(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", DEAD)
    assert proxy_for(f"http://{host}:8000") is not None


@pytest.mark.parametrize(
    ("exempt", "host", "is_exempt"),
    [
        ("*", "h", True),
        ("a.example", "a.example", True),
        ("a.example", "A.Example.", True),
        ("example", "a.example", True),
        (".example", "a.example", True),
        ("*.example", "a.example", True),
        ("ample", "a.example", False),
        ("x, a.example", "a.example", True),
        ("x a.example", "a.example", True),
        ("a.example:8000", "a.example", True),
        ("a.example:8001", "a.example", False),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3:8000", "10.1.2.3", True),
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("2.3", "10.1.2.3", False),
        ("fd00::1", "[fd00::1]", True),
        ("[fd00::1]:8000", "[fd00::1]", True),
        ("fd00::/8", "[fd00::1]", True),
        ("10.0.0.0/8", "h", False),
        ("", "h", False),
        (",", "h", False),
    ],
)
@pytest.mark.parametrize("variable", ["NO_PROXY", "no_proxy"])
def test_hosts_are_exempt(
    exempt: str, host: str, is_exempt: bool, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", DEAD)
    monkeypatch.setenv(variable, exempt)
    assert (proxy_for(f"http://{host}:8000") is None) == is_exempt
    assert (proxy_for(f"ws://{host}:8000") is None) == is_exempt


@pytest.mark.parametrize("value", ["ftp://p:1", "http://", "http://p:x", "http://p:99999", "://"])
def test_what_is_no_proxy_is_refused_by_the_name_of_its_variable(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", value)
    with pytest.raises(ValueError, match=r"HTTP_PROXY names .*, which is no proxy"):
        proxy_for("http://h")


def test_a_password_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://me:secret@p:1")
    assert str(proxy_for("http://h")) == "the proxy http://p:1 (http_proxy)"
    monkeypatch.setenv("http_proxy", "ftp://me:secret@p:1")
    with pytest.raises(ValueError, match="ftp://p:1") as refused:
        proxy_for("http://h")
    assert "secret" not in str(refused.value)


# ------------------------------------------------------------------ commands


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(create_app(Dice)) as url:
        yield url


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("recorded")
    with serving(create_app(Dice, record=directory)) as url, DiceEnv(url) as env:
        env.reset(seed=1)
        env.step(Roll())
    (file,) = directory.glob("*/*.jsonl")
    return str(file)


COMMANDS = {
    "top": ("top", "URL", "--once", "--interval", "0.2"),
    "info": ("info", "URL"),
    "rollout": ("rollout", "URL", "-n", "2", "--max-steps", "2", "--quiet"),
    "eval": ("eval", "URL", "--num-tasks", "1", "--max-steps", "2", "--quiet"),
    "validate": ("validate", "--url", "URL"),
    "replay": ("replay", "FILE", "--url", "URL"),
    "collect": ("collect", "URL", "-o", "out", "--policy", "random", "-n", "1", "--max-turns", "2"),
}


def run(
    command: str, url: str, recording: str, cwd: Path, variables: dict[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    named = {"URL": url, "FILE": recording}
    return run_python(
        [*COMMAND, *(named.get(word, word) for word in COMMANDS[command])],
        cwd=cwd,
        env={**environ(), **variables},
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("dead", ["HTTP_PROXY", "all"], indirect=True)
def test_every_command_goes_past_a_dead_proxy_to_this_machine(
    command: str, dead: dict[str, str], url: str, recording: str, tmp_path: Path
) -> None:
    """`openenv rollout` used to say nothing, and never end."""
    done = run(command, url, recording, tmp_path, dead, 40)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_names_the_proxy_that_stops_it(
    command: str, recording: str, tmp_path: Path
) -> None:
    variables = {"HTTP_PROXY": DEAD}
    done = run(command, "http://env.test:8000", recording, tmp_path, variables, 40)
    words = " ".join((done.stdout + done.stderr).split())
    assert done.returncode != 0
    assert "the proxy http://127.0.0.1:9 (HTTP_PROXY)" in words
    assert "set NO_PROXY=env.test" in words


def mute(peer: Peer) -> None:
    peer.file.read()


@pytest.fixture
def silent() -> Iterator[str]:
    """A proxy that takes connections, and says nothing."""
    with raw_server(mute) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.mark.slow("10 s are waited for a proxy")
@pytest.mark.extended("10 s are waited for a proxy")
@pytest.mark.parametrize("command", ["info", "rollout", "eval", "replay"])
def test_a_command_does_not_wait_for_ever_for_a_proxy(
    command: str, silent: str, recording: str, tmp_path: Path
) -> None:
    began = time.monotonic()
    variables = {"HTTP_PROXY": silent}
    done = run(command, "http://env.test:8000", recording, tmp_path, variables, 40)
    assert "set NO_PROXY=env.test" in " ".join((done.stdout + done.stderr).split())
    assert done.returncode != 0 and time.monotonic() - began < 30


# ------------------------------------------------------------------ what connects


def test_calls_by_http_go_past_it(dead: dict[str, str], url: str) -> None:
    assert ask(f"{url}/health", timeout_s=5).status == 200
    with DiceEnv(url) as env:
        env.reset()


@pytest.mark.anyio
async def test_the_proxy_of_models_goes_past_it(dead: dict[str, str], url: str) -> None:
    async with HTTPClient(url, timeout_s=5).request("GET", "/health", {}) as answer:
        assert answer.status == 200


@pytest.mark.anyio
@pytest.mark.blocks_the_loop  # an SDK takes a while for its first request
@pytest.mark.parametrize("kind", [OpenAIClient, AnthropicClient])
async def test_clients_of_models_go_past_it(dead: dict[str, str], kind: Any) -> None:
    with llm_server("hello") as server:
        client = kind(server.url, None, "toy", max_retries=0)
        assert await client.complete("hi") == "hello"
        await client.aclose()


@pytest.mark.anyio
@pytest.mark.blocks_the_loop  # so does that of MCP
async def test_a_client_of_mcp_goes_past_it(dead: dict[str, str]) -> None:
    with serving(create_app(Dice)) as url:
        async with connect_address(Address(f"{url}/mcp", {})) as speaker:
            assert speaker is not None


def test_clients_of_httpx_go_past_it(dead: dict[str, str], url: str) -> None:
    with httpx.Client(**direct_mounts(url)) as client:
        assert client.get(f"{url}/health").status_code == 200


def engine(peer: Peer) -> None:
    """As much of an engine of containers as its client asks for before anything else."""
    peer.read_head()
    body = b'{"ApiVersion": "1.44"}'
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\n"
    peer.socket.sendall(head + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))


def test_an_engine_of_this_machine_is_asked_past_it(dead: dict[str, str]) -> None:
    with raw_server(engine) as port:
        assert find_engine(f"tcp://127.0.0.1:{port}").api_version == "1.44"


@contextmanager
def plain_proxy(target: str, seen: list[str]) -> Iterator[str]:
    """A proxy of HTTP that asks `target`, wherever it is sent to."""

    def serve(peer: Peer) -> None:
        peer.read_head()
        seen.append(peer.first)
        path = "/" + peer.first.split()[1].split("/", 3)[3]
        with httpx.Client(trust_env=False) as client:
            body = client.get(target + path).content
        head = f"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        peer.socket.sendall(head.encode() + body)

    with raw_server(serve) as port:
        yield f"http://127.0.0.1:{port}"


def test_calls_by_http_use_a_proxy(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    with plain_proxy(url, seen) as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        assert ask("http://env.test:8000/health", timeout_s=5).status == 200
    assert seen == ["GET http://env.test:8000/health HTTP/1.1"]


def address(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("http://").partition(":")
    return host, int(port)


@pytest.mark.parametrize("variable", ["ALL_PROXY", "socks_proxy", "http_proxy"])
def test_calls_by_http_use_a_proxy_of_socks(
    url: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENENV_ALLOWED_HOSTS", "env.test")
    seen: list[Any] = []
    with serving(create_app(Counter)) as url, raw_server(socks_proxy(address(url), seen)) as port:
        monkeypatch.setenv(variable, f"socks5h://127.0.0.1:{port}")
        assert ask("http://env.test:8000/health", timeout_s=5).status == 200
        with CounterEnv("http://env.test:8000") as env:
            env.reset()
    assert seen == [(b"env.test", 8000)] * 2


@pytest.mark.anyio
async def test_the_proxy_of_models_uses_a_proxy(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENENV_ALLOWED_HOSTS", "env.test")
    seen: list[Any] = []
    with serving(create_app(Counter)) as url, raw_server(socks_proxy(address(url), seen)) as port:
        monkeypatch.setenv("ALL_PROXY", f"socks5://127.0.0.1:{port}")
        connections = HTTPClient("http://env.test:8000", timeout_s=5)
        async with connections.request("GET", "/health", {}) as answer:
            assert answer.status == 200
            await answer.read()
        await connections.aclose()
    assert seen == [(b"env.test", 8000)]


# ------------------------------------------------------------------ proxies that fail


@asynccontextmanager
async def used(kind: str) -> AsyncIterator[None]:
    """Reach a server at `env.test` by one of the clients."""
    url = "http://env.test:8000"
    if kind == "http":
        ask(f"{url}/health", timeout_s=0.5)
    elif kind == "tasks":
        TaskAPIClient(url, timeout_s=0.5).list_splits()
    elif kind == "websocket":
        async with DiceEnv(url, connect_timeout_s=0.5):
            pass
    elif kind == "connections":
        async with HTTPClient(url, timeout_s=0.5).request("GET", "/", {}):
            pass
    else:
        proxy = proxy_for(url)
        assert proxy is not None
        await connect_through(proxy, "env.test", 8000, 0.5)
    yield


def refusing(peer: Peer) -> None:
    peer.read_head()
    peer.socket.sendall(
        b"HTTP/1.1 407 Proxy Authentication Required\r\n"
        b'Proxy-Authenticate: Basic realm="p"\r\nContent-Length: 0\r\n\r\n'
    )


def leaving(peer: Peer) -> None:
    peer.socket.shutdown(socket.SHUT_RDWR)


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["http", "tasks", "websocket", "connections", "tunnel"])
@pytest.mark.parametrize("serve", [None, refusing, mute, leaving])
async def test_a_proxy_that_fails_is_named_and_how_to_do_without(
    kind: str, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openenv._internal.net.http.CONNECT_TIMEOUT_S", 0.5)
    with raw_server(serve or mute) as port:
        there = 9 if serve is None else port
        monkeypatch.setenv("HTTP_PROXY", f"http://me:secret@127.0.0.1:{there}")
        with pytest.raises((ConnectError, NoAnswerError, OSError)) as failed:
            async with used(kind):
                pass
    words = str(failed.value)
    assert f"the proxy http://127.0.0.1:{there} (HTTP_PROXY)" in words
    assert "set NO_PROXY=env.test" in words and "secret" not in words
