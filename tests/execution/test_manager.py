"""How many sessions there may be, what makes them, and when they end."""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
from execution.parts import HANGS_S, Manage
from pydantic import ValidationError
from support.environments import AsyncCounter, Counter, Do, HookCounter, Log, Progress, Seen
from support.waiting import eventually

from openenv import State, StepResult
from openenv.client.transports.memory import MemoryTransport
from openenv.errors import (
    ConcurrencyConfigurationError,
    EnvironmentFactoryError,
    InvalidReturnError,
    SessionCapacityError,
    SessionCreationError,
    SessionNotFoundError,
    outward,
)
from openenv.execution import manager as sessions_manager
from openenv.execution.commands import GetState, Reset, Step
from openenv.execution.manager import (
    ConcurrencyConfig,
    Patience,
    ServerCapacityStatus,
    SessionManager,
)
from openenv.execution.queue import FairQueue, QueuePlace
from openenv.execution.session import CallbackCall, Session, SessionPhase
from openenv.execution.spec import EnvironmentSpec

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    """What happens to the counters of one test."""
    log = Log()
    for cls in (Counter, AsyncCounter, HookCounter):
        monkeypatch.setattr(cls, "log", log)
    return log


class Lonely(Counter):
    """One at a time."""

    SUPPORTS_CONCURRENT_SESSIONS = False


class Gate:
    """A factory that waits until it is opened; the environments that follow come at once."""

    def __init__(self, *, first_only: bool = False) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()
        self.first_only = first_only

    def __call__(self) -> Counter:
        is_first = not self.entered.is_set()
        self.entered.set()
        if is_first or not self.first_only:
            assert self.opened.wait(HANGS_S)
        return Counter()


async def text_after_reset(session: Session) -> Any:
    return (await session.handle(Reset())).observation.text


# ------------------------------------------------------------------ capacity


async def test_a_full_manager_refuses_and_says_what_to_do(manage: Manage) -> None:
    manager = manage(Counter, max_concurrent_envs=2)
    first, _ = await manager.create(), await manager.create()
    with pytest.raises(SessionCapacityError) as caught:
        await manager.create()
    assert outward(caught.value).code == "CAPACITY_REACHED"
    assert caught.value.details() == {"active_sessions": 2, "max_sessions": 2}
    for advice in ("2/2", "max_concurrent_envs", "SUPPORTS_CONCURRENT_SESSIONS"):
        assert advice in str(caught.value)
    assert manager.capacity() == ServerCapacityStatus(active_sessions=2, max_sessions=2)
    assert manager.capacity().is_at_capacity
    await manager.close(first.id)
    assert manager.capacity().available_slots == 1
    await manager.create()


async def test_a_slot_is_freed_once_however_often_a_session_is_closed(
    manage: Manage, log: Log
) -> None:
    manager = manage(Counter, max_concurrent_envs=2)
    first, second = await manager.create(), await manager.create()
    await asyncio.gather(*(manager.close(first.id) for _ in range(5)))
    await manager.close(first.id)
    assert (manager.active_sessions, log.count("close")) == (1, 1)
    assert await text_after_reset(second) == "ready"


Lingering = tuple[SessionManager, threading.Event]


@pytest.fixture
def lingering(manage: Manage) -> Iterator[Lingering]:
    """One slot, and environments that close when the event is set."""
    may_close = threading.Event()

    class Stays(Lonely):
        def close(self) -> None:
            may_close.wait(HANGS_S)

    yield manage(Stays), may_close
    may_close.set()


async def test_the_slot_stays_taken_until_the_environment_is_closed(
    lingering: Lingering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions_manager, "CLOSING_WAIT_S", 0.05)
    manager, may_close = lingering
    session = await manager.create()
    closing = asyncio.create_task(manager.close(session.id))
    await eventually(lambda: session.phase is SessionPhase.CLOSING)
    with pytest.raises(SessionCapacityError):
        await manager.create()
    may_close.set()
    await closing
    await manager.create()


async def test_a_guest_that_does_not_leave_holds_up_nobody_for_long(
    lingering: Lingering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions_manager, "CLOSING_WAIT_S", 0.05)
    manager, may_close = lingering
    await manager.create(provisional=True)
    with pytest.raises(SessionCapacityError):
        await asyncio.wait_for(manager.create(), 1)
    may_close.set()
    assert await text_after_reset(await manager.create()) == "ready"


