"""Threads that run calls for an event loop, and the dispatcher that carries calls there and back.

Design notes
------------

Which thread touches what. `LoopDispatcher`, the queues of `WorkerThread` and the state of
`ThreadPool` belong to the event loop, with these exceptions: a thread takes calls from the left of
its own `WorkerThread.waiting`, appends results to `LoopDispatcher.finished`, and a thread of a pool
retires itself under the pool's lock. The deques are the only shared queues: `append` and `popleft`
are atomic, so no lock is taken for a call. The dispatcher's `_is_due` is set by the thread that
appends a result first, and cleared by the loop before it takes the first one, so a result that
arrives while the loop delivers makes the loop look again.

Batches. Handing a call to a thread, and its result back, costs two wake-ups, far more than a quick
step. So calls that are submitted in one tick of the loop wake their threads once, at the end of the
tick, and results that are ready when the loop wakes are delivered together. `BATCH` calls are
flushed at once: few enough that the processor's caches still hold their sessions when they are
answered.

Waiting. With a batch of `WORTH_WAITING` calls or more, the loop waits until its threads have run
the batch, since they need the interpreter anyway, and then delivers the results without a wake-up.
Meanwhile one thread is awake at a time, and wakes the next (`Baton`): threads that are woken
together contend for the interpreter. With a thread for each of 256 sessions that took 20 % off the
CPU of a step. A wait with a timeout costs as much as a wake-up, so the loop does not wait for
smaller batches. The wait ends once the calls take longer than `PATIENCE_S` each: all threads are
woken, and the loop skips waiting for the next batches, and for more of them each time this happens.

Errors. A call never raises: `ThreadCall.run` keeps what the environment raised. A result whose
delivery fails is logged and does not keep others from being delivered.

Threads are daemons, so that user code that hangs cannot keep the process from ending.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

logger = logging.getLogger(__name__)

# If a call delays others for longer, they move to another thread, and the call keeps its own.
STUCK_S = 0.005
# A thread that has run one call for longer gets no new sessions; HELD_S past a call's deadline.
LONG_CALL_S, HELD_S = 1.0, 0.05
IDLE_THREADS_KEPT = 4


class CallOwner(Protocol):
    """Takes calls back on the event loop; usually a session."""

    def finish(self, call: Any) -> None:
        """Take back a call that was run."""

    def end_wait(self, call: Any, since: float) -> bool:
        """Decide what to do with a call whose thread is held by another owner's call.

        This method is called again every `HELD_LOOK_S` seconds.

        Args:
            call: The call that waits.
            since: When the other call passed its deadline, by `time.monotonic`.

        Returns:
            Whether the call no longer waits.
        """
        ...


class ThreadCall(Protocol):
    """A call that runs on a thread and is given back to its owner on the event loop.

    Attributes:
        is_light: The call takes microseconds: it begins a coroutine or reads a state.
        dispatcher: The dispatcher that brings the call back from its thread.
        seconds: How long the call ran, in seconds.
    """

    is_light: bool
    dispatcher: LoopDispatcher | None
    seconds: float

    @property
    def owner(self) -> CallOwner:
        """The owner that takes the call back."""
        ...

    def run(self) -> None:
        """Run the call on this thread; never raises."""


def contain(error: BaseException) -> Exception:
    """Make an exception of user code safe to pass on, so that it does not end the server.

    `SystemExit` and similar exceptions would end the event loop, and `StopIteration` cannot be set
    on a future.
    """
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    contained = RuntimeError(f"the environment raised {type(error).__name__}: {error}")
    contained.__cause__ = error
    return contained


class LoopDispatcher:
    """Carries the calls of an event loop to threads, and the results back, in batches.

    Attributes:
        loop: The event loop.
        finished: Calls that threads have run and the loop has not taken back.
    """

    BATCH = 128
    WORTH_WAITING = 16  # calls
    PATIENCE_S = 0.0001  # for each call
    MAX_UNAWAITED = 1000  # batches

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.finished: deque[ThreadCall] = deque()
        self._submitted = 0
        self._to_wake: list[WorkerThread] = []
        self._to_run: list[ThreadCall] = []
        self._is_scheduled = self._is_flushing = self._is_due = False
        self._penalty = self._unawaited = 0

    def submit(self, call: ThreadCall, worker: WorkerThread | None) -> None:
        """Run `call` on `worker`, or on the loop if `worker` is None, together with its batch.

        Called on the loop.
        """
        if worker is None:
            self._to_run.append(call)
        else:
            call.dispatcher = self
            worker.waiting.append(call)
            if not worker.is_rung:
                worker.is_rung = True
                self._to_wake.append(worker)
        self._submitted += 1
        if not self._is_scheduled:
            self._is_scheduled = True
            self.loop.call_soon(self._flush)
        elif self._submitted >= self.BATCH and not self._is_flushing:
            self._flush()

    def _flush(self) -> None:
        self._is_scheduled = False
        count, self._submitted = self._submitted, 0
        if not count:  # a full batch was flushed before the end of the tick
            return
        self._is_flushing = True
        workers, self._to_wake = self._to_wake, []
        for worker in workers:
            worker.is_rung = False
        calls, self._to_run = self._to_run, []
        if workers and count >= self.WORTH_WAITING and not self._unawaited:
            self._wake_and_wait(workers)
        else:
            if self._unawaited:
                self._unawaited -= 1
            for worker in workers:
                worker.bell.put(None)
        if calls:
            began = time.perf_counter()
            for call in calls:
                call.run()
                now = time.perf_counter()
                call.seconds, began = now - began, now
            # Together, so that answers leave in a burst: each first one wakes a reader.
            self.finished.extend(calls)
            self._deliver()
        self._is_flushing = False

    def _wake_and_wait(self, workers: list[WorkerThread]) -> None:
        """Let the threads run the batch, and take back the calls."""
        self._is_due = True  # keeps the threads from waking the loop
        if Baton(workers).pass_around(self.finished, self.PATIENCE_S):
            self._penalty //= 2
        else:
            self._penalty = self._unawaited = min(2 * self._penalty + 1, self.MAX_UNAWAITED)
        self._deliver()

    def bring_back(self, call: ThreadCall) -> bool:
        """Pass a call that was run back to the loop; called on any thread.

        Returns:
            Whether the loop still runs.
        """
        self.finished.append(call)
        if not self._is_due:
            self._is_due = True
            try:
                self.loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:  # the loop has closed, so no caller waits
                logger.debug("a call finished after its event loop had closed")
                self._is_due = False
                return False
        return True

    def _deliver(self) -> None:
        self._is_due = False  # before the first is taken: a later result schedules this again
        finished = self.finished
        while finished:
            try:
                while finished:
                    call = finished.popleft()
                    call.owner.finish(call)
            except Exception:  # noqa: PERF203 - one owner's mistake is not the others'
                logger.exception("the result of a call could not be delivered")


class Baton:
    """Lets threads run their calls one after another: each thread wakes the next."""

    LOOK_S = 0.002

    def __init__(self, workers: list[WorkerThread]) -> None:
        self._waiting = deque(workers)
        self._is_done = threading.Lock()
        self._is_done.acquire()

    def pass_around(self, finished: deque[ThreadCall], patience_s: float) -> bool:
        """Wake the first thread, and wait until the last one is done; called on the loop.

        If calls take longer than `patience_s` each, all threads that still wait are woken at once.

        Args:
            finished: Grows with each call that was run.
            patience_s: Maximum seconds for a call, on average over `LOOK_S` seconds.

        Returns:
            Whether all calls were run.
        """
        count = len(finished)
        self.pass_on()
        while not self._is_done.acquire(timeout=self.LOOK_S):
            if len(finished) - count < self.LOOK_S / patience_s:
                with contextlib.suppress(IndexError):  # the threads may take some meanwhile
                    while True:
                        self._waiting.popleft().wake()
                return False
            count = len(finished)
        return True

    def pass_on(self) -> None:
        """Wake the next thread, or the loop after the last one; called on any thread."""
        try:
            worker = self._waiting.popleft()
        except IndexError:
            self._is_done.release()
        else:
            worker.wake(self)


class WorkerThread:
    """A daemon thread that runs submitted calls in order.

    Attributes:
        waiting: Calls that have not begun. The loop appends, the thread takes.
        is_rung: The dispatcher will wake the thread at the end of the tick.
        bell: Wakes the thread; a baton put into it is passed on once the calls are run.
        busy_since: When the current call began, by `time.perf_counter`; None if there is none.
        is_ending: The thread ends after the submitted calls.
        sharers: Number of executors that share the thread.
    """

    def __init__(self, name: str, *, on_idle: Callable[[WorkerThread], None] | None = None) -> None:
        self.waiting: deque[ThreadCall] = deque()
        self.is_rung = False
        self.busy_since: float | None = None
        self.is_ending = False
        self.sharers = 0
        self._call: ThreadCall | None = None  # the current call
        self._overdue: ThreadCall | None = None
        self.bell: queue.SimpleQueue[Baton | None] = queue.SimpleQueue()
        self._on_idle = on_idle
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    @property
    def load(self) -> int:
        """The number of calls that wait for the thread."""
        return len(self.waiting)

    def wake(self, baton: Baton | None = None) -> None:
        """Make the thread look for calls, and then pass on the baton."""
        self.bell.put(baton)

    def stop(self) -> None:
        """End the thread after the submitted calls, without waiting for that."""
        self.is_ending = True
        self.bell.put(None)

    @property
    def busy_s(self) -> float:
        """The seconds for which the thread has been running the current call; 0 if idle."""
        since = self.busy_since
        return 0.0 if since is None else time.perf_counter() - since

    def hold(self, call: ThreadCall) -> bool:
        """Note that `call` is past its deadline; return whether the thread is running it."""
        if self._call is call:
            self._overdue = call
        return self._overdue is call

    @property
    def is_held(self) -> bool:
        """Whether the thread runs a call that is past its deadline."""
        return self._overdue is not None and self._overdue is self._call

    @property
    def is_stuck(self) -> bool:
        """Whether new sessions should use another thread."""
        return self.busy_s > (HELD_S if self.is_held else LONG_CALL_S)

    def withdraw(self, call: ThreadCall) -> bool:
        """Take back a call; return whether the call had not begun."""
        try:
            self.waiting.remove(call)
        except ValueError:
            return False
        return True

    def put_back(self, calls: deque[ThreadCall]) -> None:
        """Take back the calls that `hand_over` returned, in order; called on the loop."""
        self.waiting.extendleft(reversed(calls))
        self.wake()  # the thread may have looked meanwhile and found nothing

    def hand_over(self) -> deque[ThreadCall]:
        """Return the calls that have not begun, and empty the queue."""
        left: deque[ThreadCall] = deque()
        with contextlib.suppress(IndexError):  # the thread may take some meanwhile
            while True:
                left.append(self.waiting.popleft())
        return left

    def _serve(self) -> None:
        goes_on = True
        while goes_on:
            baton = self.bell.get()
            goes_on = not self.is_ending
            self._run_waiting()
            if baton is not None:
                baton.pass_on()
            if self._on_idle is not None:
                self._on_idle(self)

    def _run_waiting(self) -> None:
        waiting = self.waiting
        began = self.busy_since = time.perf_counter()
        while waiting:
            try:
                call = waiting.popleft()
            except IndexError:  # the calls have been handed over
                break
            self._call = call
            call.run()
            self.busy_since = time.perf_counter()
            call.seconds, began = self.busy_since - began, self.busy_since
            assert call.dispatcher is not None
            if not call.dispatcher.bring_back(call):
                self.stop()
        self._call = self.busy_since = None


class ThreadPool:
    """Threads for calls that may run on any thread; a slow call delays no other call.

    One thread runs the calls, since Python runs one at a time anyway. While calls wait, the loop
    checks that thread every `STUCK_S` seconds: if it still runs the same call, another thread takes
    over the others.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._front: WorkerThread | None = None
        self._idle: list[WorkerThread] = []
        self._lock = threading.Lock()  # guards where the threads are: they retire by themselves
        self._watch: asyncio.TimerHandle | None = None
        self._started = 0
        self._stopped = False

    def __len__(self) -> int:
        """Return the number of threads, without those that a slow call keeps."""
        return len(self._idle) + (self._front is not None)

    def submit(self, call: ThreadCall, dispatcher: LoopDispatcher) -> None:
        """Run `call` soon; called on the loop."""
        if self._stopped:  # the last call of a session that outlived the others
            last = WorkerThread(f"{self._name}-last")
            dispatcher.submit(call, last)
            last.stop()
            return
        if self._front is None:
            with self._lock:
                self._front = self._idle.pop() if self._idle else None
        if self._front is None:
            self._started += 1
            self._front = WorkerThread(f"{self._name}-{self._started}", on_idle=self._retire)
        dispatcher.submit(call, self._front)
        if self._watch is None:
            self._watch = dispatcher.loop.call_later(STUCK_S, self._look, dispatcher)

    def withdraw(self, call: ThreadCall) -> bool:
        """Take back a call; return whether the call had not begun. Called on the loop."""
        return self._front is not None and self._front.withdraw(call)

    def _look(self, dispatcher: LoopDispatcher) -> None:
        self._watch = None
        front = self._front
        if front is None:
            return
        since = front.busy_since
        if since is None and not front.load:
            return
        if since is not None and time.perf_counter() - since > STUCK_S:
            self._front = None
            for call in front.hand_over():
                self.submit(call, call.dispatcher or dispatcher)
            front.wake()  # so that it retires even if it has just become idle
        if self._watch is None:
            self._watch = dispatcher.loop.call_later(STUCK_S, self._look, dispatcher)

    def _retire(self, worker: WorkerThread) -> None:
        """Keep an idle thread or end it; called on that thread."""
        with self._lock:
            if worker.is_ending:  # or its event loop has closed
                self._front = None if worker is self._front else self._front
                self._idle = [other for other in self._idle if other is not worker]
                return
            if worker is self._front or worker in self._idle:  # an extra wake-up
                return
            if self._stopped or len(self._idle) >= IDLE_THREADS_KEPT:
                worker.stop()
            else:
                self._idle.append(worker)

    def stop(self) -> None:
        """End the threads, each after its submitted calls."""
        if self._watch is not None:
            self._watch.cancel()
        with self._lock:
            self._stopped = True
            workers, self._front, self._idle = [self._front, *self._idle], None, []
        for worker in workers:
            if worker is not None:
                worker.stop()
