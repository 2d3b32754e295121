"""`VectorEnv` when something goes wrong: one environment, a connection, the server, the caller."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import probe
from support.environments import Counter, CounterEnv, Do, Log, Seen
from support.processes import is_alive
from support.relay import Relay
from support.servers import serving
from support.waiting import wait_until

from openenv import (
    CapacityError,
    ConnectError,
    ExecutionFailed,
    ProcessProvider,
    ResponseTimeout,
    SessionLost,
    ValidationFailed,
    create_app,
)
from openenv.client.vector import VectorEnv
from openenv.errors import EncodingError, EnvironmentsFailed

WAIT_S = 5.0


class Fragile(Counter):
    """Its reset may fail, and its episode ends at the third step."""

    fails = False

    def reset(  # type: ignore[override]
        self, seed: int | None = None, episode_id: str | None = None, size: int = 0
    ) -> Seen:
        if self.fails or seed == 13:
            raise RuntimeError("no reset")
        return super().reset(seed, episode_id, size)

    def step(self, action: Do, timeout_s: float | None = None) -> Seen:  # type: ignore[override]
        if action.what == "fail later":
            self.fails = True
        seen = super().step(action)
        seen.done = seen.done or self.progress.step_count >= 3
        return seen


@pytest.fixture(params=[1, 0], ids=["v1", "v0"])
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("OPENENV_PROTOCOL", str(request.param))
    number: int = request.param
    return number


@pytest.fixture
def url(log: Log) -> Iterator[str]:
    with serving(create_app(Counter, max_concurrent_envs=100)) as url:
        yield url


def vector(url: str, count: int = 3, **options: Any) -> VectorEnv:
    return VectorEnv(url, count, client=CounterEnv, **options)


GO = [Do()] * 3


# ------------------------------------------------------------------ one environment


def test_one_that_raises_leaves_the_others_what_they_came_to(version: int, url: str) -> None:
    with vector(url) as envs:
        envs.reset()
        with pytest.raises(EnvironmentsFailed, match="1: ") as caught:
            envs.step([Do(), Do(what="raise"), Do(what="done")])
        assert caught.value.errors.keys() == {1} and caught.value.results.keys() == {0, 2}
        assert isinstance(caught.value.errors[1], ExecutionFailed)
        assert caught.value.results[0].observation["text"] == "step 1"
        assert caught.value.results[2].done
        observations, rewards, *_ = envs.step(GO)
        assert observations["text"] == ["step 2", "step 2", "ready"], "the third was over"
        assert rewards.tolist() == [2, 2, 0]


def test_a_wrong_action_is_refused_and_its_episode_goes_on(version: int, url: str) -> None:
    with vector(url) as envs:
        envs.reset()
        with pytest.raises(EnvironmentsFailed) as caught:
            envs.step([{"what": "count"}, {"what": 3}, {"what": "count"}])
        assert isinstance(caught.value.errors[1], ValidationFailed)
        assert envs.step(GO)[0]["text"] == ["step 2", "step 1", "step 2"]


def test_one_that_fails_to_reset_leaves_the_others(version: int, serve: Any) -> None:
    with vector(serve(create_app(Fragile))) as envs:
        with pytest.raises(EnvironmentsFailed) as caught:
            envs.reset(seed=[1, None, 13])
        assert caught.value.errors.keys() == {2}
        assert caught.value.results[0].observation["arguments"]["seed"] == 1
        envs.reset(options={"reset_mask": [False, False, True]})
        assert envs.step(GO)[1].tolist() == [1, 1, 1]


def test_a_reset_within_a_step_that_fails_loses_no_result(version: int, serve: Any) -> None:
    url = serve(create_app(Fragile))
    with vector(url, autoreset_mode="SameStep") as envs:
        envs.reset()
        envs.step([Do(), Do(what="fail later"), Do()])
        envs.step(GO)
        with pytest.raises(EnvironmentsFailed) as caught:
            envs.step(GO)
        assert isinstance(caught.value.errors[1], ExecutionFailed)
        assert caught.value.results.keys() == {0, 2}
        assert caught.value.results[0].reward == 3.0


@pytest.mark.parametrize("bad", [0, 2, 69])
def test_an_action_that_cannot_be_sent_stops_them_all(version: int, url: str, bad: int) -> None:
    with vector(url, 70, connections=2, message_timeout_s=WAIT_S) as envs:
        envs.reset()
        actions: list[Any] = [{"what": "count"}] * 70
        actions[bad] = {"what": "echo", "value": object()}
        for _ in range(2):
            with pytest.raises(EncodingError):
                envs.step(actions)
        assert envs.step([Do()] * 70)[1].tolist() == [1.0] * 70, "none had been sent"


def test_a_first_request_that_cannot_be_sent_leaves_them_usable(version: int, url: str) -> None:
    seeds: list[Any] = [1] * 69 + [object()]
    with vector(url, 70, connections=2, message_timeout_s=WAIT_S) as envs:
        with pytest.raises(EncodingError):
            envs.reset(seed=seeds)
        envs.reset(seed=1)
        assert envs.step([Do()] * 70)[1].tolist() == [1.0] * 70


def test_a_request_that_the_server_cannot_read_is_an_error_soon(version: int, url: str) -> None:
    with vector(url, message_timeout_s=WAIT_S) as envs:
        envs.reset()
        began = time.monotonic()
        with pytest.raises(EnvironmentsFailed) as caught:
            envs.step([{"what": "count"}, {1: "count"}, {"what": "count"}])
        assert isinstance(caught.value.errors[1], ValidationFailed)
        assert time.monotonic() - began < WAIT_S / 2
        envs.reset()
        assert envs.step(GO)[1].tolist() == [1, 1, 1]


def test_more_environments_than_slots_is_said_of_those_that_have_none(version: int) -> None:
    with (
        serving(create_app(Counter, max_concurrent_envs=2)) as url,
        vector(url, queue_timeout_s=0) as envs,
    ):
        for _ in range(2):
            with pytest.raises(EnvironmentsFailed) as caught:
                envs.reset()
            assert len(caught.value.errors) == 1 and len(caught.value.results) == 2
            (error,) = caught.value.errors.values()
            assert isinstance(error, CapacityError)
        (refused,) = caught.value.errors
        with pytest.raises(EnvironmentsFailed) as caught:
            envs.step(GO)
        assert caught.value.errors.keys() == {refused}, "the others go on"
        assert isinstance(caught.value.errors[refused], SessionLost)
        assert [result.reward for result in caught.value.results.values()] == [1.0, 1.0]


# ------------------------------------------------------------------ time


@pytest.mark.slow
def test_one_that_takes_too_long_is_an_error_and_its_answer_is_dropped(
    version: int, url: str
) -> None:
    with vector(url, message_timeout_s=0.2) as envs:
        envs.reset()
        with pytest.raises(EnvironmentsFailed) as caught:
            envs.step([Do(), Do(what="sleep", value=0.5), Do()])
        assert caught.value.errors.keys() == {1}
        assert isinstance(caught.value.errors[1], ResponseTimeout)
        assert {i: r.reward for i, r in caught.value.results.items()} == {0: 1.0, 2: 1.0}
        with pytest.raises(EnvironmentsFailed) as caught:
            envs.step(GO)
        assert caught.value.errors.keys() == {1}
        assert isinstance(caught.value.errors[1], SessionLost)
        wait_until(lambda: resets(envs, [False, True, False]))
        assert envs.step(GO)[0]["text"] == ["step 3", "step 1", "step 3"]


def resets(envs: VectorEnv, mask: list[bool]) -> bool:
    with contextlib.suppress(EnvironmentsFailed):
        envs.reset(options={"reset_mask": mask})
        return True
    return False


@pytest.mark.slow
def test_an_interrupted_step_leaves_the_environments_usable(version: int, url: str) -> None:
    with vector(url) as envs:
        envs.reset()
        me = threading.main_thread().ident
        assert me is not None
        threading.Timer(0.2, signal.pthread_kill, (me, signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            envs.step([Do(), Do(what="sleep", value=0.5), Do()])
        with pytest.raises(EnvironmentsFailed) as caught:
            envs.step(GO)
        assert all(isinstance(e, SessionLost) for e in caught.value.errors.values())
        assert 1 in caught.value.errors
        envs.reset()
        assert envs.step(GO)[1].tolist() == [1, 1, 1]


# ------------------------------------------------------------------ connections


def test_a_lost_connection_is_an_error_and_reset_makes_another(version: int, relay: Relay) -> None:
    with vector(relay.url) as envs:
        envs.reset()
        envs.step(GO)
        relay.cut()
        for _ in range(2):
            with pytest.raises(EnvironmentsFailed) as caught:
                envs.step(GO)
            assert caught.value.errors.keys() == {0, 1, 2}
            assert all(isinstance(e, SessionLost) for e in caught.value.errors.values())
        envs.reset()
        assert envs.step(GO)[1].tolist() == [1, 1, 1]


@pytest.mark.slow
def test_a_connection_lost_while_a_step_runs_is_an_error(version: int, relay: Relay) -> None:
    with vector(relay.url) as envs:
        envs.reset()
        envs.send([Do(what="sleep", value=0.5)] * 3)
        threading.Timer(0.1, relay.cut).start()
        with pytest.raises(EnvironmentsFailed) as caught:
            envs.recv()
        assert {type(error) for error in caught.value.errors.values()} == {SessionLost}
        envs.reset()
        envs.send(GO)
        assert envs.recv()[1].tolist() == [1, 1, 1]


def test_one_of_two_connections_lost_leaves_the_other(version: int, relay: Relay) -> None:
    with vector(relay.url, 4, connections=2) as envs:
        envs.reset()
        envs.step([Do()] * 4)
        relay.cut(1)
        with pytest.raises(EnvironmentsFailed) as caught:
            envs.step([Do()] * 4)
        lost = len(caught.value.errors)
        assert lost == (2 if version else 1)
        mask = [i in caught.value.errors for i in range(4)]
        envs.reset(options={"reset_mask": mask})
        rewards = envs.step([Do()] * 4)[1]
        assert rewards.tolist() == [1.0 if was_lost else 3.0 for was_lost in mask]


def test_a_new_server_at_the_same_address_serves_after_a_reset(version: int) -> None:
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(serving(create_app(Counter)))
        envs = vector(url)
        envs.reset()
        stack.pop_all().close()
        with pytest.raises(EnvironmentsFailed):
            envs.step(GO)
        with pytest.raises(ConnectError):
            envs.reset()
        port = int(url.rpartition(":")[2])
        stack.enter_context(serving(create_app(Counter), port=port))
        envs.reset()
        assert envs.step(GO)[1].tolist() == [1, 1, 1]
        envs.close()


def test_no_server_is_said_to_be_none(version: int) -> None:
    with vector("http://127.0.0.1:9") as envs:
        with pytest.raises(ConnectError):
            envs.reset()
        with pytest.raises(EnvironmentsFailed, match="reset"):
            envs.step(GO)


# ------------------------------------------------------------------ life


def test_a_closed_one_says_so(version: int, url: str, log: Log) -> None:
    envs = vector(url)
    envs.reset()
    envs.close()
    envs.close()
    wait_until(lambda: log.count("close") == 3)
    calls: list[Callable[[], Any]] = [envs.reset, lambda: envs.step(GO), envs.recv]
    for call in calls:
        with pytest.raises(SessionLost, match="closed"):
            call()


def test_one_that_was_never_used_can_be_closed() -> None:
    vector("http://127.0.0.1:9").close()


@pytest.mark.slow
def test_closing_while_a_step_runs_ends_it(version: int, url: str) -> None:
    envs = vector(url)
    envs.reset()
    raised: list[BaseException] = []

    def step() -> None:
        try:
            envs.step([Do(what="sleep", value=1.0)] * 3)
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=step)
    thread.start()
    wait_until(lambda: len(envs._group.awaited) == 3)
    envs.close()
    thread.join(WAIT_S)
    assert isinstance(raised[0], EnvironmentsFailed)


def test_one_that_is_dropped_gives_its_sessions_back(version: int, url: str, log: Log) -> None:
    envs = vector(url)
    envs.reset()
    with pytest.warns(ResourceWarning, match="close"):
        del envs
        gc.collect()
    wait_until(lambda: log.count("close") == 3)


def test_it_works_inside_a_running_loop(version: int, url: str) -> None:
    async def play() -> Any:
        with vector(url) as envs:
            envs.reset()
            return envs.step(GO)[1].tolist()

    assert asyncio.run(play()) == [1, 1, 1]


def test_it_may_be_used_from_any_thread(version: int, url: str) -> None:
    with vector(url, 8) as envs:
        envs.reset()
        rewards: list[Any] = []

        def step() -> None:
            rewards.append(envs.step([Do()] * 8)[1].tolist())

        for number in range(1, 4):
            thread = threading.Thread(target=step)
            thread.start()
            thread.join(WAIT_S)
            assert rewards[-1] == [float(number)] * 8


def test_a_forked_child_has_episodes_of_its_own(version: int, url: str) -> None:
    with vector(url) as envs:
        envs.reset()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
            child = os.fork()
        if not child:
            signal.alarm(10)
            status = 1
            with contextlib.suppress(BaseException):
                with pytest.raises(EnvironmentsFailed, match="reset"):
                    envs.step(GO)
                envs.reset()
                assert envs.step(GO)[1].tolist() == [1, 1, 1]
                envs.close()
                status = 0
            os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert envs.step(GO)[1].tolist() == [1, 1, 1], "the parent's go on"


@pytest.mark.slow
def test_a_provider_starts_the_server_and_stops_it_again() -> None:
    provider = ProcessProvider(f"{Path(probe.__file__)}:ProbeEnvironment")
    with VectorEnv(num_envs=2, provider=provider, client=probe.ProbeEnv) as envs:
        envs.reset()
        pids = envs.step([{"what": "where"}] * 2)[0]["value"]
        assert pids[0]["pid"] == pids[1]["pid"] != os.getpid()
    assert not is_alive(pids[0]["pid"])


# ------------------------------------------------------------------ send and recv


@pytest.mark.slow
def test_the_first_that_are_done_come_first(version: int, url: str) -> None:
    with vector(url, 4, batch_size=2) as envs:
        envs.reset()
        pace = [0.6, 0.0, 0.6, 0.0]
        envs.send([Do(what="sleep", value=seconds) for seconds in pace])
        observations, rewards, _, _, infos = envs.recv()
        assert sorted(infos["env_id"].tolist()) == [1, 3] and len(rewards) == 2
        envs.send([Do()] * 2, infos["env_id"])
        assert sorted(envs.recv()[4]["env_id"].tolist()) == [1, 3]
        observations, *_, infos = envs.recv()
        assert sorted(infos["env_id"].tolist()) == [0, 2]
        assert observations["text"] == ["step 1", "step 1"]


@pytest.mark.slow
def test_a_reset_within_a_batch_waits_for_nobody_else(version: int, url: str) -> None:
    with vector(url, 2, batch_size=1, autoreset_mode="SameStep") as envs:
        envs.reset()
        envs.send([Do(what="sleep", value=0.5), Do(what="done")])
        _, _, terminations, _, infos = envs.recv()
        assert infos["env_id"].tolist() == [1] and terminations.tolist() == [True]
        assert envs._group.awaited.keys() == {0}, "which is still at work"
        assert envs.recv()[4]["env_id"].tolist() == [0]


def test_what_is_under_way_takes_no_second_action(version: int, url: str) -> None:
    with vector(url) as envs:
        envs.reset()
        envs.send(GO[:2], [0, 1])
        with pytest.raises(RuntimeError, match="recv"):
            envs.send(GO[:1], np.array([1]))
        with pytest.raises(RuntimeError, match="at work"):
            envs.recv()
        with pytest.raises(ValueError, match="1 environments"):
            envs.send(GO[:2], [2])
        envs.send([Do()], [2])
        assert envs.recv()[1].tolist() == [1, 1, 1]


@pytest.mark.slow
def test_300_rounds_of_send_and_recv_lose_nothing(version: int, url: str) -> None:
    with vector(url, 8, batch_size=3) as envs:
        envs.reset()
        counts = [0] * 8
        envs.send([Do()] * 8)
        for _ in range(300):
            _, rewards, *_, infos = envs.recv()
            for index, reward in zip(infos["env_id"].tolist(), rewards, strict=True):
                counts[index] += 1
                assert reward == counts[index]
            envs.send([Do()] * 3, infos["env_id"])
        assert sum(counts) == 900
