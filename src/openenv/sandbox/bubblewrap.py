"""Bubblewrap sandboxes: namespaces, a read-only root, and a system call filter.

bubblewrap: https://github.com/containers/bubblewrap. If run as root, it creates the namespaces as
root, and the first process changes to another user. Otherwise it creates a user namespace too.

Containers often allow user namespaces and little else: an engine that hides parts of /proc forbids
mounting another, and a filter may forbid setting a host name. A sandbox there has no /proc and
keeps the container's host name, which it cannot change.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache, partial
from pathlib import Path

from openenv.sandbox import kinds, seccomp
from openenv.sandbox.policy import MIB, Guarantee, SandboxPolicy
from openenv.sandbox.proxy import PROXY_SOCKET, Proxy

__all__ = ["Bubblewrap"]

HOME, GUEST = "/home/agent", "/run/openenv"
IN_MEMORY = (HOME, "/tmp", "/dev/shm")  # nosec B108  # inside the sandbox
HOST_NAME, PROC = ("--hostname", "sandbox"), ("--proc", "/proc")
SHARED_BYTES = 16 * MIB  # size of /dev/shm
OWN_BYTES = 64 * MIB  # for bubblewrap and the first process
UID = 1000  # in a user namespace

PASSWD = "root:x:0:0::/root:/usr/sbin/nologin\nagent:x:{uid}:{uid}::" + HOME + ":/bin/bash\n"
GROUP = "root:x:0:\nagent:x:{uid}:\n"
HOSTS = "127.0.0.1 localhost sandbox\n::1 localhost\n"


class Bubblewrap:
    """The kind of sandbox that uses bubblewrap."""

    name = "bubblewrap"
    guarantee = Guarantee.NAMESPACES

    def why_not(self) -> str | None:
        if shutil.which("bwrap") is None:
            return "there is no bwrap; apt-get install bubblewrap"
        return seccomp.why_not()

    def start(self, policy: SandboxPolicy) -> kinds.Place:
        uid = kinds.own_uid()
        shown = UID if uid is None else uid
        files = {
            "/etc/passwd": PASSWD.format(uid=shown),
            "/etc/group": GROUP.format(uid=shown),
            "/etc/hosts": HOSTS,
            "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
        }
        texts = {path: kinds.file_of(text.encode()) for path, text in files.items()}
        program = kinds.file_of(seccomp.program(internet=True))
        proxy = Proxy(policy.network) if policy.network else None
        command = _command(policy, uid, texts, program, proxy.path if proxy else None)
        own_bytes = 2 * policy.disk_bytes + SHARED_BYTES + OWN_BYTES
        processes = policy.processes + kinds.PARENTS
        make_group = partial(kinds.group_for, self, policy, own_bytes, processes)
        release = [] if proxy is None else [proxy.close]
        keep = [program, *texts.values()]
        process, group = kinds.spawn(command, keep, make_group, release=release)
        return kinds.Place(process, HOME, GUEST, kinds.PYTHON, (), IN_MEMORY, group, release)


def _command(
    policy: SandboxPolicy,
    uid: int | None,
    texts: dict[str, int],
    program: int,
    proxy: Path | None,
) -> list[str]:
    """Return the command line. Later mounts cover earlier ones; the root becomes read-only last."""
    has_own_user = uid is not None
    options = _namespaces(has_own_user)
    options += ["--die-with-parent", "--as-pid-1", "--new-session", "--clearenv"]
    if _allows(has_own_user, *HOST_NAME):
        options += HOST_NAME
    seen = kinds.seen_of_this_machine(policy)
    for folder in _folders_of([*seen, *texts, GUEST, HOME]):
        options += ["--perms", "0755", "--dir", folder]  # by default only root can enter
    for path in seen:
        options += ["--ro-bind", path, path]
    for path in filter(os.path.islink, kinds.LINKED):
        options += ["--symlink", os.readlink(path), path]
    for path, fd in texts.items():
        options += ["--perms", "0444", "--ro-bind-data", str(fd), path]
    if _allows(has_own_user, *PROC):
        options += PROC
    options += ["--dev", "/dev"]
    sizes = {"/dev/shm": SHARED_BYTES, "/tmp": policy.disk_bytes, HOME: policy.disk_bytes}
    for path, size in sizes.items():
        options += ["--size", str(size), "--perms", "1777", "--tmpfs", path]
    options += ["--ro-bind", str(kinds.INSIDE), GUEST]
    if proxy is not None:
        options += ["--bind", str(proxy), PROXY_SOCKET]
    for path in ("/dev", "/"):
        options += ["--remount-ro", path]
    options += ["--chdir", HOME, "--seccomp", str(program)]
    guest = [kinds.PYTHON, "-I", "-S", f"{GUEST}/guest.py", kinds.settings_of(policy, uid)]
    return ["bwrap", *options, "--", *guest]


def _namespaces(has_own_user: bool) -> list[str]:
    if has_own_user:
        options = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
        options += ["--unshare-cgroup-try", "--cap-drop", "ALL"]
        return [*options, "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    # No --disable-userns: older bubblewraps have none, and the filter refuses new namespaces.
    return ["--unshare-all", "--uid", str(UID), "--gid", str(UID), "--cap-drop", "ALL"]


@cache
def _allows(has_own_user: bool, *options: str) -> bool:
    """Return whether bubblewrap accepts some options on this machine; tried once per process."""
    command = ["bwrap", *_namespaces(has_own_user), "--ro-bind", "/", "/", *options, "true"]
    tried = subprocess.run(  # nosec B603  # no shell
        command, stdin=subprocess.DEVNULL, capture_output=True, timeout=20
    )
    return tried.returncode == 0


def _folders_of(paths: list[str]) -> list[str]:
    """Return the directories that contain the paths, outer directories first."""
    folders = {str(parent) for path in paths for parent in Path(path).parents}
    return sorted(folders - {"/"})
