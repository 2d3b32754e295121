"""The program that runs inside a subject and reports how the subject is confined.

The program needs only the standard library of Python 3.8 or later, and prints one JSON object.
"""

from __future__ import annotations

import json
import os
import socket
import sys

ENGINES = ("/var/run/docker.sock", "/run/podman/podman.sock")
ROOTS = ("/", "/etc", "/usr", "/var", "/root")
PROBE = ".openenv-probe"
CGROUPS = "/sys/fs/cgroup"
NO_LIMIT = 2**60  # cgroup version 1 writes "no limit" as nearly 2**63 bytes


def main(told: str) -> None:
    """Probe the confinement and print the findings as JSON."""
    timeout_s, places, allowed = json.loads(told)
    status = _status()
    mounts = [line.split() for line in _text("/proc/self/mountinfo").splitlines()]
    found = {
        "uid": os.getuid(),
        "capabilities": int(status.get("CapEff", "0"), 16),
        "no_new_privileges": status.get("NoNewPrivs") == "1",
        "writable": [place for place in ROOTS if _is_writable(place)],
        "sockets": [path for path in ENGINES if os.path.exists(path)],
        "mounts": [[m[4], m[3], m[m.index("-") + 1]] for m in mounts if "-" in m],
        **limits(CGROUPS),
        "interfaces": [name for _, name in socket.if_nameindex()],
        "has_default_route": _has_default_route(),
        "reached": [place[0] for place in places if _is_reached(place, timeout_s)],
        "allowed_reached": [place[0] for place in allowed if _is_reached(place, timeout_s)],
    }
    sys.stdout.write(json.dumps(found))


def limits(root: str) -> dict[str, float | None]:
    """Return the limits of the control group (version 2 or 1); None for no limit."""
    memory = _text(f"{root}/memory.max") or _text(f"{root}/memory/memory.limit_in_bytes")
    processes = _text(f"{root}/pids.max") or _text(f"{root}/pids/pids.max")
    cpu = _text(f"{root}/cpu.max").strip()
    for old in ("cpu", "cpu,cpuacct"):
        pair = (_text(f"{root}/{old}/cpu.cfs_{one}_us").strip() for one in ("quota", "period"))
        cpu = cpu or " ".join(pair).strip()
    quota, _, period = cpu.partition(" ")
    is_limited = quota.isdigit() and period.isdigit()
    return {
        "memory_bytes": _number(memory),
        "processes": _number(processes),
        "cpu": int(quota) / int(period) if is_limited else None,
    }


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdigit() and int(text) < NO_LIMIT else None


def _text(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def _status() -> dict[str, str]:
    pairs = (line.partition(":") for line in _text("/proc/self/status").splitlines())
    return {name: value.strip() for name, _, value in pairs}


def _is_writable(place: str) -> bool:
    path = os.path.join(place, PROBE)
    try:
        with open(path, "w"):
            pass
        os.unlink(path)
    except OSError:
        return False
    return True


def _is_reached(place: list, timeout_s: float) -> bool:  # type: ignore[type-arg]
    try:
        socket.create_connection(tuple(place), timeout=timeout_s).close()
    except OSError:
        return False
    return True


def _has_default_route() -> bool:
    rows = [line.split() for line in _text("/proc/net/route").splitlines()[1:]]
    return any(len(row) > 1 and row[1] == "00000000" for row in rows)


if __name__ == "__main__":
    main(sys.argv[1])
