"""A session: an environment, a client, and the order of the client's calls.

Design notes
------------

The path of a call. Every transport ends in `Session.serve`, or in `Session.handle`, which awaits
the reply. `serve` submits the call to the session's executor. The executor runs it where the
environment lives (`QueuedCall.run`, which calls `EnvironmentRunner.serve`) and gives it back on the
event loop, to `Session.finish`. That counts, records and logs it, starts the next call, and passes
the outcome to the connection (`QueuedCall.reply`). This module has no I/O and no web framework.

Invariants.

- A session is used from one event loop. Only `QueuedCall.run` runs on another thread, and it
  touches nothing but its own `result` and `error` and the runner.
- At most one call runs at a time (`_running`). The others wait in `_waiting`, in order of arrival.
- `phase` only moves down the list of `SessionPhase`, with one exception: a session whose
  environment was given up opens again (`_leave_environment`).
- Every call that `serve` has accepted is replied to exactly once: by `_dismiss` if it was not
  begun, otherwise by `finish`.

Deadlines. The time of a call begins when the session receives it. When it is over, a waiting call
is refused. A running call is canceled (a coroutine) or continues (a thread cannot be interrupted).
In that case the client is told at once (`QueuedCall.report_overdue`), and the call's own reply
follows when it returns. Meanwhile other calls are refused as busy, except that a reset may get a
new environment: the old one is left to another session, which closes it once its call has returned
(`_leave_environment`). If another session's call holds the thread past its deadline, a call that
waits for the thread waits `HELD_PATIENCE_S` more. It is then refused, or, if it is a reset, begins
on another environment (`end_wait`).

Cost. Thousands of sessions are open at once and every step passes through here. So everything that
does not depend on the call is decided when the environment opens (`_opened`), the deque of waiting
calls is created only when needed (an empty one takes more memory than all the rest), durations are
collected and counted in batches, and no task is created for a call.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import sys
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
    METHODS,
    CallMethod,
    CloseEnvironment,
    Command,
    Encode,
    OpenEnvironment,
    Reset,
    Step,
)
from openenv.execution.executors import (
    Cancellable,
    Executor,
    Executors,
    LatencyClassifier,
    ThreadExecutor,
)
from openenv.execution.metrics import UNCOUNTED, SessionCounters
from openenv.execution.recorded import Recording
from openenv.execution.recording import Follower, SessionRecorder
from openenv.execution.runner import EnvironmentRunner
from openenv.execution.spec import EnvironmentSpec
from openenv.execution.threads import LoopDispatcher, contain
from openenv.types import EnvironmentMetadata

logger = logging.getLogger(__name__)

Done = Callable[[Any, BaseException | None], None]

# A canceled call has this long to end before its client is told that it is still running.
CANCEL_PATIENCE_S = 0.02
# How long a call waits for a thread that an overdue call of another session holds.
HELD_PATIENCE_S = 1.0
REPLACED = "the step did not come back, and its environment has been left for another one"
HELD = (
    "the thread that this environment shares with others is held by a call of another session, "
    "which is past its deadline; nothing was done. Try again later, or call reset"
)


class SessionPhase(Enum):
    """The phases of a session, in their order."""

    OPENING = auto()
    OPEN = auto()
    CLOSING = auto()
    CLOSED = auto()


_OPEN = SessionPhase.OPEN  # enum members are slow to look up
_now = time.monotonic


class SessionInfo(BaseModel):
    """A session as an operator sees it; times are in seconds since the epoch."""

    session_id: str
    created_at: float
    last_activity_at: float
    step_count: int = 0
    environment_type: str


class QueuedCall(msgspec.Struct, eq=False):
    """A command for a session, from its arrival to the reply.

    `run` carries out the command where the environment lives. Everything else happens on the event
    loop.

    Attributes:
        owner: The session that carries out the command.
        command: The command.
        encode: Encodes the reply where the environment lives; None to return it as it is.
        strict: Refuse arguments that the environment does not take. Otherwise they are left out,
            and named in the transition's `ignored`.
        seconds: How long the call ran where the environment lives, in seconds.
        arrived_at: When the session received the call, by `time.monotonic`.
        trace: The parent of the environment's span, as a W3C `traceparent`; empty for none.
    """

    owner: Session
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
        """The client's number of the request; 0 for none."""
        return 0

    def run(self) -> None:
        """Carry out the command; called where the environment lives."""
        runner = self.owner._runner
        assert runner is not None
        try:
            run, serve = runner.context.run, runner.serve
            if self.trace:
                name, call = f"environment.{_method(self.command)}", (self.command, self.encode)
                self.result = run(inside, self.trace, name, serve, *call, self.strict)
            else:
                self.result = run(serve, self.command, self.encode, self.strict)
        except BaseException as error:
            self.error = contain(error)

    def reply(self, result: Any, error: BaseException | None) -> None:
        """Pass the result or the error to the client.

        Called on the event loop, possibly before `Session.serve` returns.
        """
        raise NotImplementedError

    def report_overdue(self, error: StepTimeout) -> None:
        """Tell the client that the deadline has passed and the call continues; `reply` follows."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Note that no caller waits. A coroutine is canceled; a call on a thread continues."""
        self.is_cancelled = True
        if self.task is not None:
            _cancel_once_begun(self.task)


