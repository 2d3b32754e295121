"""Whether processes are still there, and waiting until something is so."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return bool(state.stdout.strip()) and not state.stdout.strip().startswith("Z")


def wait_until(
    condition: Callable[[], bool], timeout_s: float = 5.0, shown: Callable[[], object] = lambda: ""
) -> None:
    """Wait until it is so; `shown` tells what there is instead, once that has taken too long."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"it never came true {shown()}"
        time.sleep(0.02)


def commands() -> dict[int, str]:
    """The command lines of all processes of this machine by their ids, words parted by blanks."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().rstrip(b"\0").split(b"\0")
            found[int(path.parent.name)] = b" ".join(words).decode(errors="replace")
    return found
