"""Environments that never come back, from their constructors, calls or closes, and whose clients
have left: nobody waits for them, and their slots come free where that can be done.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from support.amounts import rest
from support.environments import CounterEnv, Do, Log
from support.stuck import Pid, Stuck, StuckInAsyncClose, StuckInClose, StuckInFactory, StuckInReset
from support.waiting import wait_until

from openenv import EnvClient, Limits, ResponseTimeout, create_app

Serve = Callable[[Any], str]
pytestmark = pytest.mark.slow  # for none of them can be hurried
LIMITS = Limits(resume_grace_s=0.3, close_s=0.3)


@pytest.fixture(autouse=True)
def let_go(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    let_go = threading.Event()
    monkeypatch.setattr(Stuck, "log", Log())
    monkeypatch.setattr(Stuck, "let_go", let_go)
    yield let_go
    let_go.set()


def use_and_leave(url: str) -> None:
    """Wait for a moment for whatever does not come back."""
    with CounterEnv(base_url=url, message_timeout_s=1) as env:
        try:
            env.reset()
            env.step(Do(what="hang"))
        except ResponseTimeout:
            pass


@pytest.mark.parametrize(
    "environment", [StuckInReset, StuckInClose, rest(StuckInFactory), rest(Pid)]
)
def test_a_worker_process_is_ended_in_which_nobody_waits_for_anything(
    serve: Serve, environment: type[Pid]
) -> None:
    app = create_app(environment, workers=1, max_concurrent_envs=1, limits=LIMITS)
    (manager,) = app.state.openenv_managers
    url = serve(app)
    for number in range(1, 3):
        use_and_leave(url)
        wait_until(lambda: manager.active_sessions == 0, 10)
        assert manager.counters.opened == number, "the slot came free, and the next one got it"
    assert manager.executors.workers[2] == 0, "nothing has died that was not meant to"
    assert httpx.get(f"{url}/health").json()["status"] == "healthy"


def test_a_coroutine_is_cancelled_for_which_nobody_waits(serve: Serve) -> None:
    app = create_app(StuckInAsyncClose, max_concurrent_envs=1, limits=LIMITS)
    (manager,) = app.state.openenv_managers
    with EnvClient[Do, Any, Any](base_url=serve(app)) as env:
        env.reset()
    wait_until(lambda: manager.active_sessions == 0)
    assert Stuck.log.count("close") == 1


@pytest.mark.slow("waits until the time to close is over")
def test_a_thread_keeps_its_slot_and_the_operator_is_told(
    serve: Serve, let_go: threading.Event
) -> None:
    app = create_app(StuckInClose, max_concurrent_envs=2, limits=LIMITS)
    (manager,) = app.state.openenv_managers
    url = serve(app)
    with CounterEnv(base_url=url) as env:
        env.reset()
    wait_until(lambda: httpx.get(f"{url}/health").json()["status"] == "degraded")
    assert "do not come back" in httpx.get(f"{url}/health").json()["message"]
    assert manager.active_sessions == 1
    let_go.set()
    wait_until(lambda: manager.active_sessions == 0)
    assert httpx.get(f"{url}/health").json()["status"] == "healthy"
