"""Clients of one loop share connections; what happens to a session is its client's alone."""

from __future__ import annotations

import asyncio
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.environments import AsyncCounter, Counter, CounterEnv, Do, Hold
from support.relay import Relay
from support.servers import serving
from support.waiting import eventually, wait_until

from openenv import ConnectError, SessionLost, StepTimeout, create_app
from openenv.client._sharing import SESSIONS, SPREAD, SPREAD_SESSIONS
from openenv.errors import AuthenticationError, MessageTooLarge
from openenv.execution.limits import Limits
from openenv.execution.recording import RecordingOptions

Served = tuple[str, Any]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    app = create_app(
        Counter, max_concurrent_envs=500, record=RecordingOptions(str(tmp_path), False)
    )
    (manager,) = app.state.openenv_managers
    with serving(app) as url:
        yield url, manager
    assert not manager.active_sessions


async def opened(count: int, **options: Any) -> list[CounterEnv]:
    clients = [CounterEnv(**options) for _ in range(count)]
    return list(await asyncio.gather(*(one.__aenter__() for one in clients)))


async def close(clients: list[CounterEnv]) -> None:
    await asyncio.gather(*(one.__aexit__(None, None, None) for one in clients))


# ------------------------------------------------------------------ who shares with whom


@pytest.mark.anyio
async def test_many_clients_share_few_connections(served: Served) -> None:
    url, manager = served
    clients = await opened(2 * SESSIONS, base_url=url)
    await asyncio.gather(*(one.reset() for one in clients))
    assert len(manager.connections) == 2
    results = await asyncio.gather(*(one.step(Do()) for one in clients))
    assert {one.observation.text for one in results} == {"step 1"}
    assert manager.active_sessions == 2 * SESSIONS
    await close(clients)
    assert not manager.active_sessions and not manager.connections


@pytest.mark.anyio
async def test_requests_of_a_tick_travel_in_one_frame(served: Served) -> None:
    url, manager = served
    clients = await opened(SESSIONS, base_url=url)
    await asyncio.gather(*(one.reset() for one in clients))
    before = manager.counters.frames_in
    for number in range(1, 4):
        results = await asyncio.gather(*(one.step(Do()) for one in clients))
        assert {one.observation.text for one in results} == {f"step {number}"}
    assert manager.counters.frames_in - before <= 2 * 3 * 2, "64 requests fill a frame"
    await close(clients)


def test_clients_for_synchronous_use_share_too(served: Served) -> None:
    url, manager = served
    with CounterEnv(base_url=url) as one, CounterEnv(base_url=url) as other:
        one.reset()
        other.reset()
        assert len(manager.connections) == 1
        one.step(Do())
        assert other.step(Do()).observation.text == "step 1"


@pytest.mark.parametrize(
    "options",
    [
        {"share_connection": False},
        {"headers": {"X-Of": "another"}},
        {"api_key": "another"},
        {"queue_timeout_s": 1.0},
        {"max_message_size_mb": 7},
        {"max_message_size_mb": 0.1},
        {"websocket_ping_interval_s": None},
        {"record": True},
    ],
    ids=lambda options: next(iter(options)),
)
@pytest.mark.anyio
async def test_other_options_are_another_connection(
    served: Served, options: dict[str, Any]
) -> None:
    url, manager = served
    async with CounterEnv(base_url=url) as env, CounterEnv(base_url=url, **options) as other:
        await env.reset()
        await other.reset()
        assert len(manager.connections) == 2


@pytest.mark.anyio
async def test_the_key_of_the_environment_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(create_app(Counter, keys=["right"])) as url:
        monkeypatch.setenv("OPENENV_API_KEY", "right")
        async with CounterEnv(base_url=url) as env:
            await env.reset()
            monkeypatch.setenv("OPENENV_API_KEY", "wrong")
            with pytest.raises(AuthenticationError):
                await CounterEnv(base_url=url).connect()
            assert (await env.step(Do())).observation.text == "step 1"


