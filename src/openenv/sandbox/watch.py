"""The monitor, which measures the memory, processes and disk use of each sandbox.

The kernel enforces the limits of single processes (setrlimit). Here one thread measures what all
processes of a sandbox use together: ten times a second while the holder waits for the sandbox, more
often if little memory is left, and once a second otherwise. A control group, if there is one,
additionally ends a sandbox at once.

A fault while measuring one sandbox does not stop the monitor. A sandbox that cannot be measured
would have no limits, so it is ended.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from openenv.sandbox.kinds import PARENTS, Place
from openenv.sandbox.policy import SandboxPolicy

__all__ = ["Watched", "keep_watch", "memory_of", "tree_of", "unwatch"]

PERIOD_S = 0.1
IDLE_PERIOD_S = 1.0
SOONEST_S = 0.005
FILLED_PER_S = 4 * 2**30  # bytes of new memory that a few processors can fill in a second
PAGE = os.sysconf("SC_PAGE_SIZE")

FILE_BYTES = 2048  # kernel memory for a file in a file system in memory, with its name
SOCKET_BYTES = 2**18  # kernel memory for a socket's unread bytes (net.core.wmem_default)
FEW_FILES = 32  # a process with this few open files is not searched for sockets
LEAST_FILE_BYTES = 1024  # disk space of an empty file
MAX_DEPTH = 200  # levels of nested directories

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Watched:
    """A monitored sandbox.

    Attributes:
        place: The started sandbox.
        policy: The limits.
        over: Called once, with the reason, if a limit is exceeded.
        calls: Number of calls of the holder that wait for the sandbox.
        idle_until: Time of the next measurement while no call waits, as of `time.monotonic`.
        insider: Id of a process that sees the sandbox's in-memory file systems; 0 if unknown.
    """

    place: Place
    policy: SandboxPolicy
    over: Callable[[str], None]
    calls: int = 0
    idle_until: float = 0.0
    insider: int = 0

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Measure more often inside the block."""
        self.calls += 1
        try:
            yield
        finally:
            self.calls -= 1


class _Watch:
    """The monitor's thread, which runs while there are sandboxes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: set[Watched] = set()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    def begin(self, one: Watched) -> None:
        with self._lock:
            if self._pid != os.getpid():  # forked: the thread and the sandboxes are the parent's
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
                try:
                    what, left = _look_at(one, children)
                except Exception as error:  # the others must stay monitored
                    logger.exception("a sandbox cannot be measured, and is ended")
                    what, left = f"it cannot be measured: {type(error).__name__}", 0
                if what is not None:
                    self.end(one)
                    try:
                        one.over(what)
                    except Exception:
                        logger.exception("a sandbox could not be ended")
                elif one.calls:
                    pause = min(pause, left / FILLED_PER_S)
            pause = max(pause, SOONEST_S, time.monotonic() - began)  # measure half of the time


_watch = _Watch()
keep_watch, unwatch = _watch.begin, _watch.end


def _children() -> dict[int, list[int]]:
    """Return the children of every process, without zombies."""
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
    """Return a process and its descendants; empty if there is no such process."""
    children = _children() if children is None else children
    alive = {child for found in children.values() for child in found}
    tree, waiting = [], [pid] if pid in alive else []
    while waiting:
        pid = waiting.pop()
        tree.append(pid)
        waiting += children.get(pid, [])
    return tree


def _look_at(one: Watched, children: dict[int, list[int]]) -> tuple[str | None, int]:
    """Return a description of the exceeded limit, or None, and the bytes of memory left."""
    tree, policy = tree_of(one.place.process.pid, children), one.policy
    most, directories = policy.processes + PARENTS, one.place.watched
    if len(tree) > most:
        return f"it had {len(tree)} processes, and may have {most}", 0
    of_kernel = _of_kernel(one, tree)
    memory = of_kernel + sum(map(_resident, tree))
    if memory > policy.memory_bytes:
        memory = of_kernel + memory_of(tree)
    if memory > policy.memory_bytes:
        return f"it took {memory >> 20} MiB of memory, and may take {policy.memory_bytes >> 20}", 0
    if directories:
        try:
            disk = _size(directories) + _unlinked(tree, directories)
        except _TooDeep:
            return f"its directories are nested more than {MAX_DEPTH} deep", 0
        if disk > policy.disk_bytes:
            return f"it took {disk >> 20} MiB of disk, and may take {policy.disk_bytes >> 20}", 0
    return None, policy.memory_bytes - memory


# ------------------------------------------------------------------ memory


def _resident(pid: int) -> int:
    """Return a process's resident memory in bytes, a quick upper bound."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * PAGE
    except (OSError, IndexError, ValueError):
        return 0


def memory_of(tree: Sequence[int]) -> int:
    """Return the memory of processes, without files, in bytes; shared memory counts once."""
    total = 0
    for pid in tree:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            total += sum(
                int(line.split()[1]) for line in file if line.startswith((b"Pss_A", b"Pss_S"))
            )
    return total * 1024


