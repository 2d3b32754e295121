"""Which thread an environment is called on, and that a slow one holds up nobody."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import pytest
from execution.parts import HANGS_S, Manage
from support.environments import Do, Log, Seen
from support.waiting import eventually

from openenv import State
from openenv.execution import executors
from openenv.execution.commands import Reset, Step
from openenv.execution.executors import (
    InlineExecutor,
    LatencyClassifier,
    PoolExecutor,
    ThreadExecutor,
)
from openenv.execution.manager import SessionManager
from openenv.execution.session import Session
from openenv.execution.spec import EnvironmentSpec
from openenv.execution.threads import LoopDispatcher

pytestmark = pytest.mark.anyio


class Quick:
    """Its steps take no time, unless they are told to wait for `gate`."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    log: ClassVar[Log]
    gate: ClassVar[threading.Event]

    def __init_subclass__(cls) -> None:
        cls.log, cls.gate = Log(), threading.Event()

    def __init__(self) -> None:
        self.log.note("init")
        self.steps = 0

    def reset(self) -> Any:
        return Seen()

    def step(self, action: Do) -> Any:
        self.log.note("step")
        self.steps += 1
        if action.what == "wait":
            assert self.gate.wait(HANGS_S)
        if action.what == "sleep":
            time.sleep(action.value)
        return Seen(value=self.steps)

    @property
    def state(self) -> State:
        return State()

    def close(self) -> None:
        self.log.note("close")


WAIT = Step(Do(what="wait"))


async def steps(session: Session, count: int, pause_s: float = 0.0) -> None:
    for _ in range(count):
        await session.handle(Step(Do()))
        await asyncio.sleep(pause_s)


def are_held(stuck: Sequence[asyncio.Task[Any]]) -> bool:
    """All still wait for the gate: whoever had to wait for one of them would not have come here.

    That is seen without a clock, so that a busy machine changes nothing.
    """
    return not any(task.done() for task in stuck)


def counting() -> Callable[[], int]:
    """Gives what counts the threads of pools that begin from now on."""
    before = set(threading.enumerate())
    return lambda: sum(
        thread.name.startswith("openenv-pool") for thread in set(threading.enumerate()) - before
    )


# ------------------------------------------------------------------ what a class declares


async def test_one_that_never_blocks_is_called_on_the_loop(manage: Manage) -> None:
    class Light(Quick):
        NEVER_BLOCKS = True

    for factory in (Light, lambda: Light()):
        manager = manage(factory)
        session = await manager.create()
        assert isinstance(session._executor, InlineExecutor)
        await session.handle(Reset())
        await steps(session, 3)
        await manager.close(session.id)
    assert {thread for event, thread in Light.log.events if event != "init"} == {
        threading.get_ident()
    }
    assert Light.log.count("close") == 2


async def test_a_stuck_call_is_left_alone_where_any_thread_will_do(manage: Manage) -> None:
    class Anywhere(Quick):
        SUPPORTS_ANY_THREAD = True

    manager = manage(Anywhere, max_concurrent_envs=50)
    sessions = [await manager.create() for _ in range(20)]
    assert all(isinstance(session._executor, PoolExecutor) for session in sessions)
    stuck = [asyncio.create_task(session.handle(WAIT)) for session in sessions[:5]]
    await asyncio.gather(*(steps(session, 20) for session in sessions[5:]))
    assert are_held(stuck)
    Anywhere.gate.set()
    assert [(await task).observation.value for task in stuck] == [1] * 5
    assert threading.get_ident() not in Anywhere.log.threads


async def test_a_pool_lets_threads_go_that_are_out_of_work(manage: Manage) -> None:
    class Anywhere(Quick):
        SUPPORTS_ANY_THREAD = True

    pool_threads = counting()
    manager = manage(Anywhere, max_concurrent_envs=50)
    sessions = [await manager.create() for _ in range(20)]
    stuck = [asyncio.create_task(session.handle(WAIT)) for session in sessions]
    await eventually(lambda: Anywhere.log.count("step") == 20)
    assert pool_threads() >= 20
    Anywhere.gate.set()
    await asyncio.gather(*stuck)
    await eventually(lambda: pool_threads() <= 6)
    await asyncio.wait_for(steps(sessions[0], 20), HANGS_S)
    await manager.aclose()
    await eventually(lambda: pool_threads() == 0)