@pytest.mark.anyio
async def test_each_session_of_version_0_has_its_own(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENENV_PROTOCOL", "0")
    url, manager = served
    clients = await opened(20, base_url=url)
    await asyncio.gather(*(one.reset() for one in clients))
    assert manager.active_sessions == 20
    await close(clients)


@pytest.mark.anyio
async def test_clients_of_two_loops_do_not_share(served: Served) -> None:
    url, manager = served

    def elsewhere() -> None:
        with CounterEnv(base_url=url) as env:
            env.reset()
            assert len(manager.connections) == 2

    async with CounterEnv(base_url=url) as env:
        await env.reset()
        await asyncio.to_thread(elsewhere)
        assert (await env.step(Do())).observation.text == "step 1"


@pytest.mark.anyio
async def test_where_several_servers_may_stand_connections_spread_the_load(served: Served) -> None:
    url, manager = served
    relay = Relay(url)  # so that the two ends see different addresses
    try:
        clients = await opened(SPREAD, base_url=relay.url)
        assert len(manager.connections) == SPREAD
        clients += await opened(2 * SPREAD, base_url=relay.url)
        assert len(manager.connections) == SPREAD
        clients += await opened(SPREAD * SPREAD_SESSIONS, base_url=relay.url)
        assert SPREAD < len(manager.connections) < 3 * SPREAD
        await asyncio.gather(*(one.reset() for one in clients))
        await close(clients)
    finally:
        relay.close()


# ------------------------------------------------------------------ what happens to one


@pytest.mark.anyio
async def test_a_client_that_is_closed_leaves_the_others(served: Served) -> None:
    url, manager = served
    clients = await opened(3, base_url=url)
    await asyncio.gather(*(one.reset() for one in clients))
    first, second, third = clients
    await first.step(Do())
    await first.close()
    assert manager.active_sessions == 2 and len(manager.connections) == 1
    assert (await second.step(Do())).observation.text == "step 1"
    assert (await first.reset()).observation.text == "ready", "it opens another session"
    assert len(manager.connections) == 1
    await close([first, second])
    assert (await third.step(Do())).observation.text == "step 1"
    await close([third])
    assert not manager.connections


@pytest.mark.anyio
async def test_a_client_that_is_closed_in_mid_step_leaves_the_others(
    served: Served, tmp_path: Any
) -> None:
    url, manager = served
    hold = Hold(tmp_path)
    async with CounterEnv(base_url=url) as env, CounterEnv(base_url=url) as other:
        await asyncio.gather(env.reset(), other.reset())
        step = asyncio.ensure_future(_awaited(env.step(hold.action)))
        await hold.begun()
        await env.close()
        with pytest.raises(SessionLost, match="closed"):
            await step
        assert (await other.step(Do())).observation.text == "step 1"
        hold.release()
        await eventually(lambda: manager.active_sessions == 1)


async def _awaited(pending: Any) -> Any:
    return await pending


@pytest.mark.anyio
async def test_a_client_that_is_dropped_leaves_the_others(served: Served) -> None:
    url, manager = served
    async with CounterEnv(base_url=url) as env:
        await env.reset()
        with pytest.warns(ResourceWarning, match="never closed"):
            dropped = CounterEnv(base_url=url)
            await dropped.__aenter__()
            await dropped.reset()
            assert manager.active_sessions == 2
            del dropped
            await eventually(lambda: manager.active_sessions == 1)
        assert (await env.step(Do())).observation.text == "step 1"


@pytest.mark.anyio
async def test_a_step_that_is_overdue_delays_nobody(served: Served, tmp_path: Any) -> None:
    url, _ = served
    hold = Hold(tmp_path)
    async with CounterEnv(base_url=url) as env, CounterEnv(base_url=url) as other:
        await asyncio.gather(env.reset(), other.reset())
        with pytest.raises(StepTimeout):
            await env.step(hold.action, timeout_s=0.2)
        assert (await other.step(Do())).observation.text == "step 1"
        hold.release()
        assert (await env.step(hold.action)).observation.text == "step 1", "asked for again"


@pytest.mark.anyio
async def test_what_is_too_large_concerns_its_session_alone(served: Served) -> None:
    url, _ = served
    options: dict[str, Any] = {"base_url": url, "max_message_size_mb": 1}
    async with CounterEnv(**options) as env, CounterEnv(**options) as other:
        await asyncio.gather(env.reset(), other.reset())
        with pytest.raises(MessageTooLarge):
            await env.step(Do(what="large", value=2 * 2**20))
        assert (await other.step(Do())).observation.text == "step 1"
        assert (await env.step(Do())).observation.text == "step 2"


@pytest.mark.anyio
async def test_a_value_that_cannot_be_sent_is_told_to_its_caller_alone(served: Served) -> None:
    url, _ = served
    async with CounterEnv(base_url=url) as env, CounterEnv(base_url=url) as other:
        await asyncio.gather(env.reset(), other.reset())
        outcomes = await asyncio.gather(
            _awaited(env.step(Do(value=object()))),
            _awaited(other.step(Do())),
            return_exceptions=True,
        )
        refused, result = outcomes
        assert isinstance(refused, Exception) and "object" in str(refused)
        assert not isinstance(result, BaseException)
        assert result.observation.text == "step 1"


@pytest.mark.anyio
async def test_an_environment_that_breaks_ends_its_session_alone() -> None:
    class Fragile(Counter):
        made = 0

        def __init__(self) -> None:
            super().__init__()
            Fragile.made += 1
            if Fragile.made == 2:
                raise RuntimeError("no board")

    with serving(create_app(Fragile)) as url:
        async with CounterEnv(base_url=url) as env:
            await env.reset()
            other = CounterEnv(base_url=url)
            await other.__aenter__()
            with pytest.raises(Exception, match="failed to create instance"):
                await other.reset()
            assert (await env.step(Do())).observation.text == "step 1"
            assert (await other.reset()).observation.text == "ready", "in another session"
            await close([other])
            assert (await env.step(Do())).observation.text == "step 2"


@pytest.mark.anyio
async def test_a_large_frame_turns_new_clients_to_another_connection(served: Served) -> None:
    url, manager = served
    async with CounterEnv(base_url=url) as env:
        await env.reset()
        await env.step(Do(what="large", value=2 * 2**20))
        async with CounterEnv(base_url=url) as other:
            await other.reset()
            assert len(manager.connections) == 2


# ------------------------------------------------------------------ what happens to the connection


@pytest.mark.anyio
async def test_all_sessions_of_a_connection_that_breaks_go_on() -> None:
    app = create_app(AsyncCounter)
    AsyncCounter.log.events.clear()
    with serving(app) as url:
        relay = Relay(url)
        try:
            clients = await opened(2 * SPREAD, base_url=relay.url)
            await asyncio.gather(*(one.reset() for one in clients))
            for number in range(1, 4):
                stepping = [asyncio.ensure_future(_awaited(one.step(Do()))) for one in clients]
                if number > 1:
                    await asyncio.sleep(0)
                relay.cut()
                results = await asyncio.gather(*stepping)
                assert {one.observation.text for one in results} == {f"step {number}"}
            assert AsyncCounter.log.count("step") == 3 * 2 * SPREAD, "each is taken once"
            await close(clients)
        finally:
            relay.close()


@pytest.mark.anyio
async def test_sessions_that_are_closed_while_the_connection_is_broken_are_gone() -> None:
    app = create_app(Counter)
    (manager,) = app.state.openenv_managers
    with serving(app) as url:
        relay = Relay(url)
        try:
            clients = await opened(SPREAD + 2, base_url=relay.url)
            await asyncio.gather(*(one.reset() for one in clients))
            relay.cut()
            await close(clients[1:])
            assert (await clients[0].step(Do())).observation.text == "step 1"
            await eventually(lambda: manager.active_sessions == 1)
            await close(clients[:1])
        finally:
            relay.close()


@pytest.mark.anyio
async def test_a_server_that_is_not_there_is_told_to_all_at_once() -> None:
    with serving(create_app(Counter)) as url:
        pass
    clients = [CounterEnv(base_url=url, connect_timeout_s=2.0) for _ in range(200)]
    began = time.monotonic()
    outcomes = await asyncio.gather(*(one.connect() for one in clients), return_exceptions=True)
    assert time.monotonic() - began < 4, "not one after another"
    assert all(type(one) is ConnectError for one in outcomes)
    assert len({id(one) for one in outcomes}) == 200, "each has an error of its own"


@pytest.mark.anyio
async def test_a_caller_that_gives_up_while_it_opens_leaves_the_others(served: Served) -> None:
    url, _ = served
    clients = [CounterEnv(base_url=url) for _ in range(20)]
    opening = [asyncio.ensure_future(one.__aenter__()) for one in clients]
    await asyncio.sleep(0)
    opening[0].cancel()
    opening[5].cancel()
    outcomes = await asyncio.gather(*opening, return_exceptions=True)
    assert sum(isinstance(one, asyncio.CancelledError) for one in outcomes) == 2
    there = [one for one, outcome in zip(clients, outcomes, strict=True) if outcome is one]
    assert len(there) == 18
    await asyncio.gather(*(one.reset() for one in there))
    await close(clients)


@pytest.mark.anyio
async def test_a_full_server_queues_each_session_by_itself() -> None:
    app = create_app(Counter, max_concurrent_envs=2)
    with serving(app) as url:
        clients = await opened(3, base_url=url, on_queue=lambda queued: places.append(queued))
        places: list[Any] = []
        await asyncio.gather(*(one.reset() for one in clients[:2]))
        waiting = asyncio.ensure_future(_awaited(clients[2].reset()))
        await eventually(lambda: bool(places))
        assert (await clients[0].step(Do())).observation.text == "step 1"
        assert not waiting.done()
        await clients[1].close()
        assert (await waiting).observation.text == "ready"
        await close(clients)


@pytest.mark.anyio
async def test_a_client_that_waits_for_a_slot_can_be_closed() -> None:
    app = create_app(Counter, max_concurrent_envs=1)
    (manager,) = app.state.openenv_managers
    with serving(app) as url:
        one, other = await opened(2, base_url=url)
        await one.reset()
        waiting = asyncio.ensure_future(_awaited(other.reset()))
        await eventually(lambda: len(manager._queue) == 1)
        await other.close()
        with pytest.raises(SessionLost):
            await waiting
        await eventually(lambda: not manager._queue)
        assert (await one.step(Do())).observation.text == "step 1"
        await close([one, other])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_has_a_connection_of_its_own(served: Served) -> None:
    url, manager = served
    with CounterEnv(base_url=url) as env:
        env.reset()
        env.step(Do())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads
            child = os.fork()
        if child == 0:
            status = 1
            try:
                with CounterEnv(base_url=url) as mine:
                    mine.reset()
                    status = 0 if mine.step(Do()).observation.text == "step 1" else 2
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert env.step(Do()).observation.text == "step 2"
    wait_until(lambda: not manager.connections)


@pytest.mark.anyio
async def test_a_server_that_stops_in_turn_ends_all_sessions() -> None:
    app = create_app(Counter, limits=Limits(resume_grace_s=1.0))
    with serving(app) as url:
        clients = await opened(3, base_url=url)
        await asyncio.gather(*(one.reset() for one in clients))
    for one in clients:
        with pytest.raises(SessionLost):
            await one.step(Do())
    await close(clients)
