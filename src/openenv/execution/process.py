"""Environments in worker processes: a crash harms no other process, and N workers use N cores.

Design notes
------------

Sides. The server keeps its sockets and its sessions. A session whose executor is a `WorkerExecutor`
sends its calls to a worker process, which has a corresponding session (see
`openenv.execution.worker`), so that the order of calls, the threads and the deadlines are the same
as in one process. The server enforces deadlines; the worker only cancels.

Threads. `Workers` and `WorkerProcess` are used on the event loop of the server. One daemon thread
for each process (`_mind`) starts the process and waits for its end, since both block. It reports to
the loop with `call_soon_threadsafe`, and touches nothing but `_child` and `unfit`.

Death. A worker that dies takes its own sessions with it, and no others. A session of a dead worker
learns about it at once if a call is running, and otherwise at the next call. The worker is
replaced after a pause that doubles while workers live shorter than `SHORT_LIFE_S`. The socket and
the process may end in either order, and data that the process sent may still be on its way, so the
death counts once both have ended, or `LATE_S` after the first.

Hanging. A worker that does not answer for `SILENT_S` gets no new sessions; if it has no sessions it
is ended. A worker whose calls have all been given up is ended too, and replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pickle
import socket
import sys
import threading
import time
from typing import Any, ClassVar

from openenv._internal.children import ChildProcess, run_module, wait_for_all
from openenv._internal.timing import backoff_s
from openenv.errors import EnvironmentCrashed, EnvironmentFactoryError, how_it_ended, words
from openenv.execution.commands import CloseEnvironment, Encode, OpenEnvironment
from openenv.execution.executors import Executor, ExecutorCall, Executors
from openenv.execution.link import PICKLE_PROTOCOL, FrameKind, Link, load_error, load_value, pair
from openenv.execution.spec import EnvironmentSpec, factory_name
from openenv.execution.worker import Source

logger = logging.getLogger(__name__)

# Time for a worker to end, once its sessions are closed, before it is killed.
END_GRACE_S = 2.0
# Time for environments to close if the server is killed.
GRACE_S = 10.0
# How long a dead worker's data may still be on its way, and how long a worker may live on after it
# has closed its end.
LATE_S = 0.5
# A worker that lives no longer than this counts as a failed start.
SHORT_LIFE_S = 5.0
# After this many failed starts in a row, sessions are refused instead of waiting for the next one.
PATIENCE = 3
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 30.0
# After this many failed starts before any worker was ready, `openenv serve` ends.
MOST_FAILURES = 8
# How often workers are checked, and after how much silence, or how long a start, they get no new
# sessions.
CHECK_S, SILENT_S = 5.0, 10.0


class WorkerExecutor(Executor):
    """Passes calls on to a session in a worker process."""

    logs: ClassVar[bool] = True

    def __init__(self, worker: WorkerProcess, key: int) -> None:
        self.worker = worker
        self.key = key
        self.call: ExecutorCall | None = None
        self.encode: Encode | None = None  # the encoder that the worker has
        self.is_given_up = False

    def submit(self, call: ExecutorCall) -> None:
        self.call, call.task = call, self
        self.worker.submit(self, call)

    def cancel(self) -> None:
        """Cancel the running call, if the environment's method is a coroutine."""
        self.worker.link.send(FrameKind.CANCEL, self.key)

    def answer(self, result: Any, error: BaseException | None, seconds: float = 0.0) -> None:
        """Complete the call under way with its result or error."""
        call, self.call = self.call, None
        if call is None:
            return
        call.result, call.error, call.task, call.seconds = result, error, None, seconds
        try:
            call.owner.finish(call)
        except Exception:  # one owner's mistake is not the others'
            logger.exception("the result of a call could not be delivered")


