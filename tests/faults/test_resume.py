"""A connection that breaks: the session goes on, each step is taken once, and no answer is lost."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from support.environments import Counter, CounterEnv, Do
from support.relay import Relay
from support.servers import NotAdopted, serving
from support.waiting import wait_until
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from openenv import ResponseTimeout, SessionLost, create_app
from openenv.client.vector import VectorEnv
from openenv.execution.limits import Limits


@pytest.fixture(params=["socket", "asgi"])
def relay(request: pytest.FixtureRequest) -> Iterator[Relay]:
    app: Any = create_app(Counter)
    with serving(app if request.param == "socket" else NotAdopted(app)) as url:
        relay = Relay(url)
        yield relay
        relay.close()


def test_an_episode_goes_on_where_it_was(relay: Relay) -> None:
    with CounterEnv(base_url=relay.url) as env:
        env.reset()
        for number in range(1, 6):
            assert env.step(Do()).observation.text == f"step {number}"
            relay.cut()
        assert env.state().step_count == 5
    assert Counter.log.count("init") == 1, "one environment all along"


@pytest.mark.slow
def test_a_step_under_way_is_taken_once_and_answered(relay: Relay) -> None:
    with CounterEnv(base_url=relay.url) as env:
        env.reset()
        threading.Timer(0.15, relay.cut).start()
        assert env.step(Do(what="sleep", value=0.5)).observation.text == "step 1"
        assert env.step(Do()).observation.text == "step 2"
    assert Counter.log.count("step") == 2


@pytest.mark.slow
def test_an_answer_made_while_nobody_was_there_is_not_lost(relay: Relay) -> None:
    with CounterEnv(base_url=relay.url) as env:
        env.reset()
        relay.hold()  # what comes from now on is passed to nobody
        with pytest.raises(ResponseTimeout):
            env.step(Do(), timeout_s=0.2)
        wait_until(lambda: Counter.log.count("step") == 1)
        relay.cut()
        relay.release()
        assert env.step(Do()).observation.text == "step 1", "the same step, asked for again"
        assert env.step(Do()).observation.text == "step 2"
    assert Counter.log.count("step") == 2


@pytest.mark.slow
def test_a_step_whose_request_was_lost_is_taken_when_it_comes_again(relay: Relay) -> None:
    with CounterEnv(base_url=relay.url) as env:
        env.reset()
        relay.hold(upwards=True)
        threading.Timer(0.2, relay.cut).start()
        threading.Timer(0.3, relay.release).start()
        assert env.step(Do()).observation.text == "step 1"
    assert Counter.log.count("step") == 1


def test_a_drop_while_the_policy_thinks_is_mended_meanwhile(relay: Relay) -> None:
    with CounterEnv(base_url=relay.url) as env:
        env.reset()
        before = relay.connections
        relay.cut()
        wait_until(lambda: relay.connections == before + 1)
        assert env.step(Do()).observation.text == "step 1"


@pytest.mark.slow
def test_a_proxy_that_is_away_for_a_while_costs_nothing(relay: Relay) -> None:
    with CounterEnv(base_url=relay.url) as env:
        env.reset()
        relay.refuse()
        relay.cut()
        threading.Timer(0.6, relay.accept_again).start()
        assert env.step(Do()).observation.text == "step 1"


def test_a_half_open_connection_is_given_up_for_the_new_one(relay: Relay) -> None:
    """The server's end looks alive: nothing tells it that the client's has gone."""
    with CounterEnv(base_url=relay.url) as env:
        env.reset()
        env.step(Do())
        relay.cut(only_near=True)
        assert env.step(Do()).observation.text == "step 2"
    wait_until(lambda: Counter.log.count("close") == 1)


@pytest.mark.slow
def test_environments_that_share_a_connection_all_go_on(relay: Relay) -> None:
    with VectorEnv(relay.url, 64, client=CounterEnv, connections=2) as envs:
        envs.reset()
        for number in range(1, 5):
            envs.send([Do()] * 64)
            relay.cut()
            assert envs.recv()[1].tolist() == [number] * 64
    assert Counter.log.count("init") == 64 and Counter.log.count("step") == 4 * 64


def test_a_large_answer_comes_again_as_a_whole(relay: Relay) -> None:
    with CounterEnv(base_url=relay.url) as env:
        env.reset()
        for _ in range(3):
            relay.cut()
            value = "x" * 2_000_000
            assert env.step(Do(what="echo", value=value)).observation.value == value


# ------------------------------------------------------------------ when it is too late


@pytest.mark.slow
def test_after_the_time_of_grace_the_session_is_lost_and_closed() -> None:
    with serving(create_app(Counter, limits=Limits(resume_grace_s=0.3))) as url:
        relay = Relay(url)
        with CounterEnv(base_url=relay.url) as env:
            env.reset()
            relay.refuse()
            relay.cut()
            wait_until(lambda: Counter.log.count("close") == 1)
            relay.accept_again()
            with pytest.raises(SessionLost):
                env.step(Do())
            assert env.reset().observation.text == "ready"
        relay.close()


def test_a_client_that_says_goodbye_is_not_waited_for(relay: Relay) -> None:
    env = CounterEnv(base_url=relay.url)
    env.reset()
    env.close()
    wait_until(lambda: Counter.log.count("close") == 1)


def test_a_client_that_closes_while_it_is_cut_off_frees_its_slot(relay: Relay) -> None:
    env = CounterEnv(base_url=relay.url)
    env.reset()
    relay.cut()
    env.close()
    wait_until(lambda: Counter.log.count("close") == 1)


def test_a_server_that_was_started_again_is_told_from_the_one_before() -> None:
    with serving(create_app(Counter)) as url:
        relay = Relay(url)
        with CounterEnv(base_url=relay.url) as env:
            env.reset()
            with serving(create_app(Counter)) as other:
                relay.lead_to(other)
                relay.cut()
                began = time.monotonic()
                with pytest.raises(SessionLost, match="restarted"):
                    env.step(Do())
                assert time.monotonic() - began < 5, "it does not try for the time of grace"
                assert env.reset().observation.text == "ready"
        relay.close()


def test_nobody_resumes_what_is_not_theirs(relay: Relay) -> None:
    with CounterEnv(base_url=relay.url) as env:
        env.reset()
        hello = env._session.remote.connection.protocol.hello  # type: ignore[union-attr]
        name = "openenv.v1.json"
        for token in (hello.resume_token[:-1], "", 3, None):
            with connect(f"ws{relay.url[4:]}/ws", subprotocols=[name], proxy=None) as socket:  # type: ignore[list-item]
                socket.recv()
                data = {"connection": hello.connection, "token": token, "received": 1}
                socket.send(msgspec.json.encode({"type": "resume", "data": data}).decode())
                answer = msgspec.json.decode(socket.recv())
                assert answer["data"]["code"] == "SESSION_ERROR"
        assert env.step(Do()).observation.text == "step 1", "its owner is not disturbed"


def test_a_resume_that_comes_later_ends_the_conversation_and_leaves_nothing() -> None:
    app = create_app(Counter)
    (manager,) = app.state.openenv_managers
    with serving(app) as url:
        name: Any = "openenv.v1.json"
        with connect(f"ws{url[4:]}/ws", subprotocols=[name], proxy=None) as socket:
            socket.recv()
            socket.send('[{"type": "open"}, {"type": "resume"}, {"type": "open", "session": 1}]')
            assert '"error"' in str(socket.recv())
            with pytest.raises(ConnectionClosed):
                while True:
                    socket.recv()
        wait_until(lambda: not manager.sessions())
        assert manager.counters.opened <= 1 and manager.active_sessions == 0


@pytest.mark.slow
def test_a_call_while_the_connection_is_away_has_its_own_limit() -> None:
    with serving(create_app(Counter)) as url:
        relay = Relay(url)
        with CounterEnv(base_url=relay.url, message_timeout_s=0.3) as env:
            env.reset()
            relay.refuse()
            relay.cut()
            for _ in range(2):
                with pytest.raises(ResponseTimeout):
                    env.step(Do())
            relay.accept_again()
            assert env.step(Do()).observation.text == "step 1"
            assert env.step(Do()).observation.text == "step 2"
        relay.close()


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_call_that_was_cancelled_is_answered_when_it_is_made_again(relay: Relay) -> None:
    async with CounterEnv(base_url=relay.url) as env:
        await env.reset()

        async def step() -> Any:
            return await env.step(Do(what="sleep", value=0.4))

        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(step(), 0.1)
        relay.cut()
        assert (await step()).observation.text == "step 1"
        assert (await env.step(Do())).observation.text == "step 2"
