"""Landlock sandboxes: a separate user (if root), a domain, limits, and a system call filter.

For machines that do not allow namespaces. With Landlock (Linux 5.13, `landlock(7)`) a process gives
up access to files and, since version 6 (Linux 6.12), signals to processes outside. There is no
network: the filter refuses sockets except connected pairs. Without a separate user, the filter also
refuses changes of modes, owners and times, even of the sandbox's own files.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import sys
import tempfile
from functools import partial
from pathlib import Path

from openenv.errors import SandboxUnavailable
from openenv.sandbox import kinds, seccomp
from openenv.sandbox.policy import MIB, Guarantee, SandboxPolicy

__all__ = ["Landlock"]

CREATE_RULESET = 444
VERSION = 1  # a flag that requests the version
NEEDED = 6

OWN_BYTES = 64 * MIB  # for the keeper and the first process
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# Without a separate user, commands could open the holder's terminal there.
TERMINALS = ("/dev/ptmx", "/dev/pts")


class Landlock:
    """The kind of sandbox that uses Landlock."""

    name = "landlock"
    guarantee = Guarantee.PROCESS

    def why_not(self) -> str | None:
        if sys.platform != "linux":
            return "it needs Linux"
        version = version_of_the_kernel()
        if version < NEEDED:
            return (
                f"the kernel's Landlock is of version {max(version, 0)}, and signals to processes "
                f"outside are only refused from {NEEDED} on (Linux 6.12)"
            )
        if _python() is None:
            return (
                f"{kinds.PYTHON} is open to this user only, and there is no other Python "
                "for the sandbox's; apt-get install python3"
            )
        return seccomp.why_not()

    def start(self, policy: SandboxPolicy) -> kinds.Place:
        if policy.network:
            raise SandboxUnavailable(str(self.guarantee), {self.name: "it has no network"})
        uid, python = kinds.own_uid(), _python()
        assert python is not None
        folder = Path(tempfile.mkdtemp(prefix="openenv-sandbox-"))
        home, guest = folder / "home", folder / "guest"
        shutil.copytree(kinds.INSIDE, guest, ignore=shutil.ignore_patterns("__pycache__"))
        home.mkdir(mode=0o700)
        for path in (folder, guest):
            path.chmod(0o755)
        if uid is not None:
            os.chown(home, uid, uid)
        program = kinds.file_of(seccomp.program(internet=False, owns_files=uid is None))
        seen = [
            *kinds.seen_of_this_machine(policy),
            str(guest),
            *filter(os.path.islink, kinds.LINKED),
        ]
        how = {
            "readable": seen,
            "writable": [str(home)],
            "devices": [*DEVICES, *(TERMINALS if uid is not None else ())],
            "program": program,
            "uid": uid,
            "command": [python, "-I", "-S", f"{guest}/guest.py", kinds.settings_of(policy, uid)],
        }
        keeper = kinds.INSIDE / "keeper.py"
        command = [kinds.PYTHON, "-I", "-S", str(keeper), json.dumps(how)]
        processes = policy.processes + kinds.PARENTS
        make_group = partial(kinds.group_for, self, policy, OWN_BYTES, processes)
        release = [partial(kinds.remove_tree, folder)]
        process, group = kinds.spawn(command, [program], make_group, home, release)
        ends_on = signal.SIGTERM  # a keeper that is killed cannot end its children
        at_home = str(home)
        return kinds.Place(
            process, at_home, str(guest), python, [at_home], (), group, release, ends_on
        )


def _python() -> str | None:
    """Return a Python that the sandbox's user can run, preferably this process's, or None."""
    candidates = [kinds.PYTHON, "/usr/bin/python3", "/usr/local/bin/python3"]
    if os.geteuid() != 0:
        return kinds.PYTHON
    return next((path for path in candidates if _is_open_to_all(os.path.realpath(path))), None)


def _is_open_to_all(path: str) -> bool:
    if not os.path.exists(path):
        return False
    return all(one.stat().st_mode & 0o001 for one in (Path(path), *Path(path).parents))


def version_of_the_kernel() -> int:
    """Return the kernel's version of Landlock; 0 or less without Landlock."""
    libc = ctypes.CDLL(None, use_errno=True)
    return int(libc.syscall(CREATE_RULESET, None, 0, VERSION))