class WorkerProcess:
    """The server's side of a worker process; used from a single event loop.

    Args:
        workers: The `Workers` that the process belongs to.
        pause_s: Seconds to wait before the process starts.
        replaces: The dead worker that this one replaces.

    Attributes:
        executors: The executors of the process's sessions, by their numbers.
        given_up: Number of executors whose call no caller waits for any longer.
        death: The error for a process that has died.
        ready_at: When the process was ready for sessions; None until then.
        asked_at: When the process began to start, or was asked for a sign of life; None once it
            has answered.
    """

    def __init__(
        self, workers: Workers, pause_s: float = 0.0, replaces: WorkerProcess | None = None
    ) -> None:
        self.executors: dict[int, WorkerExecutor] = {}
        self.given_up = 0
        self.link = Link(self._received, self._lost)
        self.death: EnvironmentCrashed | None = None
        self.unfit: BaseException | None = None
        self.replaces = replaces
        self.ready_at: float | None = None
        self.asked_at: float | None = None
        self._workers = workers
        self._loop = asyncio.get_running_loop()
        self._child: ChildProcess | None = None
        self._connecting: asyncio.Task[Any] | None = None
        self._is_lost = self._is_stopped = self._is_killed = False
        self._ended: asyncio.Future[int | None] = self._loop.create_future()
        self._start_later = self._loop.call_later(pause_s, self._start)
        setup = (sys.path, workers.grace_s, workers.source)
        self.link.send(FrameKind.SETUP, 0, pickle.dumps(setup, PICKLE_PROTOCOL))

    # ------------------------------------------------------------------ life

    @property
    def is_pausing(self) -> bool:
        """Whether the process has yet to start."""
        return self._connecting is None

    @property
    def is_silent(self) -> bool:
        """Whether the process has not answered, or not started, for `SILENT_S`."""
        return self.asked_at is not None and time.monotonic() - self.asked_at > SILENT_S

    def check(self) -> None:
        """Ask the process for a sign of life.

        If there is none, sessions that wait for an environment move to another worker, and a
        process without sessions is ended.
        """
        if self.is_pausing or self.death is not None or self._is_stopped:
            return
        if self.asked_at is None:
            self.asked_at = time.monotonic()
            self.link.send(FrameKind.READY, 0)
        elif self.is_silent:
            if any(not (worker.is_silent or worker.is_pausing) for worker in self._workers.crew):
                for executor in list(self.executors.values()):
                    call = executor.call
                    is_opening = call is not None and type(call.command) is OpenEnvironment
                    if call and is_opening and call.owner.end_wait(call, self.asked_at):
                        self.link.send(FrameKind.CLOSE, executor.key)  # it may still be constructed
            if self.ready_at is not None and not self.executors:
                logger.warning("worker process %s is ended: it does not answer", self.pid)
                self._end()

    def _start(self) -> None:
        self.asked_at = time.monotonic()
        ours, theirs = pair()
        ours.setblocking(False)
        connecting = self._loop.create_unix_connection(lambda: self.link, sock=ours)
        self._connecting = self._loop.create_task(connecting)
        name = "openenv-worker"
        threading.Thread(target=self._mind, args=[theirs], name=name, daemon=True).start()

    def _mind(self, theirs: socket.socket) -> None:
        """Start the process and wait until it ends; runs on a separate thread."""
        code = None
        try:
            with theirs:
                self._child = run_module(
                    "openenv.execution.worker",
                    stdin=theirs.fileno(),
                    outlives_s=2 * self._workers.grace_s,
                )
            if self._is_killed:  # `kill` was called before this thread set `_child`
                self._child.kill()
            code = wait_for_all(self._child)
        except Exception as error:
            self.unfit = error
        with contextlib.suppress(RuntimeError):  # the loop has closed, so the end does not matter
            self._loop.call_soon_threadsafe(self._has_ended, code)

    def _lost(self) -> None:
        self._is_lost = True
        if self._ended.done():
            self._die()
        elif not self._is_stopped:
            self._loop.call_later(LATE_S, self.kill)

    def _has_ended(self, code: int | None) -> None:
        self._ended.set_result(code)
        if self._is_lost:
            self._die()
        else:  # a process that it started may still hold its end of the socket
            self._loop.call_later(LATE_S, self._die)

    def _die(self) -> None:
        if self.death is not None:
            return
        self.death = EnvironmentCrashed(self._ended.result())
        self.link.close()
        if not self._is_stopped:
            logger.error(
                "worker process %s with %d sessions has died (%s); it is replaced",
                self.pid,
                len(self.executors),
                how_it_ended(self.death.exit_code),
            )
        for executor in list(self.executors.values()):
            self._refuse(executor)
        if not self._is_stopped:
            self._workers.replace(self)

    def end_if_stuck(self) -> None:
        """End the process if all its calls have been given up."""
        if self.given_up and self.given_up == len(self.executors) and not self._is_stopped:
            logger.warning("worker process %s is ended: its calls do not come back", self.pid)
            self._end()

    def _end(self) -> None:
        """End the process, and start another in its place."""
        self._is_stopped = True
        self._workers.renew(self)
        self.kill()

    @property
    def pid(self) -> int | None:
        """The id of the process; None before the start."""
        return None if self._child is None else self._child.pid

    def kill(self) -> None:
        """Kill the process, now or as soon as it has an id."""
        self._is_killed = True  # set first: `_mind` sets `_child` and then reads this flag
        if self._child is not None and not self._ended.done():
            self._child.kill()

    def stop(self) -> None:
        """Make the process end by itself."""
        self._is_stopped = True
        self._start_later.cancel()
        if self._connecting is None:
            if not self._ended.done():
                self._ended.set_result(None)
        elif not self._connecting.done():
            self._connecting.add_done_callback(lambda _: self.link.close())
        self.link.close()

    async def aclose(self) -> None:
        """End the process and wait for its end."""
        self.stop()
        for timeout in (END_GRACE_S, LATE_S):
            await asyncio.wait([self._ended], timeout=timeout)
            self.kill()

    # ------------------------------------------------------------------ calls

    def submit(self, executor: WorkerExecutor, call: ExecutorCall) -> None:
        """Send a call to the worker, or answer it with an error if the worker is dead."""
        command = call.command
        if self.death is not None:
            self._refuse(executor)
        elif type(command) is OpenEnvironment:
            self.link.send(FrameKind.OPEN, executor.key, command.session_id.encode())
        elif type(command) is CloseEnvironment:
            self.link.send(FrameKind.CLOSE, executor.key)
        else:
            try:
                if call.encode != executor.encode:
                    encode = pickle.dumps(call.encode, PICKLE_PROTOCOL)
                    self.link.send(FrameKind.ENCODE, executor.key, encode)
                    executor.encode = call.encode
                asked = (command, call.strict, call.number, call.trace)
                data = pickle.dumps(asked, PICKLE_PROTOCOL)
            except Exception as error:
                executor.answer(None, error)
            else:
                self.link.send(FrameKind.SERVE, executor.key, data)

    def _refuse(self, executor: WorkerExecutor) -> None:
        """Answer a call in place of a dead worker."""
        command = None if executor.call is None else type(executor.call.command)
        if command is CloseEnvironment:
            executor.answer(None, None)  # there is nothing left to close
        elif command is not None:
            is_opening = command is OpenEnvironment
            executor.answer(None, self.factory_error() if is_opening else self.death)

    def factory_error(self) -> EnvironmentFactoryError:
        """Return the error that says why the environment could not be made."""
        name = factory_name(self._workers.spec.factory)
        why = how_it_ended(self.death.exit_code if self.death is not None else None)
        if self.unfit is not None:
            why = f"{type(self.unfit).__name__}: {words(self.unfit)}"
        error = EnvironmentFactoryError(
            name, f"Environment factory '{name}' failed: its worker process died ({why})."
        )
        error.__cause__ = self.unfit or self.death
        return error

    def _received(self, kind: int, key: int, data: bytes, seconds: float) -> None:
        executor = self.executors.get(key)
        if kind == FrameKind.READY:
            self.asked_at = None
            if self.ready_at is None:
                self.ready_at = time.monotonic()
                self._workers.is_proven = True
        elif kind == FrameKind.UNFIT:
            self.unfit = load_error(data)
        elif executor is None or executor.call is None:
            return
        elif kind == FrameKind.BYTES:
            executor.answer(data, None, seconds)
        elif kind == FrameKind.ERROR:
            executor.answer(None, load_error(data), seconds)
        else:
            try:
                result = load_value(data)
            except Exception as error:
                executor.answer(None, error)
                return
            if type(executor.call.command) is OpenEnvironment and result is not None:
                self._workers.spec.learn(*result)
            executor.answer(result, None, seconds)


