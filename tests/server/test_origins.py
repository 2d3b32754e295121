"""What a web page in somebody's browser can reach: nothing, unless it is the server's own."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from server.sockets import WAYS, app_of, assert_serves
from starlette.types import Message, Receive, Scope, Send
from support.environments import CounterEnv, Do
from support.raw import connected
from support.servers import NotAdopted, serving
from support.ws import Raw

from openenv._internal.net.peers import is_loopback
from openenv.errors import MalformedHostError, NotPermittedError
from openenv.server.origins import Pages

EVIL = "https://evil.example"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(app_of()) as url:
        yield url


def own(url: str) -> str:
    return url.removeprefix("http://")


# ------------------------------------------------------------------ where a page comes from


@pytest.mark.parametrize("way", WAYS)
def test_a_page_of_another_origin_opens_no_socket(way: str) -> None:
    app = app_of()
    with serving(NotAdopted(app) if way == "asgi" else app, ws=WAYS[way]) as url:
        port = url.rpartition(":")[2]
        for origin in (EVIL, "null", "file://", "http://localhost:1", f"http://a.localhost:{port}"):
            with connected(url) as connection:
                status, _ = Raw(connection).handshake(Host=own(url), Origin=origin)
                assert status == 403, origin
        for good in (url, f"HTTP://LOCALHOST:{port}", None):
            host = own(url) if good == url else f"localhost:{port}"
            with connected(url) as connection:
                client = Raw(connection)
                assert client.handshake(Host=host, Origin=good)[0] == 101, good
                assert_serves(client)


def test_a_page_of_another_origin_sends_no_request(url: str) -> None:
    for method, path in (("POST", "/reset"), ("GET", "/state"), ("GET", "/health")):
        answer = httpx.request(method, url + path, headers={"Origin": EVIL})
        assert answer.status_code == 403 and answer.json()["code"] == "NOT_PERMITTED"
        assert "OPENENV_ALLOWED_ORIGINS" in answer.json()["detail"]
        assert "access-control-allow-origin" not in answer.headers
        assert httpx.request(method, url + path, headers={"Origin": url}).status_code == 200


def test_the_page_of_the_documentation_works_from_its_own_origin(url: str) -> None:
    assert "openapi.json" in httpx.get(url + "/docs").text
    headers = {"Origin": url, "Referer": f"{url}/docs"}
    assert "/reset" in httpx.get(url + "/openapi.json", headers=headers).json()["paths"]
    assert httpx.post(url + "/reset", headers=headers, json={"seed": 1}).status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "origins"),
    [
        ("https://lab.example", ["https://lab.example", "HTTPS://LAB.EXAMPLE"]),
        ("lab.example:8080 , other.example/", ["http://lab.example:8080", "https://other.example"]),
        ("*", [EVIL, "null"]),
    ],
)
def test_an_origin_that_is_named_is_let_in(
    setting: str, origins: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENENV_ALLOWED_ORIGINS", setting)
    with serving(app_of()) as url:
        for origin in origins:
            answer = httpx.get(url + "/health", headers={"Origin": origin})
            assert answer.status_code == 200, origin
        others = ["https://lab.example.evil.example", "http://lab.example:8081", "http://example"]
        for origin in others:
            answer = httpx.get(url + "/health", headers={"Origin": origin})
            assert answer.status_code == (200 if setting == "*" else 403), origin


def test_a_page_behind_a_proxy_is_the_servers_own(url: str) -> None:
    """One that ends TLS, and passes on the name that the browser asked for in either header."""
    told = {"Origin": "https://owner-space.hf.space", "X-Forwarded-Host": "owner-space.hf.space"}
    assert httpx.post(url + "/reset", headers=told).status_code == 200
    framing = told | {"Origin": "https://huggingface.co"}
    assert httpx.post(url + "/reset", headers=framing).status_code == 403


# ------------------------------------------------------------------ by which name it is asked for


@pytest.mark.parametrize("way", WAYS)
def test_a_made_up_name_reaches_no_server_on_loopback(way: str) -> None:
    """DNS rebinding: the page's own name leads to 127.0.0.1, so that its origin is the host."""
    app = app_of()
    with serving(NotAdopted(app) if way == "asgi" else app, ws=WAYS[way]) as url:
        port = url.rpartition(":")[2]
        for host in (
            "evil@localhost",
            f"localhost@evil.example:{port}",
            "[::1]evil.example",
            "[::1].evil.example:80",
            "localhost/evil.example",
            "localhost:80:evil.example",
            "localhost, evil.example",
            "evil.example/.localhost",
            "evil@a.localhost",
        ):
            answer = httpx.get(url + "/health", headers={"Host": host})
            assert answer.status_code == 400 and answer.json()["code"] == "WRONG_HOST", host
        for host in (f"evil.example:{port}", "evil.example", "localhost.evil.example", "local"):
            answer = httpx.get(url + "/health", headers={"Host": host, "Origin": f"http://{host}"})
            assert answer.status_code == 421 and answer.json()["code"] == "WRONG_HOST", host
            assert "OPENENV_ALLOWED_HOSTS" in answer.json()["detail"]
            with connected(url) as connection:
                status, _ = Raw(connection).handshake(Host=host, Origin=f"http://{host}")
                assert status == 421, host