@pytest.mark.slow
async def test_a_pool_never_gives_calls_to_a_thread_that_has_ended(manage: Manage) -> None:
    """More threads than are kept fall idle at once, again and again."""

    class Anywhere(Quick):
        SUPPORTS_ANY_THREAD = True

    manager = manage(Anywhere, max_concurrent_envs=50)
    sessions = [await manager.create() for _ in range(12)]
    for _ in range(10):
        Anywhere.gate.clear()
        begun = Anywhere.log.count("step")
        stuck = [asyncio.create_task(session.handle(WAIT)) for session in sessions]
        await eventually(lambda begun=begun: Anywhere.log.count("step") == begun + 12)  # type: ignore[misc]
        Anywhere.gate.set()
        await asyncio.wait_for(asyncio.gather(*stuck), HANGS_S)
        await asyncio.wait_for(asyncio.gather(*(steps(s, 3) for s in sessions)), HANGS_S)


async def test_a_pool_serves_another_loop_when_the_first_has_ended() -> None:
    class Anywhere(Quick):
        SUPPORTS_ANY_THREAD = True

    manager = SessionManager(EnvironmentSpec.of(Anywhere, Do, Seen))

    async def leave_in_the_middle() -> None:
        session = await manager.create()
        asyncio.ensure_future(session.handle(WAIT))  # noqa: RUF006 - its loop ends
        await eventually(lambda: Anywhere.log.count("step") == 1)

    async def play() -> Any:
        session = await manager.create()
        return (await session.handle(Step(Do()))).observation.value

    await asyncio.to_thread(asyncio.run, leave_in_the_middle())
    Anywhere.gate.set()
    for _ in range(3):
        assert await asyncio.wait_for(asyncio.to_thread(asyncio.run, play()), HANGS_S) == 1
    manager.executors.stop()


async def test_a_session_that_outlives_its_manager_is_closed_all_the_same(
    manage: Manage,
) -> None:
    class Anywhere(Quick):
        SUPPORTS_ANY_THREAD = True

    pool_threads, manager = counting(), manage(Anywhere)
    session = await manager.create()
    stuck = asyncio.create_task(session.handle(WAIT))
    await eventually(lambda: Anywhere.log.count("step") == 1)
    await manager.aclose(grace_s=0.05)
    Anywhere.gate.set()
    await stuck
    await eventually(lambda: Anywhere.log.count("close") == 1)
    await eventually(lambda: pool_threads() == 0)


# ------------------------------------------------------------------ threads are shared on evidence


async def test_a_class_without_evidence_gets_a_thread_for_each(manage: Manage) -> None:
    class Unknown(Quick):
        pass

    manager = manage(Unknown, max_concurrent_envs=50)
    sessions = [await manager.create() for _ in range(10)]
    stuck = [asyncio.create_task(session.handle(WAIT)) for session in sessions[:5]]
    await asyncio.gather(*(steps(session, 20) for session in sessions[5:]))
    assert are_held(stuck)
    Unknown.gate.set()
    await asyncio.gather(*stuck)
    assert len(Unknown.log.threads) == 10


async def test_the_loop_gives_up_waiting_for_a_batch_that_takes_long(manage: Manage) -> None:
    class Unknown(Quick):
        pass

    manager = manage(Unknown, max_concurrent_envs=50)
    sessions = [await manager.create() for _ in range(2 * LoopDispatcher.WORTH_WAITING)]

    def has_begun(count: int) -> bool:
        return Unknown.log.count("step") == count

    for _ in range(3):
        Unknown.gate.clear()
        begun = Unknown.log.count("step")
        stuck = [asyncio.create_task(session.handle(WAIT)) for session in sessions]
        for _ in range(10):
            await asyncio.sleep(0)
        await eventually(partial(has_begun, begun + len(sessions)))
        assert are_held(stuck)
        Unknown.gate.set()
        await asyncio.gather(*stuck)
    await asyncio.gather(*(steps(session, 20) for session in sessions))


