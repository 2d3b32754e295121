"""gVisor sandboxes, in which a kernel in user space carries out the system calls.

gVisor: https://gvisor.dev (`runsc`). No container engine is needed: this module writes the bundle.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import secrets
import shutil
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from openenv.errors import SandboxUnavailable
from openenv.sandbox import kinds, seccomp
from openenv.sandbox.bubblewrap import GROUP, GUEST, HOME, HOSTS, PASSWD, SHARED_BYTES
from openenv.sandbox.policy import MIB, Guarantee, SandboxPolicy

__all__ = ["GVisor"]

# ptrace works on every machine, even a virtual one; newer versions have the faster "systrap".
PLATFORM = "ptrace"
OWN_BYTES = 256 * MIB  # for gVisor's kernel and the first process
ARCHITECTURES = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}


class GVisor:
    """The kind of sandbox that uses gVisor."""

    name = "gvisor"
    guarantee = Guarantee.KERNEL

    def why_not(self) -> str | None:
        if shutil.which("runsc") is None:
            return "there is no runsc; apt-get install runsc, or see https://gvisor.dev"
        if os.geteuid() != 0:
            return "runsc needs root here"
        if platform.machine() not in ARCHITECTURES:
            return f"it is for {' and '.join(ARCHITECTURES)}, and this is {platform.machine()}"
        return None

    def start(self, policy: SandboxPolicy) -> kinds.Place:
        if policy.network:
            raise SandboxUnavailable(str(self.guarantee), {self.name: "it has no network"})
        uid = kinds.own_uid()
        assert uid is not None
        folder = Path(tempfile.mkdtemp(prefix="openenv-gvisor-"))
        folder.chmod(0o711)
        name = f"openenv-{secrets.token_hex(8)}"
        _write_bundle(folder, policy, uid)
        runsc = ["runsc", "--root", str(folder / "state"), "--platform", PLATFORM]
        runsc += ["--ignore-cgroups", "--network", "none", "--oci-seccomp"]
        # The nice value that the first process sets counts only inside.
        own_bytes = 2 * policy.disk_bytes + SHARED_BYTES + OWN_BYTES
        command = ["nice", "-n", str(kinds.NICE), *runsc, "run", "--bundle", str(folder), name]
        make_group = partial(kinds.group_for, self, policy, own_bytes, None)

        def release() -> None:
            delete = [*runsc, "delete", "--force", name]
            with contextlib.suppress(subprocess.TimeoutExpired, OSError):
                subprocess.run(delete, capture_output=True, timeout=10)  # nosec B603  # no shell
            remove_tree()

        remove_tree = partial(kinds.remove_tree, folder)
        process, group = kinds.spawn(command, make_group=make_group, release=[remove_tree])
        return kinds.Place(process, HOME, GUEST, kinds.PYTHON, group=group, release=[release])


def _write_bundle(folder: Path, policy: SandboxPolicy, uid: int) -> None:
    """Write a bundle of the OCI runtime specification."""
    root = folder / "root"
    for path in ("dev", "etc", HOME.lstrip("/"), "proc", "run", "tmp"):
        (root / path).mkdir(parents=True)
    for name, text in {"passwd": PASSWD, "group": GROUP, "hosts": HOSTS}.items():
        (root / "etc" / name).write_text(text.format(uid=uid))
    for path in filter(os.path.islink, kinds.LINKED):
        (root / path.lstrip("/")).symlink_to(os.readlink(path))
    (folder / "config.json").write_text(json.dumps(_config(policy, uid)))


def _config(policy: SandboxPolicy, uid: int) -> dict[str, Any]:
    seen = {path: path for path in kinds.seen_of_this_machine(policy)} | {str(kinds.INSIDE): GUEST}
    mounts = [
        {"destination": at, "type": "bind", "source": path, "options": ["rbind", "ro"]}
        for path, at in seen.items()
    ]
    mounts += [{"destination": "/proc", "type": "proc", "source": "proc"}]
    mounts += [{"destination": "/dev", "type": "tmpfs", "source": "tmpfs"}]
    sizes = {"/tmp": policy.disk_bytes, HOME: policy.disk_bytes, "/dev/shm": SHARED_BYTES}
    for at, size in sizes.items():
        options = ["nosuid", "nodev", "mode=1777", f"size={size}"]
        mounts += [{"destination": at, "type": "tmpfs", "source": "tmpfs", "options": options}]
    privileges = ["CAP_SETUID", "CAP_SETGID"]  # until the first process has changed its user
    sets = ("bounding", "effective", "inheritable", "permitted")
    return {
        "ociVersion": "1.0.0",
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": [kinds.PYTHON, "-I", "-S", f"{GUEST}/guest.py", kinds.settings_of(policy, uid)],
            "env": ["PATH=/usr/bin:/bin"],
            "cwd": HOME,
            "capabilities": dict.fromkeys(sets, privileges),
            "noNewPrivileges": True,
        },
        "root": {"path": "root", "readonly": True},
        "hostname": "sandbox",
        "mounts": mounts,
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")],
            "seccomp": _filter(),
        },
    }


def _filter() -> dict[str, Any]:
    """Return the refusals of `seccomp.program` in the format of the OCI runtime specification."""
    refused: dict[str, Any] = {"action": "SCMP_ACT_ERRNO", "errnoRet": errno.EPERM}
    bits = (1 << n for n in range(32) if seccomp.NEW_NAMESPACES >> n & 1)
    rules = [
        {**refused, "names": list(seccomp.REFUSED)},
        {**refused, "names": list(seccomp.UNKNOWN), "errnoRet": errno.ENOSYS},
        {**refused, "names": list(seccomp.NOT_SUPPORTED), "errnoRet": errno.EOPNOTSUPP},
        *(
            {
                **refused,
                "names": ["clone"],
                "args": [{"index": 0, "value": n, "valueTwo": n, "op": "SCMP_CMP_MASKED_EQ"}],
            }
            for n in bits
        ),
        {
            **refused,
            "names": ["socket", "socketpair"],
            "args": [{"index": 0, "value": max(seccomp.INTERNET), "op": "SCMP_CMP_GT"}],
        },
    ]
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": [ARCHITECTURES[platform.machine()]],
        "syscalls": rules,
    }
