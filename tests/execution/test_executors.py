"""Where an environment's code runs, what it may do there, and that nothing is left of it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import logging
import os
import sqlite3
import sys
import threading
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

import pytest
from execution.parts import HANGS_S, Manage
from support.environments import Do, Log, Seen
from support.waiting import eventually

from openenv import State
from openenv.errors import EnvironmentFactoryError
from openenv.execution.commands import CallMethod, GetState, Reset, Step
from openenv.execution.manager import SessionManager
from openenv.execution.session import Session
from openenv.execution.spec import EnvironmentSpec

pytestmark = pytest.mark.anyio


class Tracker:
    """Notes the thread of every call; the base of environments that have no other."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    log: ClassVar[Log]

    def __init_subclass__(cls) -> None:
        cls.log = Log()

    def __init__(self) -> None:
        self.log.note("init")

    def reset(self) -> Any:
        self.log.note("reset")
        return Seen(text="ready")

    def step(self, action: Do) -> Any:
        self.log.note("step")
        return Seen(text="went on")

    @property
    def state(self) -> Any:
        self.log.note("state")
        return State()

    def get_metadata(self) -> dict[str, str]:
        self.log.note("metadata")
        return {"name": "tracker", "description": "", "version": "1"}

    def close(self) -> Any:
        self.log.note("close")


async def play(session: Session) -> None:
    await session.handle(Reset())
    await session.handle(Step(Do()))
    await session.handle(GetState())
    await session.handle(CallMethod("get_metadata"))


WHOLE_LIFE = ["init", "reset", "step", "state", "metadata", "close"]


# ------------------------------------------------------------------ which thread


@pytest.mark.parametrize("hidden", [False, True], ids=["class", "factory"])
async def test_a_synchronous_environment_lives_on_one_thread_of_its_own(
    manage: Manage, hidden: bool
) -> None:
    class Plain(Tracker):
        pass

    manager = manage((lambda: Plain()) if hidden else Plain)
    first = await manager.create()
    await play(first)
    other = await manager.create()
    await manager.close(first.id)
    assert [event for event, _ in Plain.log.events] == [*WHOLE_LIFE[:5], "init", "close"]
    threads = [thread for _, thread in Plain.log.events]
    assert len({*threads[:5], threads[6]}) == 1 and threads[5] != threads[0]
    assert threading.get_ident() not in threads
    await manager.close(other.id)
    assert Plain.log.events[-1] == ("close", threads[5])


@pytest.mark.parametrize("hidden", [False, True], ids=["class", "factory"])
async def test_instances_that_need_one_thread_share_it(manage: Manage, hidden: bool) -> None:
    """A factory function does not say what it makes, so the first instance decides."""

    class Needy(Tracker):
        REQUIRES_SINGLE_THREAD_EXECUTOR = True

    manager = manage((lambda: Needy()) if hidden else Needy)
    for _ in range(2):
        sessions = [await manager.create() for _ in range(3)]
        await asyncio.gather(*(play(session) for session in sessions))
        await asyncio.gather(*(manager.close(session.id) for session in sessions))
    assert Needy.log.count("init") == Needy.log.count("close") == 6
    assert len(Needy.log.threads) == 1


async def test_coroutines_are_awaited_on_the_loop_and_the_rest_is_not(manage: Manage) -> None:
    class Async(Tracker):
        async def reset(self) -> Any:
            return Tracker.reset(self)

        async def step(self, action: Do) -> Any:
            return Tracker.step(self, action)

        async def close_async(self) -> None:
            Tracker.close(self)

    manager = manage(Async)
    session = await manager.create()
    await play(session)
    await manager.close(session.id)
    here = threading.get_ident()
    on_the_loop = [event for event, thread in Async.log.events if thread == here]
    assert [event for event, _ in Async.log.events] == WHOLE_LIFE
    assert on_the_loop == ["reset", "step", "state", "close"]


# ------------------------------------------------------------------ what may be done there

local = threading.local()
variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")


