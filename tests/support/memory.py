"""How much memory a test takes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["MIB", "kept_below", "peak_bytes"]

MIB = 2**20


@contextlib.contextmanager
def kept_below(most_bytes: int) -> Iterator[None]:
    """Assert that this process takes no more than that beside what it has, at any time.

    The peak is counted anew from here on (proc(5), `clear_refs`).
    """
    Path("/proc/self/clear_refs").write_text("5")
    before = peak_bytes()
    yield
    grown = peak_bytes() - before
    assert grown < most_bytes, f"{grown / MIB:.0f} MiB more than in the beginning"


def peak_bytes(pid: int | None = None) -> int:
    """The most memory that a process had at a time."""
    for line in Path(f"/proc/{pid or os.getpid()}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the kernel tells no VmHWM")
