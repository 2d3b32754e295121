"""Environments in worker processes: what they have there, and what a crash does to whom."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from support.environments import Counter
from support.probe import Answer, Ask, ProbeEnvironment
from support.processes import is_alive
from support.waiting import eventually
from support.workers import (
    NeedsOneThread,
    OneSession,
    Patient,
    Unmakeable,
    Untidy,
    make_one_session,
    make_probe,
    no_weights,
    not_data,
)

from openenv import errors
from openenv.errors import (
    EnvironmentCrashed,
    EnvironmentFactoryError,
    InvalidActionError,
    InvalidArgumentError,
    OpenEnvError,
    SessionCapacityError,
)
from openenv.execution.commands import CallMethod, Reset, Step
from openenv.execution.manager import ConcurrencyConfig, SessionManager
from openenv.execution.process import Workers
from openenv.execution.session import Session
from openenv.execution.spec import EnvironmentSpec
from openenv.execution.worker import Source
from openenv.server.workers import spec_source

pytestmark = pytest.mark.anyio

Manage = Callable[..., SessionManager]


@pytest.fixture
async def manage() -> AsyncIterator[Manage]:
    """Make managers whose environments live in worker processes; none outlives the test."""
    managers: list[SessionManager] = []

    def manage(
        factory: Any, count: int = 2, source: Source | None = None, **limits: Any
    ) -> SessionManager:
        spec = EnvironmentSpec.of(factory, Ask, Answer)
        manager = SessionManager(spec, ConcurrencyConfig(**limits) if limits else None)
        manager.run_on(Workers(spec, count, source or spec_source(spec)))
        managers.append(manager)
        return manager

    yield manage
    for manager in managers:
        await manager.aclose()


async def ask(session: Session, what: str, value: Any = None) -> Any:
    return (await session.handle(Step(Ask(what=what, value=value)))).observation.value


async def pid_of(session: Session) -> int:
    pid: int = (await ask(session, "where"))["pid"]
    return pid


# ------------------------------------------------------------------ where they are


async def test_sessions_are_spread_over_the_workers(manage: Manage) -> None:
    manager = manage(ProbeEnvironment, count=2)
    sessions = [await manager.create() for _ in range(4)]
    pids = [await pid_of(session) for session in sessions]
    assert os.getpid() not in pids
    assert sorted(pids.count(pid) for pid in set(pids)) == [2, 2]
    for session, pid in zip(sessions, pids, strict=True):
        if pid == pids[0]:
            await manager.close(session.id)
    assert await pid_of(await manager.create()) == pids[0], "it has the fewest"


async def test_an_environment_sees_one_thread_there_too(manage: Manage) -> None:
    manager = manage(ProbeEnvironment, count=1)
    one, other = [await manager.create() for _ in range(2)]
    threads = [await ask(session, "thread") for session in (one, other) for _ in range(3)]
    assert len(set(threads[:3])) == len(set(threads[3:])) == 1


async def test_those_that_need_one_thread_share_one_in_each_worker(manage: Manage) -> None:
    manager = manage(NeedsOneThread, count=2)
    sessions = [await manager.create() for _ in range(6)]
    places = {(await pid_of(session), await ask(session, "thread")) for session in sessions}
    assert len(places) == 2


async def test_one_that_declares_nothing_is_served_to_one_session(manage: Manage) -> None:
    manager = manage(OneSession, count=2)
    await manager.create()
    with pytest.raises(SessionCapacityError):
        await manager.create()
    async with manager.throwaway() as aside:
        assert (await aside.metadata()).name == "OneSession"


@pytest.mark.parametrize(("factory", "slots"), [(make_one_session, 1), (make_probe, 64)])
async def test_what_a_factory_makes_is_known_here_too(
    manage: Manage, factory: Any, slots: int
) -> None:
    manager = manage(factory)
    session, _ = await asyncio.gather(manager.create(), manager.create(), return_exceptions=True)
    assert isinstance(session, Session)
    assert manager.max_sessions == slots
    assert session.info().environment_type in ("OneSession", "ProbeEnvironment")


def test_what_no_other_process_can_import_is_refused() -> None:
    class Local(Counter):
        pass

    for factory in (Local, lambda: Counter()):
        with pytest.raises(TypeError, match="worker processes cannot import"):
            spec_source(EnvironmentSpec.of(factory, Ask, Answer))


def test_there_is_at_least_one_worker() -> None:
    spec = EnvironmentSpec.of(ProbeEnvironment)
    with pytest.raises(ValueError, match="workers=0"):
        Workers(spec, 0, spec_source(spec))


# ------------------------------------------------------------------ what crosses


async def test_arguments_and_values_cross(manage: Manage) -> None:
    manager = manage(ProbeEnvironment, count=1)
    session = await manager.create()
    assert (await session.handle(Reset({"sized": 1}))).ignored == ("sized",)
    with pytest.raises(InvalidArgumentError) as refused:
        await session.handle(Reset({"sized": 1}), strict=True)
    assert refused.value.names == ["sized"] and refused.value.method == "reset"
    with pytest.raises(InvalidActionError) as wrong:
        await session.handle(Step({"what": 3}))
    assert wrong.value.errors[0]["loc"] == ["what"]
    assert session.step_count == 0


async def test_exceptions_cross_as_themselves_where_they_can(manage: Manage) -> None:
    session = await manage(ProbeEnvironment, count=1).create()
    with pytest.raises(FileNotFoundError) as missing:
        await ask(session, "missing", "x")
    assert (missing.value.errno, missing.value.filename) == (2, "x")
    assert isinstance(missing.value.__cause__, KeyError)
    with pytest.raises(RuntimeError, match=r"^Odd: 1 and 2$") as odd:
        await ask(session, "odd")
    assert type(odd.value) is RuntimeError
    with pytest.raises(NotImplementedError, match="no_such_method"):
        await session.handle(CallMethod("no_such_method"))


async def test_a_reply_that_cannot_cross_is_an_error_and_the_session_goes_on(
    manage: Manage,
) -> None:
    session = await manage(ProbeEnvironment, count=1).create()
    with pytest.raises(TypeError, match="cannot leave"):
        await session.handle(CallMethod("__getattribute__", ("reset",)), encode=not_data)
    with pytest.raises((pickle.PicklingError, AttributeError)):
        await session.handle(CallMethod("reset"), encode=lambda value: value)
    assert await ask(session, "length", [1, 2]) == 2


SAMPLES: list[OpenEnvError] = [
    errors.ConcurrencyConfigurationError("E", 3),
    errors.SessionCapacityError(1, 2, "full"),
    errors.EnvironmentFactoryError("make"),
    errors.EnvironmentCrashed(-9),
    errors.InvalidActionError([{"loc": ["x"]}]),
    errors.InvalidArgumentError("reset", ["a"], ["b"]),
    errors.ConnectError("no"),
    errors.ResponseTimeout("late"),
    errors.ValidationFailed("no", "VALIDATION_ERROR", {"errors": []}),
    errors.ProviderExited("gone", exit_code=3, logs="words"),
    errors.ProviderTimeout("late", logs="words"),
]


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_our_errors_can_be_pickled_with_their_data(error: OpenEnvError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), vars(again), again.args) == (str(error), vars(error), error.args)


@pytest.mark.slow
async def test_big_frames_of_many_sessions_cross_at_once(manage: Manage) -> None:
    """Neither side waits until it can write: what fills both ways of a socket would stop both."""
    manager = manage(ProbeEnvironment, count=1)
    sessions = [await manager.create() for _ in range(8)]
    sent = await asyncio.gather(*(ask(s, "length", "y" * 3_000_000) for s in sessions))
    come = await asyncio.gather(*(ask(s, "bytes", 3_000_000) for s in sessions))
    assert sent == [3_000_000] * 8 and {len(text) for text in come} == {3_000_000}


async def test_a_cancelled_coroutine_is_cancelled_there(manage: Manage) -> None:
    session = await manage(Patient, count=1).create()
    for _ in range(2):
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(ask(session, "sleep", 60), 0.1)
        assert await asyncio.wait_for(ask(session, "length", "ab"), 5) == 2


# ------------------------------------------------------------------ crashes

CRASHES = [("kill", None, -signal.SIGKILL), ("exit", 3, 3), ("segfault", 0, -signal.SIGSEGV)]


@pytest.mark.slow
@pytest.mark.parametrize(("what", "value", "code"), CRASHES, ids=[crash[0] for crash in CRASHES])
async def test_a_crash_is_told_to_its_sessions_and_harms_no_other(
    manage: Manage, what: str, value: Any, code: int
) -> None:
    manager = manage(ProbeEnvironment, count=2, max_concurrent_envs=4)
    sessions = [await manager.create() for _ in range(4)]
    pids = [await pid_of(session) for session in sessions]
    victim = sessions[0]
    (mate,) = (s for s, pid in zip(sessions[1:], pids[1:], strict=True) if pid == pids[0])
    others = [s for s, pid in zip(sessions, pids, strict=True) if pid != pids[0]]
    under_way = [asyncio.create_task(ask(session, "sleep", 0.5)) for session in others]
    with pytest.raises(EnvironmentCrashed) as crashed:
        await asyncio.wait_for(ask(victim, what, value), 10)
    assert crashed.value.exit_code == code and errors.how_it_ended(code) in str(crashed.value)
    for session in (mate, victim, mate):
        with pytest.raises(EnvironmentCrashed):
            await session.handle(Reset())
    await asyncio.gather(*under_way)
    for session in (mate, victim):
        await asyncio.wait_for(manager.close(session.id), 1)
        assert session.close_error is None
    assert manager.active_sessions == 2
    fresh = [await manager.create() for _ in range(2)]
    assert len({*pids, *[await pid_of(session) for session in fresh]}) == 3
    assert [await pid_of(session) for session in others] == [p for p in pids if p != pids[0]]


async def test_a_crash_is_seen_and_mended(manage: Manage) -> None:
    manager = manage(ProbeEnvironment, count=1)
    session = await manager.create()
    assert manager.trouble is None
    with pytest.raises(EnvironmentCrashed):
        await ask(session, "kill")
    assert "1 of 1 worker processes died (killed by SIGKILL)" in str(manager.trouble)
    again = await manager.create()  # it waits for the one that takes its place
    assert await ask(again, "length", "") == 0
    assert manager.trouble is None


async def test_what_a_crashed_worker_has_started_ends_with_it(manage: Manage) -> None:
    session = await manage(ProbeEnvironment, count=1).create()
    grandchild = await ask(session, "spawn")
    assert is_alive(grandchild)
    with pytest.raises(EnvironmentCrashed):
        await ask(session, "kill")
    await eventually(lambda: not is_alive(grandchild))


async def test_a_crash_while_it_is_made_is_the_factorys(manage: Manage) -> None:
    manager = manage(Unmakeable, count=1)
    for _ in range(2):
        with pytest.raises(EnvironmentFactoryError, match=r"Unmakeable.*exit code 7") as failed:
            await asyncio.wait_for(manager.create(), 10)
        assert isinstance(failed.value.__cause__, EnvironmentCrashed)
    assert "EnvironmentCrashed" in str(manager.trouble)
    assert manager.active_sessions == 0


async def test_workers_that_cannot_load_it_say_why_and_are_not_started_for_ever(
    manage: Manage, capfd: pytest.CaptureFixture[str]
) -> None:
    manager = manage(ProbeEnvironment, count=2, source=no_weights)
    for _ in range(8):
        with pytest.raises(EnvironmentFactoryError, match="FileNotFoundError: no weights"):
            await asyncio.wait_for(manager.create(), 10)
    assert "2 of 2 worker processes" in str(manager.executors.trouble)
    assert 2 <= capfd.readouterr().err.count("FileNotFoundError: no weights") <= 10


# ------------------------------------------------------------------ ending


async def test_closing_closes_every_environment_and_leaves_no_process(
    manage: Manage, tmp_path: Path
) -> None:
    manager = manage(Untidy, count=2)
    sessions = [await manager.create() for _ in range(4)]
    pids = {await pid_of(session) for session in sessions}
    for number, session in enumerate(sessions):
        await ask(session, "at close", ("write", str(tmp_path / str(number))))
    await asyncio.wait_for(manager.aclose(), 5)
    assert len(os.listdir(tmp_path)) == 4
    assert not any(map(is_alive, pids))
    assert await pid_of(await manager.create()) not in pids, "it may be used again"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["sleep", "hold"])
async def test_an_environment_that_never_closes_ends_with_its_process(
    manage: Manage, how: str
) -> None:
    manager = manage(Untidy, count=1)
    session = await manager.create()
    pid = await pid_of(session)
    await ask(session, "at close", (how, 1000))
    began = time.monotonic()
    await manager.aclose(grace_s=0.2)
    assert not is_alive(pid) and time.monotonic() - began < 5


PROGRAM = """
import asyncio, sys
from openenv.server.workers import spec_source
from openenv.execution.manager import SessionManager
from openenv.execution.process import Workers
from openenv.execution.commands import Step
from openenv.execution.spec import EnvironmentSpec
from support.probe import Ask
from support.workers import Untidy

async def main():
    spec = EnvironmentSpec.of(Untidy)
    manager = SessionManager(spec)
    manager.run_on(Workers(spec, 1, spec_source(spec), grace_s=0.5))
    session = await manager.create()
    place = await session.handle(Step(Ask(what="where")))
    await session.handle(Step(Ask(what="at close", value=["write", sys.argv[2]])))
    print(place.observation.value["pid"], flush=True)
    if sys.argv[1]:
        await session.handle(Step(Ask(what=sys.argv[1], value=1000)))
    await asyncio.sleep(1000)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("busy", ["", "sleep", "hold"])
async def test_workers_end_with_a_server_that_is_killed(busy: str, tmp_path: Path) -> None:
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, busy, str(tmp_path / "closed")),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=asyncio.subprocess.PIPE,
    )
    assert server.stdout is not None
    worker = int(await asyncio.wait_for(server.stdout.readline(), 20))
    assert is_alive(worker)
    if busy:
        await eventually((tmp_path / "closed.busy").exists)
    server.kill()
    await server.wait()
    await eventually(lambda: not is_alive(worker))
    assert (tmp_path / "closed").exists() is (busy == "")
