"""One session: one environment, one caller of it, and everything that is done around a call.

Every transport ends in `Session.serve`, or in `Session.handle`, which awaits it. The environment
itself is called by the session's `EnvironmentRunner`, on the session's executor.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import time
import uuid
from collections import deque
from collections.abc import Callable, Coroutine
from enum import Enum, auto
from inspect import CORO_CREATED, getcoroutinestate
from types import CoroutineType
from typing import Any, Protocol

import msgspec
from pydantic import BaseModel

from openenv._internal.incidents import incident_of, is_incident, log_incident
from openenv._internal.logs import CALLER
from openenv._internal.traces import inside
from openenv.errors import (
    EnvironmentCrashed,
    EnvironmentFactoryError,
    InvalidActionError,
    InvalidArgumentError,
    InvalidMessageError,
    SessionBusyError,
    SessionClosedError,
    StepTimeout,
    speaks,
)
from openenv.execution.commands import (
    Call,
    Close,
    Command,
    Encode,
    GetState,
    Look,
    Open,
    Render,
    Reset,
    Restore,
    Step,
    TakeSnapshot,
    View,
)
from openenv.execution.executors import (
    Cancellable,
    Executor,
    Executors,
    LatencyClassifier,
    ThreadExecutor,
)
from openenv.execution.metrics import SessionCounters
from openenv.execution.recorded import Recording
from openenv.execution.recording import Follower, SessionRecorder
from openenv.execution.runner import EnvironmentRunner
from openenv.execution.spec import EnvironmentSpec
from openenv.execution.threads import LoopDispatcher, contain
from openenv.types import EnvironmentMetadata

__all__ = [
    "Call",
    "Command",
    "GetState",
    "Look",
    "Render",
    "Reset",
    "Restore",
    "Session",
    "SessionInfo",
    "SessionPhase",
    "Step",
    "TakeSnapshot",
    "View",
    "QueuedCall",
]

logger = logging.getLogger(__name__)

Done = Callable[[Any, BaseException | None], None]

# What is cancelled has this long to end, before its caller is told that it goes on.
CANCEL_PATIENCE_S = 0.02
# How long a call waits for a thread that an overdue call of another session holds.
HELD_PATIENCE_S = 1.0
REPLACED = "the step did not come back, and its environment has been left for another one"
HELD = (
    "the thread that this environment shares with others is held by a call of another session, "
    "which is past its deadline; nothing was done. Try again later, or call reset"
)


class SessionPhase(Enum):
    """Where a session stands; it only ever moves down this list."""

    OPENING = auto()
    OPEN = auto()
    CLOSING = auto()
    CLOSED = auto()


_OPEN = SessionPhase.OPEN  # members of an enumeration are slow to look up
_now = time.monotonic


class SessionInfo(BaseModel):
    """What an operator may see of a session; times are seconds since the epoch."""

    session_id: str
    created_at: float
    last_activity_at: float
    step_count: int = 0
    environment_type: str


class QueuedCall(msgspec.Struct, eq=False):
    """A command for a session, until it is answered.

    It is made where the environment lives (`make`) and answered on the event loop (`tell`).

    Attributes:
        session: Who is to do it.
        command: What to do.
        encode: Turns the reply into what `answered` gets, where the environment lives.
        strict: Refuse an argument that the environment does not take. Otherwise it is left out,
            and named in the transition's `ignored`.
        seconds: How long it took where the environment lives.
        arrived_at: When the session got it, by `time.monotonic`; 0 where nobody counts.
        trace: The span that the environment's is part of, as W3C's `traceparent`; empty for none.
    """

    session: Session
    command: Any
    encode: Encode | None = None
    strict: bool = False
    is_light: bool = False
    is_cancelled: bool = False
    result: Any = None
    error: BaseException | None = None
    task: Cancellable | None = None
    dispatcher: LoopDispatcher | None = None
    seconds: float = 0.0
    deadline: CallDeadline | None = None
    is_answered: bool = False
    arrived_at: float = 0.0
    trace: str = ""

    @property
    def number(self) -> int:
        """The number that its client has given the request; 0 is none."""
        return 0

    def make(self) -> None:
        runner = self.session._runner
        assert runner is not None
        try:
            if self.trace:
                self.result = runner.context.run(self._make_traced, runner)
            else:
                self.result = runner.context.run(
                    runner.serve, self.command, self.encode, self.strict
                )
        except BaseException as error:
            self.error = contain(error)

    def _make_traced(self, runner: EnvironmentRunner) -> Any:
        name = f"environment.{_method(self.command)}"
        return inside(self.trace, name, runner.serve, self.command, self.encode, self.strict)

    def tell(self) -> None:
        self.session._made(self)

    def held_up(self, since: float) -> bool:
        return self.session._held_up(self, since)

    def answered(self, result: Any, error: BaseException | None) -> None:
        """Take the reply, or the error; called on the event loop, maybe before `Session.serve`
        returns.
        """
        raise NotImplementedError

    def overdue(self, error: StepTimeout) -> None:
        """Take it that the deadline is over and the call is not; `answered` follows later."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Nobody waits for it any more. A coroutine is cancelled; a call on a thread goes on."""
        self.is_cancelled = True
        if self.task is not None:
            _cancel_once_begun(self.task)


