"""A server that is full: who waits is told where they stand, and is served in turn."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator

import httpx
import pytest
from fastapi import FastAPI
from support.environments import Counter, CounterEnv, Do, Log
from support.relay import Relay
from support.servers import serving
from support.waiting import wait_until

from openenv import CapacityError, EnvironmentsFailed, create_app
from openenv._internal.timing import new_event_loop
from openenv.client.vector import VectorEnv
from openenv.execution.limits import Limits
from openenv.execution.queue import FairQueue
from openenv.protocol.http import SESSION_COOKIE
from openenv.protocol.v1.messages import Queued

pytestmark = pytest.mark.anyio


@pytest.fixture
def app() -> FastAPI:
    return create_app(Counter, max_concurrent_envs=2)


@pytest.fixture
def url(app: FastAPI) -> Iterator[str]:
    with serving(app) as url:
        yield url


async def until_there_wait(app: FastAPI, count: int) -> None:
    """Wait until so many are in the queue."""
    (manager,) = app.state.openenv_managers
    await asyncio.to_thread(wait_until, lambda: manager.queue_length == count)


async def test_who_waits_is_told_where_they_stand_and_gets_in(url: str) -> None:
    told: list[Queued] = []
    async with CounterEnv(url) as one, CounterEnv(url) as two:
        await one.reset()
        await two.reset()
        async with CounterEnv(url, on_queue=told.append) as third:
            waiting = asyncio.ensure_future(awaited(third))
            await asyncio.to_thread(wait_until, lambda: bool(told))
            assert told == [Queued(1, 1)]
            await one.close()
            assert await waiting == "ready"
            assert (await two.step(Do())).observation.text == "step 1", "it was not touched"


async def awaited(env: CounterEnv) -> str:
    return (await env.reset()).observation.text


async def test_the_first_to_come_is_the_first_to_get_in(app: FastAPI, url: str) -> None:
    in_order: list[int] = []

    async def play(number: int) -> None:
        async with CounterEnv(url) as env:
            await env.reset()
            in_order.append(number)

    async with CounterEnv(url) as one, CounterEnv(url) as two:
        await one.reset()
        await two.reset()
        players = []
        for number in range(5):
            players.append(asyncio.ensure_future(play(number)))
            await until_there_wait(app, number + 1)
        assert in_order == []
        await one.close()
        await asyncio.gather(*players)
    assert in_order == [0, 1, 2, 3, 4]


async def test_a_client_of_many_does_not_make_others_wait_for_all_of_them() -> None:
    queue = FairQueue()
    many = [queue.join("many") for _ in range(3)]
    one = queue.join("one")
    assert queue.order() == [many[0], one, many[1], many[2]]
    assert [queue.next() for _ in range(4)] == [many[0], one, many[1], many[2]]
    assert len(queue) == 0
    again = queue.join("many")
    queue.leave(again)
    queue.leave(again)
    assert len(queue) == 0
    queue.stop()


def test_several_may_join_at_once_on_any_loop() -> None:
    """uvloop's `call_later` gives a handle without a time where the delay is 0."""

    async def positions() -> list[tuple[int, int]]:
        queue, told = FairQueue(), list[tuple[int, int]]()
        for _ in range(3):
            queue.join("one", lambda *where: told.append(where))
        await asyncio.sleep(0.01)
        queue.stop()
        return told

    for loop in (asyncio.new_event_loop(), new_event_loop()):
        assert loop.run_until_complete(positions()) == [(1, 3), (2, 3), (3, 3)]
        loop.close()


@pytest.mark.slow
async def test_patience_ends(url: str) -> None:
    async with CounterEnv(url) as one, CounterEnv(url) as two:
        await one.reset()
        await two.reset()
        async with CounterEnv(url, queue_timeout_s=0.3) as third:
            began = time.monotonic()
            with pytest.raises(CapacityError, match=r"none came free in 0.3 s") as caught:
                await third.reset()
            assert 0.25 < time.monotonic() - began < 5
            assert caught.value.data["max_sessions"] == 2
            await one.close()
            assert (await third.reset()).observation.text == "ready", "and asks again"
        async with CounterEnv(url, queue_timeout_s=0) as fourth, CounterEnv(url) as fifth:
            await fifth.reset()
            with pytest.raises(CapacityError):
                await fourth.reset()


async def test_the_server_bounds_how_long_anybody_waits() -> None:
    app = create_app(Counter, max_concurrent_envs=1, limits=Limits(max_queue_s=0.1))
    with serving(app) as url:
        async with CounterEnv(url) as one, CounterEnv(url, queue_timeout_s=30) as two:
            await one.reset()
            with pytest.raises(CapacityError, match=r"none came free in 0.1 s"):
                await two.reset()


@pytest.mark.slow
async def test_a_message_limit_does_not_end_the_wait(app: FastAPI, url: str) -> None:
    async with CounterEnv(url) as one, CounterEnv(url) as two:
        await one.reset()
        await two.reset()
        async with CounterEnv(url, message_timeout_s=1.0, queue_timeout_s=30) as third:
            waiting = asyncio.ensure_future(awaited(third))
            await until_there_wait(app, 1)
            await asyncio.sleep(1.2)  # which is longer than the limit
            await two.close()
            assert await waiting == "ready"


