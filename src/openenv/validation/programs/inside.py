"""What is run inside a subject, to see what stands between it and the machine.

Python's standard library is all that it needs, of any version from 3.8 on. It prints one object of
JSON.
"""

from __future__ import annotations

import json
import os
import socket
import sys

ENGINES = ("/var/run/docker.sock", "/run/podman/podman.sock")
ROOTS = ("/", "/etc", "/usr", "/var", "/root")
PROBE = ".openenv-probe"


def main(told: str) -> None:
    """Print what is found."""
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
        "memory_bytes": _text("/sys/fs/cgroup/memory.max").strip(),
        "processes": _text("/sys/fs/cgroup/pids.max").strip(),
        "cpu": _text("/sys/fs/cgroup/cpu.max").strip(),
        "interfaces": [name for _, name in socket.if_nameindex()],
        "has_default_route": _has_default_route(),
        "reached": [place[0] for place in places if _is_reached(place, timeout_s)],
        "allowed_reached": [place[0] for place in allowed if _is_reached(place, timeout_s)],
    }
    sys.stdout.write(json.dumps(found))


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
