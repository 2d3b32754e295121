"""What strangers may send before anybody knows what they want: little, and not for long."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator

import httpx
import pytest
from support.environments import Counter, CounterEnv, Do
from support.raw import connected, post
from support.servers import serving
from support.ws import raw

from openenv import create_app
from openenv.server import heads
from openenv.server.heads import MAX_HEAD_BYTES

REQUEST = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
BEGINNINGS = {
    "a path": (b"GET /", b"y" * 9000),
    "a header": (b"GET /health HTTP/1.1\r\nX-A: ", b"y" * 9000),
    "a name": (b"GET /health HTTP/1.1\r\n", b"y" * 9000),
    "many headers": (b"GET /health HTTP/1.1\r\n", b"X-A: y\r\n" * 1000),
    "trailers": (
        b"POST /reset HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2\r\n{}\r\n0\r\n",
        b"X-A: y\r\n" * 1000,
    ),
    "a trailer": (
        b"POST /reset HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2\r\n{}\r\n0\r\nX-A: ",
        b"y" * 9000,
    ),
}


@pytest.fixture
def url() -> Iterator[str]:
    with serving(create_app(Counter)) as url:
        yield url


@pytest.mark.parametrize("what", BEGINNINGS)
def test_a_head_has_an_end(url: str, what: str) -> None:
    first, again = BEGINNINGS[what]
    sent, told = 0, b""
    with CounterEnv(base_url=url).sync() as neighbour, connected(url) as stranger:
        neighbour.reset()
        stranger.sendall(first)
        stranger.settimeout(0.05)
        try:
            while sent < 30 * MAX_HEAD_BYTES and b"431" not in told:
                stranger.sendall(again)
                sent += len(again)
                try:
                    told += stranger.recv(1000)
                except TimeoutError:
                    assert neighbour.step(Do()).reward is not None
        except ConnectionError:
            pass
    assert sent <= 3 * MAX_HEAD_BYTES, told
    assert b"HTTP/1.1 431" in told and b"larger than 65536 bytes" in told


def test_a_head_just_below_the_limit_is_taken(url: str) -> None:
    headers = {"X-A": "y" * 30_000, "X-B": "y" * 30_000}
    assert httpx.get(f"{url}/health", headers=headers).status_code == 200
    with raw(url, X_A="y" * 30_000):
        pass


@pytest.mark.parametrize("begun", [b"", b"GET /health HTTP/1.1\r\nHost: loc", REQUEST + b"GET /h"])
def test_a_head_has_some_time(begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that say nothing would take all that a server may have open."""
    monkeypatch.setattr(heads, "HEAD_S", 0.3)
    with serving(create_app(Counter)) as url, connected(url) as stranger:
        began = time.monotonic()
        stranger.sendall(begun)
        while stranger.recv(1000):
            pass
        assert 0.2 < time.monotonic() - began < 4
        assert httpx.get(f"{url}/health").status_code == 200
        with raw(url) as client:  # which may then be silent for long
            time.sleep(0.4)
            client.text('{"type":"reset"}')
            assert b"observation" in client.message()


def test_requests_that_nobody_waits_for_are_not_kept(url: str) -> None:
    """While nobody reads the answers, requests are not read; then they are answered."""
    sent = 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with CounterEnv(base_url=url).sync() as neighbour, connected(url) as stranger:
        neighbour.reset()
        stranger.settimeout(1)
        many = REQUEST * 1000
        with pytest.raises(TimeoutError):
            while sent < 10**9:
                sent += stranger.send(many[sent % len(REQUEST) :])
        assert neighbour.step(Do()).reward == 1.0
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30_000  # KiB
        answered, rest = 0, b""
        while answered < 10_000:
            rest += stranger.recv(2**20)
            answered += rest.count(b'{"status":"healthy"}')
            rest = rest[-19:]


def test_bodies_among_them_stay_whole(url: str) -> None:
    """In pieces of any size, one after the other on one connection."""
    bodies = [b'{"size":%d}' % size for size in (0, 3, 5)]
    requests = [post("/reset", body).replace(b"close", b"keep-alive") for body in bodies]
    whole = b"".join(requests) + post(
        "/reset", b'{"seed":7,"size":1,"bogus":"%b"}' % (b"z" * 50_000)
    )
    for size in (1000, 16_384, 70_000):
        with connected(url) as client:
            for at in range(0, len(whole), size):
                client.sendall(whole[at : at + size])
            told = b""
            while part := client.recv(2**16):
                told += part
        assert told.count(b"HTTP/1.1 200") == 4, told
        for want in (b'"size":0', b'"size":3', b'"size":5', b'"seed":7'):
            assert want in told
