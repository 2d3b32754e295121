"""The description of the machine, and the cores for server and load."""

from __future__ import annotations

import os
import platform
import resource
from pathlib import Path
from typing import Any

__all__ = ["cores", "describe", "raise_open_files"]


def describe() -> dict[str, Any]:
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def cores() -> tuple[int, int]:
    """Return a core for the server, and one that is not its hyperthread for the load.

    Raises:
        SystemExit: This process may use only one core.
    """
    ours = sorted(os.sched_getaffinity(0))
    server = ours[0]
    others = [core for core in ours if core not in _siblings(server)] or ours[1:]
    if not others:
        raise SystemExit("error: two cores are needed, one for the server and one for the load")
    return server, others[-1]


def _siblings(core: int) -> set[int]:
    path = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
    if not path.exists():
        return {core}
    found: set[int] = set()
    for part in path.read_text().strip().split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def raise_open_files() -> int:
    """Raise the limit of open files to the hard limit, for this process and its children."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
