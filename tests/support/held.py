"""What processes hold of the system: threads, descriptors, memory. Counted as Linux does."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import threading
from collections.abc import Mapping
from pathlib import Path

from openenv.client import background

__all__ = ["LEEWAY", "children", "excess", "held_by", "held_here", "kibibytes", "objects"]

# By how much what is held may grow for good. Threads that have nothing to do are kept, or end a
# moment later; a descriptor may be of the very question; a few objects are made when they are first
# needed. The allocator keeps memory in which there is nothing: a server with two workers grows by
# up to 22 MiB within 2,000 sessions, 16 at a time, and by none in the next 1,500.
LEEWAY = {"threads": 6, "descriptors": 3, "objects": 100, "kibibytes": 40_000}


def children(pid: int) -> list[int]:
    """Return the processes below one; each is listed with the thread that started it."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):  # it has just ended
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *children(child)]
    return found


def kibibytes(pid: int) -> int:
    """Return how much memory a process has, with what it shares with others."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise ProcessLookupError(f"process {pid} has ended")  # one that nobody has waited for


def objects() -> int:
    """Count the objects of this process that may hold others, without those that are garbage."""
    gc.collect()
    return len(gc.get_objects())


def held_by(pid: int) -> dict[str, int]:
    """Count what a process holds, with those below it."""
    counts = {"processes": 0, "threads": 0, "descriptors": 0, "kibibytes": 0}
    for one in (pid, *children(pid)):
        with contextlib.suppress(OSError):  # it has just ended
            counts["threads"] += len(os.listdir(f"/proc/{one}/task"))
            counts["descriptors"] += len(os.listdir(f"/proc/{one}/fd"))
            counts["kibibytes"] += kibibytes(one)
            counts["processes"] += 1
    return counts


def held_here() -> dict[str, int]:
    """Count what this process holds, and the tasks on the loop that its clients share."""
    tasks, loop = 0, background._loop
    if loop is not None:
        counted = threading.Event()

        def count() -> None:
            nonlocal tasks
            tasks = len(asyncio.all_tasks(loop))
            counted.set()

        loop.call_soon_threadsafe(count)
        assert counted.wait(20), "the shared loop stands still"
    return {
        "threads": threading.active_count(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "objects": objects(),
        "kibibytes": kibibytes(os.getpid()),
        "tasks": tasks,
    }


def excess(
    before: Mapping[str, float], now: Mapping[str, float], leeway: Mapping[str, float] = LEEWAY
) -> dict[str, float]:
    """Return by how much more is held of what has grown beyond its leeway."""
    grown = {what: now[what] - before[what] for what in before}
    return {what: by for what, by in grown.items() if by > leeway.get(what, 0)}
