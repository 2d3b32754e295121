"""The kinds of sandboxes: which of them this machine has, and the code that they share."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol, TypeVar

from openenv.errors import SandboxUnavailable
from openenv.sandbox.cgroups import Group, make_group, why_no_group
from openenv.sandbox.policy import Guarantee, SandboxPolicy

__all__ = [
    "INSIDE",
    "Kind",
    "Offer",
    "Place",
    "kinds",
    "kinds_of_this_machine",
    "remove_tree",
    "strongest",
]

T = TypeVar("T")

INSIDE = Path(__file__).with_name("inside")
PYTHON_PREFIX = os.path.realpath(sys.base_prefix)
PYTHON = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)

UIDS = 0x6F000000  # the first of 2^24 user ids for sandboxes, in a range without accounts
NICE = 10
PARENTS = 4  # processes of a sandbox besides those of commands


@dataclass
class Place:
    """A started sandbox: the outermost process and the paths inside.

    Attributes:
        process: The outermost process, whose standard streams carry the frames.
        home: The working directory of commands, as seen inside.
        guest: The directory of the programs of `openenv.sandbox.inside`, as seen inside.
        python: The interpreter, as seen inside.
        watched: Directories of the machine that count toward `SandboxPolicy.disk_bytes`; empty if
            the kernel enforces that limit.
        mounts: In-memory file systems, as seen inside, whose files are counted.
        group: The control group, if any.
        release: Functions that are called after the process has ended.
        ends_on: The signal on which the process ends the whole sandbox.
    """

    process: subprocess.Popen[bytes]
    home: str
    guest: str
    python: str
    watched: Sequence[str] = ()
    mounts: Sequence[str] = ()
    group: Group | None = None
    release: Sequence[Callable[[], None]] = ()
    ends_on: signal.Signals = signal.SIGKILL


class Kind(Protocol):
    """A way to confine a process."""

    name: str
    guarantee: Guarantee

    def why_not(self) -> str | None:
        """Return what is missing on this machine and how to get it, or None."""
        ...

    def start(self, policy: SandboxPolicy) -> Place:
        """Start a sandbox.

        Raises:
            SandboxUnavailable: This kind cannot enforce the policy.
            OSError: The machine has no room for another sandbox.
        """
        ...


@dataclass(frozen=True)
class Offer:
    """A kind of sandbox, and the reason why this machine lacks the kind, or None."""

    kind: str
    guarantee: Guarantee
    why_not: str | None

    @property
    def is_there(self) -> bool:
        """Whether this machine has the kind."""
        return self.why_not is None


def kinds() -> dict[str, Kind]:
    """Return every kind by name, the strongest first."""
    from openenv.sandbox.bubblewrap import Bubblewrap
    from openenv.sandbox.gvisor import GVisor
    from openenv.sandbox.landlock import Landlock

    return {kind.name: kind for kind in (GVisor(), Bubblewrap(), Landlock())}


def kinds_of_this_machine() -> list[Offer]:
    """Return for each kind whether this machine has it, the strongest first.

    Each kind is tried once per process, by running a command in a sandbox.
    """
    return [Offer(name, kind.guarantee, _why_not(name)) for name, kind in kinds().items()]


_trying = threading.Lock()


def _why_not(name: str) -> str | None:
    with _trying:
        return _tried(name)


@cache
def _tried(name: str) -> str | None:
    from openenv.sandbox.sandbox import Sandbox

    kind = kinds()[name]
    if (why := kind.why_not()) is not None:
        return why
    try:
        with Sandbox.of_kind(kind, SandboxPolicy()) as sandbox:
            done = sandbox.run(["/bin/true"], wall_s=20)
    except Exception as error:
        return f"it does not start here: {error}"
    return None if done.exit_code == 0 else f"a command in it fails here: {done.stderr.strip()}"


def strongest(
    require: Guarantee | str, kind: str | None = None, policy: SandboxPolicy | None = None
) -> Kind:
    """Return the strongest kind that this machine has, or the named kind.

    Args:
        require: The weakest acceptable guarantee.
        kind: The only kind to consider.
        policy: The policy that the kind must be able to enforce.

    Raises:
        SandboxUnavailable: No kind gives the guarantee; the message has the reason for each kind.
        ValueError: No kind or guarantee has that name.
    """
    wanted, known = Guarantee.of(require), kinds()
    if kind is not None and kind not in known:
        raise ValueError(f"kind is {kind!r}; expected one of {', '.join(map(repr, known))}")
    reasons = {}
    for name, candidate in known.items():
        if kind not in (None, name):
            continue
        if candidate.guarantee < wanted:
            reasons[name] = f"it guarantees {candidate.guarantee} only"
        elif (why_not := _why_not(name)) is not None:
            reasons[name] = why_not
        elif policy is not None and policy.network and name != "bubblewrap":
            reasons[name] = "it has no network that could be limited to the policy's hosts"
        elif policy is not None and policy.strict_memory and (why := why_no_group()) is not None:
            reasons[name] = why
        else:
            return candidate
    raise SandboxUnavailable(str(wanted), reasons)


# ------------------------------------------------------------------ shared by all kinds


def settings_of(policy: SandboxPolicy, uid: int | None) -> str:
    """Return the settings of a sandbox's first process, as JSON for its command line."""
    limits = {
        "RLIMIT_DATA": policy.memory_bytes,
        "RLIMIT_FSIZE": policy.file_bytes,
        "RLIMIT_NOFILE": policy.open_files,
        "RLIMIT_NPROC": policy.processes + 1,  # the first process itself
        "RLIMIT_CORE": 0,
        "RLIMIT_STACK": 8 * 2**20,
    }
    return json.dumps({"limits": limits, "uid": uid, "nice": NICE})