async def test_threads_are_shared_once_steps_were_seen_to_be_quick(manage: Manage) -> None:
    class Known(Quick):
        pass

    manager = manage(Known, max_concurrent_envs=100)
    first = await manager.create()
    await steps(first, LatencyClassifier.EVIDENCE + 1)
    assert not first._executor.is_shared  # type: ignore[union-attr]
    later = [await manager.create() for _ in range(20)]
    await asyncio.gather(*(steps(session, 3) for session in later))
    assert all(isinstance(s._executor, ThreadExecutor) and s._executor.is_shared for s in later)
    assert len(Known.log.threads) == 1 + executors.SHARED_THREADS
    await asyncio.gather(*(manager.close(session.id) for session in [first, *later]))
    by_thread = dict.fromkeys(Known.log.threads, 0)
    for event, thread in Known.log.events:
        by_thread[thread] += {"init": 1, "close": -1}.get(event, 0)
    assert set(by_thread.values()) == {0}, "each was closed on the thread that made it"


@pytest.mark.parametrize(("sessions_count", "times"), [(4, 0), (20, 1)])
async def test_the_log_says_once_what_a_declaration_would_gain(
    manage: Manage, caplog: pytest.LogCaptureFixture, sessions_count: int, times: int
) -> None:
    class Undeclared(Quick):
        pass

    manager = manage(Undeclared, max_concurrent_envs=50)
    sessions = [await manager.create() for _ in range(sessions_count)]
    with caplog.at_level(logging.INFO, "openenv.execution.executors"):
        await asyncio.gather(*(steps(session, 100) for session in sessions))
    advice = [one for one in caplog.messages if "declare SUPPORTS_ANY_THREAD = True" in one]
    assert len(advice) == times
    assert all(f"{sessions_count} sessions of Undeclared" in one for one in advice)


async def test_a_class_that_turns_out_slow_shares_no_more(
    manage: Manage, caplog: pytest.LogCaptureFixture
) -> None:
    class Turning(Quick):
        pass

    manager = manage(Turning, max_concurrent_envs=100)
    await steps(await manager.create(), LatencyClassifier.EVIDENCE + 1)
    shared = await manager.create()
    for _ in range(LatencyClassifier.STRIKES):
        await shared.handle(Step(Do(what="sleep", value=LatencyClassifier.LONG_S * 1.2)))
    assert [r.levelname for r in caplog.records if "SUPPORTS_ANY_THREAD" in r.message] == [
        "WARNING"
    ]
    later = await manager.create()
    assert isinstance(later._executor, ThreadExecutor) and not later._executor.is_shared
    assert shared._executor.is_shared, "a thread never changes"  # type: ignore[union-attr]


QUICK = LatencyClassifier.QUICK_S / 2


def test_quickness_needs_evidence_and_is_lost_by_three_strikes() -> None:
    classifier = LatencyClassifier()
    assert classifier.noteworthy_s < 0 and not classifier.is_quick
    for number in range(LatencyClassifier.EVIDENCE):
        assert not classifier.is_quick, number
        assert not classifier.note(QUICK)
    assert classifier.is_quick and classifier.noteworthy_s == classifier.QUICK_S
    assert [classifier.note(1.0) for _ in range(LatencyClassifier.STRIKES)] == [False, False, True]
    assert not classifier.is_quick
    for _ in range(LatencyClassifier.MEMORY):
        classifier.note(QUICK)
    assert classifier.is_quick
    for _ in range(LatencyClassifier.STRIKES):
        classifier.note(1.0)
    for _ in range(LatencyClassifier.MEMORY):
        classifier.note(QUICK)
    assert not classifier.is_quick, "the second time takes ten times as long"


def test_a_strike_is_forgotten_after_10000_quick_calls() -> None:
    classifier = LatencyClassifier()
    for _ in range(LatencyClassifier.EVIDENCE):
        classifier.note(QUICK)
    for _ in range(10):
        assert not classifier.note(1.0) and not classifier.note(1.0)
        for _ in range(LatencyClassifier.MEMORY):
            classifier.note(QUICK)
    assert classifier.is_quick


