"""Environments whose calls overstay their deadlines and are given up: nothing is left of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.abandoned import LATE_S, Late, LateAsync
from support.amounts import amount, rest
from support.commands import environ
from support.environments import CounterEnv, Do
from support.held import excess, held_by, held_here
from support.probe import Ask, ProbeEnvironment
from support.processes import is_alive
from support.waiting import eventually, wait_until
from support.zygote import PythonProcess

from openenv import ResponseTimeout, StepTimeout
from openenv._internal import children as _children
from openenv.errors import EnvironmentCrashed
from openenv.execution import process
from openenv.execution.commands import GetState, Reset, Step
from openenv.execution.manager import SessionManager
from openenv.execution.process import Workers
from openenv.execution.session import CallbackCall
from openenv.execution.spec import EnvironmentSpec
from openenv.server.workers import spec_source

TESTS = Path(__file__).parents[1]
COUNT, AT_ONCE = amount(2000, 24), amount(32, 8)
# Threads that start and end take memory of their own, which the allocator keeps: a process grows by
# some 60 MiB within 800 workers that are killed, four at a time, and by none in the next 3,200.
WORKERS_LEEWAY = {"objects": 300, "kibibytes": 100_000}  # and no thread or descriptor

# ------------------------------------------------------------------ one of them


@pytest.mark.anyio
async def test_a_coroutine_that_is_given_up_is_closed_and_no_part_of_the_next_episode() -> None:
    manager = SessionManager(EnvironmentSpec.of(LateAsync))
    session = await manager.create()
    await session.handle(Reset())
    with pytest.raises(StepTimeout) as late:
        await session.handle(Step(Do(what="late", value=1.0), {"timeout_s": 0.02}))
    assert late.value.is_running
    await session.handle(Reset())
    under_way = asyncio.create_task(session.handle(Step(Do(what="late", value=2.0))))
    assert manager.active_sessions == 2, "it has a slot of its own until it is back"
    await eventually(lambda: manager.active_sessions == 1)
    while not under_way.done():
        assert session.is_running, "its call is not forgotten"
        # Were it, this would be a second call in the environment, which refuses it.
        await session.handle(GetState())
    assert (await under_way).observation.text == "step 1"
    assert session.step_count == 1, "a step of the old episode does not count"
    assert (await session.handle(GetState())).state.step_count == 1
    await manager.aclose()


@pytest.mark.anyio
@pytest.mark.parametrize("environment", [Late, LateAsync])
@pytest.mark.parametrize("when", ["while it waits", "as its turn comes"])
async def test_a_call_that_is_cancelled_before_it_begins_is_not_begun(
    environment: type[Late], when: str
) -> None:
    manager = SessionManager(EnvironmentSpec.of(environment))
    session = await manager.create()
    await session.handle(Reset())
    answers: list[Any] = []
    second = CallbackCall(session, Step(Do()), done=lambda *_: answers.append("second"))

    def first_is_done(reply: Any, error: BaseException | None) -> None:
        answers.append("first")
        if when == "as its turn comes":  # the session has chosen it, and not begun it yet
            second.cancel()

    session.serve(CallbackCall(session, Step(Do(what="late")), done=first_is_done))
    session.serve(second)
    if when == "while it waits":
        second.cancel()
    await eventually(lambda: "first" in answers and not session.is_busy)
    assert (await session.handle(GetState())).state.step_count == session.step_count == 1
    await manager.aclose()


# ------------------------------------------------------------------ many of them


def _overstay(url: str, value: str | None = None) -> None:
    with CounterEnv(base_url=url) as env:
        env.reset()
        for _ in range(20):
            try:
                env.step(Do(what="late", value=value), timeout_s=LATE_S / 5)
            except StepTimeout:
                break
            # So busy a machine that the step was back before the server saw that its time is over.
        else:
            raise AssertionError("no step is told that its time is over")
        assert env.reset().observation.text == "ready"
        assert env.step(Do()).observation.text == "step 1"
        assert env.state().step_count == 1


def _cancelled(url: str) -> None:
    _overstay(url, "cancelled")


def _cancel_in_mid_call(url: str) -> None:
    async def leave() -> None:
        async with CounterEnv(base_url=url) as env:
            await env.reset()
            with contextlib.suppress(asyncio.TimeoutError):  # so busy a machine that it was back
                await asyncio.wait_for(env.step(Do(what="late")), LATE_S / 5)

    asyncio.run(leave())


def _cancel_a_connect(url: str) -> None:
    async def leave() -> None:
        env = CounterEnv(base_url=url)
        with contextlib.suppress(asyncio.TimeoutError):  # it may be there by then
            await asyncio.wait_for(env.connect(), random.uniform(0.0, 0.02))
        await env.close()

    asyncio.run(leave())


def _leave_in_mid_call(url: str) -> None:
    env = CounterEnv(base_url=url, message_timeout_s=LATE_S / 5)
    with env, contextlib.suppress(ResponseTimeout):
        env.reset()
        env.step(Do(what="late"))


WAYS: list[tuple[str, str, Callable[[str], None]]] = [
    ("LateAsync", "0", _overstay),
    ("Late", "0", _overstay),
    ("LateAsync", "2", _overstay),
    ("Late", "2", _overstay),
    ("LateToReset", "0", _leave_in_mid_call),
    ("LateToClose", "2", _overstay),
    rest("LateAnywhere", "0", _overstay),
    rest("LateAsync", "0", _cancelled),
    rest("LateAsync", "2", _cancelled),
    rest("LateAsync", "0", _leave_in_mid_call),
    rest("LateToClose", "0", _overstay),
    rest("LateToReset", "2", _leave_in_mid_call),
    ("LateAsync", "0", _cancel_a_connect),
    rest("Late", "0", _cancel_in_mid_call),
    rest("LateAsync", "2", _cancel_in_mid_call),
    rest("Late", "2", _cancel_a_connect),
]


@contextlib.contextmanager
def server(directory: Path, environment: str, workers: str) -> Iterator[tuple[str, int]]:
    port_file = directory / "port"
    command = [sys.executable, "-m", "openenv.server.run", "support.abandoned:app", "--port", "0"]
    command += ["--port-file", str(port_file), "--app-dir", str(TESTS)]
    variables = {"TEST_ENVIRONMENT": environment, "TEST_WORKERS": workers}
    variables["OPENENV_RESUME_GRACE_S"] = "1"  # for which a connection that broke is kept
    with (directory / "log").open("wb") as log:
        served = PythonProcess(command, env={**environ(TESTS), **variables}, stdout=log, stderr=log)
        try:
            wait_until(port_file.exists)
            yield f"http://127.0.0.1:{port_file.read_text()}", served.pid
        finally:
            served.terminate()
            served.wait(20)


def metrics(url: str) -> dict[str, float]:
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    pairs = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
    return {name.partition("{")[0]: float(value) for name, value in pairs}


def held(url: str, pid: int) -> dict[str, float]:
    """What a server holds, with its workers: by its own count, and by the system's."""
    said = metrics(url)
    names = ("slots_taken", "calls_overdue", "threads_held", "sessions_held_up")
    return {
        **{name: said[f"openenv_{name}"] for name in names},
        **httpx.get(f"{url}/held").json(),
        **held_by(pid),
    }


