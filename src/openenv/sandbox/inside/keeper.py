"""The outermost process of a Landlock sandbox, which itself is not confined.

The keeper starts the first process in a Landlock domain, and ends all processes when the first
process or the holder ends. Orphans become children of the keeper (``PR_SET_CHILD_SUBREAPER``), so
that none escapes.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import struct
import sys
import threading
import time
from typing import Any

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
PATH_BENEATH = 1
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
TRUNCATE, IOCTL_DEV = 1 << 14, 1 << 15
ALL_OF_FILES = (1 << 16) - 1
ALL_OF_NETWORKS = 3
ALL_SCOPES = 3  # abstract sockets, and signals
READS = EXECUTE | READ_FILE | READ_DIR
WRITES = ALL_OF_FILES & ~IOCTL_DEV
OF_FILES_ONLY = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER = 38, 22, 36
PR_SET_PDEATHSIG = 1
FILTER = 2

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> int:
    """Return the result of a call of the C library; raise OSError if the call failed."""
    if result < 0:
        raise OSError(ctypes.get_errno(), what)
    return result


def enter_domain(how: dict[str, Any]) -> None:
    """Give up all files that are not listed, the network, and signals to other processes."""
    attributes = struct.pack("=QQQ", ALL_OF_FILES, ALL_OF_NETWORKS, ALL_SCOPES)
    ruleset = check(libc.syscall(CREATE_RULESET, attributes, len(attributes), 0), "ruleset")
    for paths, access in (
        (how["readable"], READS),
        (how["writable"], WRITES),
        (how["devices"], READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV),
    ):
        for path in paths:
            allow(ruleset, path, access)
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    check(libc.syscall(RESTRICT_SELF, ruleset, 0), "landlock")
    os.close(ruleset)


def allow(ruleset: int, path: str, access: int) -> None:
    """Keep access to a file, or to everything below a directory."""
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    if not os.path.isdir(path):
        access &= OF_FILES_ONLY
    rule = struct.pack("=Qi", access, fd)
    check(libc.syscall(ADD_RULE, ruleset, PATH_BENEATH, rule, 0), f"landlock: {path}")
    os.close(fd)


def load_filter(fd: int) -> None:
    """Load the system call filter, a BPF program."""
    with open(fd, "rb") as file:
        program = file.read()
    code = ctypes.create_string_buffer(program, len(program))
    shape = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    check(libc.prctl(PR_SET_SECCOMP, FILTER, shape, 0, 0), "seccomp")


def become_the_guest(how: dict[str, Any]) -> None:
    """Replace this process with the first process of the sandbox; never return."""
    try:
        os.setsid()
        check(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "pdeathsig")
        enter_domain(how)
        load_filter(how["program"])
        os.execve(how["command"][0], how["command"], {"PATH": "/bin"})  # nosec B606  # no shell
    except BaseException as error:
        os.write(2, f"{error}\n".encode())
    finally:
        os._exit(1)


def children(pid: int) -> list[int]:
    """Return the children of a process, adopted orphans included."""
    found: list[int] = []
    for task in os.listdir(f"/proc/{pid}/task"):
        path = f"/proc/{pid}/task/{task}/children"
        with contextlib.suppress(OSError), open(path) as file:
            found += map(int, file.read().split())
    return found


def end_all() -> None:
    """Kill every descendant; orphans become children of this process.

    Never wait for a particular child: the other thread may reap it first, and its children would
    survive.
    """
    while True:
        with contextlib.suppress(OSError):
            for pid in children(os.getpid()):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.001)
        except ChildProcessError:
            return


def reap(guest: int) -> None:
    """Reap orphans until the first process ends, then end all processes."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, 0)[0] != guest:
            pass
    end_all()
    os._exit(0)


def end(number: int, frame: object) -> None:
    """End all processes on a signal."""
    end_all()
    os._exit(0)


def main() -> None:
    """Start the sandbox, and wait until the sandbox or the holder ends."""
    how = json.loads(sys.argv[1])
    check(libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "subreaper")
    os.set_inheritable(how["program"], True)
    guest = os.fork()
    if guest == 0:
        become_the_guest(how)
    signal.signal(signal.SIGTERM, end)
    os.close(how["program"])
    os.close(1)
    threading.Thread(target=reap, args=(guest,), daemon=True).start()
    # The holder's end of this pipe closes when the holder ends. The guest reads the data in it.
    holder = select.poll()
    holder.register(0, 0)
    holder.poll()
    end_all()
    os._exit(0)


if __name__ == "__main__":
    main()
