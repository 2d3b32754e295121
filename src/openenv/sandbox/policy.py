"""The limits of a sandbox, and the guarantees of the kinds of sandboxes."""

from __future__ import annotations

import enum
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

__all__ = ["Guarantee", "SandboxPolicy"]

MIB = 2**20
LEAST_OPEN_FILES = 32  # the first process needs some, and more for each command


class Guarantee(enum.IntEnum):
    """The strength of a sandbox's isolation; a higher value includes the lower values.

    PROCESS: The code runs as another user or in a Landlock domain, and sees only permitted files.
        It shares the machine's process ids, and its network if it has one.
    NAMESPACES: The code has its own processes, users, network, mounts and host name. It uses the
        machine's kernel through a system call filter.
    KERNEL: A separate kernel carries out the code's system calls.
    """

    PROCESS = 1
    NAMESPACES = 2
    KERNEL = 3

    @classmethod
    def of(cls, name: Guarantee | str) -> Guarantee:
        """Return a guarantee by name.

        Raises:
            ValueError: No guarantee has that name.
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
    """The limits of a sandbox. The defaults suit small programs, such as exercises.

    Attributes:
        network: Hosts that the code may reach, such as ``"pypi.org:443"`` or ``"*.pypi.org:443"``,
            over HTTP and HTTPS through the proxy in the usual variables. If empty, there is only
            the sandbox's own loopback interface.
        memory_bytes: Maximum memory of all processes together, and of each. A sandbox that exceeds
            it is ended. Files in memory do not count here, but toward `disk_bytes`.
        strict_memory: Require a control group (cgroup v2), so that the kernel enforces the memory
            limit and counts its own memory for the sandbox. Without a group delegated to this
            process, no sandbox starts. By default a group is used if there is one; otherwise a
            thread measures ten times a second and estimates the kernel's memory.
        disk_bytes: Maximum bytes written in the home directory, and again in ``/tmp``.
        file_bytes: Maximum size of a file.
        processes: Maximum number of processes and threads at one time.
        open_files: Maximum number of open files of a process; at least 32.
        cpu_s: Maximum CPU seconds of each process of a command. Interpreters and terminals have no
            such limit; `wall_s` limits each piece of code.
        wall_s: Default time limit of a command, in seconds.
        output_bytes: Maximum output of a command on each stream. If there is more, the first and
            the last half are kept, and the omitted bytes are counted.
        readable: Additional files and directories of the machine, visible read-only at the same
            path.
        environment: Variables in addition to ``PATH``, ``HOME``, ``LANG`` and the like. None of the
            machine's variables are inherited.

    Raises:
        ValueError: A limit is not positive or too low for any command, a path is not absolute, or a
            host has no port.
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
                f"open_files is {self.open_files}; it must be at least {LEAST_OPEN_FILES}, so that "
                "commands can start"
            )
        for path in self.readable:
            if not os.path.isabs(path):
                raise ValueError(f"readable has {path!r}; expected an absolute path")
        for host in self.network:
            name, _, port = host.rpartition(":")
            if not name or not port.isdigit():
                raise ValueError(f"network has {host!r}; expected HOST:PORT, as in 'pypi.org:443'")
