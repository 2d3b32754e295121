"""Control groups (cgroup v2), with which the kernel itself limits the memory of a sandbox.

The kernel also counts its own memory for the sandbox: page tables, socket buffers, attributes of
files. Groups can be created only below a group that was delegated to this process: by systemd
(``Delegate=yes``, such as ``systemd-run --user -p Delegate=yes``), as a container's own group, or
by OPENENV_CGROUP. Source: https://docs.kernel.org/admin-guide/cgroup-v2.html
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import subprocess
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from openenv import settings
from openenv.sandbox.policy import SandboxPolicy

__all__ = ["Group", "make_group", "why_no_group"]

WANTED = ("memory", "pids")
OWN = "openenv.holder"  # for this process, since a group with subgroups cannot have processes
REMOVE_S = 5.0
DELEGATED = ("user.delegate", "trusted.delegate")  # systemd's marks


class NoGroup(Exception):
    """Raised with the reason why no control group can be created."""


@dataclass(frozen=True)
class Group:
    """The control group of a sandbox.

    Attributes:
        path: The directory of the group.
    """

    path: Path

    def starting(self, command: list[str]) -> list[str]:
        """Return a command line that starts a program in the group."""
        enter = 'echo 0 > "$0/cgroup.procs" && exec "$@"'
        return ["/bin/sh", "-c", enter, str(self.path), *command]

    def kernel_bytes(self) -> int:
        """Return the kernel's memory for the processes in the group, in bytes."""
        text = _read(self.path / "memory.stat")
        found = {name: int(size) for name, size in map(str.split, text.splitlines())}
        parts = ("slab", "kernel_stack", "pagetables", "percpu", "vmalloc")
        kernel = found.get("kernel", sum(found.get(name, 0) for name in parts))  # Linux 5.18
        # Memory that the kernel frees under pressure, such as names of files, does not count.
        return kernel + found.get("sock", 0) - found.get("slab_reclaimable", 0)

    def why_ended(self, policy: SandboxPolicy) -> str | None:
        """Return why the kernel ended the sandbox, or None if the kernel did not."""
        events = _read(self.path / "memory.events")
        if re.search(r"^oom(?:_kill|_group_kill)? [1-9]", events, re.MULTILINE):
            allowed = policy.memory_bytes >> 20
            return f"it took more than {allowed} MiB of memory, the kernel's memory for it included"
        return None

    def close(self) -> None:
        """Kill all processes of the group and remove the group."""
        deadline = time.monotonic() + REMOVE_S
        while self.path.exists():
            with contextlib.suppress(OSError):
                (self.path / "cgroup.kill").write_text("1")
            with contextlib.suppress(OSError):
                self.path.rmdir()
                return
            if time.monotonic() > deadline:
                return  # a process has not ended yet; an empty group will remain
            time.sleep(0.01)


def why_no_group() -> str | None:
    """Return why sandboxes have no control group here, or None if they do."""
    found = _home()
    return found if isinstance(found, str) else None


_numbers = itertools.count(1)


def make_group(memory_bytes: int, processes: int | None) -> Group | None:
    """Create a group for a sandbox; return None if no group was delegated to this process.

    Args:
        memory_bytes: Maximum memory, including files in memory and the kernel's memory.
        processes: Maximum number of processes and threads; None for no limit.

    Raises:
        OSError: The kernel did not create the group.
    """
    home = _home()
    if isinstance(home, str):
        return None
    group = Group(home / f"openenv-{os.getpid()}-{next(_numbers)}")
    group.path.mkdir()
    try:
        (group.path / "memory.max").write_text(str(memory_bytes))
        (group.path / "memory.oom.group").write_text("1")
        (group.path / "pids.max").write_text("max" if processes is None else str(processes))
        with contextlib.suppress(FileNotFoundError):  # a kernel without swap
            (group.path / "memory.swap.max").write_text("0")
    except OSError:
        group.close()
        raise
    return group


