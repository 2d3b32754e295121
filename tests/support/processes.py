"""Whether processes are still there."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

LINUX = Path("/proc/self/stat")


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    if LINUX.exists():  # a hundred times as quick as `ps`
        try:
            state = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return False
    else:
        asked = ["ps", "-o", "stat=", "-p", str(pid)]
        state = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    return bool(state) and not state.startswith("Z")


def commands() -> dict[int, str]:
    """The command lines of all processes of this machine by their ids, words parted by blanks."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().rstrip(b"\0").split(b"\0")
            found[int(path.parent.name)] = b" ".join(words).decode(errors="replace")
    return found
