"""A thread that several sessions share, and that a call holds past its deadline."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any, ClassVar

import pytest
from execution.parts import HANGS_S, Manage
from support.environments import Do, Log, Seen
from support.waiting import eventually
from support.workers import HangsOnRequest, spec_of_hanging

from openenv import State
from openenv.errors import OpenEnvError, SessionBusyError, StepTimeout
from openenv.execution import executors, threads
from openenv.execution import session as sessions
from openenv.execution.commands import Reset, Step
from openenv.execution.executors import LatencyClassifier, ThreadExecutor
from openenv.execution.manager import SessionManager
from openenv.execution.principal import KeyLimits, Principal
from openenv.execution.process import Workers
from openenv.execution.session import Session
from openenv.execution.spec import EnvironmentSpec
from openenv.server.metrics import Metrics

pytestmark = pytest.mark.anyio

SOON_S = 0.05


class Sharing:
    """Its instances share threads once they were quick; "wait" holds one until `gate` opens."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    log: ClassVar[Log]
    gate: ClassVar[threading.Event]
    instances: ClassVar[int]

    def __init_subclass__(cls) -> None:
        cls.log, cls.gate, cls.instances = Log(), threading.Event(), 0

    def __init__(self) -> None:
        type(self).instances += 1
        self.number = self.instances
        self.thread = threading.get_ident()

    def reset(self) -> Seen:
        assert threading.get_ident() == self.thread
        return Seen(value=self.number)

    def step(self, action: Do) -> Seen:
        assert threading.get_ident() == self.thread
        self.log.note(action.what)
        if action.what == "wait":
            assert self.gate.wait(HANGS_S)
        return Seen(value=self.number)

    @property
    def state(self) -> State:
        return State()

    def close(self) -> None:
        assert threading.get_ident() == self.thread
        self.log.note("close")


