"""Labels that name the process that owns a container or a sandbox.

A killed process cannot remove its containers. The next process that starts something on the same
engine removes them.
"""

from __future__ import annotations

import functools
import os
import socket
from pathlib import Path

OWNER = "dev.openenv.owner"
"""The label; its value is `own_name()`."""


@functools.lru_cache(maxsize=1)
def _machine() -> str:
    try:
        return Path("/etc/machine-id").read_text("ascii").strip() or socket.gethostname()
    except OSError:
        return socket.gethostname()


@functools.lru_cache(maxsize=1)
def _boot() -> str:
    """Return an id of this boot of the machine and of the PID namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot}-{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return "unknown"


def stat_fields(pid: int | str) -> list[str]:
    """Return the fields of ``/proc/PID/stat`` from the state on; see proc(5).

    Raises:
        OSError: The process does not exist.
    """
    return Path(f"/proc/{pid}/stat").read_text("latin-1").rpartition(")")[2].split()


def _start_time(pid: int) -> str | None:
    try:
        fields = stat_fields(pid)
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else fields[19]


def own_name() -> str:
    """Return the label's value for this process, which no other process ever has."""
    pid = os.getpid()
    return f"{_machine()}/{_boot()}/{pid}/{_start_time(pid)}"


def pid_of(name: str) -> str:
    """Return the process id in a label's value, for display; ``?`` if there is none."""
    return name.split("/")[2] if name.count("/") == 3 else "?"


def is_orphan(name: str) -> bool:
    """Return whether the process that a label names is known to have ended.

    Processes of another machine or PID namespace count as running, since they cannot be checked.
    """
    try:
        machine, boot, pid, began = name.split("/")
        number = int(pid)
    except ValueError:
        return False
    if machine != _machine() or boot == "unknown":
        return False
    if boot != _boot():  # an earlier boot of the machine, or another namespace
        return boot.rpartition("-")[0] != _boot().rpartition("-")[0]
    return _start_time(number) != began