def test_evidence_begins_anew_with_a_slow_call() -> None:
    classifier = LatencyClassifier()
    for _ in range(LatencyClassifier.EVIDENCE - 1):
        classifier.note(QUICK)
    classifier.note(1.0)
    classifier.note(QUICK)
    assert not classifier.is_quick, "200 in a row were asked for"


def test_calls_of_several_milliseconds_are_no_evidence() -> None:
    classifier = LatencyClassifier()
    for _ in range(5 * LatencyClassifier.EVIDENCE):
        classifier.note(0.004)
    assert not classifier.is_quick
    for _ in range(2 * LatencyClassifier.EVIDENCE):
        classifier.note(QUICK)
    assert classifier.is_quick


@pytest.mark.parametrize(("pause_s", "stays"), [(0.001, False), (0.1, True)])
def test_quickness_is_lost_by_what_keeps_a_thread_busy(pause_s: float, stays: bool) -> None:
    """Calls of 20 ms, one after the other, or a few a second."""
    now = 0.0
    classifier = LatencyClassifier(clock=lambda: now)
    for _ in range(LatencyClassifier.EVIDENCE):
        classifier.note(QUICK)
    turned = False
    for _ in range(1000):
        now += 0.020 + pause_s
        turned = classifier.note(0.020) or turned
    assert turned is not stays and classifier.is_quick is stays


# ------------------------------------------------------------------ many


async def test_more_sessions_than_threads_share_a_crowd_of_them(
    manage: Manage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(executors, "MAX_OWN_THREADS", 4)
    monkeypatch.setattr(executors, "CROWD_THREADS", 3)

    class Crowded(Quick):
        pass

    manager = manage(Crowded, max_concurrent_envs=100)
    sessions = await asyncio.gather(*(manager.create() for _ in range(20)))
    await asyncio.gather(*(steps(session, 5) for session in sessions))
    assert len(Crowded.log.threads) == 7
    assert sum("thread of their own" in r.message for r in caplog.records) == 1
    await asyncio.gather(*(manager.close(session.id) for session in sessions[:4]))
    again = await manager.create()
    assert isinstance(again._executor, ThreadExecutor) and not again._executor.is_shared
    await manager.aclose()
    assert Crowded.log.count("init") == Crowded.log.count("close") == 21


variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)


@pytest.mark.parametrize("declared", ["NEVER_BLOCKS", "SUPPORTS_ANY_THREAD", "shared"])
async def test_context_variables_are_each_sessions_own(manage: Manage, declared: str) -> None:
    class Setting(Quick):
        def step(self, action: Do) -> Any:
            variable.set(variable.get() + 1)
            return Seen(value=variable.get())

    setattr(Setting, declared, True)
    manager = manage(Setting, max_concurrent_envs=100)
    if declared == "shared":
        await steps(await manager.create(), LatencyClassifier.EVIDENCE + 1)
    sessions = [await manager.create() for _ in range(8)]
    for number in range(1, 4):
        for session in sessions:
            assert (await session.handle(Step(Do()))).observation.value == number
    assert variable.get() == 0, "nor do they leak to the loop"


# ------------------------------------------------------------------ the claim


class Undeclared(Quick):
    """Declares nothing."""


class AnyThread(Quick):
    SUPPORTS_ANY_THREAD = True


class OnTheLoop(Quick):
    async def reset(self) -> Any:
        return Seen()

    async def step(self, action: Do) -> Any:
        if action.what == "wait":
            assert await asyncio.to_thread(self.gate.wait, HANGS_S)
        return Seen()


@pytest.mark.slow
@pytest.mark.parametrize("cls", [Undeclared, AnyThread, OnTheLoop])
async def test_a_slow_step_holds_up_none_of_200_sessions(manage: Manage, cls: type[Quick]) -> None:
    """Each quick session steps every 50 ms, as one that waits for a policy does."""
    manager = manage(cls, max_concurrent_envs=300)
    slow, *quick = await asyncio.gather(*(manager.create() for _ in range(201)))
    cls.gate.clear()
    stuck = [asyncio.create_task(slow.handle(WAIT))]
    await asyncio.gather(*(steps(session, 20, pause_s=0.05) for session in quick))
    assert are_held(stuck)
    cls.gate.set()
    await stuck[0]
