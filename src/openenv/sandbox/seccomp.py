"""The filter of system calls: what no program of a sandbox needs, and some kernel bug might."""

from __future__ import annotations

import errno
import socket
import tempfile
from functools import lru_cache
from typing import Any

__all__ = ["program", "why_not"]

# By libseccomp's names; one that this machine's kernel or libseccomp has not is passed over.
REFUSED = """
acct add_key adjtimex bpf chroot clock_adjtime clock_settime create_module delete_module
fanotify_init finit_module fsconfig fsmount fsopen fspick get_kernel_syms get_mempolicy
init_module io_uring_enter io_uring_register io_uring_setup ioperm iopl kcmp kexec_file_load
kexec_load keyctl lookup_dcookie mbind memfd_secret migrate_pages mount mount_setattr
move_mount move_pages msgget name_to_handle_at nfsservctl open_by_handle_at open_tree
perf_event_open personality pidfd_getfd pivot_root process_madvise process_vm_readv
process_vm_writev ptrace query_module quotactl quotactl_fd reboot request_key semget
set_mempolicy setdomainname sethostname setns settimeofday shmget stime swapoff swapon
syslog umount umount2 unshare uselib userfaultfd ustat vhangup vm86 vm86old vmsplice
""".split()  # noqa: SIM905  # a table that is read, not a list

UNKNOWN = ("clone3", "memfd_create")

NEW_NAMESPACES = 0x7E020080  # CLONE_NEW{TIME,NS,CGROUP,UTS,IPC,USER,PID,NET}
TIOCSTI, TIOCLINUX = 0x5412, 0x541C  # typing into, and drawing on, somebody else's terminal
LOCAL = (socket.AF_UNIX,)
INTERNET = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6)


@lru_cache
def why_not() -> str | None:
    """Say what is missing to make a filter; None if nothing is."""
    try:
        import pyseccomp  # noqa: F401
    except ModuleNotFoundError:
        return "no filter of system calls can be made; pip install 'openenv[sandbox]'"
    except (OSError, RuntimeError) as error:
        return f"libseccomp cannot be loaded ({error}); apt-get install libseccomp2"
    return None


@lru_cache
def program(internet: bool) -> bytes:
    """Make the filter, as the kernel takes it (classic BPF).

    What it refuses fails with EPERM. What programs have another way for fails with ENOSYS:
    `clone3`, whose flags no filter can see, and files in memory, which no limit counts. System
    calls of another architecture end the process.

    Args:
        internet: Sockets of the internet's families may be made: where the network is the
            sandbox's own.
    """
    import pyseccomp as seccomp

    found: Any = seccomp.SyscallFilter(seccomp.ALLOW)
    refusal = seccomp.ERRNO(errno.EPERM)
    for name in REFUSED:
        _add(found, refusal, name)
    for name in UNKNOWN:
        _add(found, seccomp.ERRNO(errno.ENOSYS), name)
    # A masked comparison tells "none of these bits", so each bit has a rule of its own.
    for bit in (1 << n for n in range(32) if NEW_NAMESPACES >> n & 1):
        _add(found, refusal, "clone", seccomp.Arg(0, seccomp.MASKED_EQ, bit, bit))
    for request in (TIOCSTI, TIOCLINUX):
        _add(found, refusal, "ioctl", seccomp.Arg(1, seccomp.MASKED_EQ, 0xFFFFFFFF, request))
    allowed = INTERNET if internet else LOCAL
    for name in ("socket", "socketpair"):
        _add(found, refusal, name, seccomp.Arg(0, seccomp.GT, max(allowed)))
        for family in range(max(allowed)):
            if family not in allowed:
                _add(found, refusal, name, seccomp.Arg(0, seccomp.EQ, family))
    with tempfile.TemporaryFile() as file:
        found.export_bpf(file)
        file.seek(0)
        return file.read()


def _add(found: Any, action: Any, name: str, *arguments: Any) -> None:
    import pyseccomp as seccomp

    if seccomp.resolve_syscall(seccomp.system_arch(), name) == -1:  # not of this libseccomp
        return
    found.add_rule(action, name, *arguments)
