"""Frames are kept as they came, of whatever the server does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
from support.memory import MIB, kept_below
from support.rawserver import Peer, raw_server
from support.servers import serving
from validation.subjects.good_env.server.serving import application

from openenv.client.transports.base import TransportClosed
from openenv.validation.evidence import Transcript
from openenv.validation.probes import Policy, script_policy
from openenv.validation.wire import (
    Budget,
    BudgetSpent,
    RawSession,
    fetch_page,
    play_episode,
    play_together,
)

RESET = {"seed": 42, "episode_id": "e"}
WORDS = script_policy([{"say": "halt"}, {"say": "drive"}, {"say": "turn"}])


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(application(None, {})) as base:
        yield base


def played(url: str, policy: Policy = WORDS, budget: Budget | None = None) -> Transcript:
    async def one() -> Transcript:
        async with RawSession(url, budget) as session:
            return await play_episode(session, RESET, policy)

    return asyncio.run(one())


def test_an_episode_is_kept_as_texts_with_a_state_after_each_step(url: str) -> None:
    transcript = played(url)
    kinds = [exchange.message["type"] for exchange in transcript.exchanges]
    assert kinds == ["reset", "state", "step", "state", "step", "state", "step", "state"]
    for exchange in transcript.exchanges:
        assert exchange.response is not None
        json.loads(exchange.response)
    assert transcript.steps[-1].is_done
    assert transcript.errors == []


def test_a_step_that_is_refused_ends_no_episode(url: str) -> None:
    words = script_policy([{"shout": 1}, {"say": "halt"}])
    transcript = played(url, words)
    assert next(e.kind for e in transcript.exchanges if e.message["type"] == "step") == "error"
    assert "VALIDATION_ERROR" in transcript.errors[0]
    assert [moment.sent for moment in transcript.steps] == [{"say": "halt"}]


def test_episodes_side_by_side_are_in_step(url: str) -> None:
    async def both() -> list[Transcript]:
        async with RawSession(url) as one, RawSession(url) as other:
            return await play_together([one, other], [RESET, RESET], [WORDS, WORDS])

    first, second = asyncio.run(both())
    assert first.trace == second.trace


def test_a_run_has_so_much_time_and_so_much_room(url: str) -> None:
    for budget in (Budget(seconds=-1.0), Budget(kept_bytes=300)):
        with pytest.raises(BudgetSpent):
            played(url, budget=budget)


def test_a_server_that_is_not_there_is_what_was_found() -> None:
    transcript = played("http://127.0.0.1:9")
    assert transcript.moments == ()
    assert transcript.stopped is not None and "no connection" in transcript.stopped
    assert fetch_page("http://127.0.0.1:9", "/health").failure is not None


def test_a_connection_that_breaks_in_the_middle_is_what_was_found() -> None:
    def goes_away(peer: Peer) -> None:
        peer.accept()
        peer.read()

    with raw_server(goes_away) as port:
        transcript = played(f"http://127.0.0.1:{port}")
    assert transcript.stopped is not None and "lost" in transcript.stopped
    assert transcript.exchanges[0].response is None


def test_an_answer_that_does_not_come_is_what_was_found() -> None:
    def says_nothing(peer: Peer) -> None:
        peer.accept()
        peer.read_until_end()

    async def one(url: str) -> Transcript:
        async with RawSession(url, answer_s=0.1) as session:
            return await play_episode(session, RESET, WORDS)

    with raw_server(says_nothing) as port:
        transcript = asyncio.run(one(f"http://127.0.0.1:{port}"))
    assert transcript.stopped is not None and "0.1 s" in transcript.stopped


def test_a_route_is_asked(url: str) -> None:
    assert fetch_page(url, "/health").object == {"status": "healthy"}
    assert fetch_page(url, "/no-such-route").status == 404
    assert fetch_page(url, "/good_env/num_tasks", {"split": "train"}).object == {"num_tasks": 6}
    with pytest.raises(ValueError, match="not an HTTP URL"):
        fetch_page("file:///etc/passwd", "")


class Parting:
    """A connection that the server has closed, after it has said why."""

    def __init__(self) -> None:
        self.said = [b'{"type":"error","data":{"code":"CAPACITY_REACHED","message":"full"}}']

    def send(self, frame: bytes) -> None:
        raise TransportClosed("received 1000")

    async def receive(self, timeout_s: float | None = None) -> bytes:
        if not self.said:
            raise TransportClosed("received 1000")
        return self.said.pop()


def test_what_a_server_says_before_it_closes_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    session = RawSession("http://127.0.0.1:9")
    monkeypatch.setattr(session, "_transport", Parting())
    first, second = (asyncio.run(session.ask("reset")) for _ in range(2))
    assert first.error == "CAPACITY_REACHED: full"
    assert second.error is not None and "the connection was lost" in second.error


def test_frames_that_are_only_looked_at_are_not_counted(url: str) -> None:
    budget = Budget(kept_bytes=300)
    assert played(url, budget=budget.without_size_limit()).steps[-1].is_done
    with pytest.raises(BudgetSpent):
        played(url, budget=Budget(seconds=-1.0).without_size_limit())


def test_an_answer_that_is_too_large_is_what_was_found(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to be cut, and then called no JSON."""
    monkeypatch.setattr("openenv.validation.wire.MAX_BODY_BYTES", MIB)

    def pour(peer: Peer) -> None:
        peer.read_head()
        peer.socket.sendall(b"HTTP/1.1 200 OK\r\n\r\n[")
        while True:
            peer.socket.sendall(b"1," * MIB)

    with raw_server(pour) as port, kept_below(16 * MIB):
        page = fetch_page(f"http://127.0.0.1:{port}", "/schema")
    assert page.failure == f"the answer has more than {MIB} bytes" and page.object == {}
    assert fetch_page(url, "/health").object == {"status": "healthy"}