def settled(url: str, pid: int) -> dict[str, float]:
    """Return what a server holds once that has not grown for a second: a worker may be starting."""
    seen: list[dict[str, float]] = []

    def is_settled() -> bool:
        seen.append(held(url, pid))
        last = seen[-10:]
        time.sleep(0.1)
        return len(last) == 10 and not any(excess(one, last[-1]) for one in last)

    wait_until(is_settled, 30, lambda: seen[-10:])
    return seen[-1]


@pytest.mark.slow("opens and gives up dozens of sessions")
@pytest.mark.timeout(300)
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts as Linux does")
@pytest.mark.parametrize(("environment", "workers", "way"), WAYS)
def test_many_that_are_given_up_leave_nothing_behind(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    environment: str,
    workers: str,
    way: Callable[[str], None],
) -> None:
    caplog.set_level(logging.CRITICAL)  # pytest keeps what is logged
    with server(tmp_path, environment, workers) as (url, pid):

        def give_up(count: int, way: Callable[[str], None] = way) -> None:
            with ThreadPoolExecutor(AT_ONCE) as pool:
                for done in [pool.submit(way, url) for _ in range(count)]:
                    done.result(60)
            wait_until(lambda: metrics(url)["openenv_slots_taken"] == 0, 60)

        # Warmed up: what a server keeps once, it keeps. Workers are there once there are sessions.
        give_up(AT_ONCE, _overstay)
        give_up(AT_ONCE)
        before, here = settled(url, pid), held_here()
        give_up(COUNT)

        def left() -> tuple[dict[str, float], dict[str, float]]:
            return excess(before, held(url, pid)), excess(here, held_here())

        wait_until(lambda: left() == ({}, {}), 60, left)  # a limit of a connect may last 10 s
        wait_until(lambda: httpx.get(f"{url}/health").json() == {"status": "healthy"})
        words = (tmp_path / "log").read_text()
        assert "two calls at once" not in words and "closed during a call" not in words
        assert "Traceback" not in words