def remove_tree(folder: Path) -> None:
    """Remove a directory with all its contents, however deep."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except RecursionError:
        subprocess.run(  # nosec B603 B607  # no shell
            ["rm", "-rf", "--", str(folder)], stdin=subprocess.DEVNULL, capture_output=True
        )


def own_uid() -> int | None:
    """Return a user id for a sandbox; None if this process cannot change the user.

    The kernel limits processes per user, and users cannot signal one another.
    """
    return UIDS | random.SystemRandom().randrange(2**24) if os.geteuid() == 0 else None


def seen_of_this_machine(policy: SandboxPolicy) -> list[str]:
    """Return the files and directories that a sandbox sees at the same path, read-only."""
    paths = ["/usr", "/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime", "/etc/ssl/certs"]
    paths += [PYTHON_PREFIX, *policy.readable]
    paths += [path for path in LINKED if not os.path.islink(path)]
    return [path for path in dict.fromkeys(paths) if os.path.exists(path)]


LINKED = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")


def group_for(
    kind: Kind, policy: SandboxPolicy, own_bytes: int, processes: int | None
) -> Group | None:
    """Create the control group of a sandbox; return None if there can be none.

    Args:
        kind: The kind of the sandbox.
        policy: The limits.
        own_bytes: Additional memory for the sandbox itself and for files in memory.
        processes: Maximum number of processes; None if the kernel cannot count them.

    Raises:
        SandboxUnavailable: No group can be created, and the policy requires one.
    """
    group = make_group(policy.memory_bytes + own_bytes, processes)
    if group is None and policy.strict_memory:
        raise SandboxUnavailable(str(kind.guarantee), {kind.name: why_no_group() or ""})
    return group


# The kernel ends a sandbox when the thread that started it ends (bubblewrap's --die-with-parent),
# so one thread that lives as long as the process starts all sandboxes.
_starters: dict[int, ThreadPoolExecutor] = {}
_starters_lock = threading.Lock()


def _call_on_starter(function: Callable[[], T]) -> T:
    with _starters_lock:
        if os.getpid() not in _starters:  # a forked child has no thread of its parent
            _starters.clear()
            _starters[os.getpid()] = ThreadPoolExecutor(1, thread_name_prefix="openenv-sandboxes")
        starter = _starters[os.getpid()]
    return starter.submit(function).result()


def spawn(
    command: Sequence[str],
    keep: Sequence[int] = (),
    make_group: Callable[[], Group | None] = lambda: None,
    cwd: Path | None = None,
    release: Sequence[Callable[[], None]] = (),
) -> tuple[subprocess.Popen[bytes], Group | None]:
    """Start a process with pipes and without this process's environment variables.

    Args:
        command: The command line.
        keep: Open files that the process inherits; they are closed here.
        make_group: Creates the control group of the process.
        cwd: The working directory; by default that of this process.
        release: Functions that are called if the process does not start.
    """
    group = None
    try:
        group = make_group()
        line = command if group is None else group.starting(list(command))
        process = _call_on_starter(
            lambda: subprocess.Popen(  # nosec B603  # no shell
                line,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
                pass_fds=keep,
                start_new_session=True,
                bufsize=0,
                cwd=cwd,
            )
        )
    except BaseException:
        with contextlib.ExitStack() as stack:  # call each, even if another raises
            for undo in reversed(release):
                stack.callback(undo)
            if group is not None:
                stack.callback(group.close)
        raise
    finally:
        for fd in keep:
            with contextlib.suppress(OSError):
                os.close(fd)
    return process, group


def file_of(data: bytes) -> int:
    """Return the descriptor of an in-memory file that contains `data`."""
    fd = os.memfd_create("openenv-sandbox")
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
