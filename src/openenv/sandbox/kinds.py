"""The kinds of sandboxes, the strongest first, and which of them this machine offers."""

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
from dataclasses import dataclass, field
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

UIDS = 0x6F000000  # where nobody's accounts are; each sandbox has one of the 2^24 from here on
NICE = 10
PARENTS = 4  # processes of a sandbox that are not its commands'


@dataclass
class Place:
    """A sandbox that was started: its first process, and what in it is where.

    Attributes:
        process: The process through whose standard input and output it is spoken to.
        home: The directory that commands begin in, as they see it.
        guest: Where the programs of `openenv.sandbox.inside` are, as commands see it.
        python: Its interpreter, as commands see it.
        watched: Directories of the machine whose contents count as what is written to its disk;
            empty where the kernel keeps that limit.
        mounts: File systems in memory, as commands see them, whose files are counted.
        group: Its control group, where it has one.
        release: What to do once the process has ended.
        ends_on: The signal upon which the process ends all of the sandbox.
    """

    process: subprocess.Popen[bytes]
    home: str
    guest: str
    python: str
    watched: Sequence[str] = ()
    mounts: Sequence[str] = ()
    group: Group | None = None
    release: list[Callable[[], None]] = field(default_factory=list)
    ends_on: signal.Signals = signal.SIGKILL


class Kind(Protocol):
    """A way to confine a process."""

    name: str
    guarantee: Guarantee

    def why_not(self) -> str | None:
        """Say what is missing on this machine, and how to get it; None if nothing is."""
        ...

    def start(self, policy: SandboxPolicy) -> Place:
        """Start one.

        Raises:
            SandboxUnavailable: The policy asks for what this kind cannot hold.
            OSError: The machine has no room for it.
        """
        ...


@dataclass(frozen=True)
class Offer:
    """Whether this machine has a kind of sandbox."""

    kind: str
    guarantee: Guarantee
    why_not: str | None

    @property
    def is_there(self) -> bool:
        """It can be had."""
        return self.why_not is None


def kinds() -> dict[str, Kind]:
    """Every kind by its name, the strongest first."""
    from openenv.sandbox.bubblewrap import Bubblewrap
    from openenv.sandbox.gvisor import GVisor
    from openenv.sandbox.landlock import Landlock

    return {kind.name: kind for kind in (GVisor(), Bubblewrap(), Landlock())}


def kinds_of_this_machine() -> list[Offer]:
    """Say of each kind, the strongest first, whether it is to be had here.

    Each is tried once in a process: a sandbox is started, and runs a command.
    """
    return [Offer(name, kind.guarantee, _why_not(name)) for name, kind in kinds().items()]


_trying = threading.Lock()


def _why_not(name: str) -> str | None:
    with _trying:
        return _tried(name)


@cache
def _tried(name: str) -> str | None:
    kind = kinds()[name]
    return kind.why_not() or _why_it_does_not_start(kind)


def _why_it_does_not_start(kind: Kind) -> str | None:
    from openenv.sandbox.sandbox import Sandbox

    try:
        with Sandbox.of_kind(kind, SandboxPolicy()) as sandbox:
            done = sandbox.run(["/bin/true"], wall_s=20)
    except Exception as error:
        return f"it does not start here: {error}"
    return None if done.exit_code == 0 else f"a command in it fails here: {done.stderr.strip()}"


def strongest(
    require: Guarantee | str, kind: str | None = None, policy: SandboxPolicy | None = None
) -> Kind:
    """Give the strongest kind that this machine has, or the one that is asked for; start none.

    Args:
        require: The least that it must guarantee.
        kind: Only this kind.
        policy: What it must be able to hold.

    Raises:
        SandboxUnavailable: None gives the guarantee; its text says why each does not.
        ValueError: There is no kind, or no guarantee, of that name.
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


# ------------------------------------------------------------------ what all kinds need


def settings_of(policy: SandboxPolicy, uid: int | None) -> str:
    """What the first process of a sandbox is told on its command line."""
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
    """Remove a directory and all in it, however deep that goes."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except RecursionError:
        subprocess.run(  # nosec B603 B607  # no shell
            ["rm", "-rf", "--", str(folder)], stdin=subprocess.DEVNULL, capture_output=True
        )


def own_uid() -> int | None:
    """A user for one sandbox, where this process may change to one.

    The number of processes is limited by user, and users cannot signal one another.
    """
    return UIDS | random.SystemRandom().randrange(2**24) if os.geteuid() == 0 else None


def seen_of_this_machine(policy: SandboxPolicy) -> list[str]:
    """The files and directories that a sandbox sees at the same place, read-only."""
    paths = ["/usr", "/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime", "/etc/ssl/certs"]
    paths += [PYTHON_PREFIX, *policy.readable]
    paths += [path for path in LINKED if not os.path.islink(path)]
    return [path for path in dict.fromkeys(paths) if os.path.exists(path)]


LINKED = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")


def group_for(
    kind: Kind, policy: SandboxPolicy, own_bytes: int, processes: int | None
) -> Group | None:
    """Make the control group of a sandbox; None where there can be none.

    Args:
        kind: Of which it is.
        policy: Its limits.
        own_bytes: What the sandbox itself takes, and files in memory may take.
        processes: How many it may have; None where the kernel cannot count them.

    Raises:
        SandboxUnavailable: There can be none, and the policy wants one.
    """
    group = make_group(policy.memory_bytes + own_bytes, processes)
    if group is None and policy.strict_memory:
        raise SandboxUnavailable(str(kind.guarantee), {kind.name: why_no_group() or ""})
    return group


# The kernel ends a sandbox with the thread that has started it (bubblewrap's --die-with-parent), so
# they are all started by one that stays as long as the process does.
_starters: dict[int, ThreadPoolExecutor] = {}
_starters_lock = threading.Lock()


def start_on_the_starter(function: Callable[[], T]) -> T:
    """Call `function` on the thread that starts sandboxes."""
    with _starters_lock:
        if os.getpid() not in _starters:  # a forked child has none of its parent's threads
            _starters.clear()
            _starters[os.getpid()] = ThreadPoolExecutor(1, thread_name_prefix="openenv-sandboxes")
        starter = _starters[os.getpid()]
    return starter.submit(function).result()


def spawn(
    command: Sequence[str],
    keep: Sequence[int] = (),
    make_group: Callable[[], Group | None] = lambda: None,
    cwd: Path | None = None,
) -> tuple[subprocess.Popen[bytes], Group | None]:
    """Start a process that is spoken to by pipes, with nothing of this one's environment.

    Args:
        command: Its command line.
        keep: Files that it has; they are closed here.
        make_group: Makes the control group that it is to be in.
        cwd: Where it begins; by default here.
    """
    group = None
    try:
        group = make_group()
        line = command if group is None else group.starting(list(command))
        process = start_on_the_starter(
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
        if group is not None:
            group.close()
        raise
    finally:
        for fd in keep:
            with contextlib.suppress(OSError):
                os.close(fd)
    return process, group


def file_of(data: bytes) -> int:
    """An open file in memory with `data`, for a program to read."""
    fd = os.memfd_create("openenv-sandbox")
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
