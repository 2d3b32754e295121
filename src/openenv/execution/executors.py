"""Executors: where the code of an environment runs.

Design notes
------------

One executor serves one environment, and its session submits one call at a time. The kinds:

- `LoopExecutor`: an asynchronous environment is awaited on the event loop. Its synchronous parts
  (construction, and a `close` or `reset` that is no coroutine) run on a thread, so that nothing
  slow runs on the loop.
- `InlineExecutor`: an environment that declares ``NEVER_BLOCKS`` is called on the event loop.
- `PoolExecutor`: an environment that declares ``SUPPORTS_ANY_THREAD`` is called on any free thread,
  so that a slow step delays no other session.
- `ThreadExecutor`: any other synchronous environment is called on one and the same thread, from its
  constructor to `close`. The thread is its own, unless measurements show that the steps of its
  class are quick: then all later sessions share a few threads. See `LatencyClassifier`.
- `WorkerExecutor`: the environment lives in a worker process, on one of the executors above. See
  `openenv.execution.process`.

Why threads are shared. Python runs one thread at a time, so with quick steps a separate thread for
each session gains nothing, and 4,096 threads cost memory and switches. But a slow step delays all
sessions of its thread, and an environment cannot move to another thread, since it may hold objects
that are bound to its thread. So a class gets shared threads only after `EVIDENCE` quick calls, and
new sessions get their own threads again once calls have turned out to be slow.

Held threads. A call that is past its deadline and still runs holds its thread. A held shared thread
gets no new sessions until the call returns. Environments that wait to be constructed there move to
another thread. Every `HELD_LOOK_S` seconds the owners of the calls that wait for the thread decide
whether they keep waiting (`Session.end_wait`).

`Executors` finds the executor of each session of a manager, and owns the threads that they share.
It is used on the event loop. A dispatcher is kept for each event loop, since a manager may be used
by one loop after another.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from operator import attrgetter
from typing import Any, ClassVar, Protocol

from openenv.execution.commands import Command, Encode, OpenEnvironment
from openenv.execution.spec import EnvironmentSpec
from openenv.execution.threads import LoopDispatcher, ThreadCall, ThreadPool, WorkerThread

logger = logging.getLogger(__name__)

SHARED_THREADS = 2
# Maximum number of sessions with their own threads before their class is known to be quick.
MAX_OWN_THREADS = 2048
CROWD_THREADS = 256  # shared by all further sessions
MANY_OWN_THREADS = 16  # from this number on, authors are told once what such threads cost
# Maximum number of threads that replace those that calls hold, for each kind of shared threads.
SPARE_THREADS = 256
WAIT_S = 30.0  # waits for another session's call that are longer than this are reported
HELD_LOOK_S = 0.1  # seconds between checks of the calls that wait for a held thread


class Cancellable(Protocol):
    """Something that runs and can be canceled, such as a task."""

    def cancel(self) -> object:
        """Cancel what runs."""


class ExecutorCall(ThreadCall, Protocol):
    """A call that another process can run too, since the call is data.

    Attributes:
        command: The command to carry out.
        encode: Encodes the reply where the environment lives; None to return it as it is.
        strict: Refuse arguments that the environment does not take.
        number: The client's number of the request; 0 for none.
        trace: The parent span, as a W3C `traceparent`; empty for none.
        result: The reply, encoded if `encode` is set.
        error: The exception that was raised instead.
        task: The cancellable object that runs the call, if any.
    """

    command: Command | OpenEnvironment
    encode: Encode | None
    strict: bool
    trace: str
    result: Any
    error: BaseException | None
    task: Cancellable | None

    @property
    def number(self) -> int: ...


class Executor(ABC):
    """Runs the calls of one environment. The session submits one call at a time.

    Attributes:
        logs: Whether the executor itself logs the exceptions of the environment.
    """

    __slots__ = ()

    logs: ClassVar[bool] = False

    @abstractmethod
    def submit(self, call: ExecutorCall) -> None:
        """Run `call` where the environment lives, and give it back to its owner."""

    def withdraw(self, call: ExecutorCall) -> bool:
        """Take back a call; return whether it had not begun, and never will."""
        return False


class InlineExecutor(Executor):
    """Runs calls on the event loop.

    The calls run together at the end of the tick, which is quicker than one by one while sockets
    are read.
    """

    __slots__ = ("_dispatcher",)

    def __init__(self, dispatcher: LoopDispatcher) -> None:
        self._dispatcher = dispatcher

    def submit(self, call: ExecutorCall) -> None:
        self._dispatcher.submit(call, None)


class PoolExecutor(Executor):
    """Runs calls on any thread of a pool."""

    __slots__ = ("_dispatcher", "_pool")

    def __init__(self, pool: ThreadPool, dispatcher: LoopDispatcher) -> None:
        self._pool = pool
        self._dispatcher = dispatcher

    def submit(self, call: ExecutorCall) -> None:
        self._pool.submit(call, self._dispatcher)

    def withdraw(self, call: ExecutorCall) -> bool:
        return self._pool.withdraw(call)


class LoopExecutor(PoolExecutor):
    """Begins coroutines on the event loop, and runs all other calls on a thread."""

    __slots__ = ()

    def submit(self, call: ExecutorCall) -> None:
        if call.is_light:
            call.run()
            call.owner.finish(call)
        else:
            super().submit(call)


class ThreadExecutor(Executor):
    """Runs all calls on the same thread.

    Attributes:
        worker: The thread.
        is_shared: Other executors use the thread too, so it outlives this executor.
    """

    __slots__ = ("_dispatcher", "is_shared", "worker")

    def __init__(
        self, worker: WorkerThread, dispatcher: LoopDispatcher, *, is_shared: bool = False
    ) -> None:
        self.worker = worker
        self.is_shared = is_shared
        self._dispatcher = dispatcher
        worker.sharers += 1

    def submit(self, call: ExecutorCall) -> None:
        self._dispatcher.submit(call, self.worker)

    def withdraw(self, call: ExecutorCall) -> bool:
        return self.worker.withdraw(call)


class LatencyClassifier:
    """Decides from measured durations whether the calls of a class are quick.

    Calls are quick once 200 in a row took less than 1 ms on average, and none more than 50 ms. They
    are no longer quick if

    - 3 of 10,000 took over 50 ms (a single one may have had to wait for the garbage collector or
      for a processor), or
    - those over 1 ms keep a thread busy for half of the time,

    until 10,000 more have been quick. The next time 100,000 are required, and so on.

    Attributes:
        noteworthy_s: Calls that took longer than this, in seconds, must be noted: every call while
            evidence is gathered, and later only calls that are not quick.
    """

    QUICK_S = 0.001
    LONG_S = 0.050
    EVIDENCE = 200
    STRIKES = 3
    MEMORY = 10_000
    SHARE = 0.5  # of the time
    SHARE_AFTER_S = 0.5

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._needed = self._asked = self.EVIDENCE  # quick calls still missing, and required
        self._taken_s = 0.0
        self._sentence = self.MEMORY
        self._strikes = self._since = 0
        self._busy_s = self._busy_until = 0.0
        self.noteworthy_s = -1.0

    @property
    def is_quick(self) -> bool:
        """Whether enough calls were quick."""
        return self._needed == 0

    def note(self, seconds: float) -> bool:
        """Record the duration of a call; return whether it ended the verdict "quick"."""
        if self._needed:
            self._gather(seconds)
        elif self._doubt(seconds):
            self._ask_for(self._sentence)
            self._sentence *= 10
            return True
        self.noteworthy_s = -1.0 if self._needed or self._strikes else self.QUICK_S
        return False

    def _ask_for(self, calls: int) -> None:
        self._needed = self._asked = calls
        self._taken_s = self._busy_s = 0.0
        self._strikes = 0
        self.noteworthy_s = -1.0

    def _gather(self, seconds: float) -> None:
        self._needed -= 1
        self._taken_s += seconds
        if seconds > self.LONG_S:
            self._ask_for(max(self._needed, self.EVIDENCE))
        elif not self._needed and self._taken_s > self.QUICK_S * self._asked:
            self._ask_for(self.EVIDENCE)

    def _doubt(self, seconds: float) -> bool:
        if seconds > self.LONG_S:
            self._strikes, self._since = self._strikes + 1, 0
            return self._strikes >= self.STRIKES
        if self._strikes:
            self._since += 1
            if self._since >= self.MEMORY:
                self._strikes = 0
        if seconds <= self.QUICK_S:
            return False
        now = self._clock()
        forgiven = (now - self._busy_until) * self.SHARE
        self._busy_s, self._busy_until = max(0.0, self._busy_s - forgiven) + seconds, now
        return self._busy_s > self.SHARE_AFTER_S


class Executors:
    """Finds the executor of each session of a manager, and owns the shared threads."""

    def __init__(self, spec: EnvironmentSpec) -> None:
        self.spec = spec
        self.classifier = LatencyClassifier()
        self._has_advised = False
        self._dispatchers: dict[asyncio.AbstractEventLoop, LoopDispatcher] = {}
        self._start_anew()

    def _start_anew(self) -> None:
        self._pool = ThreadPool("openenv-pool")
        self._quick = _SharedThreads("openenv-shared", SHARED_THREADS)
        self._crowd = _SharedThreads("openenv-crowd", CROWD_THREADS)
        self._one_thread: WorkerThread | None = None
        self._own = 0
        self._held: dict[WorkerThread, float] = {}  # since when, by `time.monotonic`
        self._look: asyncio.TimerHandle | None = None
        self._looks_on: asyncio.AbstractEventLoop | None = None

    def stop(self) -> None:
        """End the shared threads. A later session starts new threads."""
        self._pool.stop()
        for worker in self._shared():
            worker.stop()
        if self._look is not None:
            self._look.cancel()
        self._dispatchers.clear()
        self._start_anew()

    def start(self) -> None:
        """Start what takes time to start; called on the event loop."""

    async def aclose(self) -> None:
        """End everything, and wait until it has ended."""
        self.stop()

    @property
    def trouble(self) -> str | None:
        """Problems with threads or worker processes, for an operator; None if there are none."""
        troubles = []
        threads, sessions = self.held
        if threads:
            troubles.append(
                f"{threads} of {self.threads} threads are held by calls that are past their "
                f"deadlines, and {sessions} other sessions share them"
            )
        long = [one for one in self._shared() if one.load and one.busy_s > WAIT_S]
        long = [one for one in long if not one.is_held]
        if long:
            troubles.append(
                f"{len(long)} of {self.threads} threads have made one call for over {WAIT_S:g} s, "
                f"for which {sum(one.load for one in long)} other sessions wait"
            )
        return "; ".join(troubles) or None

    @property
    def hopeless(self) -> str | None:
        """Why no environment can ever run, so that the server should end; otherwise None."""
        return None

    @property
    def held(self) -> tuple[int, int]:
        """The number of shared threads that overdue calls hold, and of other sessions on them."""
        held = [worker for worker in self._held if worker.is_held]
        return len(held), sum(max(0, worker.sharers - 1) for worker in held)

    @property
    def threads(self) -> int:
        """The number of threads in this process on which environments are called."""
        return self._own + len(self._shared()) + len(self._pool)

    def _shared(self) -> list[WorkerThread]:
        one_thread = [] if self._one_thread is None else [self._one_thread]
        return [*self._quick, *self._crowd, *one_thread]

    @property
    def workers(self) -> tuple[int, int, int]:
        """The numbers of worker processes: how many there should be, are ready, and have died."""
        return 0, 0, 0

    def for_new(self) -> Executor:
        """Return the executor for the construction of an environment."""
        dispatcher, spec = self._dispatcher(), self.spec
        if spec.plan is not None and spec.plan.is_async:
            return LoopExecutor(self._pool, dispatcher)
        if spec.never_blocks:
            return InlineExecutor(dispatcher)
        if spec.supports_any_thread:
            return PoolExecutor(self._pool, dispatcher)
        if spec.needs_one_thread and self._one_thread is not None:
            return ThreadExecutor(self._one_thread, dispatcher, is_shared=True)
        if spec.plan is not None and self.classifier.is_quick and not spec.needs_one_thread:
            return ThreadExecutor(self._quick.next(), dispatcher, is_shared=True)
        return self._own_thread(dispatcher)

    def _own_thread(self, dispatcher: LoopDispatcher) -> Executor:
        if self._own < MAX_OWN_THREADS:
            try:
                worker = WorkerThread(f"openenv-{self._own}")
            except RuntimeError:  # the system allows no more threads
                if not self._own:
                    raise
            else:
                self._own += 1
                return ThreadExecutor(worker, dispatcher)
        if not self._crowd:
            logger.warning(
                "%d sessions have a thread of their own; all further ones share %d threads, and "
                "may have to wait for each other. If the calls of an environment may come from "
                "any thread, declare SUPPORTS_ANY_THREAD = True",
                self._own,
                CROWD_THREADS,
            )
        return ThreadExecutor(self._crowd.next(), dispatcher, is_shared=True)

    def for_life(self, executor: Executor) -> Executor:
        """Return the executor of a session whose environment was constructed on `executor`.

        The result may be another executor, since the class may only be known now: a factory
        function does not declare what it makes.
        """
        if not isinstance(executor, ThreadExecutor):
            return executor
        spec = self.spec
        if spec.needs_one_thread and self._one_thread is None:
            self._one_thread, executor.is_shared = executor.worker, True
            self._own -= 1
        if spec.never_blocks or (spec.plan is not None and spec.plan.is_async):
            self.release(executor)
            return self.for_new()
        return executor

    def release(self, executor: Executor) -> None:
        """Take back an executor whose session has ended."""
        if not isinstance(executor, ThreadExecutor):
            return
        executor.worker.sharers -= 1
        if not executor.is_shared:
            self._own -= 1
            executor.worker.stop()
        elif not executor.worker.sharers:
            self._quick.let_go(executor.worker)
            self._crowd.let_go(executor.worker)

    def give_up(self, executor: Executor) -> None:
        """Note that no caller waits any longer for the call that an executor runs."""

    def hold(self, executor: Executor, call: ExecutorCall) -> None:
        """Note that `call` is past its deadline, and watch the thread that it may hold."""
        if not isinstance(executor, ThreadExecutor) or not executor.worker.hold(call):
            return
        self.note(executor, executor.worker.busy_s)
        if executor.is_shared:
            self._held.setdefault(executor.worker, time.monotonic())
            self._look_later()

    def _look_later(self) -> None:
        loop = asyncio.get_running_loop()
        if self._looks_on is not loop:
            self._looks_on = loop
            self._look = loop.call_later(HELD_LOOK_S, self._look_at_held)

    def _look_at_held(self) -> None:
        self._looks_on = None
        for worker, since in list(self._held.items()):
            if not worker.is_held:
                del self._held[worker]
            elif worker.load:
                calls = worker.hand_over()
                worker.put_back(deque(call for call in calls if _goes_on_waiting(call, since)))
        if self._held:
            self._look_later()

    def note(self, executor: Executor, seconds: float, *, is_construction: bool = False) -> None:
        """Record the duration of a call.

        A construction counts only if others had to wait for it: the first one may import large
        libraries.
        """
        is_shared = isinstance(executor, ThreadExecutor) and executor.is_shared
        if is_construction and not is_shared:
            return
        is_slow_now = self.classifier.note(seconds)
        is_costly = self._own >= MANY_OWN_THREADS and not self.spec.needs_one_thread
        if is_costly and self.classifier.is_quick and not self._has_advised:
            self._has_advised = True
            logger.info(
                "%d sessions of %s have a thread each, although its calls are quick: that costs "
                "about three times the CPU of a step. If its calls may come from any thread, "
                "declare SUPPORTS_ANY_THREAD = True on it",
                self._own,
                self.spec.class_name,
            )
        if is_slow_now and is_shared:
            logger.warning(
                "a call of %s took %.1f ms, one of several, on a thread that it shares with "
                "others, since all had been quick so far; from now on each new session gets a "
                "thread of its own. If its calls may come from any thread, declare "
                "SUPPORTS_ANY_THREAD = True on it: then nobody waits for a slow one",
                self.spec.class_name,
                seconds * 1000,
            )

    def _dispatcher(self) -> LoopDispatcher:
        loop = asyncio.get_running_loop()
        if loop not in self._dispatchers:
            self._dispatchers[loop] = LoopDispatcher(loop)
        return self._dispatchers[loop]


def _goes_on_waiting(call: ThreadCall, since: float) -> bool:
    """Ask a call's owner about a held thread; return whether the call keeps waiting."""
    if call.dispatcher is None or call.dispatcher.loop is not asyncio.get_running_loop():
        return True
    try:
        return not call.owner.end_wait(call, since)
    except Exception:  # one owner's mistake is not the others'
        logger.exception("the owner of a call failed to decide whether it waits for a held thread")
        return False


class _SharedThreads(list[WorkerThread]):
    """A set of threads that sessions share."""

    def __init__(self, name: str, size: int) -> None:
        super().__init__()
        self._name, self._size = name, size
        self._started = 0

    def next(self) -> WorkerThread:
        """Return the thread with the fewest sessions, if possible one that no call holds."""
        free = [worker for worker in self if not worker.is_stuck]
        if len(free) < self._size and len(self) < self._size + SPARE_THREADS:
            self._started += 1
            try:
                worker = WorkerThread(f"{self._name}-{self._started}")
            except RuntimeError:  # the system allows no more threads
                if not self:
                    raise
            else:
                self.append(worker)
                free.append(worker)
        return min((free or self)[: self._size], key=attrgetter("sharers"))

    def let_go(self, worker: WorkerThread) -> None:
        """End a thread that no session uses any more, if it was a replacement for another one."""
        if worker in self and len(self) > self._size:
            self.remove(worker)
            worker.stop()