class Workers(Executors):
    """The worker processes of a server. A new session gets the worker with the fewest sessions.

    Args:
        source: Makes the same spec in a worker; must be picklable by reference.
        grace_s: Seconds that environments have to close if the server is killed.

    Attributes:
        crew: The workers, including those that have yet to start.
        is_proven: Some worker has been ready, so workers can start here.

    Raises:
        ValueError: `count` is less than 1.
    """

    def __init__(
        self, spec: EnvironmentSpec, count: int, source: Source, *, grace_s: float = GRACE_S
    ) -> None:
        super().__init__(spec)
        if count < 1:
            raise ValueError(f"workers={count}; there must be at least 1")
        self.count = count
        self.grace_s = grace_s
        self.source = pickle.dumps(source, PICKLE_PROTOCOL)
        self.crew: list[WorkerProcess] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._short_lives = 0
        self._last_key = 0
        self._checking: asyncio.TimerHandle | None = None
        self.deaths = 0
        self.is_proven = False

    def start(self) -> None:
        """Start the workers on the running event loop, unless they run already."""
        loop = asyncio.get_running_loop()
        if self.crew and loop is not self._loop:
            assert self._loop is not None
            if not self._loop.is_closed():
                raise RuntimeError("worker processes serve one event loop at a time")
            for worker in self.crew:
                worker.kill()
            self.crew.clear()
        if not self.crew:
            self._loop, self._short_lives = loop, 0
            self.crew = [WorkerProcess(self) for _ in range(self.count)]
            self._checking = loop.call_later(CHECK_S, self._check)

    def _check(self) -> None:
        for worker in list(self.crew):
            worker.check()
        self._checking = asyncio.get_running_loop().call_later(CHECK_S, self._check)

    def for_new(self) -> Executor:
        self.start()
        # A worker with an overdue call is avoided: it is ended once its other sessions have left.
        worker = min(
            self.crew,
            key=lambda w: (w.is_pausing, w.is_silent, w.given_up > 0, len(w.executors)),
        )
        if worker.is_pausing and worker.replaces is not None and self._short_lives >= PATIENCE:
            return WorkerExecutor(worker.replaces, 0)  # it refuses the session
        self._last_key += 1
        executor = worker.executors[self._last_key] = WorkerExecutor(worker, self._last_key)
        return executor

    def release(self, executor: Executor) -> None:
        if isinstance(executor, WorkerExecutor):
            executor.worker.executors.pop(executor.key, None)
            executor.worker.given_up -= executor.is_given_up
            executor.worker.end_if_stuck()

    def give_up(self, executor: Executor) -> None:
        if isinstance(executor, WorkerExecutor) and not executor.is_given_up:
            executor.is_given_up = True
            executor.worker.given_up += 1
            executor.worker.end_if_stuck()

    def renew(self, worker: WorkerProcess) -> None:
        """Replace a worker that is ended on purpose."""
        if worker in self.crew:
            self.crew[self.crew.index(worker)] = WorkerProcess(self)

    def replace(self, worker: WorkerProcess) -> None:
        """Replace a worker that has died, after a pause."""
        self.deaths += 1
        born = worker.ready_at
        if born is not None and time.monotonic() - born > SHORT_LIFE_S:
            self._short_lives = 0
        self._short_lives += 1
        pause = backoff_s(self._short_lives - 1, FIRST_PAUSE_S, LONGEST_PAUSE_S)
        worker.replaces = None
        self.crew[self.crew.index(worker)] = WorkerProcess(self, pause, worker)

    @property
    def workers(self) -> tuple[int, int, int]:
        ready = sum(w.ready_at is not None and not w.is_silent for w in self.crew)
        return self.count, ready, self.deaths

    @property
    def trouble(self) -> str | None:
        troubles = []
        gone = [w.replaces.death for w in self.crew if w.replaces and w.ready_at is None]
        if gone and gone[-1] is not None:
            died = f"{len(gone)} of {self.count} worker processes died"
            how = how_it_ended(gone[-1].exit_code)
            troubles.append(f"{died} ({how}) and are being replaced")
        silent = [w for w in self.crew if w.is_silent]
        for doing, few in (
            ("have not started", [w for w in silent if w.ready_at is None]),
            ("do not answer", [w for w in silent if w.ready_at is not None]),
        ):
            if few:
                asked_at = min(w.asked_at or 0.0 for w in few)
                waited = f"{time.monotonic() - asked_at:.0f} s"
                some = f"{len(few)} of {self.count} worker processes {doing}, for {waited} by now,"
                troubles.append(f"{some} and hold {sum(len(w.executors) for w in few)} sessions")
        return "; ".join(troubles) or None

    @property
    def hopeless(self) -> str | None:
        if self.is_proven or self._short_lives < MOST_FAILURES:
            return None
        last = next((w.replaces for w in self.crew if w.replaces is not None), None)
        return None if last is None else words(last.factory_error())

    def stop(self) -> None:
        if self._checking is not None:
            self._checking.cancel()
            self._checking = None
        for worker in self.crew:
            worker.stop()
        self.crew = []
        super().stop()

    def abandon(self, owner: int) -> None:
        """End the workers unless there are sessions, since no caller can open a session any more.

        Can be called from any thread.

        Args:
            owner: The id of the process that owns the workers; a forked child leaves them alone.
        """
        if self._loop is not None and owner == os.getpid():
            with contextlib.suppress(RuntimeError):  # the loop has closed, and ended them
                self._loop.call_soon_threadsafe(self._stop_idle)

    def _stop_idle(self) -> None:
        if not any(worker.executors for worker in self.crew):
            self.stop()

    async def aclose(self) -> None:
        crew = self.crew
        self.stop()
        await asyncio.gather(*(worker.aclose() for worker in crew))
