"""What code in a sandbox may have."""

from __future__ import annotations

import enum
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

__all__ = ["Guarantee", "SandboxPolicy"]

MIB = 2**20
LEAST_OPEN_FILES = 32  # the first process of a sandbox has some, and some for each command


class Guarantee(enum.IntEnum):
    """What stands between the code and the machine; the higher includes the lower.

    PROCESS: It runs as another user, or in a domain of its own (Landlock), and sees only the files
        that it may see. It shares the machine's process ids, and its network where there is one.
    NAMESPACES: It has processes, users, a network, mounts and a host name of its own; the kernel is
        the machine's, through a filter of system calls.
    KERNEL: Its system calls are carried out by a kernel of its own.
    """

    PROCESS = 1
    NAMESPACES = 2
    KERNEL = 3

    @classmethod
    def of(cls, name: Guarantee | str) -> Guarantee:
        """Find a guarantee by its name.

        Raises:
            ValueError: There is none of that name.
        """
        try:
            return name if isinstance(name, cls) else cls[str(name).upper()]
        except KeyError:
            known = ", ".join(repr(one.name.lower()) for one in cls)
            raise ValueError(f"require is {name!r}; expected one of {known}") from None

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, kw_only=True)
class SandboxPolicy:
    """The limits of a sandbox. The defaults suit a program of the size of an exercise.

    Attributes:
        network: Hosts that may be asked, as ``"pypi.org:443"`` or ``"*.pypi.org:443"``, by HTTP and
            HTTPS through a proxy that the usual variables name. Empty: no network but the
            sandbox's own loopback.
        memory_bytes: Of all its processes together, and of each. Over it the sandbox is ended.
            Beside it there are files in memory, to which `disk_bytes` applies.
        strict_memory: The kernel must keep the limit on memory, and count what it keeps itself for
            the sandbox, by a control group (cgroup v2). Where none was delegated to this process,
            there is no sandbox. By default a group is used where there is one; else a thread
            looks, ten times a second, and estimates what the kernel keeps.
        disk_bytes: Of what is written in the home directory, and again of what is in ``/tmp``.
        file_bytes: Of one file.
        processes: How many at once, threads included.
        open_files: Of one process; at least 32.
        cpu_s: Seconds of computing, of one process of a command. Interpreters and terminals, which
            stay, have no such limit: each piece of code has `wall_s`.
        wall_s: Seconds that a command may take, where its caller says nothing else.
        output_bytes: Of what a command prints on each of its streams. Of more than that, the first
            and the last half are kept, and the rest is counted.
        readable: Further files and directories of the machine to be seen, read-only, where they
            are.
        environment: Variables beside ``PATH``, ``HOME``, ``LANG`` and the like; none of the
            machine's come in.

    Raises:
        ValueError: A limit is not positive, or too low for any command; a path is not absolute; or
            a host has no port.
    """

    network: tuple[str, ...] = ()
    memory_bytes: int = 512 * MIB
    strict_memory: bool = False
    disk_bytes: int = 128 * MIB
    file_bytes: int = 64 * MIB
    processes: int = 64
    open_files: int = 256
    cpu_s: float = 60.0
    wall_s: float = 30.0
    output_bytes: int = 256 * 1024
    readable: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if type(value) in (int, float) and not (math.isfinite(value) and value > 0):
                raise ValueError(f"{one.name} is {value}; it must be positive and finite")
        if self.open_files < LEAST_OPEN_FILES:
            raise ValueError(
                f"open_files is {self.open_files}; it must be at least {LEAST_OPEN_FILES}, or no "
                "command can be started"
            )
        for path in self.readable:
            if not os.path.isabs(path):
                raise ValueError(f"readable has {path!r}; expected an absolute path")
        for host in self.network:
            name, _, port = host.rpartition(":")
            if not name or not port.isdigit():
                raise ValueError(f"network has {host!r}; expected HOST:PORT, as in 'pypi.org:443'")
