"""The watch over sandboxes: how much memory, and disk, all of one takes.

A process's own limits are the kernel's affair (setrlimit); what all of a sandbox take together is
looked at, in one thread for all sandboxes of this process: ten times a second while its holder
waits for it, and the sooner the less memory is left to it; once a second otherwise.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Watched", "keep_watch", "memory_of", "tree_of", "unwatch"]

PERIOD_S = 0.1
IDLE_PERIOD_S = 1.0
SOONEST_S = 0.005
FILLED_PER_S = 4 * 2**30  # bytes of fresh memory: what a few processors come to
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(eq=False)
class Watched:
    """A sandbox that is looked at.

    Attributes:
        pid: Its outermost process.
        memory_bytes: What all of it may have.
        processes: How many it may be.
        directories: Where what it writes is counted, and of how many bytes at most.
        over: Called, once, with what it took too much of.
        calls: How many wait for it now.
        idle_until: When it is looked at next while nobody waits for it (`time.monotonic`).
    """

    pid: int
    memory_bytes: int
    processes: int
    directories: Sequence[str]
    disk_bytes: int
    over: Callable[[str], None]
    calls: int = 0
    idle_until: float = 0.0

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Look at it more often in the meantime."""
        self.calls += 1
        try:
            yield
        finally:
            self.calls -= 1


class _Watch:
    """The thread; it runs while there are sandboxes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: set[Watched] = set()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    def begin(self, one: Watched) -> None:
        with self._lock:
            if self._pid != os.getpid():  # forked: the thread, and what it watches, is the parent's
                self._watched, self._thread, self._pid = set(), None, os.getpid()
            self._watched.add(one)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._look_on, name="openenv-sandbox-watch", daemon=True
                )
                self._thread.start()

    def end(self, one: Watched) -> None:
        with self._lock:
            self._watched.discard(one)

    def _look_on(self) -> None:
        pause = SOONEST_S
        while True:
            time.sleep(pause)
            began = time.monotonic()
            with self._lock:
                if not self._watched:
                    self._thread = None
                    return
                watched = [one for one in self._watched if one.calls or one.idle_until <= began]
            children = _children() if watched else {}
            pause = PERIOD_S
            for one in watched:
                one.idle_until = began + IDLE_PERIOD_S
                what, left = _look_at(one, children)
                if what is not None:
                    self.end(one)
                    one.over(what)
                elif one.calls:
                    pause = min(pause, left / FILLED_PER_S)
            pause = max(pause, SOONEST_S, time.monotonic() - began)  # half of its time at most


_watch = _Watch()
keep_watch, unwatch = _watch.begin, _watch.end


def _children() -> dict[int, list[int]]:
    """The children of every process; those that have ended, and were not asked how, are none."""
    found: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with (
                contextlib.suppress(OSError, IndexError, ValueError),
                open(f"/proc/{name}/stat", "rb") as file,
            ):
                state, parent, *_ = file.read().rpartition(b")")[2].split()
                if state not in b"ZX":
                    found.setdefault(int(parent), []).append(int(name))
    return found


def tree_of(pid: int, children: dict[int, list[int]] | None = None) -> list[int]:
    """A process and all that descends from it; empty where there is none such."""
    children = _children() if children is None else children
    alive = {child for found in children.values() for child in found}
    tree, waiting = [], [pid] if pid in alive else []
    while waiting:
        pid = waiting.pop()
        tree.append(pid)
        waiting += children.get(pid, [])
    return tree


def _look_at(one: Watched, children: dict[int, list[int]]) -> tuple[str | None, int]:
    """Say what it takes too much of, and how many bytes of memory are left to it."""
    tree = tree_of(one.pid, children)
    if len(tree) > one.processes:
        return f"it had {len(tree)} processes, and may have {one.processes}", 0
    memory = sum(map(_resident, tree))
    if memory > one.memory_bytes:
        memory = memory_of(tree)
    if memory > one.memory_bytes:
        return f"it took {memory >> 20} MiB of memory, and may take {one.memory_bytes >> 20}", 0
    disk = sum(map(_size, one.directories))
    if disk > one.disk_bytes:
        return f"it took {disk >> 20} MiB of disk, and may take {one.disk_bytes >> 20}", 0
    return None, one.memory_bytes - memory


def _resident(pid: int) -> int:
    """What a process has in memory, in bytes: quickly read, and more than what is its own."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * PAGE
    except (OSError, IndexError, ValueError):
        return 0


def memory_of(tree: Sequence[int]) -> int:
    """What processes have in memory that is no file's, in bytes; what they share counts once."""
    total = 0
    for pid in tree:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            total += sum(
                int(line.split()[1]) for line in file if line.startswith((b"Pss_A", b"Pss_S"))
            )
    return total * 1024


def _size(directory: str) -> int:
    """How long the files below are, in bytes; links are not followed."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size
    return total