class Bound(Tracker):
    """Uses what belongs to the thread that it was made on."""

    def __init__(self) -> None:
        self.database = sqlite3.connect(":memory:")  # refuses any other thread
        self.database.execute("create table steps (number)")
        local.value = variable.set("kept")

    def reset(self) -> Seen:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        return Seen(text=variable.get())

    def step(self, action: Do) -> Seen:
        assert local.value is not None
        self.database.execute("insert into steps values (1)")
        return Seen(value=asyncio.run(asyncio.sleep(0, "its own loop")))

    @property
    def state(self) -> State:
        return State(step_count=self.database.execute("select count(*) from steps").fetchone()[0])

    def close(self) -> None:
        self.database.close()


async def test_an_environment_may_use_what_belongs_to_a_thread(manage: Manage) -> None:
    manager = manage(Bound)
    session = await manager.create()
    assert (await session.handle(Reset())).observation.text == "kept"
    for _ in range(2):
        assert (await session.handle(Step(Do()))).observation.value == "its own loop"
    assert (await session.handle(GetState())).state.step_count == 2
    await manager.close(session.id)
    assert session.close_error is None


async def test_a_call_goes_on_when_its_caller_leaves_and_the_next_one_waits_for_it(
    manage: Manage,
) -> None:
    entered, leave = threading.Event(), threading.Event()

    class Slow(Tracker):
        def step(self, action: Do) -> Any:
            entered.set()
            assert leave.wait(HANGS_S)
            return super().step(action)

    session = await manage(Slow).create()
    stepping = asyncio.create_task(session.handle(Step(Do())))
    await eventually(entered.is_set)
    stepping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stepping
    reading = asyncio.create_task(session.handle(GetState()))
    await asyncio.sleep(0)
    leave.set()
    await reading
    assert [event for event, _ in Slow.log.events] == ["init", "step", "state"]


# ------------------------------------------------------------------ what cannot be ended

ENDINGS = [SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration, asyncio.CancelledError]


class Ending(Tracker):
    """Raises what ends a program, wherever it is told to."""

    error: ClassVar[type[BaseException]]
    where: ClassVar[str]

    def maybe(self, here: str) -> None:
        if self.where == here:
            raise self.error("the end")

    def __init__(self) -> None:
        self.maybe("init")
        super().__init__()

    def reset(self) -> Any:
        self.maybe("reset")
        return super().reset()

    def step(self, action: Do) -> Any:
        self.maybe("step")
        return super().step(action)

    @property
    def state(self) -> Any:
        self.maybe("state")
        return super().state

    def close(self) -> Any:
        self.maybe("close")
        super().close()


class EndingOnTheLoop(Ending):
    async def reset(self) -> Any:
        return super().reset()

    async def step(self, action: Do) -> Any:
        return super().step(action)

    async def close(self) -> Any:
        return super().close()


class EndingInCoroutines(Ending):
    """The calls are made on a thread; what they return is awaited on the loop."""

    def reset(self) -> Any:
        return self._later(super().reset)

    def step(self, action: Do) -> Any:
        return self._later(super().step, action)

    def close(self) -> Any:
        return self._later(super().close)

    async def _later(self, call: Callable[..., Any], *arguments: Any) -> Any:
        return call(*arguments)


@pytest.mark.parametrize("error", ENDINGS)
@pytest.mark.parametrize("base", [Ending, EndingOnTheLoop, EndingInCoroutines])
async def test_nothing_that_an_environment_raises_ends_the_server(
    manage: Manage, base: type[Ending], error: type[BaseException]
) -> None:
    if error is asyncio.CancelledError and base is not Ending and sys.version_info < (3, 11):
        pytest.skip("before 3.11 it cannot be told from a real cancellation")

    def ending(where: str) -> SessionManager:
        return manage(type("Doomed", (base,), {"error": error, "where": where}))

    with pytest.raises(EnvironmentFactoryError):
        await ending("init").create()
    for command in (Reset(), Step(Do()), GetState()):
        session = await ending(type(command).__name__.lower().removeprefix("get")).create()
        with pytest.raises(RuntimeError, match=f"{error.__name__}"):
            await session.handle(command)
        session.spec.environment_class.where = ""  # type: ignore[union-attr]
        await play(session)
    manager = ending("close")
    session = await manager.create()
    await manager.close(session.id)
    assert isinstance(session.close_error, RuntimeError) and manager.active_sessions == 0