@pytest.fixture
def shared() -> Iterator[type[Sharing]]:
    class Shared(Sharing):
        pass

    yield Shared
    Shared.gate.set()


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for a thread that is held is told soon."""
    monkeypatch.setattr(sessions, "HELD_PATIENCE_S", 0.2)
    monkeypatch.setattr(executors, "HELD_LOOK_S", 0.02)


async def quick(manager: SessionManager) -> Session:
    """Let a class be known as quick; return the session that has shown it."""
    first = await manager.create()
    for _ in range(LatencyClassifier.EVIDENCE + 1):
        await first.handle(Step(Do()))
    assert manager.executors.classifier.is_quick
    return first


async def hold(session: Session) -> None:
    """Have a step hold the thread of a session past its deadline."""
    while True:
        with pytest.raises(StepTimeout) as late:
            await session.handle(Step(Do(what="wait"), {"timeout_s": SOON_S}))
        if late.value.is_running:  # else the thread had no processor for so long
            return


async def number_of(session: Session) -> Any:
    reset = await asyncio.wait_for(session.handle(Reset()), HANGS_S)
    return reset.observation.value


def thread_of(session: Session) -> threads.WorkerThread:
    assert isinstance(session._executor, ThreadExecutor)
    return session._executor.worker


async def neighbours(manager: SessionManager) -> tuple[Session, Session, Session]:
    """Open three sessions: two of one thread, and one of another."""
    one, other, mate = [await manager.create() for _ in range(3)]
    assert thread_of(one) is thread_of(mate) is not thread_of(other)
    return one, mate, other


async def test_a_thread_that_is_held_gets_no_new_sessions_until_its_call_is_back(
    manage: Manage, shared: type[Sharing]
) -> None:
    manager = manage(shared, max_concurrent_envs=100)
    await quick(manager)
    one, _, other = await neighbours(manager)
    await hold(one)
    new = [await asyncio.wait_for(manager.create(), HANGS_S) for _ in range(6)]
    assert thread_of(one) not in {thread_of(session) for session in new}
    assert {thread_of(other)} < {thread_of(session) for session in new}, "two take turns again"
    for session in new:
        assert await number_of(session) > 0
    shared.gate.set()
    await eventually(lambda: not thread_of(one).is_held)
    later = [await manager.create() for _ in range(4)]
    assert thread_of(one) in {thread_of(session) for session in later}


async def test_the_session_that_gives_up_goes_on_elsewhere_and_its_neighbours_are_told(
    manage: Manage, shared: type[Sharing]
) -> None:
    manager = manage(shared, max_concurrent_envs=100)
    await quick(manager)
    one, mate, other = await neighbours(manager)
    before = await number_of(mate)
    await hold(one)
    assert await number_of(one) > before, "another environment"
    with pytest.raises(SessionBusyError, match="shares with others") as told:
        await asyncio.wait_for(mate.handle(Step(Do())), HANGS_S)
    assert told.value.running_s >= 0.2
    assert await number_of(other) < before, "another thread is not concerned"
    shared.gate.set()
    await eventually(lambda: not manager._overdue)
    assert (await mate.handle(Step(Do()))).observation.value == before, "its episode goes on"


async def test_a_neighbour_that_resets_gets_an_environment_elsewhere(
    manage: Manage, shared: type[Sharing]
) -> None:
    manager = manage(shared, max_concurrent_envs=100)
    await quick(manager)
    one, mate, _ = await neighbours(manager)
    before = await number_of(mate)
    await hold(one)
    after = await number_of(mate)
    assert after > before
    assert (await mate.handle(Step(Do()))).observation.value == after
    assert manager.active_sessions == 5, "what was left has a slot until it is closed"
    shared.gate.set()
    await eventually(lambda: manager.active_sessions == 4)
    assert shared.log.count("close") == 1, "and was closed on its own thread"
    assert (await mate.handle(Step(Do()))).observation.value == after


async def test_an_environment_that_waits_for_such_a_thread_is_made_elsewhere(
    manage: Manage, shared: type[Sharing], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "LONG_CALL_S", HANGS_S)
    manager = manage(shared, max_concurrent_envs=100)
    await quick(manager)
    one, _, _ = await neighbours(manager)
    stepping = asyncio.create_task(one.handle(Step(Do(what="wait"), {"timeout_s": 1.0})))
    await eventually(lambda: shared.log.count("wait") == 1)
    new = [asyncio.create_task(manager.create()) for _ in range(4)]
    with pytest.raises(StepTimeout):
        await stepping
    made = await asyncio.wait_for(asyncio.gather(*new), HANGS_S)
    assert not shared.gate.is_set()
    for session in made:
        assert await number_of(session) > 0


async def test_a_step_whose_thread_is_held_until_its_deadline_is_not_begun(
    manage: Manage, shared: type[Sharing]
) -> None:
    manager = manage(shared, max_concurrent_envs=100)
    await quick(manager)
    one, mate, _ = await neighbours(manager)
    await hold(one)
    for _ in range(3):
        with pytest.raises(StepTimeout, match="nothing was done") as late:
            await mate.handle(Step(Do(what="late"), {"timeout_s": SOON_S}))
        assert not late.value.is_running
    shared.gate.set()
    await mate.handle(Step(Do(what="next")))
    assert (shared.log.count("late"), shared.log.count("next")) == (0, 1)
    assert mate.step_count == 1


async def test_those_that_need_one_thread_are_told(manage: Manage, shared: type[Sharing]) -> None:
    class Needy(shared):  # type: ignore[misc, valid-type]
        REQUIRES_SINGLE_THREAD_EXECUTOR = True

    manager = manage(Needy, max_concurrent_envs=100)
    one, other = [await manager.create() for _ in range(2)]
    await hold(one)
    for command in (Step(Do()), Reset()):
        with pytest.raises(SessionBusyError, match="shares with others"):
            await asyncio.wait_for(other.handle(command), HANGS_S)
    making = asyncio.create_task(manager.create())
    await asyncio.sleep(0.1)
    assert not making.done(), "there is no other thread"
    Needy.gate.set()
    assert await number_of(other) == 2
    assert await number_of(await making) == 3


async def test_the_operator_is_told(manage: Manage, shared: type[Sharing]) -> None:
    def metric(name: str) -> float:
        families = {family.name: family for family in Metrics(manager).collect()}
        return families[name].samples[0].value

    manager = manage(shared, max_concurrent_envs=100)
    await quick(manager)
    one, mate, _ = await neighbours(manager)
    assert manager.trouble is None
    await hold(one)
    assert "1 of 3 threads are held by calls" in str(manager.trouble)
    assert "1 other sessions" in str(manager.trouble)
    assert metric("openenv_threads_held") == metric("openenv_sessions_held_up") == 1
    await eventually(lambda: "1 calls run past their deadline" in str(manager.trouble))
    shared.gate.set()
    await mate.handle(Step(Do()))
    await eventually(lambda: manager.trouble is None)
    assert metric("openenv_threads_held") == metric("openenv_sessions_held_up") == 0


async def test_the_operator_is_told_of_a_call_without_a_deadline_too(
    manage: Manage, shared: type[Sharing], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "WAIT_S", 0.2)
    monkeypatch.setattr(threads, "LONG_CALL_S", 0.2)
    manager = manage(shared, max_concurrent_envs=100)
    await quick(manager)
    one, mate, _ = await neighbours(manager)
    holding = asyncio.create_task(one.handle(Step(Do(what="wait"))))
    await eventually(lambda: shared.log.count("wait") == 1)
    waiting = asyncio.create_task(mate.handle(Step(Do())))
    await eventually(lambda: "for which 1 other sessions wait" in str(manager.trouble))
    for _ in range(4):
        new = await asyncio.wait_for(manager.create(), HANGS_S)
        assert thread_of(new) is not thread_of(one)
    assert not waiting.done(), "nobody has said that the call is late"
    shared.gate.set()
    await asyncio.gather(holding, waiting)
    await eventually(lambda: manager.trouble is None)


async def test_calls_that_never_come_back_count_as_slow(
    manage: Manage, shared: type[Sharing]
) -> None:
    manager = manage(shared, max_concurrent_envs=100)
    await quick(manager)
    one, *_ = await neighbours(manager)
    for _ in range(LatencyClassifier.STRIKES):
        with pytest.raises(StepTimeout):
            await one.handle(Step(Do(what="wait"), {"timeout_s": LatencyClassifier.LONG_S * 2}))
        await number_of(one)
    assert not manager.executors.classifier.is_quick
    assert not (await manager.create())._executor.is_shared  # type: ignore[union-attr]


async def test_threads_that_took_the_place_of_others_end(
    manage: Manage, shared: type[Sharing], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LatencyClassifier, "STRIKES", 1000)
    manager = manage(shared, max_concurrent_envs=200)
    await quick(manager)
    held = []
    for _ in range(8):
        held.append(await manager.create())
        await hold(held[-1])
        assert await number_of(held[-1])
    assert manager.executors.threads > 8
    shared.gate.set()
    await asyncio.gather(*(manager.close(session.id) for session in held))
    await eventually(lambda: manager.active_sessions == 1)
    assert manager.executors.threads == 1 + executors.SHARED_THREADS


async def test_a_session_that_gets_no_other_environment_gives_its_slot_back(
    manage: Manage,
) -> None:
    class Once(Sharing):
        def __init__(self) -> None:
            super().__init__()
            if self.number > 1:
                raise OSError("no more of them")

    manager = manage(Once, max_concurrent_envs=4)
    session = await manager.create()
    await hold(session)
    with pytest.raises(Exception, match="Once"):
        await session.handle(Reset())
    Once.gate.set()
    await eventually(lambda: manager.active_sessions == 0)
    assert manager.counters.closed["failed"] == 1


async def test_what_is_given_up_counts_for_the_key_that_gave_it_up(manage: Manage) -> None:
    class Own(Sharing):
        pass

    manager = manage(Own, max_concurrent_envs=20)
    greedy = Principal("greedy", limits=KeyLimits(max_sessions=2))
    session = await manager.create(principal=greedy)
    for given_up in (1, 2):
        await hold(session)
        await number_of(session)
        assert greedy.sessions == 1 + given_up
        with pytest.raises(OpenEnvError, match="greedy"):
            await manager.create(principal=greedy)
    await hold(session)
    with pytest.raises(SessionBusyError):
        await session.handle(Reset())
    assert manager.active_sessions == 3
    await manager.create(principal=Principal("modest"))
    Own.gate.set()
    await eventually(lambda: greedy.sessions == 1)
    assert manager.active_sessions == 2


# ------------------------------------------------------------------ in worker processes


@pytest.fixture
async def workers() -> AsyncIterator[SessionManager]:
    spec = EnvironmentSpec.of(HangsOnRequest, Do, Seen)
    manager = SessionManager(spec)
    manager.run_on(Workers(spec, 1, spec_of_hanging))
    yield manager
    await manager.aclose(grace_s=0.2)


@pytest.mark.slow("the worker tells its sessions after a second")
async def test_neighbours_in_a_worker_process_are_told_and_go_on_elsewhere(
    workers: SessionManager,
) -> None:
    first = await workers.create()
    for _ in range(LatencyClassifier.EVIDENCE + 1):
        await first.handle(Step(Do()))
    one, other, mate = [await workers.create() for _ in range(3)]
    threads = [(await session.handle(Step(Do()))).observation.value for session in (one, mate)]
    assert threads[0] == threads[1]
    hanging = asyncio.ensure_future(one.handle(Step(Do(what="hang"), {"timeout_s": 1.0})))
    await asyncio.sleep(0)  # the step that hangs is the first that the worker gets
    with pytest.raises(StepTimeout, match="nothing was done") as late:
        await mate.handle(Step(Do(), {"timeout_s": 1.0}))  # a second before the worker tells
    assert not late.value.is_running
    with pytest.raises(StepTimeout):
        await hanging
    with pytest.raises(SessionBusyError, match="shares with others"):
        await asyncio.wait_for(mate.handle(Step(Do())), HANGS_S)
    for session in (one, mate, other, await workers.create()):
        await asyncio.wait_for(session.handle(Reset()), HANGS_S)
        where = (await asyncio.wait_for(session.handle(Step(Do())), HANGS_S)).observation.value
        assert where != threads[0]
