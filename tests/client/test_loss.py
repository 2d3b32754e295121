"""A lost connection, a late answer, a server gone: never a wrong answer, never in silence."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
from support.environments import Counter, CounterEnv, Do
from support.relay import Relay
from support.servers import serving

from openenv import ConnectError, ResponseTimeout, SessionLost, create_app


def test_a_drop_in_mid_episode_is_an_error_and_not_a_fresh_environment(relay: Relay) -> None:
    with CounterEnv(base_url=relay.url) as env:
        env.reset()
        for _ in range(3):
            env.step(Do())
        relay.cut()
        for _ in range(2):
            with pytest.raises(SessionLost, match="reset"):
                env.step(Do())
        with pytest.raises(SessionLost):
            env.state()
        assert env.reset().observation.text == "ready"
        assert env.step(Do()).observation.text == "step 1"


@pytest.mark.slow
def test_a_drop_while_a_step_runs_is_an_error(relay: Relay) -> None:
    with CounterEnv(base_url=relay.url) as env:
        env.reset()
        threading.Timer(0.2, relay.cut).start()
        with pytest.raises(SessionLost):
            env.step(Do(what="sleep", value=0.6))


def test_a_dropped_caller_is_noticed_and_the_slot_comes_free(relay: Relay) -> None:
    with CounterEnv(base_url=relay.url) as env:
        env.reset()
        relay.cut()
        _eventually(lambda: Counter.log.count("close") == 1)


def test_an_idle_drop_costs_a_reset_nothing(relay: Relay) -> None:
    with CounterEnv(base_url=relay.url) as env:
        env.reset()
        relay.cut()
        assert env.reset(size=2).observation.arguments["size"] == 2


@pytest.mark.slow
def test_after_a_late_answer_the_same_connection_goes_on(relay: Relay) -> None:
    with CounterEnv(base_url=relay.url, message_timeout_s=0.1) as env:
        env.reset()
        with pytest.raises(ResponseTimeout) as caught:
            env.step(Do(what="sleep", value=0.3))
        assert isinstance(caught.value, TimeoutError)
        assert isinstance(caught.value, asyncio.TimeoutError)
        with pytest.raises(SessionLost, match="not answered"):
            env.step(Do())
        _eventually(lambda: _resets(env))
    assert Counter.log.count("init") == 1, "no second session was opened for it"


def _resets(env: CounterEnv) -> bool:
    with contextlib.suppress(ResponseTimeout):
        return env.reset().observation.text == "ready"
    return False


def test_a_server_that_is_gone_is_said_to_be_gone() -> None:
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(serving(create_app(Counter)))
        env = CounterEnv(base_url=url)
        env.reset()
        stack.pop_all().close()
    with pytest.raises(SessionLost):
        env.step(Do())
    with pytest.raises(ConnectError):
        env.reset()
    env.close()


@pytest.mark.slow
def test_an_interrupted_call_leaves_the_client_usable(relay: Relay) -> None:
    with CounterEnv(base_url=relay.url) as env:
        env.reset()
        me = threading.main_thread().ident
        assert me is not None
        threading.Timer(0.2, signal.pthread_kill, (me, signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            env.step(Do(what="sleep", value=0.8))
        with pytest.raises(SessionLost):
            env.step(Do())
        assert env.reset().observation.text == "ready"


def _eventually(condition: Callable[[], Any]) -> None:
    deadline = threading.Event()
    for _ in range(150):
        if condition():
            return
        deadline.wait(0.02)
    raise AssertionError("it never came true")