class CallDeadline(msgspec.Struct):
    """The deadline of a call: its timer and its start."""

    timeout_s: float
    alarm: asyncio.TimerHandle
    began: float


class CallbackCall(QueuedCall, kw_only=True):
    """A call that passes its reply, or the error at the deadline, to `done`."""

    done: Done | None

    def reply(self, result: Any, error: BaseException | None) -> None:
        done, self.done = self.done, None
        if done is not None:
            done(result, error)

    def report_overdue(self, error: StepTimeout) -> None:
        self.reply(None, error)


class NotBegunError(asyncio.CancelledError):
    """A call was canceled before its thread began to run it."""


_NOTHING_DONE = (SessionBusyError, NotBegunError)


class SessionOwner(Protocol):
    """Owns the sessions of a server."""

    def begin_to_close(self, session: Session) -> object:
        """Close a session that cannot continue."""

    def adopt(self, session: Session, of: Session) -> bool:
        """Take over a session that is left to end by itself; return False if there is no room."""
        ...


class QueuedConstruction(msgspec.Struct, eq=False):
    """The construction of an environment, as a call for an executor."""

    command: Any
    runner: EnvironmentRunner
    executor: Executor
    done: Callable[[QueuedConstruction], None]
    move: Callable[[QueuedConstruction], bool]
    coroutine: Coroutine[Any, Any, None] | None = None
    encode: Encode | None = None
    strict: bool = False
    is_light: bool = False
    trace: str = ""
    result: Any = None
    error: BaseException | None = None
    task: Cancellable | None = None
    dispatcher: LoopDispatcher | None = None
    seconds: float = 0.0

    @property
    def number(self) -> int:
        """0, since no client has numbered the construction."""
        return 0

    @property
    def owner(self) -> QueuedConstruction:
        """The construction itself."""
        return self

    def run(self) -> None:
        """Construct the environment, or begin to, if the factory is a coroutine function."""
        try:
            self.coroutine = self.runner.construct()
        except EnvironmentFactoryError as error:
            self.error = error

    def finish(self, call: QueuedConstruction) -> None:
        """Continue with the session, or await the factory."""
        if self.coroutine is None:
            self.done(self)
        else:
            task = self.runner.begin(asyncio.get_running_loop(), self.coroutine)
            task.add_done_callback(self._end_await)

    def _end_await(self, task: asyncio.Task[None]) -> None:
        self.error = asyncio.CancelledError() if task.cancelled() else task.exception()
        self.done(self)

    def end_wait(self, call: QueuedConstruction, since: float) -> bool:
        """Construct the environment on another thread, if there is one."""
        return self.move(self)