async def test_who_comes_while_a_session_closes_waits_for_its_slot(lingering: Lingering) -> None:
    manager, may_close = lingering
    session = await manager.create()
    closing = asyncio.create_task(manager.close(session.id))
    await eventually(lambda: session.phase is SessionPhase.CLOSING)
    creating = [asyncio.create_task(manager.create()) for _ in range(2)]
    await asyncio.wait(creating, timeout=0.05)
    assert not any(task.done() for task in creating)
    may_close.set()
    await closing
    first, second = await asyncio.wait_for(asyncio.gather(*creating, return_exceptions=True), 1)
    assert isinstance(first, Session) and isinstance(second, SessionCapacityError)
    with pytest.raises(SessionCapacityError):  # nobody is leaving, so at once
        await asyncio.wait_for(manager.create(), 0.5)


async def test_who_waits_for_a_slot_leaves_when_the_server_ends(lingering: Lingering) -> None:
    manager, may_close = lingering
    session = await manager.create()
    closing = asyncio.create_task(manager.close(session.id))
    await eventually(lambda: session.phase is SessionPhase.CLOSING)
    creating = asyncio.create_task(manager.create())
    await asyncio.sleep(0)
    ending = asyncio.create_task(manager.aclose())
    with pytest.raises(SessionCreationError, match="shutting down"):
        await asyncio.wait_for(creating, 1)
    may_close.set()
    await asyncio.gather(closing, ending)


@pytest.mark.parametrize("error", [OSError("no display"), SystemExit(3), StopIteration()])
async def test_a_factory_that_raises_frees_its_slot(manage: Manage, error: BaseException) -> None:
    def broken() -> Counter:
        raise error

    manager = manage(broken, max_concurrent_envs=1)
    for _ in range(3):
        with pytest.raises(EnvironmentFactoryError, match="'broken'") as caught:
            await manager.create()
        assert error in (caught.value.__cause__, getattr(caught.value.__cause__, "__cause__", None))
        assert manager.active_sessions == 0
    assert manager.last_factory_error is caught.value


async def test_what_a_factory_makes_must_be_an_environment(manage: Manage) -> None:
    with pytest.raises(InvalidReturnError, match="no method 'reset'"):
        manage(dict)
    made: list[Any] = [Counter(), {}, {}]
    manager = manage(lambda: made.pop(), max_concurrent_envs=1)
    for _ in range(2):
        with pytest.raises(EnvironmentFactoryError) as caught:
            await manager.create()
        assert "no method 'reset'" in str(caught.value.__cause__)
        assert manager.active_sessions == 0
    assert await text_after_reset(await manager.create()) == "ready"


async def test_a_step_that_is_cancelled_before_it_began_leaves_no_coroutine_behind(
    manage: Manage,
) -> None:
    session = await manage(AsyncCounter).create()
    await session.handle(Reset({}))
    ended: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    work = CallbackCall(
        session,
        Step({"what": "sleep", "value": HANGS_S}),
        done=lambda _, why: ended.set_result(why),
    )
    session.serve(work)
    work.cancel()
    assert isinstance(await ended, asyncio.CancelledError)
    gc.collect()  # where a coroutine that nobody awaited would be a warning, and so an error
    assert (await session.handle(GetState())).state.step_count == 1


@pytest.mark.parametrize("ending", ["made", "raised"])
async def test_a_creation_that_is_cancelled_frees_its_slot_once_and_closes_what_it_made(
    manage: Manage, log: Log, ending: str
) -> None:
    gate = Gate()

    def factory() -> Counter:
        environment = gate()
        if ending == "raised":
            raise RuntimeError("too late")
        return environment

    manager = manage(factory, max_concurrent_envs=1)
    creating = asyncio.create_task(manager.create())
    await eventually(gate.entered.is_set)
    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating
    assert manager.active_sessions == 1, "the environment is still being made"
    gate.opened.set()
    await eventually(lambda: manager.active_sessions == 0)
    assert log.count("init") == 1 and log.count("close") == (ending == "made")


