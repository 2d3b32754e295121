"""What holds whatever comes: no crash, no hang, no memory without end, nobody else's bytes.

``docs/concepts/security.md`` promises these; `Watch` measures them around one input.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

LOOP_S = 0.05  # of the processor, for each 100 KB that came to a server
SLOWER = float(os.environ.get("OPENENV_FUZZ_SLOWER", "1"))  # so many times, where code is traced
FILE_S = 4.0  # likewise, of a file; PyYAML is slow, and nobody else waits for it
PER_BYTES = 100_000
MEMORY_BYTES = 24 * 2**20  # whatever came; what allocators keep is among it
MEMORY_TIMES = 24  # as much again for each byte that came
TRIES = 3  # a cost counts that is seen each time: collections and other processes cost too
WAIT_S = 20.0

CANARY = "canary-7f3a91c6-of-the-servers-own"
CANARY_VARIABLE = "OPENENV_FUZZ_CANARY"
LEAST = 10  # so many characters of it in a row are no coincidence

# What reading a file or a message never does.
FORBIDDEN = frozenset(
    {
        "ctypes.dlopen",
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.remove",
        "os.rename",
        "os.rmdir",
        "os.system",
        "pty.spawn",
        "shutil.rmtree",
        "socket.connect",
        "socket.getaddrinfo",
        "subprocess.Popen",
    }
)


class Finding(AssertionError):
    """An input after which something does not hold."""


@dataclass
class Cost:
    """What one input has cost, and what it may."""

    size: int
    processor_s: float
    memory_bytes: int
    most_s: float

    @property
    def problem(self) -> str | None:
        """What was too much."""
        if self.processor_s > SLOWER * self.most_s * max(1.0, self.size / PER_BYTES):
            return (
                f"{self.size} bytes took {1000 * self.processor_s:.0f} ms of the processor at once"
            )
        if self.memory_bytes > MEMORY_BYTES + MEMORY_TIMES * self.size:
            return f"{self.size} bytes took {self.memory_bytes / 2**20:.0f} MiB"
        return None


class Clock(Protocol):
    """Measures the processor's time."""

    def start(self) -> None:
        """Begin."""

    def seconds(self) -> float:
        """What there was since."""


class ThisThread:
    """All that this thread does."""

    def start(self) -> None:
        self._began = time.thread_time()

    def seconds(self) -> float:
        return time.thread_time() - self._began


class LongestTurn:
    """The longest turn of a loop: for so long it attended to nobody else.

    Args:
        loop: One of asyncio's own, which waits by `select` of its selector between two turns.
    """

    def __init__(self, loop: Any) -> None:
        self._longest = self._began = 0.0
        select = loop._selector.select

        def watched(timeout: float | None = None) -> Any:
            self._longest = max(self._longest, time.thread_time() - self._began)
            found = select(timeout)
            self._began = time.thread_time()
            return found

        loop._selector.select = watched

    def start(self) -> None:
        self._longest = 0.0

    def seconds(self) -> float:
        return self._longest


@dataclass
class Watch:
    """Runs inputs and raises a `Finding` where an invariant is broken.

    Args:
        run: Handles one input; gives all that was answered. What it raises is a finding.
        size: How many bytes an input comes to.
        clock: Measures what it takes of the processor; by default all that this thread does.
        most_s: How many seconds of it 100 KB may take.
        reads_only: Nothing is started, connected to or removed meanwhile.
    """

    run: Callable[[bytes], bytes]
    size: Callable[[bytes], int] = len
    clock: Clock | None = None
    most_s: float = LOOP_S
    reads_only: bool = False
    _errors: list[str] = field(default_factory=list)
    _acts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        os.environ[CANARY_VARIABLE] = CANARY
        logging.getLogger().addHandler(_Errors(self._errors))
        if self.reads_only:
            sys.addaudithook(self._audit)
        self._is_reading = threading.local()
        gc.collect()
        gc.freeze()

    def _audit(self, event: str, arguments: tuple[object, ...]) -> None:
        if event in FORBIDDEN and getattr(self._is_reading, "now", False):
            self._acts.append(f"{event}{arguments!r}"[:200])

    def __call__(self, data: bytes) -> None:
        """Try one input.

        Raises:
            Finding: An invariant is broken.
        """
        costs = []
        for _ in range(TRIES):
            cost = self._measured(data)
            if cost.problem is None:
                return
            costs.append(cost)
            gc.collect()
        least = min(costs, key=lambda cost: cost.processor_s)
        raise Finding(least.problem or costs[0].problem)

    def _measured(self, data: bytes) -> Cost:
        self._errors.clear()
        self._acts.clear()
        _litter()
        with _peak_memory() as grown:
            clock = self.clock or ThisThread()
            clock.start()
            self._is_reading.now = True
            try:
                told = self.run(data)
            finally:
                self._is_reading.now = False
            processor_s = clock.seconds()
        if self._errors:
            raise Finding(f"an error was logged: {self._errors[0]}")
        if self._acts:
            raise Finding(f"it did what it must not: {self._acts[0]}")
        _check_canary(told, data)
        return Cost(self.size(data), processor_s, grown(), self.most_s)


class _Errors(logging.Handler):
    """Keeps what is logged as an error, or with a traceback. Servers of others call some of what
    their peers do wrong an error; that is theirs.
    """

    def __init__(self, kept: list[str]) -> None:
        super().__init__()
        self._kept = kept

    def emit(self, record: logging.LogRecord) -> None:
        is_ours = record.name.partition(".")[0] in ("openenv", "asyncio", "root")
        if record.exc_info or (is_ours and record.levelno >= logging.ERROR):
            self._kept.append(self.format(record)[:4000])


def _litter() -> None:
    """Leave the canary in memory that is free, in blocks of many sizes."""
    pattern = CANARY.encode()
    blocks = [bytearray(pattern * (size // len(pattern) + 1)) for size in _SIZES]
    del blocks


_SIZES = [2**power + extra for power in range(5, 17) for extra in (0, 40, 2 ** (power - 1))] * 2


def _check_canary(told: bytes, given: bytes) -> None:
    canary = CANARY.encode()
    for start in range(len(canary) - LEAST + 1):
        part = canary[start : start + LEAST]
        if part in told and part not in given:
            where = told.index(part)
            raise Finding(f"what is nobody's business was told: {told[where - 60 : where + 60]!r}")


@contextlib.contextmanager
def _peak_memory() -> Iterator[Callable[[], int]]:
    """Gives how much more memory this process had, at most, than in the beginning.

    Linux only, which counts a peak anew when told so (proc(5), `clear_refs`); elsewhere 0.
    """
    try:
        Path("/proc/self/clear_refs").write_text("5")
        before = _status("VmRSS")
    except OSError:
        yield lambda: 0
        return
    yield lambda: max(0, _status("VmHWM") - before)


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"the kernel says no {name}")
