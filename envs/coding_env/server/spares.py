"""Sandboxes made ahead, as many as there is use for, so that a reset finds one ready.

Making a sandbox takes a tenth of a second of a processor; taking one that stands ready takes none.
A trainer resets all of its sessions at once, then thinks for seconds: the sandboxes of the next
batch are made meanwhile. So as many stand ready as were in use at once within the last `KEEP_S`
seconds, but no more than a number and an amount of memory.

Invariants: a sandbox is given once and never comes back, so episodes share nothing. The threads
that make sandboxes ahead, and end those that were used, wait until a wave of resets has passed:
until none was taken for `QUIET_S`, but no longer than `WAVE_S`. Nor do they make one while somebody
who found none makes one. So they take no processor from who waits. (To end one takes 10 ms beside
64 others, since the processes of the machine are listed.) `_lock` guards every field; no sandbox is
started or ended while it is held.
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

LEAST = 2
"""How many stand ready where only one is in use."""

KEEP_S = 120.0
QUIET_S = 0.05
WAVE_S = 0.5
MAKERS = 4
IDLE_S = 5.0
"""Seconds after which a thread that has nothing to do ends."""

MAX_RETIRED = 64
"""Sandboxes that are to be ended and still wait; whoever retires more ends them itself."""

LEAST_BYTES = 4 * 2**20
"""A sandbox counts as this much at least, whatever was measured."""

SHARE_OF_FREE_MEMORY = 4

PAGE = os.sysconf("SC_PAGE_SIZE")


class Spare(Protocol):
    """What is made ahead."""

    @property
    def is_good(self) -> bool:
        """Whether it can be used."""
        ...

    def processes(self) -> Sequence[int]:
        """The numbers of its processes."""
        ...

    def close(self) -> None:
        """End it."""
        ...


T = TypeVar("T", bound=Spare)


class Spares(Generic[T]):
    """Things that are made ahead, each given once.

    Args:
        make: Makes one.
        most: Maximum number that stand ready.
        memory_bytes: Maximum memory of those that stand ready, by what one was measured to take;
            never more than a quarter of what the machine has free.
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
        self._waiting = 0  # callers of `take` who found none and make one
        self._used = 0
        self._peak, self._peak_at = 0, 0.0
        self._taken_at = self._wave_began = 0.0
        self._each_bytes: int | None = None
        self._has_failed = False

    def take(self) -> T:
        """Give one, which is the caller's to give back by `retire` or `end`.

        Raises:
            Exception: What making one raises.
        """
        with self._lock:
            self._has_failed = False
            now = time.monotonic()
            if now - self._taken_at > QUIET_S:
                self._wave_began = now
            self._taken_at = now
            self._count(1)
            found = self._next_good()
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
        """Have one ended soon; by the caller, at once, where many wait to be ended."""
        with self._lock:
            is_put_off = len(self._retired) < MAX_RETIRED
            if is_put_off:
                self._retired.append(one)
        if is_put_off:
            self._call_makers()
        else:
            self.end(one)

    @contextlib.contextmanager
    def lent(self) -> Iterator[T]:
        """Give one for the length of a block."""
        one = self.take()
        try:
            yield one
        finally:
            self.end(one)

    def end(self, one: T) -> None:
        """End one that was taken."""
        try:
            one.close()
        finally:
            with self._lock:
                self._count(-1)

    @property
    def ready(self) -> int:
        """How many stand ready."""
        return len(self._ready)

    @property
    def wanted(self) -> int:
        """How many shall stand ready."""
        with self._lock:
            return self._wanted()

    def close(self) -> None:
        """End those that stand ready and those that are retired; more can be taken."""
        with self._lock:
            left = [*self._ready, *self._retired]
            self._count(-len(self._retired))
            self._ready.clear()
            self._retired.clear()
            self._peak = self._used
            self._has_failed = True  # until somebody takes one, none is made
        for one in left:
            one.close()

    # ------------------------------------------------------------------ how many; with the lock

    def _count(self, change: int) -> None:
        self._used += change
        now = time.monotonic()
        if self._used >= self._peak or now - self._peak_at > KEEP_S:
            self._peak, self._peak_at = self._used, now

    def _wanted(self) -> int:
        if time.monotonic() - self._peak_at > KEEP_S:
            self._count(0)
        wanted = min(max(self._peak, LEAST), self._most)
        if self._each_bytes is None or wanted <= LEAST:
            return wanted
        room = min(self._memory_bytes, self._free_bytes())
        return max(min(wanted, room // self._each_bytes), min(LEAST, self._most))

    def _free_bytes(self) -> int:
        """A quarter of the memory that would be free if none stood ready."""
        assert self._each_bytes is not None
        own = len(self._ready) * self._each_bytes
        return (_available_bytes() + own) // SHARE_OF_FREE_MEMORY

    def _next_good(self) -> T | None:
        while self._ready:
            one = self._ready.popleft()
            if one.is_good:
                return one
            self._used += 1  # as if it had been taken: `end` counts it back
            self._retired.append(one)
        return None

    # ------------------------------------------------------------------ the makers

    def _call_makers(self) -> None:
        with self._lock:
            self._lock.notify_all()
            jobs = max(1, self._missing()) + len(self._retired)
            while self._has_work() and self._makers < min(MAKERS, os.cpu_count() or 1, jobs):
                self._makers += 1
                threading.Thread(target=self._serve, name="coding-spares", daemon=True).start()

    def _has_work(self) -> bool:
        return bool(self._retired) or self._missing() > 0 or self._surplus() > 0

    def _missing(self) -> int:
        if self._has_failed:
            return 0
        return self._wanted() - len(self._ready) - self._being_made

    def _surplus(self) -> int:
        return len(self._ready) - self._wanted()

    def _serve(self) -> None:
        """Make and end sandboxes until there was nothing to do for `IDLE_S` seconds."""
        idle_since = time.monotonic()
        while True:
            with self._lock:
                work = self._next_work()
                if work is None:
                    left = IDLE_S - (time.monotonic() - idle_since)
                    keeps = bool(self._ready) and self._makers == 1 and self._most > 0
                    if left <= 0 and not (keeps and self._peak > LEAST):
                        self._makers -= 1
                        return
                    self._lock.wait(QUIET_S if self._has_work() else 1.0)
                    continue
            work()
            idle_since = time.monotonic()

    def _next_work(self) -> Callable[[], None] | None:
        now = time.monotonic()
        if now - self._taken_at < QUIET_S and now - self._wave_began < WAVE_S:
            return None
        if self._retired:
            retired = self._retired.popleft()
            return lambda: self._end_quietly(retired)
        if self._surplus() > 0:
            surplus = self._ready.popleft()
            return surplus.close
        if self._missing() > 0 and not self._waiting:
            self._being_made += 1
            return self._make_one
        return None

    def _end_quietly(self, one: T) -> None:
        try:
            self.end(one)
        except Exception:
            logger.exception("a sandbox could not be ended")

    def _make_one(self) -> None:
        """Make one. That it can't be made is told to whoever takes the next, who tries again."""
        made: T | None = None
        try:
            made = self._make()
        except Exception as error:
            logger.info("no sandbox could be made ahead: %s", error)
        each = None if made is None else max(private_bytes(made.processes()), LEAST_BYTES)
        with self._lock:
            self._being_made -= 1
            if made is None:
                self._has_failed = True
            else:
                self._each_bytes = max(each or 0, self._each_bytes or 0)
                self._ready.append(made)


def private_bytes(processes: Sequence[int]) -> int:
    """The memory that processes have for themselves; what they share with others is left out."""
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
    raise OSError("/proc/meminfo does not say how much memory is available")