async def test_a_caller_who_leaves_during_creation_leaves_nothing_behind(
    manage: Manage, log: Log
) -> None:
    gate = Gate()
    manager = manage(gate)
    transport = MemoryTransport(manager)
    await transport.connect()
    await eventually(gate.entered.is_set)
    leaving = asyncio.create_task(transport.close())
    await asyncio.wait([leaving], timeout=0.05)
    gate.opened.set()
    await leaving
    await eventually(lambda: manager.active_sessions == 0)
    assert log.count("close") == 1


async def test_a_slow_factory_holds_up_no_other_session(manage: Manage) -> None:
    gate = Gate(first_only=True)

    def factory() -> Counter:
        return gate()

    manager = manage(factory, max_concurrent_envs=3)
    slow = asyncio.create_task(manager.create())
    await eventually(gate.entered.is_set)
    quick = await asyncio.wait_for(manager.create(), 1)
    assert await text_after_reset(quick) == "ready"
    await manager.close(quick.id)
    assert not slow.done()
    gate.opened.set()
    assert await text_after_reset(await slow) == "ready"


async def test_a_session_that_nobody_came_back_for_makes_room(manage: Manage) -> None:
    manager = manage(Lonely)
    forgotten = await manager.create(provisional=True)
    wanted = await manager.create(provisional=True)
    with pytest.raises(SessionNotFoundError):
        manager.get(forgotten.id)
    assert manager.get(wanted.id) is wanted
    with pytest.raises(SessionCapacityError):
        await manager.create()


async def test_a_session_whose_first_request_runs_makes_no_room(manage: Manage) -> None:
    manager = manage(Lonely)
    session = await manager.create(provisional=True)
    resetting = asyncio.create_task(text_after_reset(session))
    await asyncio.sleep(0)  # it has begun
    with pytest.raises(SessionCapacityError):
        await manager.create()
    assert await resetting == "ready"


async def test_a_throwaway_session_takes_no_slot(manage: Manage, log: Log) -> None:
    manager = manage(Lonely)
    await manager.create()
    async with manager.throwaway() as session:
        assert await text_after_reset(session) == "ready"
        assert manager.active_sessions == 1
    assert log.count("close") == 1


# ------------------------------------------------------------------ how many, and how long


async def test_the_numbers_come_from_the_class_unless_they_are_given(manage: Manage) -> None:
    assert [manage(Counter).max_sessions, manage(Lonely).max_sessions] == [64, 1]
    assert manage(Counter, max_concurrent_envs=1).max_sessions == 1
    assert manage(Counter, max_concurrent_envs=1000).max_sessions == 1000
    assert manage(Lonely, max_concurrent_envs=1).max_sessions == 1


async def test_what_a_factory_makes_decides_once_it_has_made_one(manage: Manage) -> None:
    manager = manage(lambda: Counter())
    assert manager.max_sessions == 1, "nothing is known yet"
    await manager.create()
    assert manager.max_sessions == 64


@pytest.mark.parametrize(("made", "let_in"), [(Counter, 9), (Lonely, 1)])
async def test_those_who_come_at_once_wait_until_the_class_is_known(
    manage: Manage, made: type[Counter], let_in: int
) -> None:
    """The first fails, so it is the second that tells."""
    failures = [OSError("no display")]

    def factory() -> Any:
        if failures:
            raise failures.pop()
        return made()

    manager = manage(factory)
    outcomes = await asyncio.gather(*(manager.create() for _ in range(10)), return_exceptions=True)
    assert isinstance(outcomes[0], EnvironmentFactoryError)
    assert sum(isinstance(outcome, Session) for outcome in outcomes) == let_in
    assert sum(isinstance(outcome, SessionCapacityError) for outcome in outcomes) == 9 - let_in


async def test_idling_ends_after_a_quarter_of_an_hour_unless_said_otherwise(
    manage: Manage,
) -> None:
    assert manage(Counter).idle_timeout_s == 900
    assert manage(Counter, max_concurrent_envs=2).idle_timeout_s == 900
    assert manage(Counter, session_timeout=3).idle_timeout_s == 3
    assert manage(Counter, session_timeout=None).idle_timeout_s is None