class CallDeadline:
    """When the time of some work is over."""

    __slots__ = ("alarm", "began", "timeout_s")

    def __init__(self, timeout_s: float, alarm: asyncio.TimerHandle) -> None:
        self.timeout_s = timeout_s
        self.alarm = alarm
        self.began = time.monotonic()


class CallbackCall(QueuedCall, kw_only=True):
    """Work that calls `done` once: when it is answered, or when its deadline is over."""

    done: Done | None

    def answered(self, result: Any, error: BaseException | None) -> None:
        done, self.done = self.done, None
        if done is not None:
            done(result, error)

    def overdue(self, error: StepTimeout) -> None:
        self.answered(None, error)


class NotBegunError(asyncio.CancelledError):
    """A call was cancelled before its thread began it; a worker process says so to its server."""


_NOTHING_DONE = (SessionBusyError, NotBegunError)


class SessionOwner(Protocol):
    """Whoever has the sessions of a server."""

    def begin_to_close(self, session: Session) -> None:
        """Close a session that cannot go on."""

    def adopt(self, session: Session, of: Session) -> bool:
        """Take over a session that is left to end by itself, if there is room for it.

        Args:
            session: It.
            of: The session that leaves it.
        """
        ...


class QueuedConstruction:
    """The making of an environment."""

    is_light = strict = False
    number, trace = 0, ""

    def __init__(
        self,
        command: Open,
        runner: EnvironmentRunner,
        executor: Executor,
        made: Callable[[QueuedConstruction], None],
        move: Callable[[QueuedConstruction], bool],
    ) -> None:
        self.runner = runner
        self.executor = executor
        self.command: Command | Open = command
        self.encode: Encode | None = None
        self.coroutine: Coroutine[Any, Any, None] | None = None
        self.result: Any = None
        self.error: BaseException | None = None
        self.task: Cancellable | None = None
        self.dispatcher: LoopDispatcher | None = None
        self.seconds = 0.0
        self._made = made
        self._move = move

    def held_up(self, since: float) -> bool:
        return self._move(self)

    def make(self) -> None:
        try:
            self.coroutine = self.runner.construct()
        except EnvironmentFactoryError as error:
            self.error = error

    def tell(self) -> None:
        if self.coroutine is None:
            self._made(self)
        else:
            task = self.runner.begin(asyncio.get_running_loop(), self.coroutine)
            task.add_done_callback(self._awaited)

    def _awaited(self, task: asyncio.Task[None]) -> None:
        self.error = asyncio.CancelledError() if task.cancelled() else task.exception()
        self._made(self)


