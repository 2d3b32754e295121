"""Threads that make calls for an event loop, and answer it in batches.

Handing a call to a thread and its result back costs two wake-ups, far more than a quick step. So
calls that are submitted in one tick of the loop wake their thread once, at the end of the tick,
and results that are ready when the loop wakes are delivered together.
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
from typing import Protocol

__all__ = ["ThreadCall", "LoopDispatcher", "ThreadPool", "WorkerThread", "contain"]

logger = logging.getLogger(__name__)

# A call that holds up others for longer is left alone on its thread; they go on on another one.
STUCK_S = 0.005
# New sessions get no thread that makes one call for longer; HELD_S if it is past its deadline.
LONG_CALL_S, HELD_S = 1.0, 0.05
IDLE_THREADS_KEPT = 4


class ThreadCall(Protocol):
    """Something to do on a thread, and to tell of on an event loop.

    Attributes:
        is_light: It is over in microseconds: a coroutine that begins, a state that is read.
        dispatcher: Who brings it back from its thread.
        seconds: How long it took there.
    """

    is_light: bool
    dispatcher: LoopDispatcher | None
    seconds: float

    def make(self) -> None:
        """Do it, on whichever thread this is. It raises nothing."""

    def tell(self) -> None:
        """Tell whoever waits for it, on the event loop."""

    def held_up(self, since: float) -> bool:
        """Take it that the thread it waits for is held by another call, which is past its deadline
        since then, by `time.monotonic`; called on the event loop, again and again.

        Returns:
            Whether it waits no longer.
        """
        ...


def contain(error: BaseException) -> Exception:
    """Make what user code raised safe to pass on: it must not end the server.

    `SystemExit` and the like would end the event loop, and `StopIteration` cannot be set on a
    future.
    """
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    contained = RuntimeError(f"the environment raised {type(error).__name__}: {error}")
    contained.__cause__ = error
    return contained


class LoopDispatcher:
    """Carries calls from one event loop to where they are made, and their results back, in batches.

    A batch is what is submitted in one tick of the loop, or `BATCH` calls if those come first:
    few enough that the processor's caches still hold their sessions when they are answered. The
    loop waits until its threads have made a batch, since they need the interpreter anyway, and
    delivers the results at once. It does so only for batches of several calls, for as long as
    these are quick; once they were not, it does not wait for the next batches, ever more of them.
    """

    BATCH = 128
    WORTH_WAITING = 16  # calls: to wait with an alarm costs as much as to be woken
    PATIENCE_S = 0.0001  # for each call
    MAX_PATIENCE_S = 0.002
    MAX_UNAWAITED = 1000  # batches

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._submitted = 0
        self._to_wake: list[WorkerThread] = []
        self._to_make: list[ThreadCall] = []
        self._finished: deque[ThreadCall] = deque()
        self._is_scheduled = self._is_flushing = self._is_called = False
        self._penalty = self._unawaited = 0

    def note(self) -> None:
        """Note that a call was submitted; called on the loop."""
        self._submitted += 1
        if not self._is_scheduled:
            self._is_scheduled = True
            self.loop.call_soon(self._tick_ends)
        elif self._submitted >= self.BATCH and not self._is_flushing:
            self._flush()

    def wake_later(self, worker: WorkerThread) -> None:
        """Wake `worker` with the batch; called on the loop."""
        self._to_wake.append(worker)

    def make_later(self, call: ThreadCall) -> None:
        """Make `call` on the loop, with the batch; called on the loop."""
        self._to_make.append(call)
        self.note()

    def _tick_ends(self) -> None:
        self._is_scheduled = False
        self._flush()

    def _flush(self) -> None:
        self._is_flushing = True
        count, self._submitted = self._submitted, 0
        workers, self._to_wake = self._to_wake, []
        calls, self._to_make = self._to_make, []
        if count < self.WORTH_WAITING or self._unawaited:
            self._unawaited = max(0, self._unawaited - 1)
            for worker in workers:
                worker.wake()
        elif workers:
            self._wake_and_wait(workers)
        if calls:
            _make_all(calls)
        # Apart, so that answers leave in a burst: each first one wakes a reader.
        self._tell(deque(calls))
        self._is_flushing = False

    def _wake_and_wait(self, workers: list[WorkerThread]) -> None:
        """Let the threads have their turns, and take what they have made."""
        self._is_called = True  # so that they do not wake the loop
        is_quick = True
        for worker in workers:
            if is_quick:
                calls = max(worker.load, 1)  # it may be at the last one already
                patience_s = min(self.PATIENCE_S * calls, self.MAX_PATIENCE_S)
                is_quick = worker.wake_and_wait(patience_s)
            else:
                worker.wake()
        if is_quick:
            self._penalty //= 2
        else:
            self._penalty = self._unawaited = min(2 * self._penalty + 1, self.MAX_UNAWAITED)
        self._deliver()

    def bring_back(self, call: ThreadCall) -> bool:
        """Have the loop told of a call that was made; called on any thread.

        Returns:
            Whether the loop still runs.
        """
        self._finished.append(call)
        if not self._is_called:
            self._is_called = True
            try:
                self.loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:  # it has closed: nobody is waiting any more
                logger.debug("a call finished after its event loop had closed")
                self._is_called = False
                return False
        return True

    def _deliver(self) -> None:
        self._is_called = False  # before the first is taken: who comes now calls again
        self._tell(self._finished)

    def _tell(self, calls: deque[ThreadCall]) -> None:
        while calls:
            self._tell_until_one_fails(calls)

    def _tell_until_one_fails(self, calls: deque[ThreadCall]) -> None:
        try:
            while calls:
                calls.popleft().tell()
        except Exception:  # one listener's mistake is not the others'
            logger.exception("the result of a call could not be delivered")


def _make_all(calls: list[ThreadCall]) -> None:
    began = time.perf_counter()
    for call in calls:
        call.make()
        now = time.perf_counter()
        call.seconds, began = now - began, now


class WorkerThread:
    """A daemon thread that makes calls one after the other.

    It is a daemon so that user code that hangs cannot keep the process from ending.

    Attributes:
        busy_since: When the call began that it makes, by `time.perf_counter`; None without one.
        sharers: Executors that share it.
    """

    def __init__(self, name: str, *, on_idle: Callable[[WorkerThread], None] | None = None) -> None:
        self.busy_since: float | None = None
        self.is_ending = False
        self.sharers = 0
        self._call: ThreadCall | None = None  # which it makes
        self._overdue: ThreadCall | None = None
        self._waiting: deque[ThreadCall] = deque()
        self._bell: queue.SimpleQueue[threading.Lock | None] = queue.SimpleQueue()
        self._is_rung = False
        self._on_idle = on_idle
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    @property
    def load(self) -> int:
        """Calls that wait for it."""
        return len(self._waiting)

    def submit(self, call: ThreadCall, dispatcher: LoopDispatcher) -> None:
        """Make `call` on the thread, after those submitted before; called on the loop."""
        call.dispatcher = dispatcher
        self._waiting.append(call)
        if not self._is_rung:
            self._is_rung = True
            dispatcher.wake_later(self)
        dispatcher.note()

    def wake(self) -> None:
        """Have the thread look for calls."""
        self._is_rung = False
        self._bell.put(None)

    def wake_and_wait(self, timeout_s: float) -> bool:
        """Have the thread look for calls; say whether it has made them all within this time."""
        self._is_rung = False
        is_done = threading.Lock()
        is_done.acquire()
        self._bell.put(is_done)
        return is_done.acquire(timeout=timeout_s)

    def stop(self) -> None:
        """End the thread once it has made what was submitted; does not wait."""
        self.is_ending = True
        self._bell.put(None)

    @property
    def busy_s(self) -> float:
        """Seconds for which it has been making one and the same call."""
        since = self.busy_since
        return 0.0 if since is None else time.perf_counter() - since

    def hold(self, call: ThreadCall) -> bool:
        """Note that `call` is past its deadline; say whether the thread makes it just now."""
        if self._call is call:
            self._overdue = call
        return self._overdue is call

    @property
    def is_held(self) -> bool:
        """It makes a call that is past its deadline."""
        return self._overdue is not None and self._overdue is self._call

    @property
    def is_stuck(self) -> bool:
        """New sessions had better go elsewhere."""
        return self.busy_s > (HELD_S if self.is_held else LONG_CALL_S)

    def withdraw(self, call: ThreadCall) -> bool:
        """Take back a call; say whether it had not begun."""
        try:
            self._waiting.remove(call)
        except ValueError:
            return False
        return True

    def put_back(self, calls: deque[ThreadCall]) -> None:
        """Take back what `hand_over` gave, in its order; called on the loop."""
        self._waiting.extendleft(reversed(calls))
        self.wake()  # it may have come back meanwhile, and have found nothing

    def hand_over(self) -> deque[ThreadCall]:
        """Give up the calls that have not begun."""
        left: deque[ThreadCall] = deque()
        with contextlib.suppress(IndexError):  # the thread may take some meanwhile
            while True:
                left.append(self._waiting.popleft())
        return left

    def _serve(self) -> None:
        goes_on = True
        while goes_on:
            is_done = self._bell.get()
            goes_on = not self.is_ending
            self._make_all()
            if is_done is not None:
                is_done.release()
            if self._on_idle is not None:
                self._on_idle(self)

    def _make_all(self) -> None:
        waiting = self._waiting
        began = self.busy_since = time.perf_counter()
        while waiting:
            try:
                call = waiting.popleft()
            except IndexError:  # they have been handed over
                break
            self._call = call
            call.make()
            self.busy_since = time.perf_counter()
            call.seconds, began = self.busy_since - began, self.busy_since
            assert call.dispatcher is not None
            if not call.dispatcher.bring_back(call):
                self.stop()
        self._call = self.busy_since = None


class ThreadPool:
    """Makes calls that may be made on any thread; one that takes long holds up no other.

    One thread makes the calls, since Python runs one at a time anyway. While calls wait, the
    loop looks at it every `STUCK_S` seconds: if it still makes the same one, another thread takes
    over the others.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._front: WorkerThread | None = None
        self._idle: list[WorkerThread] = []
        self._lock = threading.Lock()  # of which threads are where: they retire by themselves
        self._watch: asyncio.TimerHandle | None = None
        self._started = 0
        self._stopped = False

    def __len__(self) -> int:
        """Threads that it has, but for those that a slow call keeps."""
        return len(self._idle) + (self._front is not None)

    def submit(self, call: ThreadCall, dispatcher: LoopDispatcher) -> None:
        """Make `call` soon; called on the loop."""
        if self._stopped:  # the last call of a session that outlived the others
            last = WorkerThread(f"{self._name}-last")
            last.submit(call, dispatcher)
            last.stop()
            return
        front = self._front or self._next_front()
        front.submit(call, dispatcher)
        if self._watch is None:
            self._watch = dispatcher.loop.call_later(STUCK_S, self._look, dispatcher)

    def withdraw(self, call: ThreadCall) -> bool:
        """Take back a call; say whether it had not begun. Called on the loop."""
        return self._front is not None and self._front.withdraw(call)

    def _next_front(self) -> WorkerThread:
        with self._lock:
            if self._idle:
                self._front = self._idle.pop()
                return self._front
        self._started += 1
        self._front = WorkerThread(f"{self._name}-{self._started}", on_idle=self._retire)
        return self._front

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
            front.wake()  # once more, so that it retires also if it has just ended
        if self._watch is None:
            self._watch = dispatcher.loop.call_later(STUCK_S, self._look, dispatcher)

    def _retire(self, worker: WorkerThread) -> None:
        """Keep a thread that is out of work, or let it go; called on that thread."""
        with self._lock:
            if worker.is_ending:  # also where its event loop has closed
                self._front = None if worker is self._front else self._front
                self._idle = [other for other in self._idle if other is not worker]
                return
            if worker is self._front or worker in self._idle:  # it was woken once more than needed
                return
            if self._stopped or len(self._idle) >= IDLE_THREADS_KEPT:
                worker.stop()
            else:
                self._idle.append(worker)

    def stop(self) -> None:
        """End the threads, each once it has made what was submitted."""
        if self._watch is not None:
            self._watch.cancel()
        with self._lock:
            self._stopped = True
            workers, self._front, self._idle = [self._front, *self._idle], None, []
        for worker in workers:
            if worker is not None:
                worker.stop()