class Session:
    """An environment instance with an id, an order of calls and an executor.

    A session is used from one event loop.

    Args:
        spec: How to construct the environment and how to call it.
        executors: Finds the session's executor; by default the session has its own threads.
        is_throwaway: The session serves one request and takes no slot.
        owner: Takes over an environment whose call does not return. Without an owner, the session
            waits for the call.
        counters: Counts the session's calls; by default the counts are discarded.

    Attributes:
        recorder: Records events from now on; None for no recording.
        closed_by: Why the session ends or will end; see `SessionCounters.closed`.
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
        self._waiting: deque[QueuedCall] | None = None  # None if empty, to save memory
        self._opening: asyncio.Future[None] | None = None
        self._closing: asyncio.Future[None] | None = None

    # ------------------------------------------------------------------ opening and closing

    async def open(self) -> None:
        """Construct the environment.

        Raises:
            EnvironmentFactoryError: The factory raised; the cause is chained.
            SessionClosedError: The session was closed before its construction began.
        """
        opening = self.start()
        await asyncio.wait([opening])  # a cancellation leaves `opening` running and unreported
        opening.result()

    def start(self) -> asyncio.Future[None]:
        """Begin to construct the environment; the future gets the errors of `open`."""
        loop = asyncio.get_running_loop()
        self._opening = loop.create_future()
        # The exception counts as retrieved: the client that opened the session may have left.
        self._opening.add_done_callback(lambda done: done.cancelled() or done.exception())
        if self.phase is SessionPhase.OPENING:
            self._executor = executor = self._executors.for_new()
            runner = EnvironmentRunner(self.spec)
            runner.context.run(CALLER.set, self)
            self._making = making = QueuedConstruction(
                OpenEnvironment(self.id), runner, executor, self._opened, self._move
            )
            executor.submit(making)
        else:
            self._opening.set_exception(SessionClosedError(self.id))
        return self._opening

    def _move(self, construction: QueuedConstruction) -> bool:
        """Construct the environment on another thread, since the present one is held."""
        old = construction.executor
        try:
            executor = self._executors.for_new()
        except RuntimeError:  # the system allows no more threads
            return False
        worker = getattr(executor, "worker", executor)
        if worker is getattr(old, "worker", None):  # there is only this thread
            self._executors.release(executor)
            return False
        self._executors.release(old)
        self._executor = construction.executor = executor
        executor.submit(construction)
        return True

    def _opened(self, made: QueuedConstruction) -> None:
        assert self._opening is not None
        executor, self._making = made.executor, None
        if made.error is None:
            self._executor, self._runner = self._executors.for_life(executor), made.runner
            if isinstance(self._executor, ThreadExecutor):
                self._classifier = self._executors.classifier
            self._executors.note(executor, made.seconds, is_construction=True)
        else:
            self._executors.release(executor)
            self._executor = None
            if not executor.logs or (is_incident(made.error) and not incident_of(made.error)):
                log_incident(made.error, log=logger, about=self.log_fields())
        self.last_activity = _now()  # the construction may have outlasted the idle timeout
        if self.phase is SessionPhase.OPENING and made.error is None:
            self.phase = SessionPhase.OPEN
        _settle(self._opening, None, made.error)
        if self.phase is SessionPhase.CLOSING:
            self._end()
        elif made.error is not None:
            self.phase = SessionPhase.CLOSING  # there is no environment, and none will come
            self._refuse_waiting(made.error)
        elif self._waiting:
            self._next()

    def _refuse_waiting(self, error: BaseException) -> None:
        waiting, self._waiting = self._waiting or (), None
        for call in waiting:
            call.reply(None, error)

    async def close(self) -> None:
        """Close the environment after the running call. Safe to repeat.

        An exception from the environment's `close` is logged, since no caller could handle it.
        """
        await asyncio.shield(self.stop())

    def stop(self) -> asyncio.Future[None]:
        """Begin to close; the future is done once the environment is closed."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_future()
            is_opening = self._opening is not None and not self._opening.done()
            self.phase = SessionPhase.CLOSING
            self._refuse_waiting(SessionClosedError(self.id))
            if self._overdue is not None and self._executor is not None:
                self._executors.give_up(self._executor)
            if self._running is None and not is_opening:
                self._end()
        return self._closing

    def abort(self) -> None:
        """End the running call.

        A coroutine is canceled, and a call that its thread has not begun is withdrawn. A call that
        continues anyway is given up, together with its process if it is alone in it.
        """
        running, executor = self._running, self._executor
        if running is not None and not running.is_cancelled:
            running.cancel()
            is_close = type(running.command) is CloseEnvironment
            if executor is not None and not is_close and executor.withdraw(running):
                self._dismiss(running, NotBegunError())
                return
        elif executor is not None:
            self._executors.give_up(executor)
        call = running or self._making
        if executor is not None and call is not None:
            self._executors.hold(executor, call)

    def abandon(self) -> None:
        """Give the session up: its event loop has ended, so nothing can end properly.

        The environment is released without calling its `close`.
        """
        executor, self._executor, self._runner = self._executor, None, None
        if executor is not None:
            self._executors.release(executor)
        self.phase = SessionPhase.CLOSED

    def _end(self) -> None:
        if self._runner is None:
            self._ended(None, None)
        else:
            self._start(CallbackCall(self, CloseEnvironment(), done=self._ended))

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

    # ------------------------------------------------------------------ calls

    def calls(self) -> list[QueuedCall]:
        """Return the running call and the waiting calls."""
        running = () if self._running is None else (self._running,)
        return [*running, *(self._waiting or ())]

    @property
    def environment(self) -> Any:
        """The environment, for display, if it lives in this process; otherwise None.

        To call the environment, use `handle`.
        """
        return getattr(self._runner, "environment", None)

    @property
    def is_running(self) -> bool:
        """Whether a call is running."""
        return self._running is not None

    @property
    def is_overdue(self) -> bool:
        """Whether a call is running past its deadline."""
        return self._overdue is not None

    @property
    def overdue_s(self) -> float:
        """The seconds by which the running call is past its deadline; 0 if it is not."""
        if self._overdue is None or self._overdue.deadline is None:
            return 0.0
        deadline = self._overdue.deadline
        return max(0.0, _now() - deadline.began - deadline.timeout_s)

    @property
    def is_busy(self) -> bool:
        """Whether a call is running or waiting."""
        return self._running is not None or bool(self._waiting)

    def info(self) -> SessionInfo:
        """Return a description of the session for an operator."""
        if self.is_busy:
            self.last_activity = time.monotonic()
        return SessionInfo(
            session_id=self.id,
            created_at=self.created_at,
            last_activity_at=self.created_at + self.last_activity - self._born,
            step_count=self.step_count,
            environment_type=self.spec.class_name,
        )

    def follow(self, hear: Callable[[bytes | None], None]) -> Follower:
        """Follow the session from now on, as the lines of a recording, without affecting it.

        Args:
            hear: Called on the event loop with each line, and with None when the session has
                ended. It must return quickly.
        """
        if self.recorder is None:
            self.recorder = SessionRecorder(step=self.step_count)
        return Follower(self.recorder, hear)

    def attributes(self) -> dict[str, str]:
        """Return the attributes of a span about the session."""
        return {"openenv.session_id": self.id, "openenv.environment": self.spec.name}

    async def handle(
        self,
        command: Command,
        *,
        encode: Encode | None = None,
        strict: bool = False,
        trace: str = "",
    ) -> Any:
        """Carry out a command, in the order of arrival.

        Args:
            encode: Converts the reply to the return value, where the environment lives.
            strict: Refuse arguments that the environment does not take. Otherwise they are left
                out, and named in the transition's `ignored`.
            trace: The parent of the environment's span, as a W3C `traceparent`.

        Returns:
            The reply, or the result of `encode`: a `Transition` for `Reset` and `Step`, a
            `StateReply` for `GetState` and `Restore`, a `SnapshotReply` for `TakeSnapshot`, a
            `RenderReply` for `Render`, a dict for `GetView`, and for `CallMethod` the return value
            of the method.

        Raises:
            SessionClosedError: The session has been closed.
            InvalidActionError: The action does not fit its model.
            InvalidArgumentError: With `strict`: an argument is unknown.
            InvalidReturnError: The environment returned no observation.
            Exception: An error that the environment raised.
        """
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        settle = functools.partial(_settle, answer)
        call = CallbackCall(self, command, encode, strict, trace=trace, done=settle)
        self.serve(call)
        try:
            return await answer
        except asyncio.CancelledError:
            call.cancel()
            raise

    def serve(self, call: QueuedCall) -> None:
        """Carry out `call` in the order of arrival, and reply to it."""
        call.arrived_at = _now()
        phase, command = self.phase, call.command
        if type(command) is Step:
            timeout_s = command.arguments.get("timeout_s") if command.arguments else None
        else:
            timeout_s = command.timeout_s if type(command) is CallMethod else None
        if timeout_s is not None:
            try:
                self._set_deadline(call, timeout_s)
            except (InvalidMessageError, StepTimeout) as error:
                call.reply(None, error)
                return
        if self._running is None and phase is _OPEN:
            runner, executor = self._runner, self._executor
            assert runner is not None and executor is not None
            if self.recorder is not None or runner.is_async:
                self._start(call)
            else:  # `_start` inlined
                self._running = call
                executor.submit(call)
        elif self._overdue is not None and phase is _OPEN:
            self._serve_though_overdue(call)
        elif phase is _OPEN or phase is SessionPhase.OPENING:
            if self._waiting is None:
                self._waiting = deque()
            self._waiting.append(call)
        else:
            call.reply(None, SessionClosedError(self.id))

    def _start(self, call: QueuedCall) -> None:
        runner, executor = self._runner, self._executor
        assert runner is not None and executor is not None
        self._running = call
        if self.recorder is not None and type(call.encode) is not Recording:
            self.recorder.begin(call)
        if runner.is_async:
            is_step = type(call.command) is Step
            call.is_light = runner.steps_on_loop if is_step else runner.is_light(call.command)
        executor.submit(call)

    def finish(self, call: QueuedCall) -> None:
        """Take back a call that was run: await a coroutine, otherwise end the call and reply."""
        if call.task is None:  # otherwise it has already been awaited
            if type(call.result) is CoroutineType:
                self._await(call)
                return
            classifier = self._classifier
            is_noteworthy = classifier is not None and call.seconds > classifier.noteworthy_s
            if is_noteworthy and call is not self._overdue:
                assert self._executor is not None
                self._executors.note(self._executor, call.seconds)
        self.last_activity = now = _now()
        error, kind = call.error, type(call.command)
        if error is not None and type(error) in _NOTHING_DONE:
            self._end_undone(call, error)
            return
        if call.deadline is not None:
            error = call.error = self._end_deadline(call, error)
        if error is not None:
            self._log(call, error)
        if self.recorder is not None:
            self.recorder.finish(call)
        if error is None or not isinstance(error, InvalidActionError | InvalidArgumentError):
            if kind is Step:
                self.step_count += 1
            elif kind is Reset:
                self.step_count = 0
        latency = self._counters.latencies.get(kind)
        if latency is not None:
            uncounted = latency.uncounted
            uncounted += (now - call.arrived_at, call.seconds)
            if len(uncounted) >= UNCOUNTED:
                latency.count()
        self._running = None
        if self.phase is not _OPEN and kind is not CloseEnvironment:
            self._end()
        elif self._waiting:
            self._next()
        if not call.is_answered:
            call.reply(call.result, error)

    def _await(self, call: QueuedCall) -> None:
        assert self._runner is not None
        began = _now()
        call.task = task = self._runner.begin(asyncio.get_running_loop(), call.result)
        if call.is_cancelled:
            _cancel_once_begun(task)
        if task.done():
            _end_await(call, began, task)
        else:
            task.add_done_callback(functools.partial(_end_await, call, began))

    # ------------------------------------------------------------------ deadlines

    def _set_deadline(self, call: QueuedCall, timeout_s: Any) -> None:
        if type(timeout_s) not in (int, float) or not 0 <= timeout_s <= sys.float_info.max:
            why = "timeout_s is a number of seconds from 0"
            raise InvalidMessageError(
                [{"type": "timeout", "loc": ["timeout_s"], "msg": why, "input": timeout_s}]
            )
        if timeout_s == 0:
            raise _not_begun(timeout_s)
        alarm = asyncio.get_running_loop().call_later(timeout_s, self._expire, call)
        call.deadline = CallDeadline(timeout_s, alarm, _now())

    def _expire(self, call: QueuedCall) -> None:
        """Report that the deadline of `call` has passed, and cancel the call if it runs."""
        assert call.deadline is not None
        timeout_s = call.deadline.timeout_s
        self._counters.step_timeouts += 1
        if self._waiting and call in self._waiting:
            self._waiting.remove(call)
            call.reply(None, _not_begun(timeout_s))
        elif call is self._running:
            if self._executor is not None and self._executor.withdraw(call):
                self._dismiss(call, _not_begun(timeout_s))
                return
            self._overdue = call
            call.cancel()
            if self._executor is not None:
                self._executors.hold(self._executor, call)
            queued, self._waiting = self._waiting or (), None
            for waiting in queued:
                if self._overdue is call:
                    self._serve_though_overdue(waiting)
                else:  # a reset among them has begun anew, and these come after it
                    assert self._waiting is not None
                    self._waiting.append(waiting)
            # A coroutine usually ends at once, and then the call has its own reply.
            patience_s = 0.0 if call.task is None else CANCEL_PATIENCE_S
            asyncio.get_running_loop().call_later(patience_s, self._report_overdue, call)

    def _report_overdue(self, call: QueuedCall) -> None:
        if call is self._overdue:
            assert call.deadline is not None
            call.report_overdue(StepTimeout(call.deadline.timeout_s, is_running=True))

    def _busy(self) -> SessionBusyError:
        assert self._overdue is not None and self._overdue.deadline is not None
        return SessionBusyError(time.monotonic() - self._overdue.deadline.began)

    def _serve_though_overdue(self, call: QueuedCall) -> None:
        """Refuse a call while another one is overdue; a reset may get a new environment."""
        if type(call.command) is Reset and self._give_up_environment():
            self._begin_anew(call)
        else:
            call.reply(None, self._busy())

    def _begin_anew(self, reset: QueuedCall) -> None:
        """Construct another environment, and reset it."""
        self._waiting = deque([reset, *(self._waiting or ())])
        self.start().add_done_callback(self._end_if_failed)

    def _end_if_failed(self, opening: asyncio.Future[None]) -> None:
        """Close a session that got no other environment: it is useless, and holds a slot."""
        has_failed = opening.cancelled() or opening.exception() is not None
        if has_failed and self._owner is not None and self._closing is None:
            self.closed_by = "failed"
            self._owner.begin_to_close(self)

    def _leave_environment(self) -> Session | None:
        """Leave the environment to a new session that ends by itself, if the owner adopts it."""
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
        left._executor, left._runner = self._executor, self._runner
        left._classifier = self._classifier
        left.phase, left.closed_by = _OPEN, "replaced"
        self._running = self._overdue = self._executor = self._runner = self._classifier = None
        self._executors.give_up(left._executor)
        self.phase = SessionPhase.OPENING
        return left

    def _give_up_environment(self) -> bool:
        """Leave the environment to a session that closes it once its call has returned."""
        call = self._overdue
        assert call is not None and call.deadline is not None
        left = self._leave_environment()
        if left is None:
            return False
        left.phase, left._closing = SessionPhase.CLOSING, asyncio.get_running_loop().create_future()
        left._running, left._overdue = call, call
        call.owner = left
        over = StepTimeout(call.deadline.timeout_s, is_running=False, message=REPLACED)
        if self.recorder is not None:
            call.error = over
            self.recorder.finish(call)
            call.error = None
        call.reply(None, over)
        call.is_answered = True
        return True

    # ------------------------------------------------------------------ threads that others hold

    def end_wait(self, call: QueuedCall, since: float) -> bool:
        """Decide whether a call stops waiting for a held thread; see `CallOwner`.

        Its environment may hold objects that are bound to the thread, so no other thread can call
        it.
        """
        if type(call.command) is CloseEnvironment or self._running is not call:
            return False
        if _now() - max(since, call.arrived_at) < HELD_PATIENCE_S:
            return False
        if self._begins_elsewhere(call):
            return True
        self._dismiss(call, SessionBusyError(_now() - since, HELD))
        return True

    def _begins_elsewhere(self, call: QueuedCall) -> bool:
        """Serve a reset with another environment, if possible, since this one's thread is held."""
        if type(call.command) is not Reset or self.phase is not _OPEN or call.is_cancelled:
            return False
        if self._leave_environment() is None:
            return False
        call.result = call.error = call.task = None
        self._begin_anew(call)
        return True

    def _end_undone(self, call: QueuedCall, error: BaseException) -> None:
        """End a call that a worker process reports as not begun, or begin it elsewhere."""
        if self._begins_elsewhere(call):
            return
        if isinstance(error, NotBegunError) and call.deadline is not None:
            error = _not_begun(call.deadline.timeout_s)
        self._dismiss(call, error)

    def _dismiss(self, call: QueuedCall, error: BaseException) -> None:
        """Reply to a call that was not begun and will not be."""
        if call.deadline is not None:
            call.deadline.alarm.cancel()
        if call is self._overdue:
            self._overdue = None
        self._running, call.error = None, error
        if self.phase is not _OPEN:
            self._end()
        elif self._waiting:
            self._next()
        if not call.is_answered:
            call.reply(None, error)

    def _end_deadline(self, call: QueuedCall, error: BaseException | None) -> BaseException | None:
        """Cancel the deadline of a call that has ended; return the error of the call."""
        assert call.deadline is not None
        call.deadline.alarm.cancel()
        if call is not self._overdue:
            return error
        self._overdue = None
        if isinstance(error, asyncio.CancelledError):
            return StepTimeout(call.deadline.timeout_s, is_running=False)
        return error

    def _log(self, call: QueuedCall, error: BaseException) -> None:
        """Log an error, unless it is meant for the client or was logged where it was raised."""
        assert self._executor is not None
        if isinstance(error, EnvironmentCrashed):
            self.closed_by = "crashed"
        if call.is_cancelled or speaks(error) or isinstance(call.command, CloseEnvironment):
            return  # `_ended` logs the error of a close
        if not (self._executor.logs and incident_of(error)):
            where, about = _method(call.command), self.log_fields()
            log_incident(error, where, log=logger, level=logging.WARNING, about=about)

    def log_fields(self) -> dict[str, Any]:
        """Return the fields of a log entry about the session and the request that it serves."""
        fields: dict[str, Any] = {"session_id": self.id, "environment": self.spec.name}
        if self._running is not None:
            fields["request"] = _method(self._running.command)
            if self._running.number:
                fields["request_id"] = self._running.number
        return fields

    def _next(self) -> None:
        """Start the call that has waited longest; not at once, or inline calls would nest."""
        while self._waiting:
            call = self._waiting.popleft()
            if not call.is_cancelled:
                self._running = call
                asyncio.get_running_loop().call_soon(_start_next, call)
                return

    async def metadata(self) -> EnvironmentMetadata:
        """Ask the environment to describe itself."""
        described = await self.handle(CallMethod("get_metadata"), encode=_metadata)
        assert isinstance(described, EnvironmentMetadata)
        return described


