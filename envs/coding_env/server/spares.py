"""A pool of spare sandboxes, made ahead so that a reset finds one ready.

Making a sandbox takes a tenth of a second of CPU time; taking a ready one takes none. A trainer
resets all of its sessions at once, and then computes for seconds. Meanwhile the pool makes the
sandboxes of the next batch. So it keeps as many ready as were in use at once within the last
`KEEP_S` seconds, up to a number and an amount of memory.

Invariants: a sandbox is handed out once and never comes back, so episodes share nothing. Maker
threads make spare sandboxes and end used ones. They wait until a wave of resets has passed: until
no sandbox was taken for `QUIET_S`, but at most `WAVE_S`. They also wait while a caller that found
no ready sandbox makes one. So they take no CPU time from waiting callers. (Ending a sandbox takes
10 ms beside 64 others, since it lists the processes of the machine.) `_lock` guards every field,
and no sandbox is started or ended while the lock is held.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

__all__ = ["Spares", "private_bytes"]

logger = logging.getLogger(__name__)

MIN_READY = 2
"""The minimum number of ready sandboxes, kept even if only one is in use."""

KEEP_S = 120.0
QUIET_S = 0.05
WAVE_S = 0.5
MAKERS = 4
IDLE_S = 5.0
"""Seconds after which an idle maker thread ends."""

MAX_RETIRED = 64
"""Maximum number of used sandboxes that wait for their end. Callers end further ones themselves."""

MIN_BYTES = 4 * 2**20
"""The minimum memory that a sandbox counts as."""

SHARE_OF_FREE_MEMORY = 4

PAGE = os.sysconf("SC_PAGE_SIZE")


class Spare(Protocol):
    """An object that the pool makes ahead."""

    @property
    def is_good(self) -> bool:
        """Whether the object can be used."""
        ...

    def processes(self) -> Sequence[int]:
        """Return the ids of its processes."""
        ...

    def close(self) -> None:
        """End the object."""
        ...


T = TypeVar("T", bound=Spare)


class Spares(Generic[T]):
    """A pool of objects that are made ahead, each handed out once.

    Args:
        make: Makes an object.
        most: Maximum number of ready objects.
        memory_bytes: Maximum memory of the ready objects, by the measured memory of one. A quarter
            of the machine's free memory is a further limit.
    """

    def __init__(self, make: Callable[[], T], most: int, memory_bytes: int) -> None:
        self._make = make
        self._most = most
        self._memory_bytes = memory_bytes
        self._lock = threading.Condition()
        self._ready: deque[T] = deque()
        self._retired: deque[T] = deque()
        self._makers = 0
        self._being_made = 0
        self._waiting = 0  # callers of `take` that found no ready object and make one
        self._used = 0
        self._peak, self._peak_at = 0, 0.0
        self._taken_at = self._wave_began = 0.0
        self._each_bytes: int | None = None
        self._has_failed = False

    def take(self) -> T:
        """Return an object, which the caller must pass to `retire` or `end`.

        Raises:
            Exception: The error of `make`.
        """
        with self._lock:
            self._has_failed = False
            now = time.monotonic()
            if now - self._taken_at > QUIET_S:
                self._wave_began = now
            self._taken_at = now
            self._count(1)
            found = self._pop_usable()
            self._waiting += found is None
        if found is None:
            try:
                found = self._make()
            except BaseException:
                with self._lock:
                    self._count(-1)
                raise
            finally:
                with self._lock:
                    self._waiting -= 1
        self._call_makers()
        return found

    def retire(self, one: T) -> None:
        """Hand an object to the makers to end it, or end it at once if `MAX_RETIRED` wait."""
        with self._lock:
            is_queued = len(self._retired) < MAX_RETIRED
            if is_queued:
                self._retired.append(one)
        if is_queued:
            self._call_makers()
        else:
            self.end(one)

    @contextlib.contextmanager
    def borrow(self) -> Iterator[T]:
        """Take an object for a block, and end it afterwards."""
        one = self.take()
        try:
            yield one
        finally:
            self.end(one)

    def end(self, one: T) -> None:
        """End an object that was taken."""
        try:
            one.close()
        finally:
            with self._lock:
                self._count(-1)

    @property
    def ready(self) -> int:
        """The number of ready objects."""
        return len(self._ready)

    @property
    def wanted(self) -> int:
        """The number of objects that the pool wants to keep ready."""
        with self._lock:
            return self._compute_target()

    def close(self) -> None:
        """End the ready and the retired objects. `take` still works afterwards."""
        with self._lock:
            left = [*self._ready, *self._retired]
            self._count(-len(self._retired))
            self._ready.clear()
            self._retired.clear()
            self._peak = self._used
            self._has_failed = True  # the makers make no object until the next `take`
        for one in left:
            one.close()

    # ------------------------------------------------------------------ counting, with the lock

    def _count(self, change: int) -> None:
        self._used += change
        now = time.monotonic()
        if self._used >= self._peak or now - self._peak_at > KEEP_S:
            self._peak, self._peak_at = self._used, now

    def _compute_target(self) -> int:
        if time.monotonic() - self._peak_at > KEEP_S:
            self._count(0)
        wanted = min(max(self._peak, MIN_READY), self._most)
        if self._each_bytes is None or wanted <= MIN_READY:
            return wanted
        room = min(self._memory_bytes, self._free_bytes())
        return max(min(wanted, room // self._each_bytes), min(MIN_READY, self._most))

    def _free_bytes(self) -> int:
        """Return a quarter of the memory that would be free without ready objects."""
        assert self._each_bytes is not None
        own = len(self._ready) * self._each_bytes
        return (_available_bytes() + own) // SHARE_OF_FREE_MEMORY

    def _pop_usable(self) -> T | None:
        while self._ready:
            one = self._ready.popleft()
            if one.is_good:
                return one
            self._used += 1  # it counts as taken, because `end` subtracts it
            self._retired.append(one)
        return None

    # ------------------------------------------------------------------ the makers

    def _call_makers(self) -> None:
        with self._lock:
            self._lock.notify_all()
            jobs = max(1, self._count_missing()) + len(self._retired)
            while self._has_work() and self._makers < min(MAKERS, os.cpu_count() or 1, jobs):
                self._makers += 1
                threading.Thread(target=self._run_maker, name="coding-spares", daemon=True).start()

    def _has_work(self) -> bool:
        return bool(self._retired) or self._count_missing() > 0 or self._count_surplus() > 0

    def _count_missing(self) -> int:
        if self._has_failed:
            return 0
        return self._compute_target() - len(self._ready) - self._being_made

    def _count_surplus(self) -> int:
        return len(self._ready) - self._compute_target()

    def _run_maker(self) -> None:
        """Make and end sandboxes until there is nothing to do for `IDLE_S` seconds."""
        idle_since = time.monotonic()
        while True:
            with self._lock:
                work = self._pick_work()
                if work is None:
                    left = IDLE_S - (time.monotonic() - idle_since)
                    keeps = bool(self._ready) and self._makers == 1 and self._most > 0
                    if left <= 0 and not (keeps and self._peak > MIN_READY):
                        self._makers -= 1
                        return
                    self._lock.wait(QUIET_S if self._has_work() else 1.0)
                    continue
            work()
            idle_since = time.monotonic()

    def _pick_work(self) -> Callable[[], None] | None:
        now = time.monotonic()
        if now - self._taken_at < QUIET_S and now - self._wave_began < WAVE_S:
            return None
        if self._retired:
            retired = self._retired.popleft()
            return lambda: self._end_quietly(retired)
        if self._count_surplus() > 0:
            surplus = self._ready.popleft()
            return surplus.close
        if self._count_missing() > 0 and not self._waiting:
            self._being_made += 1
            return self._make_one
        return None

    def _end_quietly(self, one: T) -> None:
        try:
            self.end(one)
        except Exception:
            logger.exception("a sandbox could not be ended")

    def _make_one(self) -> None:
        """Make an object ahead. After a failure, the next `take` tries again."""
        made: T | None = None
        try:
            made = self._make()
        except Exception as error:
            logger.info("no sandbox could be made ahead: %s", error)
        each = None if made is None else max(private_bytes(made.processes()), MIN_BYTES)
        with self._lock:
            self._being_made -= 1
            if made is None:
                self._has_failed = True
            else:
                self._each_bytes = max(each or 0, self._each_bytes or 0)
                self._ready.append(made)


def private_bytes(processes: Sequence[int]) -> int:
    """Return the memory of processes, without memory that they share with others."""
    found = 0
    for pid in processes:
        with contextlib.suppress(OSError, ValueError):
            _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
            found += (int(resident) - int(shared)) * PAGE
    return found


def _available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/meminfo has no line MemAvailable")
