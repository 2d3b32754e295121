"""The system call filter, which refuses calls that programs do not need and exploits may use."""

from __future__ import annotations

import errno
import socket
import struct
import tempfile
from functools import lru_cache
from typing import Any

__all__ = ["program", "why_not"]

# libseccomp's names; unknown names are skipped.
REFUSED = """
acct add_key adjtimex bpf chroot clock_adjtime clock_settime create_module delete_module
fanotify_init finit_module fsconfig fsmount fsopen fspick get_kernel_syms get_mempolicy
init_module io_uring_enter io_uring_register io_uring_setup ioperm iopl kcmp kexec_file_load
kexec_load keyctl listmount lookup_dcookie lsm_set_self_attr mbind memfd_secret migrate_pages
mount mount_setattr move_mount move_pages mq_getsetattr mq_notify mq_open mq_timedreceive
mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd name_to_handle_at nfsservctl
open_by_handle_at open_tree open_tree_attr perf_event_open personality pidfd_getfd pivot_root
process_madvise process_vm_readv process_vm_writev ptrace query_module quotactl quotactl_fd
reboot request_key semctl semget semop semtimedop set_mempolicy set_mempolicy_home_node
setdomainname sethostname setns settimeofday shmat shmctl shmdt shmget statmount stime swapoff
swapon syslog umount umount2 unshare uselib userfaultfd ustat vhangup vm86 vm86old vmsplice
""".split()  # noqa: SIM905  # a table that is read, not a list

UNKNOWN = ("clone3", "memfd_create")
# Attributes of files use kernel memory that no limit of a file system counts. Programs can do
# without attributes, since some file systems have none.
NOT_SUPPORTED = ("setxattr", "lsetxattr", "fsetxattr", "setxattrat", "file_setattr")
# Calls that change a file without opening it, which Landlock permits to the file's owner.
OF_OWNERS = """
chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes futimesat utimensat
""".split()  # noqa: SIM905

# System calls newer than Linux 6.10 are neither in libseccomp's tables nor in this one. They fail
# as in an older kernel. The numbers are the same on all architectures.
NEWEST_KNOWN = 462
X32 = 0x40000000  # the bit of another architecture's numbers, which the filter itself refuses

NEW_NAMESPACES = 0x7E020080  # CLONE_NEW{TIME,NS,CGROUP,UTS,IPC,USER,PID,NET}
TIOCSTI, TIOCLINUX = 0x5412, 0x541C  # inject input into, or draw on, another process's terminal
LOCAL = (socket.AF_UNIX,)
INTERNET = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6)


@lru_cache
def why_not() -> str | None:
    """Return what is missing to create a filter, or None."""
    try:
        import pyseccomp  # noqa: F401
    except ModuleNotFoundError:
        return "no filter of system calls can be made; pip install 'openenv[sandbox]'"
    except (OSError, RuntimeError) as error:
        return f"libseccomp cannot be loaded ({error}); apt-get install libseccomp2"
    return None


@lru_cache
def program(*, internet: bool, owns_files: bool = False) -> bytes:
    """Return the filter as a classic BPF program, the kernel's format.

    Refused calls fail with EPERM. Calls that programs can replace fail with ENOSYS: `clone3`, whose
    flags no filter can see; files in memory, which no limit counts; and calls newer than this
    table. Setting extended attributes fails with EOPNOTSUPP. System calls of another architecture
    end the process.

    Args:
        internet: Allow sockets, including the internet's families. Only for a sandbox with its own
            network; otherwise only pairs of connected sockets are allowed.
        owns_files: Refuse changes of modes, owners and times, since the sandbox's user may own
            files of the machine.
    """
    import pyseccomp as seccomp

    found: Any = seccomp.SyscallFilter(seccomp.ALLOW)

    def refuse(name: str, *arguments: Any, by: int = errno.EPERM) -> None:
        if seccomp.resolve_syscall(seccomp.system_arch(), name) != -1:  # -1: unknown here
            found.add_rule(seccomp.ERRNO(by), name, *arguments)

    def refuse_families(name: str, allowed: tuple[int, ...]) -> None:
        refuse(name, seccomp.Arg(0, seccomp.GT, max(allowed)))
        for family in set(range(max(allowed))).difference(allowed):
            refuse(name, seccomp.Arg(0, seccomp.EQ, family))

    for name in (*REFUSED, *(OF_OWNERS if owns_files else ())):
        refuse(name)
    for name in UNKNOWN:
        refuse(name, by=errno.ENOSYS)
    for name in NOT_SUPPORTED:
        refuse(name, by=errno.EOPNOTSUPP)
    # A masked comparison cannot test for "any of these bits", so each bit has its own rule.
    for bit in (1 << n for n in range(32) if NEW_NAMESPACES >> n & 1):
        refuse("clone", seccomp.Arg(0, seccomp.MASKED_EQ, bit, bit))
    for request in (TIOCSTI, TIOCLINUX):
        refuse("ioctl", seccomp.Arg(1, seccomp.MASKED_EQ, 0xFFFFFFFF, request))
    if internet:
        for name in ("socket", "socketpair"):
            refuse_families(name, INTERNET)
    else:
        refuse("socket")
        refuse_families("socketpair", LOCAL)
        for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):  # they can send to any address
            refuse("socketpair", seccomp.Arg(1, seccomp.MASKED_EQ, 0xF, kind))
        for name in ("sendmsg", "sendmmsg"):  # open files in transit count toward no limit
            refuse(name)
    with tempfile.TemporaryFile() as file:
        found.export_bpf(file)
        file.seek(0)
        return _refusal_of_newer_calls() + file.read()


def _refusal_of_newer_calls() -> bytes:
    """Return the instructions that precede the filter; see `NEWEST_KNOWN`."""
    load, jump_if_at_least, give = 0x20, 0x35, 0x06  # BPF_LD|W|ABS, BPF_JMP|JGE|K, BPF_RET|K
    steps = (
        (load, 0, 0, 0),  # the number of the call
        (jump_if_at_least, 0, 2, NEWEST_KNOWN + 1),
        (jump_if_at_least, 1, 0, X32),
        (give, 0, 0, 0x00050000 | errno.ENOSYS),  # SECCOMP_RET_ERRNO
    )
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