def _start_next(call: QueuedCall) -> None:
    """Start a call whose turn it is, unless it was canceled meanwhile."""
    session = call.owner  # a different one, if the environment was given up meanwhile
    if call.is_cancelled:
        session._end_undone(call, NotBegunError())
    else:
        session._start(call)


def _cancel_once_begun(task: Cancellable) -> None:
    """Cancel a task, but not before its first step.

    A task that is canceled before its first step never awaits, and so never ends, the environment's
    coroutine. (From Python 3.12 on, tasks begin at once.)
    """
    coroutine = task.get_coro() if isinstance(task, asyncio.Task) else None
    if isinstance(coroutine, CoroutineType) and getcoroutinestate(coroutine) == CORO_CREATED:
        asyncio.get_running_loop().call_soon(task.cancel)
    else:
        task.cancel()


def _end_await(call: QueuedCall, began: float, task: asyncio.Task[Any]) -> None:
    call.seconds, call.result = _now() - began, None
    if task.cancelled():
        call.error = asyncio.CancelledError()
    else:
        call.error = task.exception()
        if call.error is None:
            call.result = task.result()
    # The environment may have been given up meanwhile, and belong to another session.
    call.owner.finish(call)


def _not_begun(timeout_s: float) -> StepTimeout:
    why = f"the step was not begun within its {timeout_s:g} s; nothing was done"
    return StepTimeout(timeout_s, is_running=False, message=why)


def _method(command: Command) -> str:
    """Return the name of the method that a command calls, for logs and spans."""
    return command.method if isinstance(command, CallMethod) else METHODS[type(command)]


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