def test_limits_that_make_no_sense_are_refused() -> None:
    for nonsense in ({"max_concurrent_envs": 0}, {"session_timeout": 0}, {"max_sessions": 1}):
        with pytest.raises(ValidationError):
            ConcurrencyConfig(**nonsense)
    assert ConcurrencyConfig() == ConcurrencyConfig(max_concurrent_envs=1, session_timeout=None)
    with pytest.raises(ValidationError, match="exceeds"):
        ServerCapacityStatus.from_counts(3, 2)


@pytest.mark.parametrize("hidden", [False, True], ids=["class", "factory"])
async def test_more_sessions_than_the_class_allows_are_refused_with_advice(
    manage: Manage, log: Log, hidden: bool
) -> None:
    factory = (lambda: Lonely()) if hidden else Lonely
    with pytest.raises(ConcurrencyConfigurationError) as caught:
        manage(factory, max_concurrent_envs=2)
    assert (caught.value.environment_name, caught.value.max_concurrent_envs) == ("Lonely", 2)
    assert "SUPPORTS_CONCURRENT_SESSIONS = True" in str(caught.value)
    assert log.count("init") == log.count("close") == hidden


class Duck:
    """No base class, no constructor, no `close`, and `state` is a method."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self) -> Seen:
        self.steps = 0
        return Seen(text="ready")

    def step(self, action: Do) -> StepResult[Seen]:
        self.steps += 1
        return StepResult(observation=Seen(text="duck"), reward=1.0)

    def state(self) -> Progress:
        return Progress(step_count=self.steps)


async def make_counter() -> Any:
    return AsyncCounter()


@pytest.mark.parametrize("factory", [make_counter, lambda: Duck(), lambda: HookCounter()])
async def test_a_factory_is_tried_once_to_learn_what_its_class_allows(
    manage: Manage, log: Log, factory: Callable[[], Any]
) -> None:
    assert manage(factory, max_concurrent_envs=2).max_sessions == 2
    assert log.count("init") == log.count("close") <= 1


async def test_a_factory_that_fails_when_it_is_tried_is_named(manage: Manage) -> None:
    def broken() -> Any:
        raise OSError("no display")

    with pytest.raises(EnvironmentFactoryError, match="'broken'") as caught:
        manage(broken, max_concurrent_envs=2)
    assert isinstance(caught.value.__cause__, OSError)


# ------------------------------------------------------------------ idling


async def until_reaped(manager: SessionManager, session: Session) -> None:
    await eventually(lambda: manager.info(session.id) is None)
    assert session.phase is SessionPhase.CLOSED
    with pytest.raises(SessionNotFoundError, match=session.id) as caught:
        manager.get(session.id)
    assert outward(caught.value) == ("SESSION_ERROR", 404, -32602)


async def test_an_idle_session_is_closed_and_its_id_then_unknown(manage: Manage, log: Log) -> None:
    manager = manage(Counter, session_timeout=0.02)
    await until_reaped(manager, await manager.create())
    assert (manager.active_sessions, log.count("close")) == (0, 1)
    await until_reaped(manager, await manager.create())  # the reaper is there for the next one


async def test_a_connected_session_is_never_reaped(manage: Manage) -> None:
    manager = manage(Counter, max_concurrent_envs=2, session_timeout=0.02)
    transport = MemoryTransport(manager)
    await transport.connect()
    await eventually(lambda: manager.active_sessions == 1)
    await until_reaped(manager, await manager.create())
    assert manager.active_sessions == 1
    transport.send(b'{"type": "reset", "data": {}}')
    assert "ready" in str(await transport.receive())
    await transport.close()


@pytest.mark.slow
async def test_a_running_step_is_never_reaped(manage: Manage, log: Log) -> None:
    manager = manage(Counter, max_concurrent_envs=2, session_timeout=0.02)
    busy = await manager.create()
    stepping = asyncio.create_task(busy.handle(Step(Do(what="sleep", value=0.3))))
    await eventually(lambda: log.count("step") == 1)
    await until_reaped(manager, await manager.create())
    assert busy.phase is SessionPhase.OPEN, "it is not being closed either"
    assert (await stepping).observation.text == "step 1"
    await until_reaped(manager, busy)  # now that it idles


async def test_who_leaves_when_its_turn_comes_gives_the_slot_back(
    manage: Manage, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = manage(Counter, max_concurrent_envs=1)
    first = await manager.create()
    waiting = asyncio.create_task(manager.create(patience=Patience("client", HANGS_S)))
    await eventually(lambda: manager.queue_length == 1)
    take_turn = FairQueue.next

    def next_one_leaves(queue: FairQueue) -> QueuePlace:
        asyncio.get_running_loop().call_soon(waiting.cancel)  # before it hears of its turn
        return take_turn(queue)

    monkeypatch.setattr(FairQueue, "next", next_one_leaves)
    await manager.close(first.id)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert manager.active_sessions == 0
    assert await text_after_reset(await manager.create()) == "ready"


async def test_an_environment_that_does_not_close_keeps_no_other_from_being_reaped(
    manage: Manage,
) -> None:
    may_close = threading.Event()

    class Hanging(Counter):
        def close(self) -> None:
            may_close.wait(HANGS_S)

    manager = manage(Hanging, max_concurrent_envs=2, session_timeout=0.02)
    first = await manager.create()
    await eventually(lambda: first.phase is SessionPhase.CLOSING)
    second = await manager.create()
    await eventually(lambda: second.phase is SessionPhase.CLOSING)
    may_close.set()


async def test_the_reaper_ends_with_the_last_session(manage: Manage) -> None:
    before = asyncio.all_tasks()
    manager = manage(Counter, session_timeout=0.02)
    for _ in range(3):
        session = await manager.create()
        await manager.close(session.id)
    await eventually(lambda: asyncio.all_tasks() <= before)


# ------------------------------------------------------------------ what makes them


class Maker:
    """A factory with attributes, and without a name."""

    def __init__(self, environment: type = Counter) -> None:
        self.environment, self.calls = environment, 0

    def __call__(self) -> Any:
        self.calls += 1
        return self.environment()

    async def later(self) -> Any:
        await asyncio.sleep(0)
        return self()


class Mixed(Counter):
    """`reset` and `state` are coroutine methods, `step` is not, and `close` is overridden twice."""

    async def reset(self) -> Seen:  # type: ignore[override]
        return super().reset()

    async def state(self) -> Progress:  # type: ignore[override]
        return self.progress

    async def close_async(self) -> None:
        self.log.note("close")

    def close(self) -> None:
        raise AssertionError("close_async is there to be called instead")


def described() -> "the counter":  # type: ignore[valid-type]  # noqa: F722
    return Counter()


FACTORIES: dict[str, Callable[[], Any]] = {
    "class": Counter,
    "async class": AsyncCounter,
    "class with hooks": HookCounter,
    "mixed class": Mixed,
    "class without a base": Duck,
    "lambda": lambda: Counter(),
    "partial of a class": functools.partial(Counter),
    "partial of a partial": functools.partial(functools.partial(Maker, Duck)()),
    "callable object": Maker(),
    "bound coroutine method": Maker(AsyncCounter).later,
    "coroutine function of a sync class": Maker(Counter).later,
    "coroutine function": make_counter,
    "annotated with prose": described,
}


@pytest.mark.parametrize("factory", FACTORIES.values(), ids=FACTORIES)
async def test_an_episode_is_played_whatever_made_the_environment(
    manage: Manage, log: Log, factory: Callable[[], Any]
) -> None:
    manager = manage(factory)
    session = await manager.create()
    assert await text_after_reset(session) == "ready"
    assert (await session.handle(Step(Do()))).reward == 1.0
    assert (await session.handle(GetState())).state.step_count == 1
    described = manager.info(session.id)
    assert described is not None and described.step_count == 1
    assert described.environment_type in {"Counter", "AsyncCounter", "HookCounter", "Mixed", "Duck"}
    await manager.close(session.id)
    assert log.count("init") == log.count("close")
    assert session.close_error is None and manager.info(session.id) is None


async def test_each_session_gets_an_instance_of_its_own(manage: Manage) -> None:
    maker = Maker()
    manager = manage(maker)
    for _ in range(3):
        await manager.create()
    assert maker.calls == 3


def test_an_instance_is_no_factory() -> None:
    with pytest.raises(TypeError, match="pass the class, not an instance"):
        EnvironmentSpec.of(Duck(), Do, Seen)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (State(step_count=4), 4),
        (property(lambda self: State(step_count=5)), 5),
        (lambda self: State(step_count=6), 6),
        (staticmethod(lambda: State(step_count=7)), 7),
    ],
    ids=["attribute", "property", "method", "static method"],
)
async def test_state_may_be_written_in_any_way(manage: Manage, state: Any, expected: int) -> None:
    manager = manage(type("Duck", (Duck,), {"state": state}))
    session = await manager.create()
    assert (await session.handle(GetState())).state.step_count == expected


# ------------------------------------------------------------------ the end


class Unruly(Counter):
    """Each instance ends differently: the first in peace, the next ones not."""

    made: ClassVar[int] = 0
    ends: ClassVar[tuple[BaseException | None, ...]] = (
        None,
        RuntimeError("no"),
        SystemExit(1),
        asyncio.CancelledError(),
    )

    def __init__(self) -> None:
        super().__init__()
        self.end = self.ends[type(self).made % 4]
        type(self).made += 1

    def close(self) -> None:
        super().close()
        if self.end is not None:
            raise self.end


async def test_all_are_closed_exactly_once_even_when_some_raise(manage: Manage, log: Log) -> None:
    manager = manage(Unruly)
    sessions = [await manager.create() for _ in range(8)]
    early = asyncio.create_task(manager.close(sessions[0].id))
    await asyncio.gather(manager.aclose(), manager.aclose())
    await early
    assert log.count("init") == log.count("close") == 8
    assert [session.close_error is None for session in sessions] == [True, False, False, False] * 2
    assert manager.active_sessions == 0


async def test_those_that_hang_are_left_and_named(
    manage: Manage, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    may_close = threading.Event()

    class Hanging(Counter):
        def close(self) -> None:
            super().close()
            may_close.wait(HANGS_S)

    hanging, quick = manage(Hanging), manage(Counter)
    left = await hanging.create()
    await quick.create()
    with caplog.at_level(logging.ERROR, "openenv"):
        await asyncio.gather(hanging.aclose(grace_s=0.1), quick.aclose(grace_s=0.1))
    assert [r.getMessage().split(": ")[1] for r in caplog.records] == [left.id]
    may_close.set()
    await eventually(lambda: left.phase is SessionPhase.CLOSED)
    assert log.count("close") == 2


async def test_a_session_that_was_opening_at_the_end_is_refused_and_closed(
    manage: Manage, log: Log
) -> None:
    gate = Gate()
    manager = manage(gate)
    creating = asyncio.create_task(manager.create(provisional=True))
    await eventually(gate.entered.is_set)
    ending = asyncio.create_task(manager.aclose())
    await eventually(lambda: manager.closing)
    with pytest.raises(SessionCreationError, match="shutting down"):
        await manager.create()
    gate.opened.set()
    with pytest.raises(SessionCreationError, match="shutting down"):
        await creating
    await ending
    assert log.count("init") == log.count("close") == 1 and manager.active_sessions == 0


async def test_a_manager_serves_again_after_its_application_was_stopped(manage: Manage) -> None:
    manager = manage(Counter)
    for _ in range(2):
        assert await text_after_reset(await manager.create()) == "ready"
        await manager.aclose()


@pytest.mark.parametrize(
    ("environment", "config", "said"),
    [
        (Lonely, None, ["the only slot is taken", "Lonely does not declare SUPPORTS_CONCURRENT"]),
        (Counter, 2, ["all 2 slots are taken", "max_concurrent_envs=2 says so"]),
        (Counter, None, ["all 3 slots are taken", "that is the default; pass create_app("]),
    ],
)
async def test_a_full_server_says_once_how_many_slots_there_are_and_why(
    environment: Any,
    config: int | None,
    said: list[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions_manager, "DEFAULT_MAX_SESSIONS", 3)
    limits = None if config is None else ConcurrencyConfig(max_concurrent_envs=config)
    manager = SessionManager(EnvironmentSpec.of(environment), limits)
    for _ in range(manager.max_sessions):
        await manager.create()
    assert "slot" not in caplog.text
    for patience in (None, Patience("someone", 0.01), None):
        with pytest.raises(SessionCapacityError):
            await manager.create(patience=patience)
    (warning,) = [message for message in caplog.messages if "slot" in message]
    assert all(part in warning for part in said)
    await manager.aclose()
