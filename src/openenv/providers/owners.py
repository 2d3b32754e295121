"""Labels that name the process that holds a container or a sandbox.

A holder is a process of this machine. A holder that was killed removes nothing; the next process
that starts something with the same engine does.
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
    """Return an id of this run of the machine and of the namespace of process ids."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot}-{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return "unknown"


def _beginning(pid: int) -> str | None:
    """Return a process's start time in clock ticks; None if the process does not run."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else fields[19].decode("ascii")


def own_name() -> str:
    """Return the label's value for this process, which no other process ever has."""
    pid = os.getpid()
    return f"{_machine()}/{_boot()}/{pid}/{_beginning(pid)}"


def pid_of(name: str) -> str:
    """Return the process id in a label's value, for people."""
    return name.split("/")[2] if name.count("/") == 3 else "?"


def is_orphan(name: str) -> bool:
    """Return whether the process of a label is known to have ended.

    Processes of another machine or another namespace count as running, since nobody here can tell.
    """
    try:
        machine, boot, pid, began = name.split("/")
        number = int(pid)
    except ValueError:
        return False
    if machine != _machine() or boot == "unknown":
        return False
    if boot != _boot():  # an earlier run of the machine, or another namespace
        return boot.rpartition("-")[0] != _boot().rpartition("-")[0]
    return _beginning(number) != began