# ------------------------------------------------------------------ the parent group


@cache
def _home() -> Path | str:
    """Return the group below which sandboxes' groups are created, or why there is none."""
    try:
        return _prepared(_delegated())
    except NoGroup as error:
        return str(error)
    except OSError as error:
        return f"no control group can be made here: {error}"


def _delegated() -> Path:
    """Return the group that was delegated to this process.

    Raises:
        NoGroup: No group was delegated.
    """
    given = settings.cgroup()
    if given is not None:
        path = Path(given)
        if not (path / "cgroup.controllers").is_file():
            raise NoGroup(f"OPENENV_CGROUP is {given}, which is no group of cgroup v2")
        return path
    mount = _mount()
    if mount is None:
        raise NoGroup("there is no cgroup v2 here")
    found = re.search(r"^0::(/.*)$", _read(Path("/proc/self/cgroup")), re.MULTILINE)
    place, root = (found[1] if found else "/.."), mount[1]
    if place.startswith("/.."):
        raise NoGroup("this process's control group is not among those that it sees")
    path = mount[0] / place.removeprefix(root).lstrip("/")
    if path.name == OWN:  # an earlier sandbox moved this process there
        path = path.parent
    if not _is_delegated(path, mount[0]):
        raise NoGroup(
            f"the control group {place} was not delegated to this process: start it by "
            "`systemd-run --user --scope -p Delegate=yes`, or name a group in OPENENV_CGROUP"
        )
    return path


def _mount() -> tuple[Path, str] | None:
    """Return the mount point of cgroup v2 and the root group there, or None."""
    for line in _read(Path("/proc/self/mountinfo")).splitlines():
        place, _, kind = line.partition(" - ")
        if kind.startswith("cgroup2 "):
            fields = place.split()
            return Path(fields[4]), fields[3].rstrip("/")
    return None


def _is_delegated(path: Path, top: Path) -> bool:
    if path == top and (path / "cgroup.type").exists():
        return True  # the root of a container, which owns it
    if os.geteuid() != 0 and path.stat().st_uid == os.geteuid():
        return True  # delegation makes the user the owner (the kernel's documentation, 2.5)
    for one in (path, *path.parents):
        if one == top:
            return False
        for name in DELEGATED:
            with contextlib.suppress(OSError):
                if os.getxattr(one, name) == b"1":
                    return True
    return False


def _prepared(path: Path) -> Path:
    """Enable the controllers for the groups below a group.

    Raises:
        NoGroup: The group lacks a controller, or cannot be used.
    """
    known = _read(path / "cgroup.controllers").split()
    missing = [name for name in WANTED if name not in known]
    if missing:
        raise NoGroup(f"the control group {path} has no controller for {' and '.join(missing)}")
    for _ in range(100):  # other processes may start meanwhile
        if set(WANTED) <= set(_read(path / "cgroup.subtree_control").split()):
            break
        try:
            (path / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in WANTED))
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            own = path / OWN  # a group with processes cannot enable controllers: move them
            own.mkdir(exist_ok=True)
            for pid in _read(path / "cgroup.procs").split():
                with contextlib.suppress(ProcessLookupError):
                    (own / "cgroup.procs").write_text(pid)
    else:
        raise NoGroup(f"the control group {path} has processes that cannot be moved")
    _try(path)
    return path


def _try(path: Path) -> None:
    """Start a program in a group within `path`, or raise NoGroup."""
    group = Group(path / f"openenv-{os.getpid()}-0")
    group.path.mkdir()
    try:
        tried = subprocess.run(  # nosec B603  # no shell of ours: a fixed line
            group.starting(["/bin/true"]), stdin=subprocess.DEVNULL, capture_output=True, timeout=20
        )
    finally:
        group.close()
    if tried.returncode != 0:
        why = tried.stderr.decode(errors="replace").strip()
        raise NoGroup(f"no process can be started in a control group of {path}: {why}")


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