# ------------------------------------------------------------------ worker processes


@pytest.mark.anyio
@pytest.mark.slow("starts dozens of worker processes")
@pytest.mark.timeout(600)
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts as Linux does")
@pytest.mark.parametrize("is_forked", [True, rest(False)], ids=["forked", "started"])
@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGSTOP])
async def test_many_workers_that_are_killed_or_stopped_leave_nothing_behind(
    by: signal.Signals,
    is_forked: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)  # pytest keeps what is logged
    monkeypatch.setattr(process, "SHORT_LIFE_S", 0.0)  # so that none is waited for
    monkeypatch.setattr(_children, "_is_hopeless", not is_forked)
    spec = EnvironmentSpec.of(ProbeEnvironment)
    managers = [SessionManager(spec) for _ in range(amount(4, 1))]
    for manager in managers:
        manager.run_on(Workers(spec, 2, spec_source(spec)))

    async def harm(manager: SessionManager, times: int) -> None:
        for _ in range(times):
            await _harm(manager, by)

    async def harm_all(times: int) -> None:
        await asyncio.gather(*(harm(manager, times // len(managers)) for manager in managers))
        await eventually(lambda: all(manager.executors.workers[1] == 2 for manager in managers))

    await harm_all(4 * len(managers))
    before = held_here()
    await harm_all(amount(2000, 16) if is_forked else amount(40, 4))
    await eventually(lambda: not excess(before, held_here(), WORKERS_LEEWAY), 60)
    for manager in managers:
        assert manager.active_sessions == 0 and manager.trouble is None
        await manager.aclose()


async def _harm(manager: SessionManager, by: signal.Signals) -> None:
    """Have a session whose worker process is killed or stopped in a call, and see it end."""
    session = await manager.create()
    pid = int((await session.handle(Step(Ask(what="where")))).observation.value["pid"])
    os.kill(pid, by)
    if by is signal.SIGKILL:
        with pytest.raises(EnvironmentCrashed):
            await session.handle(Step(Ask(what="sleep", value=5.0)))
    else:
        with pytest.raises(StepTimeout):
            await session.handle(Step(Ask(what="length", value=""), {"timeout_s": 0.05}))
        await session.handle(Reset())  # in another process; this one is ended
        await session.handle(Step(Ask(what="length", value="")))
    await manager.close(session.id)
    await eventually(lambda: not is_alive(pid))


@pytest.mark.anyio
async def test_a_worker_that_is_ended_before_its_start_is_known_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A busy machine: the process has answered before the thread that started it goes on."""
    may_go_on = threading.Event()

    def start_and_dawdle(*args: Any, **options: Any) -> Any:
        child = _children.run_module(*args, **options)
        may_go_on.wait(20)
        return child

    monkeypatch.setattr(process, "run_module", start_and_dawdle)
    spec = EnvironmentSpec.of(ProbeEnvironment)
    manager = SessionManager(spec)
    manager.run_on(Workers(spec, 2, spec_source(spec)))
    try:
        session = await manager.create()
        pid = int((await session.handle(Step(Ask(what="where")))).observation.value["pid"])
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(StepTimeout):
            await session.handle(Step(Ask(what="length", value=""), {"timeout_s": 0.05}))
        await session.handle(Reset())  # in another process; this one is to be ended
        may_go_on.set()
        await eventually(lambda: not is_alive(pid))
    finally:
        may_go_on.set()
        await manager.aclose()