class Session:
    """An environment instance with an identity, an order of calls and a place to run.

    It is used from one event loop.

    Args:
        spec: What to make and how to call it.
        executors: Finds the place; by default the session has threads of its own.
        is_throwaway: It serves one request and takes no slot.
        owner: Takes over an environment whose call does not come back. Without one, the session
            waits for it.
        counters: Where its calls are counted; by default nobody looks.

    Attributes:
        recorder: Writes down what happens from now on; None where nobody does.
        closed_by: Why it ends, or will; see `SessionCounters.closed`.
    """

    __slots__ = (
        "_born",
        "_classifier",
        "_closing",
        "_counters",
        "_executor",
        "_executors",
        "_making",
        "_opening",
        "_overdue",
        "_owner",
        "_owns_executors",
        "_runner",
        "_running",
        "_waiting",
        "attachments",
        "close_error",
        "closed_by",
        "created_at",
        "id",
        "is_throwaway",
        "last_activity",
        "phase",
        "recorder",
        "spec",
        "step_count",
    )

    def __init__(
        self,
        spec: EnvironmentSpec,
        *,
        executors: Executors | None = None,
        is_throwaway: bool = False,
        owner: SessionOwner | None = None,
        counters: SessionCounters | None = None,
    ) -> None:
        self.id = str(uuid.uuid4())
        self.is_throwaway = is_throwaway
        self.spec = spec
        self.phase = SessionPhase.OPENING
        self.created_at = time.time()
        self._born = self.last_activity = time.monotonic()
        self.step_count = 0
        self.attachments = 0
        self.close_error: BaseException | None = None
        self.recorder: SessionRecorder | None = None
        self.closed_by = "request" if is_throwaway else "client"
        self._counters = counters or SessionCounters()
        self._executors = executors or Executors(spec)
        self._owns_executors = executors is None
        self._executor: Executor | None = None
        self._runner: EnvironmentRunner | None = None
        self._classifier: LatencyClassifier | None = None
        self._owner = owner
        self._making: QueuedConstruction | None = None
        self._running: QueuedCall | None = None
        self._overdue: QueuedCall | None = None
        self._waiting: deque[QueuedCall] | None = None  # an empty one takes more than all the rest
        self._opening: asyncio.Future[None] | None = None
        self._closing: asyncio.Future[None] | None = None

    # ------------------------------------------------------------------ life

    async def open(self) -> None:
        """Construct the environment.

        Raises:
            EnvironmentFactoryError: The factory raised; the cause is chained.
            SessionClosedError: The session was closed before its turn came.
        """
        opening = self.start()
        await asyncio.wait([opening])  # which a cancellation leaves alone, and does not report
        opening.result()

    def start(self) -> asyncio.Future[None]:
        """Begin to construct the environment; the future has what `open` raises."""
        loop = asyncio.get_running_loop()
        self._opening = loop.create_future()
        self._opening.add_done_callback(_notice)
        if self.phase is SessionPhase.OPENING:
            self._executor = executor = self._executors.for_new()
            runner = EnvironmentRunner(self.spec)
            runner.context.run(CALLER.set, self)
            self._making = making = QueuedConstruction(
                Open(self.id), runner, executor, self._constructed, self._move
            )
            executor.submit(making)
        else:
            self._opening.set_exception(SessionClosedError(self.id))
        return self._opening

    def _move(self, construction: QueuedConstruction) -> bool:
        """Have an environment made on another thread, since the one that it waits for is held."""
        try:
            executor, old = self._executors.for_new(), construction.executor
        except RuntimeError:  # the system allows no more threads
            return False
        if getattr(executor, "worker", executor) is getattr(
            old, "worker", None
        ):  # there is only this one
            self._executors.release(executor)
            return False
        self._executors.release(old)
        self._executor = construction.executor = executor
        executor.submit(construction)
        return True

    def _constructed(self, made: QueuedConstruction) -> None:
        assert self._opening is not None
        executor, self._making = made.executor, None
        if made.error is None:
            self._executor, self._runner = self._executors.for_life(executor), made.runner
            self._classifier = (
                self._executors.classifier if isinstance(self._executor, ThreadExecutor) else None
            )
            self._executors.note(executor, made.seconds, is_construction=True)
        else:
            self._executors.release(executor)
            self._executor = None
            if not executor.logs or (is_incident(made.error) and not incident_of(made.error)):
                log_incident(made.error, log=logger, about=self.log_fields())
        self.last_activity = time.monotonic()  # it may have taken longer than one may idle
        if self.phase is SessionPhase.OPENING and made.error is None:
            self.phase = SessionPhase.OPEN
        _settle(self._opening, None, made.error)
        if self.phase is SessionPhase.CLOSING:
            self._end()
        elif made.error is not None:
            self._refuse_waiting(made.error)
        elif self._waiting:
            self._next()

    def _refuse_waiting(self, error: BaseException) -> None:
        """There is no environment for those who wait, and there will be none."""
        self.phase = SessionPhase.CLOSING
        waiting, self._waiting = self._waiting or (), None
        for work in waiting:
            work.answered(None, error)

    async def close(self) -> None:
        """Close the environment, after the call that is running. Safe to repeat.

        An exception from the environment's `close` is logged: there is nobody to handle it.
        """
        await asyncio.shield(self.stop())

    def stop(self) -> asyncio.Future[None]:
        """Begin to close; the future is done once the environment is closed."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_future()
            is_opening = self._opening is not None and not self._opening.done()
            self.phase = SessionPhase.CLOSING
            waiting, self._waiting = self._waiting or (), None
            for work in waiting:
                work.answered(None, SessionClosedError(self.id))
            if self._overdue is not None and self._executor is not None:
                self._executors.give_up(self._executor)
            if self._running is None and not is_opening:
                self._end()
        return self._closing

    def abort(self) -> None:
        """End what is under way. A coroutine is cancelled, and a call that its thread has not begun
        is not begun; a call that goes on all the same is given up, with its process where it has
        one for itself.
        """
        running, executor = self._running, self._executor
        if running is not None and not running.is_cancelled:
            running.cancel()
            if (
                executor is not None
                and type(running.command) is not Close
                and executor.withdraw(running)
            ):
                self._dismiss(running, NotBegunError())
                return
        elif executor is not None:
            self._executors.give_up(executor)
        call = running or self._making
        if executor is not None and call is not None:
            self._executors.hold(executor, call)

    def abandon(self) -> None:
        """Give it up: its event loop has ended, so nothing of it comes to an end any more. What
        its environment holds is let go with the environment, without `close`.
        """
        executor, self._executor, self._runner = self._executor, None, None
        if executor is not None:
            self._executors.release(executor)
        self.phase = SessionPhase.CLOSED

    def _end(self) -> None:
        if self._runner is None:
            self._ended(None, None)
        else:
            self._start(CallbackCall(self, Close(), done=self._ended))

    def _ended(self, _: Any, error: BaseException | None) -> None:
        self.close_error = error
        if error is not None and not (self._executor is not None and self._executor.logs):
            log_incident(error, "close", log=logger, about=self.log_fields())
        if self._executor is not None:
            self._executors.release(self._executor)
        if self.recorder is not None:
            self.recorder.end()
        self._executor = self._runner = None
        if self._owns_executors:
            self._executors.stop()
        self.phase = SessionPhase.CLOSED
        assert self._closing is not None
        _settle(self._closing, None, None)

    # ------------------------------------------------------------------ use

    def works(self) -> list[QueuedCall]:
        """What is under way, and what waits."""
        running = () if self._running is None else (self._running,)
        return [*running, *(self._waiting or ())]

    @property
    def environment(self) -> Any:
        """The environment, where it lives in this process; None elsewhere, and before and after it
        lives. It is for who shows it: all else goes by `handle`.
        """
        return getattr(self._runner, "environment", None)

    @property
    def is_running(self) -> bool:
        """A call is carried out just now."""
        return self._running is not None

    @property
    def is_overdue(self) -> bool:
        """A call runs past its deadline."""
        return self._overdue is not None

    @property
    def overdue_s(self) -> float:
        """Seconds by which the call that is under way has passed its deadline; 0 if it has not."""
        if self._overdue is None or self._overdue.deadline is None:
            return 0.0
        deadline = self._overdue.deadline
        return max(0.0, _now() - deadline.began - deadline.timeout_s)

    @property
    def is_busy(self) -> bool:
        """A call is running or waiting."""
        return self._running is not None or bool(self._waiting)

    def info(self) -> SessionInfo:
        """Describe the session to an operator."""
        cls = self.spec.environment_class
        if self.is_busy:
            self.last_activity = time.monotonic()
        return SessionInfo(
            session_id=self.id,
            created_at=self.created_at,
            last_activity_at=self.created_at + self.last_activity - self._born,
            step_count=self.step_count,
            environment_type=cls.__name__ if cls is not None else self.spec.name,
        )

    def follow(self, hear: Callable[[bytes | None], None]) -> Follower:
        """Be told what the session does from now on, as lines of a recording; it is not touched.

        Args:
            hear: Called on the event loop with each line, and with None when the session has
                ended. It must not take long.
        """
        if self.recorder is None:
            self.recorder = SessionRecorder(step=self.step_count)
        return Follower(self.recorder, hear)

    def attributes(self) -> dict[str, str]:
        """What a span says of the session."""
        return {"openenv.session_id": self.id, "openenv.environment": self.spec.name}

    async def handle(
        self,
        command: Command,
        *,
        encode: Encode | None = None,
        strict: bool = False,
        trace: str = "",
    ) -> Any:
        """Serve one command; commands are served one at a time, in the order of arrival.

        Args:
            command: What to do.
            encode: Turns the reply into what is returned, where the environment lives.
            strict: Refuse an argument that the environment does not take. Otherwise it is
                left out, and named in the transition's `ignored`.
            trace: The span that the environment's is part of, as W3C's `traceparent`.

        Returns:
            The reply, or what `encode` makes of it: a `Transition` for `Reset` and `Step`, a
            `StateReply` for `GetState` and `Restore`, a `SnapshotReply` for `TakeSnapshot`, a
            `RenderReply` for `Render`, a dict for `View`, and for `Call` what the method returned.

        Raises:
            SessionClosedError: The session has been closed.
            InvalidActionError: The action does not fit its model.
            InvalidArgumentError: With `strict`, for an unknown argument.
            InvalidReturnError: The environment returned no observation.
            Exception: Whatever the environment raised.
        """
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        settle = functools.partial(_settle, answer)
        work = CallbackCall(self, command, encode, strict, trace=trace, done=settle)
        self.serve(work)
        try:
            return await answer
        except asyncio.CancelledError:
            work.cancel()
            raise

    def serve(self, work: QueuedCall) -> None:
        """Do `work`, as `handle` does a command, and have it `answered`."""
        work.arrived_at = _now()
        phase, command = self.phase, work.command
        if type(command) is Step:
            timeout_s = command.arguments.get("timeout_s") if command.arguments else None
        else:
            timeout_s = command.timeout_s if type(command) is Call else None
        if timeout_s is not None:
            try:
                self._set_deadline(work, timeout_s)
            except (InvalidMessageError, StepTimeout) as error:
                work.answered(None, error)
                return
        if self._running is None and phase is _OPEN:
            self._start(work)
        elif self._overdue is not None and phase is _OPEN:
            self._serve_though_overdue(work)
        elif phase is _OPEN or phase is SessionPhase.OPENING:
            if self._waiting is None:
                self._waiting = deque()
            self._waiting.append(work)
        else:
            work.answered(None, SessionClosedError(self.id))

    def _start(self, work: QueuedCall) -> None:
        runner, executor = self._runner, self._executor
        assert runner is not None and executor is not None
        self._running = work
        if self.recorder is not None and type(work.encode) is not Recording:
            self.recorder.begin(work)
        if runner.is_async:
            work.is_light = runner.is_light(work.command)
        executor.submit(work)

    def _made(self, work: QueuedCall) -> None:
        """Go on with work that was made; called on the event loop."""
        if type(work.result) is CoroutineType:
            self._await(work, work.result)
            return
        classifier = self._classifier
        if (
            classifier is not None
            and work.seconds > classifier.noteworthy_s
            and work is not self._overdue
        ):
            assert self._executor is not None
            self._executors.note(self._executor, work.seconds)
        self._finish(work)

    def _await(self, work: QueuedCall, coroutine: Coroutine[Any, Any, Any]) -> None:
        assert self._runner is not None
        began = _now()
        work.task = task = self._runner.begin(asyncio.get_running_loop(), coroutine)
        if work.is_cancelled:
            _cancel_once_begun(task)
        if task.done():
            self._awaited(work, task, began)
        else:  # by then the environment may have been given up, and be another session's
            task.add_done_callback(lambda task: work.session._awaited(work, task, began))

    def _awaited(self, work: QueuedCall, task: asyncio.Task[Any], began: float) -> None:
        work.seconds, work.result = _now() - began, None
        if task.cancelled():
            work.error = asyncio.CancelledError()
        else:
            work.error = task.exception()
            if work.error is None:
                work.result = task.result()
        self._finish(work)

    # ------------------------------------------------------------------ deadlines

    def _set_deadline(self, work: QueuedCall, timeout_s: Any) -> None:
        if type(timeout_s) not in (int, float) or not 0 <= timeout_s < math.inf:
            why = "timeout_s is a number of seconds from 0"
            raise InvalidMessageError(
                [{"type": "timeout", "loc": ["timeout_s"], "msg": why, "input": timeout_s}]
            )
        if timeout_s == 0:
            raise _not_begun(timeout_s)
        alarm = asyncio.get_running_loop().call_later(timeout_s, self._expire, work)
        work.deadline = CallDeadline(timeout_s, alarm)

    def _expire(self, work: QueuedCall) -> None:
        """The time of `work` is over: tell its caller, and the environment."""
        assert work.deadline is not None
        timeout_s = work.deadline.timeout_s
        self._counters.step_timeouts += 1
        if self._waiting and work in self._waiting:
            self._waiting.remove(work)
            work.answered(None, _not_begun(timeout_s))
        elif work is self._running:
            if self._executor is not None and self._executor.withdraw(work):
                self._dismiss(work, _not_begun(timeout_s))
                return
            self._overdue = work
            work.cancel()
            if self._executor is not None:
                self._executors.hold(self._executor, work)
            queued, self._waiting = self._waiting or (), None
            for waiting in queued:
                if self._overdue is work:
                    self._serve_though_overdue(waiting)
                else:  # a reset among them has begun anew, and these come after it
                    assert self._waiting is not None
                    self._waiting.append(waiting)
            # What can be cancelled has mostly ended in a moment, and then has its own answer.
            patience_s = 0.0 if work.task is None else CANCEL_PATIENCE_S
            asyncio.get_running_loop().call_later(patience_s, self._tell_overdue, work)

    def _tell_overdue(self, work: QueuedCall) -> None:
        if work is self._overdue:
            assert work.deadline is not None
            work.overdue(StepTimeout(work.deadline.timeout_s, is_running=True))

    def _busy(self) -> SessionBusyError:
        assert self._overdue is not None and self._overdue.deadline is not None
        return SessionBusyError(time.monotonic() - self._overdue.deadline.began)

    def _serve_though_overdue(self, work: QueuedCall) -> None:
        """Refuse work while a call does not come back; but a new episode may have a new
        environment.
        """
        if type(work.command) is Reset and self._give_up_environment():
            self._begin_anew(work)
        else:
            work.answered(None, self._busy())

    def _begin_anew(self, reset: QueuedCall) -> None:
        """Have another environment made, and reset that one."""
        self._waiting = deque([reset, *(self._waiting or ())])
        self.start().add_done_callback(self._begun_anew)

    def _begun_anew(self, opening: asyncio.Future[None]) -> None:
        """Close a session that got no other environment: it is of no use, and holds a slot."""
        if not opening.cancelled() and opening.exception() is None:
            return
        if self._owner is not None and self._closing is None:
            self.closed_by = "failed"
            self._owner.begin_to_close(self)

    def _leave_environment(self) -> Session | None:
        """Leave the environment to the owner, if it takes it: to a session that ends by itself."""
        if self._owner is None or not self.spec.supports_concurrency or self.spec.needs_one_thread:
            return None
        left = Session(self.spec, executors=self._executors)
        assert self._executor is not None
        if not self._owner.adopt(left, self):
            return None
        logger.warning(
            "session %s: a step does not come back; its environment is left to end by itself, and "
            "the session gets another",
            self.id,
        )
        left._executor, left._runner, left._classifier = (
            self._executor,
            self._runner,
            self._classifier,
        )
        left.phase, left.closed_by = _OPEN, "replaced"
        self._running = self._overdue = self._executor = self._runner = self._classifier = None
        self._executors.give_up(left._executor)
        self.phase = SessionPhase.OPENING
        return left

    def _give_up_environment(self) -> bool:
        """Leave the environment to the owner, which closes it once its call is back."""
        work = self._overdue
        assert work is not None and work.deadline is not None
        left = self._leave_environment()
        if left is None:
            return False
        left.phase, left._closing = SessionPhase.CLOSING, asyncio.get_running_loop().create_future()
        left._running, left._overdue = work, work
        work.session = left
        over = StepTimeout(work.deadline.timeout_s, is_running=False, message=REPLACED)
        if self.recorder is not None:
            work.error = over
            self.recorder.finish(work)
            work.error = None
        work.answered(None, over)
        work.is_answered = True
        return True

    # ------------------------------------------------------------------ threads that others hold

    def _held_up(self, work: QueuedCall, since: float) -> bool:
        """Say what becomes of a call that waits for a thread which is held; see `Executors.hold`.

        Its environment may hold what is bound to the thread, so it cannot be called on another.
        """
        if type(work.command) is Close or self._running is not work:
            return False
        if _now() - max(since, work.arrived_at) < HELD_PATIENCE_S:
            return False
        if self._begins_elsewhere(work):
            return True
        self._dismiss(work, SessionBusyError(_now() - since, HELD))
        return True

    def _begins_elsewhere(self, work: QueuedCall) -> bool:
        """Serve a reset by another environment, if it may be, since the thread of this one is held
        by a call of another session.
        """
        if type(work.command) is not Reset or self.phase is not _OPEN or work.is_cancelled:
            return False
        if self._leave_environment() is None:
            return False
        work.result = work.error = None
        self._begin_anew(work)
        return True

    def _not_done(self, work: QueuedCall, error: BaseException) -> None:
        """Go on with work of which a worker process says that it has not begun it."""
        if self._begins_elsewhere(work):
            return
        if isinstance(error, NotBegunError) and work.deadline is not None:
            error = _not_begun(work.deadline.timeout_s)
        self._dismiss(work, error)

    def _dismiss(self, work: QueuedCall, error: BaseException) -> None:
        """Answer work that was not begun, and will not be."""
        if work.deadline is not None:
            work.deadline.alarm.cancel()
        if work is self._overdue:
            self._overdue = None
        self._running, work.error = None, error
        self._go_on()
        if not work.is_answered:
            work.answered(None, error)

    def _go_on(self) -> None:
        """Do what follows on a call, where something does."""
        if self.phase is not _OPEN:
            self._end()
        elif self._waiting:
            self._next()

    def _finish(self, work: QueuedCall) -> None:
        self.last_activity = now = _now()
        error, kind = work.error, type(work.command)
        if error is not None and type(error) in _NOTHING_DONE:
            self._not_done(work, error)
            return
        if work.deadline is not None:
            error = work.error = self._in_time(work, error)
        if error is not None:
            self._log(work, error)
        if self.recorder is not None:
            self.recorder.finish(work)
        if error is None or not isinstance(error, InvalidActionError | InvalidArgumentError):
            if kind is Step:
                self.step_count += 1
            elif kind is Reset:
                self.step_count = 0
        latencies = self._counters.latencies
        if kind in latencies:
            latencies[kind].observe(now - work.arrived_at, work.seconds)
        self._running = None
        if self.phase is not _OPEN and kind is not Close:
            self._end()
        elif self._waiting:
            self._next()
        if not work.is_answered:
            work.answered(work.result, error)

    def _in_time(self, work: QueuedCall, error: BaseException | None) -> BaseException | None:
        """Note that work with a deadline is over; gives the error that it came to."""
        assert work.deadline is not None
        work.deadline.alarm.cancel()
        if work is not self._overdue:
            return error
        self._overdue = None
        if isinstance(error, asyncio.CancelledError):
            return StepTimeout(work.deadline.timeout_s, is_running=False)
        return error

    def _log(self, work: QueuedCall, error: BaseException) -> None:
        """Log what was raised, unless it is meant for the caller, or logged where it was raised."""
        assert self._executor is not None
        if isinstance(error, EnvironmentCrashed):
            self.closed_by = "crashed"
        if work.is_cancelled or speaks(error) or isinstance(work.command, Close):
            return  # the error of a close is logged where it ends
        if not (self._executor.logs and incident_of(error)):
            where, about = _method(work.command), self.log_fields()
            log_incident(error, where, log=logger, level=logging.WARNING, about=about)

    def log_fields(self) -> dict[str, Any]:
        """What a log entry says of the session, and of the request that it serves just now."""
        fields: dict[str, Any] = {"session_id": self.id, "environment": self.spec.name}
        if self._running is not None:
            fields["request"] = _method(self._running.command)
            if self._running.number:
                fields["request_id"] = self._running.number
        return fields

    def _next(self) -> None:
        """Start what has waited longest; not from here, where inline calls would pile up."""
        while self._waiting:
            work = self._waiting.popleft()
            if not work.is_cancelled:
                self._running = work
                asyncio.get_running_loop().call_soon(_start_next, work)
                return

    async def metadata(self) -> EnvironmentMetadata:
        """Ask the environment to describe itself."""
        described = await self.handle(Call("get_metadata"), encode=_metadata)
        assert isinstance(described, EnvironmentMetadata)
        return described


def _start_next(work: QueuedCall) -> None:
    """Start work whose turn it is, unless its time has ended meanwhile."""
    session = work.session  # another one, where the environment has been given up meanwhile
    if work.is_cancelled:
        session._not_done(work, NotBegunError())
    else:
        session._start(work)


def _cancel_once_begun(task: Cancellable) -> None:
    """Cancel a task, though not before its first step: then nothing would await, and so end, the
    coroutine that the environment has made. (From Python 3.12 on, tasks begin at once.)
    """
    coroutine = task.get_coro() if isinstance(task, asyncio.Task) else None
    if isinstance(coroutine, CoroutineType) and getcoroutinestate(coroutine) == CORO_CREATED:
        asyncio.get_running_loop().call_soon(task.cancel)
    else:
        task.cancel()


def _not_begun(timeout_s: float) -> StepTimeout:
    why = f"the step was not begun within its {timeout_s:g} s; nothing was done"
    return StepTimeout(timeout_s, is_running=False, message=why)


def _method(command: Command) -> str:
    """The method that a command calls."""
    if isinstance(command, Call):
        return command.method
    named = {GetState: "state", TakeSnapshot: "snapshot"}
    return named.get(type(command)) or type(command).__name__.lower()


def _metadata(described: Any) -> EnvironmentMetadata:
    return EnvironmentMetadata.model_validate(described, from_attributes=True)


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, asyncio.CancelledError):
        future.cancel()
    else:
        future.set_exception(error)


def _notice(future: asyncio.Future[Any]) -> None:
    """Whoever opened the session may have left; then nobody else asks what became of it."""
    if not future.cancelled():
        future.exception()