def test_of_two_names_and_two_origins_none_counts() -> None:
    """A browser sends one of each: the last one counted, whatever the first was."""
    own, other = b"localhost:8000", b"evil.example"
    for hosts in ((own, other), (other, own)):
        with pytest.raises(MalformedHostError):
            Pages().check([(b"host", host) for host in hosts], ("127.0.0.1", 8000))
    for origins in ((own, other), (other, own)):
        headers = [(b"host", own), *((b"origin", b"http://" + one) for one in origins)]
        with pytest.raises(NotPermittedError):
            Pages().check(headers, ("127.0.0.1", 8000))
    Pages().check([(b"host", own), (b"host", own)], ("127.0.0.1", 8000))


@pytest.mark.parametrize("server", [("127.0.0.1", 8000), ("10.0.0.7", 8000), None])
@pytest.mark.parametrize(
    "host", ["::1", "a b", "http://localhost", "localhost/", "a:b", "a:999999"]
)
def test_a_malformed_host_is_refused_wherever_the_server_listens(host: str, server: Any) -> None:
    """RFC 9112, section 3.2."""
    with pytest.raises(MalformedHostError):
        Pages().check([(b"host", host.encode())], server)


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:9",
        "a.localhost",
        "127.0.0.1",
        "127.1.2.3:80",
        "[::1]:8000",
        "0.0.0.0",
        "10.0.0.1",
        "host.docker.internal:8000",
        socket.gethostname(),
        "localhost.",
    ],
)
def test_this_machines_own_names_and_addresses_are_known(url: str, host: str) -> None:
    assert httpx.get(url + "/health", headers={"Host": host}).status_code == 200


def test_a_name_that_is_given_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENENV_ALLOWED_HOSTS", "env.example, Other.Example")
    with serving(app_of()) as url:
        for host, status in (
            ("env.example", 200),
            ("ENV.example:443", 200),
            ("other.example", 200),
            ("evil.example", 421),
            ("x.env.example", 421),
        ):
            answer = httpx.get(url + "/health", headers={"Host": host})
            assert answer.status_code == status, host
    monkeypatch.setenv("OPENENV_ALLOWED_HOSTS", "*")
    with serving(app_of()) as url:
        assert httpx.get(url + "/health", headers={"Host": "any.example"}).status_code == 200


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("server", "status"),
    [
        (("127.0.0.1", 8000), 421),
        (("::1", 8000), 421),
        (("::ffff:127.0.0.1", 8000), 421),
        (("10.0.0.7", 8000), 200),
        (("testserver", 80), 200),
        (("/run/env.socket", None), 200),
        (None, 200),
    ],
)
async def test_only_where_the_socket_is_on_loopback_does_the_name_matter(
    server: Any, status: int
) -> None:
    """Behind a proxy, in a container or by a socket of the file system, any name may be right."""
    statuses: list[int] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope: Scope = {
        "type": "http",
        "method": "GET",
        "path": "/health",
        "query_string": b"",
        "headers": [(b"host", b"env.example")],
        "server": server,
    }
    app: Any = app_of()
    ends: tuple[Receive, Send] = (receive, send)
    await app(scope, *ends)
    assert statuses == [status]


def test_programs_that_are_no_browsers_notice_nothing(url: str) -> None:
    for base_url in (url, url.replace("127.0.0.1", "localhost")):
        with CounterEnv(base_url) as env:
            env.reset()
            assert env.step(Do()).reward == 1.0
    with CounterEnv.local(app_of()) as local:
        local.reset()
    with connected(url) as connection:  # HTTP/1.0 names no host
        connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        assert Raw(connection).answer()[0] == 200


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        ("localhost", True),
        ("LOCALHOST", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        ("10.0.0.1", False),
        ("localhost.evil.example", False),
        ("127.evil.example", False),
    ],
)
def test_what_only_this_machine_reaches(host: str, is_own: bool) -> None:
    assert is_loopback(host) is is_own