def _of_kernel(one: Watched, tree: Sequence[int]) -> int:
    """Estimate the kernel's memory for processes, in bytes.

    The sum has page tables, socket buffers, and the inodes of files in memory.
    """
    if one.place.group is not None:
        with contextlib.suppress(OSError, ValueError):  # the sandbox has ended
            return one.place.group.kernel_bytes()
    total = _files_in(one, tree) * FILE_BYTES
    for pid in tree:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/status", "rb") as file:
            found = _PAGE_TABLES.search(file.read())
            total += int(found[1]) * 1024 if found else 0
        folder = f"/proc/{pid}/fd"
        with contextlib.suppress(OSError):
            names = os.listdir(folder)
            for name in names if len(names) > FEW_FILES else ():
                with contextlib.suppress(OSError):
                    is_socket = os.readlink(f"{folder}/{name}").startswith("socket:")
                    total += SOCKET_BYTES * is_socket
    return total


_PAGE_TABLES = re.compile(rb"^VmPTE:\s*(\d+) kB", re.MULTILINE)


def _files_in(one: Watched, tree: Sequence[int]) -> int:
    """Return the number of files in the sandbox's in-memory file systems."""
    mounts = one.place.mounts
    if not mounts:
        return 0
    if one.insider not in tree:
        one.insider = next((pid for pid in tree if _is_inside(pid, mounts)), 0)
        if not one.insider:
            return 0
    count = 0
    for path in mounts:
        with contextlib.suppress(OSError):
            about = os.statvfs(f"/proc/{one.insider}/root{path}")
            count += about.f_files - about.f_ffree
    return count


def _is_inside(pid: int, mounts: Sequence[str]) -> bool:
    """Return whether a process sees the sandbox's file systems.

    A process that has not entered the sandbox yet sees the machine's.
    """
    with contextlib.suppress(OSError), open("/proc/self/mountinfo") as file:
        numbers = (line.split()[2].split(":") for line in file)
        known = {os.makedev(int(major), int(minor)) for major, minor in numbers}
        return all(os.stat(f"/proc/{pid}/root{path}").st_dev not in known for path in mounts)
    return False


# ------------------------------------------------------------------ disk


class _TooDeep(Exception):
    """Raised if directories are nested too deep to be measured."""


def _size(directories: Sequence[str]) -> int:
    """Return the disk space below directories, in bytes; a file with several names counts once."""
    seen: set[tuple[int, int]] = set()
    return sum(_taken(path, None, 0, seen) for path in directories)


def _taken(name: str, parent: int | None, depth: int, seen: set[tuple[int, int]]) -> int:
    """Return the disk space of a directory, opened from its parent, since paths may be too long.

    Raises:
        OSError: The directory cannot be read.
    """
    if depth > MAX_DEPTH:
        raise _TooDeep
    total = 0
    try:
        folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    except (FileNotFoundError, NotADirectoryError):  # removed meanwhile
        return 0
    try:
        for entry in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):
                about = os.stat(entry, dir_fd=folder, follow_symlinks=False)
                total += _of(about, seen)
                if stat.S_ISDIR(about.st_mode):
                    total += _taken(entry, folder, depth + 1, seen)
    finally:
        os.close(folder)
    return total


def _of(about: os.stat_result, seen: set[tuple[int, int]]) -> int:
    key = (about.st_dev, about.st_ino)
    if about.st_nlink > 1 and not stat.S_ISDIR(about.st_mode):
        if key in seen:
            return 0
        seen.add(key)
    return max(about.st_blocks * 512, LEAST_FILE_BYTES)


def _unlinked(tree: Sequence[int], directories: Sequence[str]) -> int:
    """Return the disk space of deleted files that processes have open."""
    devices, total = set[int](), 0
    seen: set[tuple[int, int]] = set()
    for path in directories:
        with contextlib.suppress(OSError):
            devices.add(os.stat(path).st_dev)
    for pid in tree:
        folder = f"/proc/{pid}/fd"
        with contextlib.suppress(OSError):
            for name in os.listdir(folder):
                with contextlib.suppress(OSError):
                    about = os.stat(f"{folder}/{name}")
                    key = (about.st_dev, about.st_ino)
                    if about.st_nlink == 0 and about.st_dev in devices and key not in seen:
                        seen.add(key)
                        total += about.st_blocks * 512
    return total + _mapped(tree, devices, seen)


def _mapped(tree: Sequence[int], devices: set[int], seen: set[tuple[int, int]]) -> int:
    """Return the length of deleted files that processes have mapped but not open."""
    lengths: dict[tuple[int, int], int] = {}
    for pid in tree:
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/maps", "rb") as file:
            for line in file:
                if not line.endswith(b" (deleted)\n"):
                    continue
                place, _, offset, device, inode, _ = line.split(None, 5)
                major, minor = (int(one, 16) for one in device.split(b":"))
                key = (os.makedev(major, minor), int(inode))
                begin, end = (int(one, 16) for one in place.split(b"-"))
                if key[0] in devices and key not in seen:
                    until = int(offset, 16) + end - begin
                    lengths[key] = max(lengths.get(key, 0), until)
    return sum(lengths.values())
