"""Clients of one loop share connections; what happens to a session is its client's alone."""

from __future__ import annotations

import asyncio
import ipaddress
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

from openenv import (
    ConnectError,
    GenericEnvClient,
    SessionLost,
    StepTimeout,
    ValidationFailed,
    create_app,
)
from openenv.client import _sharing
from openenv.client._sharing import SESSIONS, SPREAD, SPREAD_SESSIONS, shared_address
from openenv.client.connection import RemoteSession
from openenv.client.transports.websocket import WebSocketOptions
from openenv.errors import AuthenticationError, MessageTooLarge
from openenv.execution.limits import Limits
from openenv.execution.recording import RecordingOptions
from openenv.protocol.v1.messages import Queued

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
    assert not manager.active_sessions
    await eventually(lambda: not manager.connections)


@pytest.mark.anyio
async def test_what_opening_costs_does_not_grow_with_the_number_of_clients(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, manager = served
    seen = parsed = 0
    list_connections, parse = _sharing._Group._open_connections, ipaddress.ip_address

    def counting(group: Any) -> Any:
        nonlocal seen
        found = list_connections(group)
        seen += len(found)
        return found

    def parsing(host: str) -> Any:
        nonlocal parsed
        parsed += 1
        return parse(host)

    monkeypatch.setattr(_sharing._Group, "_open_connections", counting)
    monkeypatch.setattr(ipaddress, "ip_address", parsing)
    clients = await opened(7 * SESSIONS, base_url=url)
    assert len(manager.connections) == 7
    assert seen <= 3 * len(clients), "connections looked at, in all"
    assert parsed <= 10, "the server's address"
    await close(clients)


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
                await opened(1, base_url=url)
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
    await eventually(lambda: not manager.connections)


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


@pytest.mark.anyio
@pytest.mark.parametrize("cls", [Counter, AsyncCounter])
async def test_environments_that_hang_leave_the_others_alone(
    cls: type[Counter] | type[AsyncCounter], tmp_path: Path
) -> None:
    app = create_app(cls, max_concurrent_envs=300)
    (manager,) = app.state.openenv_managers
    with serving(app) as url:
        async with CounterEnv(base_url=url) as other:
            await other.reset()
            holds = []
            for number in range(70):
                folder = tmp_path / str(number)
                folder.mkdir()
                holds.append(Hold(folder))
                (env,) = await opened(1, base_url=url)  # on this loop, and its connection
                await env.reset()
                step = asyncio.ensure_future(_awaited(env.step(holds[-1].action)))
                await holds[-1].begun()
                await close([env])
                with pytest.raises(SessionLost):
                    await step
            assert len(manager.connections) == 1
            assert (await other.step(Do())).observation.text == "step 1"
            if cls is AsyncCounter:
                await eventually(lambda: manager.active_sessions == 1)  # the steps are cancelled
            for hold in holds:
                hold.release()
            await eventually(lambda: manager.active_sessions == 1)


@pytest.mark.anyio
async def test_questions_that_are_given_up_are_asked_once(served: Served, tmp_path: Path) -> None:
    url, manager = served
    hold = Hold(tmp_path)
    async with CounterEnv(base_url=url) as env, CounterEnv(base_url=url) as other:
        await asyncio.gather(env.reset(), other.reset())
        step = asyncio.ensure_future(_awaited(env.step(hold.action)))
        await hold.begun()
        env_step = asyncio.ensure_future(_awaited(env.state()))
        await asyncio.sleep(0)
        env_step.cancel()
        step.cancel()
        await asyncio.gather(step, env_step, return_exceptions=True)
        before = manager.counters.frames_in
        for _ in range(100):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(_awaited(env.state()), 0.002)
        assert manager.counters.frames_in - before <= 2
        assert (await other.step(Do())).observation.text == "step 1"
        hold.release()
        assert (await env.step(hold.action)).observation.text == "step 1"
        assert (await env.step(Do())).observation.text == "step 2"
        assert (await env.state()).step_count == 2, "and not as it was when it was first asked"


@pytest.mark.anyio
async def test_an_answer_to_an_earlier_question_is_not_taken_for_a_later_one(
    served: Served, shared_relay: Relay
) -> None:
    async with CounterEnv(base_url=shared_relay.url) as env:
        await env.reset()
        shared_relay.hold()  # answers wait on their way
        for asked in (env.state(), env.step(Do())):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(_awaited(asked), 0.2)
        again = asyncio.ensure_future(_awaited(env.state()))
        await asyncio.sleep(0.1)
        shared_relay.cut_and_release()
        assert (await again).step_count == 1, "after the step"
        assert (await env.step(Do())).observation.text == "step 1"


@pytest.mark.anyio
async def test_what_the_server_cannot_read_is_refused_alone(served: Served) -> None:
    url, _ = served
    options: dict[str, Any] = {"base_url": url}
    clients = [GenericEnvClient(**options) for _ in range(3)]
    await asyncio.gather(*(one.__aenter__() for one in clients))
    await asyncio.gather(*(one.reset() for one in clients))
    actions: list[Any] = [{}, {1: "a"}, {}]
    stepping = [_awaited(one.step(a)) for one, a in zip(clients, actions, strict=True)]
    first, refused, last = await asyncio.gather(*stepping, return_exceptions=True)
    assert isinstance(refused, ValidationFailed)
    assert not isinstance(first, BaseException) and first.observation["text"] == "step 1"
    assert not isinstance(last, BaseException) and last.observation["text"] == "step 1"
    assert (await clients[1].step({})).observation["text"] == "step 1"
    await asyncio.gather(*(one.__aexit__(None, None, None) for one in clients))


@pytest.mark.anyio
async def test_a_client_that_is_used_while_it_closes_leaves_nothing_behind() -> None:
    class SlowToClose(Counter):
        def close(self) -> None:
            time.sleep(0.3)

    app = create_app(SlowToClose)
    (manager,) = app.state.openenv_managers
    with serving(app) as url:
        env, other = await opened(2, base_url=url)
        await asyncio.gather(env.reset(), other.reset())
        closing = asyncio.ensure_future(_awaited(env.close()))
        await asyncio.sleep(0.05)
        await env.reset()
        await closing
        await close([env, other])
        await eventually(lambda: not manager.connections)


@pytest.mark.anyio
async def test_a_function_that_fails_when_told_of_the_queue_costs_no_answer() -> None:
    session = RemoteSession(on_queue=lambda queued: 1 / 0)  # type: ignore[arg-type]
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
    session.note_queue(Queued(1, 2))
    assert isinstance(told[0]["exception"], ZeroDivisionError)


@pytest.mark.parametrize(
    ("host", "may_be_several"),
    [("127.0.0.1", False), ("[::1]", False), ("localhost", False), ("envs.example.org", True)],
)
def test_a_name_may_stand_for_several_servers(host: str, *, may_be_several: bool) -> None:
    address = shared_address(f"ws://{host}:8000/ws", WebSocketOptions())
    assert address is not None and address.may_be_several is may_be_several


# ------------------------------------------------------------------ what happens to the connection


@pytest.fixture
def shared_relay(served: Served, monkeypatch: pytest.MonkeyPatch) -> Iterator[Relay]:
    """A relay whose clients share a connection from the first one on."""
    monkeypatch.setattr(_sharing, "SPREAD", 0)
    relay = Relay(served[0])
    yield relay
    relay.close()


@pytest.mark.anyio
async def test_closes_on_a_connection_that_breaks_reach_the_server(
    served: Served, shared_relay: Relay
) -> None:
    _, manager = served
    clients = await opened(2, base_url=shared_relay.url)
    await asyncio.gather(*(one.reset() for one in clients))
    assert len(manager.connections) == 1
    shared_relay.hold(upwards=True)
    closing = asyncio.ensure_future(close(clients))
    await asyncio.sleep(0.2)
    shared_relay.cut_and_release()
    await closing
    await eventually(lambda: not manager.active_sessions)


@pytest.mark.anyio
async def test_to_give_up_closing_takes_no_time(shared_relay: Relay) -> None:
    clients = await opened(2, base_url=shared_relay.url)
    await asyncio.gather(*(one.reset() for one in clients))
    shared_relay.hold(upwards=True)
    shared_relay.hold()
    began = time.monotonic()
    outcomes = await asyncio.gather(
        *(asyncio.wait_for(_awaited(one.close()), 0.3) for one in clients), return_exceptions=True
    )
    assert all(isinstance(one, asyncio.TimeoutError) for one in outcomes)
    assert time.monotonic() - began < 4
    shared_relay.release()


@pytest.mark.anyio
async def test_a_first_reset_on_a_dying_connection_begins_anew(
    shared_relay: Relay,
) -> None:
    env, other = (CounterEnv(base_url=shared_relay.url) for _ in range(2))
    await env.reset()
    with serving(create_app(Counter)) as url:
        shared_relay.hold(upwards=True)  # what is sent now never arrives
        resetting = [asyncio.ensure_future(_awaited(one.reset())) for one in (other, env)]
        await asyncio.sleep(0.1)
        shared_relay.lead_to(url)
        shared_relay.cut_and_release()
        results = await asyncio.gather(*resetting)
        assert {one.observation.text for one in results} == {"ready"}
        await other.close()
        await env.close()


@pytest.mark.anyio
async def test_connections_that_have_ended_are_forgotten(served: Served) -> None:
    url, _ = served
    for number in range(3):
        async with CounterEnv(base_url=url, headers={"X-Of": str(number)}) as env:
            await env.reset()
    await eventually(lambda: not _sharing._groups.get(asyncio.get_running_loop()))


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