async def test_nobody_who_left_the_queue_gets_a_slot(app: FastAPI, url: str, log: Log) -> None:
    async with CounterEnv(url) as one, CounterEnv(url) as two:
        await one.reset()
        await two.reset()
        for _ in range(3):
            third = CounterEnv(url)
            waiting = asyncio.ensure_future(awaited(third))
            await until_there_wait(app, 1)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await third.close()
            await until_there_wait(app, 0)
    await asyncio.to_thread(wait_until, lambda: log.count("close") == 2)
    assert log.count("init") == 2


async def test_a_queue_that_is_full_refuses() -> None:
    limits = Limits(max_queue=1)
    app = create_app(Counter, max_concurrent_envs=1, limits=limits)
    with serving(app) as url:
        async with CounterEnv(url) as one, CounterEnv(url) as two, CounterEnv(url) as three:
            await one.reset()
            waiting = asyncio.ensure_future(awaited(two))
            await until_there_wait(app, 1)
            with pytest.raises(CapacityError, match="1 wait already"):
                await three.reset()
            await one.close()
            assert await waiting == "ready"


async def test_version_0_and_http_are_refused_at_once_and_told_when_to_come_back(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with CounterEnv(url) as one, CounterEnv(url) as two:
        await one.reset()
        await two.reset()
        monkeypatch.setenv("OPENENV_PROTOCOL", "0")
        async with CounterEnv(url) as old:
            began = time.monotonic()
            with pytest.raises(CapacityError):
                await old.reset()
            assert time.monotonic() - began < 2
        refused = await asyncio.to_thread(
            httpx.post, f"{url}/reset", cookies={SESSION_COOKIE: "gone"}
        )
        assert refused.status_code == 503 and int(refused.headers["retry-after"]) >= 1


@pytest.mark.slow
def test_a_message_limit_does_not_end_the_wait_of_a_vector(url: str) -> None:
    with CounterEnv(url) as one:
        one.reset()

        def note(index: int, queued: Queued) -> None:
            threading.Timer(1.5, one.close).start()  # which is longer than the limit

        with VectorEnv(url, 2, client=CounterEnv, message_timeout_s=1, on_queue=note) as envs:
            envs.reset()
            assert envs.step([Do()] * 2)[1].tolist() == [1, 1]


def test_a_vector_waits_for_its_last_environments(url: str) -> None:
    with CounterEnv(url) as one:
        one.reset()
        told: list[tuple[int, Queued]] = []

        def note(index: int, queued: Queued) -> None:
            told.append((index, queued))
            threading.Timer(0.1, one.close).start()

        with VectorEnv(url, 2, client=CounterEnv, on_queue=note) as envs:
            envs.reset()
            assert envs.step([Do()] * 2)[1].tolist() == [1, 1]
        assert told[0] == (1, Queued(1, 1))


def test_a_vector_that_gets_no_slot_says_of_which(url: str) -> None:
    with CounterEnv(url) as one:
        one.reset()
        with VectorEnv(url, 2, client=CounterEnv, queue_timeout_s=0.2) as envs:
            with pytest.raises(EnvironmentsFailed) as caught:
                envs.reset()
            assert isinstance(caught.value.errors[1], CapacityError)


def test_a_wait_is_said_to_whoever_wonders(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with CounterEnv(url) as one, CounterEnv(url) as two:
        one.reset()
        two.reset()

        def waits() -> int:
            return sum("waiting for a slot, at position 1 of 1" in m for m in caplog.messages)

        def make_room() -> None:
            wait_until(lambda: bool(waits()))
            one.close()

        with caplog.at_level(logging.WARNING, "openenv.client"), CounterEnv(url) as third:
            threading.Thread(target=make_room).start()
            third.reset()
            with CounterEnv(url, queue_timeout_s=0.01) as fourth, pytest.raises(CapacityError):
                fourth.reset()
    assert waits() == 1  # however many wait
    (said,) = [m for m in caplog.messages if "waiting for a slot" in m]
    assert "full with 2 sessions" in said and "max_concurrent_envs=N" in said


@pytest.mark.slow
def test_slots_of_clients_that_were_cut_off_come_free_after_the_grace(log: Log) -> None:
    limits = Limits(resume_grace_s=0.5)
    with serving(create_app(Counter, max_concurrent_envs=1, limits=limits)) as url:
        relay = Relay(url)
        with CounterEnv(relay.url) as gone:
            gone.reset()
            relay.refuse()
            relay.cut()
            with CounterEnv(url) as waiting:
                assert waiting.reset().observation.text == "ready"
        relay.close()


@pytest.mark.slow
def test_a_place_in_the_queue_survives_a_broken_connection(url: str) -> None:
    relay = Relay(url)
    with CounterEnv(url) as one, CounterEnv(url) as two:
        one.reset()
        two.reset()
        told: list[Queued] = []

        def note(queued: Queued) -> None:
            if not told:
                relay.cut()
                threading.Timer(0.3, one.close).start()
            told.append(queued)

        with CounterEnv(relay.url, on_queue=note) as third:
            assert third.reset().observation.text == "ready"
            assert third.step(Do()).observation.text == "step 1"
    relay.close()
