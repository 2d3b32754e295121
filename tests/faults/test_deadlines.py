"""A step that takes longer than it may: its caller is told at once, and nothing is mixed up."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from support.environments import CounterEnv, Do, Log
from support.servers import serving
from support.stuck import Alone, Pid, Stuck, StuckAsync
from support.waiting import wait_until
from websockets.sync.client import connect as websocket
from websockets.typing import Subprotocol

from openenv import SessionBusy, SessionLost, StepTimeout, create_app
from openenv.client import session as client_session
from openenv.execution import session
from openenv.protocol.http import SESSION_HEADER


@pytest.fixture(autouse=True)
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    log, let_go = Log(), threading.Event()
    monkeypatch.setattr(Stuck, "log", log)
    monkeypatch.setattr(Stuck, "let_go", let_go)
    yield log
    let_go.set()


@contextlib.contextmanager
def client(environment: Any, **options: Any) -> Iterator[CounterEnv]:
    with serving(create_app(environment, **options)) as url, CounterEnv(base_url=url) as env:
        env.reset()
        yield env


HANG = Do(what="hang")


def test_the_environment_knows_how_long_it_has() -> None:
    with client(Stuck) as env:
        assert env.step(Do(what="deadline"), timeout_s=7.5).observation.value == 7.5
        assert env.step(Do(what="deadline")).observation.value is None


@pytest.mark.slow
def test_the_caller_is_told_at_once_and_can_have_the_answer_later(log: Log) -> None:
    with client(Stuck) as env:
        began = time.monotonic()
        with pytest.raises(StepTimeout) as caught:
            env.step(HANG, timeout_s=0.2)
        assert time.monotonic() - began < 2
        assert caught.value.is_running and caught.value.timeout_s == 0.2
        assert isinstance(caught.value, TimeoutError)
        with pytest.raises(SessionLost, match="ask again"):
            env.step(Do())
        threading.Timer(0.2, Stuck.let_go.set).start()
        assert env.step(HANG).observation.text == "step 1", "the same step, asked for again"
        assert env.step(Do()).observation.text == "step 2"
    assert log.count("step") == 2


def test_while_it_runs_nothing_else_is_begun() -> None:
    with client(Alone) as env:
        with pytest.raises(StepTimeout):
            env.step(HANG, timeout_s=0.1)
        for call in (env.state, env.reset):
            with pytest.raises(SessionBusy) as caught:
                call()
            assert caught.value.data["running_s"] > 0.05
        Stuck.let_go.set()
        wait_until(lambda: not _is_busy(env))
        assert env.reset().observation.text == "ready"


def _is_busy(env: CounterEnv) -> bool:
    try:
        env.state()
    except SessionBusy:
        return True
    return False


@pytest.mark.slow
def test_a_reset_gives_up_an_environment_that_does_not_come_back(log: Log) -> None:
    app = create_app(Stuck, max_concurrent_envs=2)
    with serving(app) as url, CounterEnv(base_url=url) as env:
        env.reset()
        with pytest.raises(StepTimeout):
            env.step(HANG, timeout_s=0.1)
        assert env.reset().observation.text == "ready"
        assert env.step(Do()).observation.text == "step 1"
        health = httpx.get(f"{url}/health").json()
        assert health["status"] == "degraded" and "do not come back" in health["message"]
        with CounterEnv(base_url=url, queue_timeout_s=0) as other, pytest.raises(RuntimeError):
            other.reset()  # the one that was given up still has its slot
        assert log.count("close") == 0
        Stuck.let_go.set()
        wait_until(lambda: log.count("close") == 1)
        assert httpx.get(f"{url}/health").json()["status"] == "healthy"
        assert env.step(Do()).observation.text == "step 2"


def test_a_reset_that_waited_as_the_time_ran_out_begins_anew(log: Log) -> None:
    """What was asked before it is refused, and what was asked after it is done in the new one."""
    hang = {"type": "step", "data": {"what": "hang"}, "arguments": {"timeout_s": 0.3}, "id": 2}
    asked: list[dict[str, Any]] = [
        {"type": "open"},
        {"type": "reset", "id": 1},
        hang,
        {"type": "state", "id": 3},
        {"type": "reset", "id": 4},
        {"type": "step", "data": {}, "id": 5},
    ]
    with serving(create_app(Stuck, max_concurrent_envs=2)) as url:
        address = url.replace("http", "ws", 1) + "/ws"
        with websocket(address, subprotocols=[Subprotocol("openenv.v1.json")]) as client:
            client.send(json.dumps(asked))
            found: dict[int, Any] = {}
            while not {3, 4, 5} <= found.keys():
                answers = json.loads(client.recv(20))
                for one in answers if isinstance(answers, list) else [answers]:
                    found[one.get("id") or 0] = one
            assert found[3]["data"]["code"] == "SESSION_BUSY"
            assert found[4]["data"]["observation"]["text"] == "ready"
            assert found[5]["data"]["observation"]["text"] == "step 1"
            Stuck.let_go.set()


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is cancelled has longer to end, and its answer to arrive, than any machine takes."""
    monkeypatch.setattr(session, "CANCEL_PATIENCE_S", 5.0)
    monkeypatch.setattr(client_session, "DEADLINE_SLACK_S", 10.0)