async def test_a_real_cancellation_reaches_a_coroutine(manage: Manage) -> None:
    reached: list[BaseException] = []

    class Waiting(Tracker):
        async def reset(self) -> Any:
            return Tracker.reset(self)

        async def step(self, action: Do) -> Any:
            try:
                await asyncio.Event().wait()
            except BaseException as error:
                reached.append(error)
                raise

    session = await manage(Waiting).create()
    stepping = asyncio.create_task(session.handle(Step(Do())))
    await asyncio.sleep(0)
    stepping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stepping
    assert [type(error) for error in reached] == [asyncio.CancelledError]
    assert (await session.handle(Reset())).observation.text == "ready", "the session goes on"


# ------------------------------------------------------------------ what is left

ROUNDS, AT_ONCE = 10, 20


class Socket(Tracker):
    """Holds two file descriptors until it is closed."""

    def __init__(self) -> None:
        self.pipe = os.pipe()

    def close(self) -> None:
        for end in self.pipe:
            os.close(end)


class AsyncSocket(Socket):
    async def reset(self) -> Any:
        return Seen()

    async def step(self, action: Do) -> Any:
        return Seen()


class Failing(Tracker):
    def __init__(self) -> None:
        raise OSError("no display")


Resources: TypeAlias = "tuple[set[threading.Thread], set[str], int]"


def none_is_new(before: Resources, after: Resources) -> bool:
    return after[0] <= before[0] and after[1] <= before[1] and after[2] <= before[2]


def resources() -> Resources:
    gc.collect()
    living = sum(isinstance(thing, Session | Tracker) for thing in gc.get_objects())
    return set(threading.enumerate()), set(os.listdir("/proc/self/fd")), living


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors as Linux does")
@pytest.mark.parametrize(
    "factory",
    [Socket, AsyncSocket, lambda: Socket(), Failing, lambda: Failing(), lambda: {}],
    ids=["sync", "async", "factory", "failing", "failing factory", "no environment"],
)
async def test_200_sessions_leave_no_thread_descriptor_or_instance(
    manage: Manage, factory: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "openenv")  # records would keep the failed instances
    manager = manage(factory)
    before = resources()

    async def live_and_die() -> None:
        with contextlib.suppress(EnvironmentFactoryError):
            session = await manager.create(throwaway=True)
            await session.handle(Reset())
            await manager.close(session.id)

    for _ in range(ROUNDS):
        await asyncio.gather(*(live_and_die() for _ in range(AT_ONCE)))
    manager.last_factory_error = None
    await manager.aclose()
    # A thread ends soon after its last call; and some of the tests before end just now.
    await eventually(lambda: none_is_new(before, resources()))


@pytest.mark.parametrize("cut_short", ["open", "close"])
async def test_a_thread_ends_though_the_loop_ended_first(cut_short: str) -> None:
    gate = threading.Event()

    class Slow(Tracker):
        def __init__(self) -> None:
            assert cut_short == "close" or gate.wait(HANGS_S)
            super().__init__()

        def close(self) -> Any:
            assert cut_short == "open" or gate.wait(HANGS_S)

    def threads() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name.startswith("openenv-")}

    async def hasty() -> None:
        session = Session(EnvironmentSpec.of(Slow, Do, Seen))
        opening = asyncio.create_task(session.open())
        if cut_short == "close":
            await opening
            opening = asyncio.create_task(session.close())
        await asyncio.wait([opening], timeout=0.02)
        assert not opening.done()

    before = threads()
    await asyncio.to_thread(asyncio.run, hasty())
    assert len(threads() - before) == 1
    gate.set()
    await eventually(lambda: threads() <= before)  # one of an earlier test may end meanwhile
