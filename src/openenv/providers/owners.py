"""Who holds what an engine keeps: told by labels, so that what nobody holds any more can be found.

A holder is a process of this machine. One that was killed takes nothing away; whoever starts
something by the same engine next does.
"""

from __future__ import annotations

import functools
import os
import socket
from pathlib import Path

__all__ = ["OWNER", "is_orphan", "own_name", "pid_of"]

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
    """This run of the machine, and the namespace that process numbers are of."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot}-{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return "unknown"


def _beginning(pid: int) -> str | None:
    """When a process began, in ticks of the machine; None where there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else fields[19].decode("ascii")


def own_name() -> str:
    """The name of this process, as the label has it: no other process ever has it."""
    pid = os.getpid()
    return f"{_machine()}/{_boot()}/{pid}/{_beginning(pid)}"


def pid_of(name: str) -> str:
    """The number of the process of a label, for people to read."""
    return name.split("/")[2] if name.count("/") == 3 else "?"


def is_orphan(name: str) -> bool:
    """Whether the process of a label is known to have ended.

    What another machine holds, or another namespace of processes, is no orphan: nobody here can
    tell.
    """
    try:
        machine, boot, pid, began = name.split("/")
        number = int(pid)
    except ValueError:
        return False
    if machine != _machine() or boot == "unknown":
        return False
    if boot != _boot():  # of an earlier run of the machine, or of another namespace
        return boot.rpartition("-")[0] != _boot().rpartition("-")[0]
    return _beginning(number) != began