@pytest.mark.usefixtures("patience")
def test_a_coroutine_is_cancelled_and_the_episode_goes_on(log: Log) -> None:
    with client(StuckAsync) as env:
        with pytest.raises(StepTimeout) as caught:
            env.step(HANG, timeout_s=0.1)
        assert not caught.value.is_running
        assert log.count("cancelled") == 1
        assert env.step(Do()).observation.text == "step 1"


@pytest.mark.usefixtures("patience")
def test_a_coroutine_may_answer_when_it_is_cancelled() -> None:
    with client(StuckAsync) as env:
        action = Do(what="hang", value="answers")
        assert env.step(action, timeout_s=0.1).observation.text == "interrupted"


@pytest.mark.slow
def test_a_worker_process_that_is_stuck_is_killed_when_it_is_given_up() -> None:
    with client(Pid, workers=1) as env:
        first = env.reset().observation.value
        with pytest.raises(StepTimeout):
            env.step(HANG, timeout_s=0.2)
        second = env.reset().observation.value
        assert first != second
        assert env.step(Do()).observation.text == "step 1"
        wait_until(lambda: not os.path.exists(f"/proc/{first}"))


@pytest.mark.slow
def test_a_worker_process_with_other_sessions_is_not_killed() -> None:
    app = create_app(Pid, workers=1)
    with (
        serving(app) as url,
        CounterEnv(base_url=url) as env,
        CounterEnv(base_url=url) as other,
    ):
        first = other.reset().observation.value
        assert env.reset().observation.value == first
        with pytest.raises(StepTimeout):
            env.step(HANG, timeout_s=0.2)
        assert env.reset().observation.value == first
        for number in range(1, 4):
            assert other.step(Do()).observation.text == f"step {number}"


def test_a_step_that_waited_too_long_is_not_begun(log: Log) -> None:
    """Two callers of one session, by HTTP: the second one's time is over before its turn."""
    with serving(create_app(Stuck)) as url:
        named = {SESSION_HEADER: httpx.post(f"{url}/reset").headers[SESSION_HEADER]}
        post = functools.partial(httpx.post, f"{url}/step", headers=named)
        first = threading.Thread(target=post, kwargs={"json": {"action": {"what": "hang"}}})
        first.start()
        wait_until(lambda: log.count("step") == 1)
        refused = post(json={"action": {}, "timeout_s": 0.1})
        assert (refused.status_code, refused.json()["code"]) == (504, "STEP_TIMEOUT")
        assert "not begun" in refused.json()["detail"]
        Stuck.let_go.set()
        first.join(5)
        assert post(json={"action": {}}).status_code == 200  # which comes after whatever waits
        assert log.count("step") == 2


@pytest.mark.parametrize("timeout_s", [-1, "soon", True])
def test_a_deadline_that_is_none_is_refused(timeout_s: Any) -> None:
    with client(Stuck) as env, pytest.raises(ValueError, match="timeout_s is"):
        env.step(Do(), timeout_s=timeout_s)


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_number_that_no_clock_can_tell_is_no_deadline(
    loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncio's own loop cannot add it to the time: the connection broke, and its sessions."""
    if loop == "asyncio":
        monkeypatch.setitem(sys.modules, "uvloop", None)
    step = {"type": "step", "session": 1, "id": 2, "data": {}}
    with (
        serving(create_app(Stuck)) as url,
        websocket(f"ws{url[4:]}/ws", subprotocols=[Subprotocol("openenv.v1.json")]) as socket,
    ):
        socket.recv(10)
        for asked in ({"type": "open", "session": 1}, {"type": "reset", "session": 1, "id": 1}):
            socket.send(json.dumps(asked))
            socket.recv(10)
        for wrong in (10**400, -(10**400)):
            socket.send(json.dumps({**step, "arguments": {"timeout_s": wrong}}))
            answer = json.loads(socket.recv(10))
            assert (answer["type"], answer["data"]["code"]) == ("error", "VALIDATION_ERROR")
        socket.send(json.dumps({**step, "arguments": {"timeout_s": 1e308}}))
        assert json.loads(socket.recv(10))["type"] == "observation"


def test_neighbours_are_not_held_up(log: Log) -> None:
    with serving(create_app(Stuck)) as url, CounterEnv(base_url=url) as neighbour:
        neighbour.reset()
        stuck = [CounterEnv(base_url=url) for _ in range(8)]
        for env in stuck:
            env.reset()
            with pytest.raises(StepTimeout):
                env.step(HANG, timeout_s=0.05)
        for number in range(1, 50):
            assert neighbour.step(Do(), timeout_s=5).observation.text == f"step {number}"
        Stuck.let_go.set()
        for env in stuck:
            env.close()


@pytest.mark.parametrize("says_close", [False, True])
def test_a_step_of_a_client_that_has_left_is_no_error(
    log: Log, caplog: pytest.LogCaptureFixture, *, says_close: bool
) -> None:
    app = create_app(StuckAsync)
    (manager,) = app.state.openenv_managers
    with serving(app) as url:
        address = url.replace("http", "ws", 1) + "/ws"
        with websocket(address, subprotocols=[Subprotocol("openenv.v1.json")]) as client:
            client.send('[{"type": "open"}, {"type": "step", "data": {"what": "hang"}, "id": 1}]')
            wait_until(lambda: log.count("step") == 1)
            if says_close:
                client.send('{"type": "close", "id": 2}')
        wait_until(lambda: log.count("close") == 1, 3)
    assert log.count("cancelled") == 1
    assert not manager.counters.errors
    assert "incident" not in caplog.text
