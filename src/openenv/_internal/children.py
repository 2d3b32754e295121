"""Child processes, forked from a process that has already imported what the children need.

Forking needs Linux, this interpreter, and a child that would start with the same environment and
user as the fork server. Any other child is started by `subprocess`.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import logging
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from openenv._internal.forkserver import CODE, ForkRequest, receive, send
from openenv._internal.timing import backoff_s
from openenv.settings import without_keys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of mallopt, in glibc's malloc.h

logger = logging.getLogger(__name__)

# Prefixes of variables that the interpreter or the system's loader reads at startup.
STARTUP_VARIABLES = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_")
START_TIMEOUT_S = 60.0
FORK_TIMEOUT_S = 10.0  # for an answer of a fork server that is ready
# Pause before the next attempt after a fork server did not start.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
REPORT_TIMEOUT_S = 2.0  # for a fork server to report the exit code of a process that has ended
UNKNOWN = 255  # the exit code if it could not be observed, as in multiprocessing
LIMITS = sorted({getattr(resource, n) for n in dir(resource) if n.startswith("RLIMIT_")})


def run_module(module: str, *, stdin: int, outlives_s: float) -> ChildProcess:
    """Run ``python -m module`` in a new process group; the module has a function `main`.

    Args:
        module: The module's name.
        stdin: The file descriptor of the standard input.
        outlives_s: Seconds that the process may outlive this program, if that can be enforced.

    Raises:
        OSError: The process could not be started.
    """
    environ = without_keys(os.environ)
    request = ForkRequest(f"{module}:main", [], environ, os.getcwd(), outlives_s=outlives_s)
    # Two processes with the same standard input would each read a part of it.
    forked = fork(request, (stdin, 1, 2), may_repeat=False)
    if forked is not None:
        return forked
    command = [sys.executable, "-m", module]
    return subprocess.Popen(command, stdin=stdin, env=environ, start_new_session=True)  # nosec B603  # our own module


def wait_for_all(child: ChildProcess) -> int:
    """Wait for the end of a process of `run_module`, and kill the rest of the process group."""
    if isinstance(child, subprocess.Popen):
        # The system cannot reuse the process id before the process has been waited for.
        with contextlib.suppress(OSError, AttributeError):  # on macOS, waitid needs Python 3.13
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
            os.killpg(child.pid, signal.SIGKILL)
    return child.wait()


def absolute_path(environ: Mapping[str, str]) -> str:
    """Return PYTHONPATH with absolute entries; empty if PYTHONPATH is not set."""
    entries = environ.get("PYTHONPATH", "")
    return os.pathsep.join(map(os.path.abspath, entries.split(os.pathsep))) if entries else ""


def calm_garbage_collector() -> None:
    """Make the garbage collector search for cycles less often.

    A full search stops every session, for 100 ms if there are many. Existing objects are permanent
    and excluded from the search. A session leaves some 70 objects of a connection and a sandbox in
    cycles, so about 70 sessions trigger a search.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 20, 50)


def keep_freed_memory() -> None:
    """Make glibc keep freed memory instead of returning memory to the system at once.

    Frames of 100 kB are allocated and freed thousands of times a second, and fresh pages would cost
    more than all other work on a frame.
    """
    import ctypes

    with contextlib.suppress(OSError, AttributeError, TypeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_TRIM_THRESHOLD, 256 * 2**20)
        mallopt(M_MMAP_THRESHOLD, 32 * 2**20)


# ------------------------------------------------------------------ forked processes


class Forked:
    """A child of the fork server.

    A pidfd identifies the process, so that no signal ever reaches another process of the same id.
    """

    def __init__(self, pid: int, process: int, report: int) -> None:
        self.pid = pid
        self._process, self._report = process, report
        self._code: int | None = None
        self._is_unreported = False
        self._ended_at: float | None = None
        self._owner = os.getpid()
        self._turn = threading.Lock()
        self._close = weakref.finalize(self, _close, process, report)

    def poll(self) -> int | None:
        with self._turn:
            if self._code is None:
                self._code = self._look()
                if self._code is not None:
                    self._close()
            return self._code

    def _look(self) -> int | None:
        if not self._is_unreported and self._owner == os.getpid():  # the code can be read only once
            try:
                data = os.read(self._report, CODE.size)
            except BlockingIOError:
                return self._overlooked()
            if data:
                code: int = CODE.unpack(data)[0]
                return code
            self._is_unreported = True  # the fork server has ended
        return UNKNOWN if _ready(self._process, 0) else None

    def _overlooked(self) -> int | None:
        """Look at the end of a process that the fork server has not reported."""
        if not _ready(self._process, 0):
            return None
        now = time.monotonic()
        if self._ended_at is None:
            self._ended_at = now
        return UNKNOWN if now - self._ended_at > REPORT_TIMEOUT_S else None

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            told_by = self._process if self._is_unreported else self._report
            # In slices of 1 s: another thread may see the end and close the descriptor.
            _ready(told_by, 1.0 if left is None else min(left, 1.0))
        return code

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, by: signal.Signals) -> None:
        with self._turn, contextlib.suppress(ProcessLookupError):
            if self._code is None:
                signal.pidfd_send_signal(self._process, by)


ChildProcess = subprocess.Popen[bytes] | Forked


def _ready(descriptor: int, timeout_s: float) -> bool:
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(timeout_s * 1000))


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


# ------------------------------------------------------------------ the fork server


class ForkServerLost(OSError):
    """The fork server did not answer a request, and may have carried out the request."""


class ForkServerHandle:
    """The program's handle of the fork server.

    Raises:
        OSError: The fork server could not be started.
    """

    def __init__(self) -> None:
        self.begins_as = _begins_as(os.environ)
        self.executable = sys.executable
        self._link, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # nosec B603  # our own module
                [self.executable, "-m", "openenv._internal.forkserver"],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",  # it must find no modules in this program's directory
                # The system shows these variables for all forks too, so they must hold no keys.
                env={**without_keys(os.environ), "PYTHONPATH": absolute_path(os.environ)},
                start_new_session=True,
            )
        self._link.settimeout(START_TIMEOUT_S)
        self.is_ready = False

    def get_ready(self) -> None:
        """Wait until the fork server has imported everything.

        Raises:
            OSError: The fork server did not start.
        """
        if self.is_ready:
            return
        try:
            threads, _ = receive(self._link, 0)
        except (EOFError, OSError) as error:
            self.kill()
            raise OSError(f"it did not start (exit code {self._process.returncode})") from error
        if threads != 1:  # a preloaded module has started a thread
            self.close()
            raise _Hopeless(f"it has {threads} threads")
        self._link.settimeout(FORK_TIMEOUT_S)
        self.is_ready = True

    def fork(self, request: ForkRequest, streams: Sequence[int]) -> Forked:
        """Fork a process.

        Raises:
            ForkServerLost: The fork server ended after the request was sent.
            OSError: The process could not be forked, or the fork server was gone before.
        """
        told, report = os.pipe()
        try:
            try:
                send(self._link, request, [*streams, report])
            finally:
                os.close(report)
            pid, given = self._answer()
            if pid < 0:
                raise OSError(-pid, os.strerror(-pid))
        except BaseException:
            os.close(told)
            raise
        os.set_blocking(told, False)
        return Forked(pid, given[0], told)

    def _answer(self) -> tuple[int, list[int]]:
        try:
            pid, given = receive(self._link, 1)
        except EOFError as error:
            raise ForkServerLost("the fork server has ended") from error
        except TimeoutError as error:
            self.kill()  # its children run on
            why = f"the fork server has not answered within {FORK_TIMEOUT_S:g} s"
            raise ForkServerLost(why) from error
        return pid, given

    def kill(self) -> None:
        """Kill the fork server. The children run on."""
        self._process.kill()
        self.close()

    def close(self) -> None:
        """Close the connection, which ends the fork server."""
        self._link.close()
        try:
            self._process.wait(1.0)
        except subprocess.TimeoutExpired:  # the fork server waits for workers that hang
            self._process.returncode = 0

    def abandon(self) -> None:
        """Forget the fork server in a forked child: the parent owns it."""
        self._link.close()
        self._process.returncode = 0


_turn = threading.Lock()
_server: ForkServerHandle | None = None
_retired: list[ForkServerHandle] = []
_is_first = True
_is_hopeless = not hasattr(os, "pidfd_open")
_failures = 0  # fork servers in a row that did not start
_next_at = 0.0  # no fork server is started before this time


def fork(
    request: ForkRequest,
    streams: Sequence[int],
    *,
    is_first_worth_it: bool = True,
    may_repeat: bool = True,
) -> ChildProcess | None:
    """Fork a process with the given standard streams.

    Args:
        request: The process to fork.
        streams: The descriptors of standard input, output and error.
        is_first_worth_it: Start the fork server for the first process already. If False, only the
            second process starts it, since starting it costs as much as starting a server.
        may_repeat: Send the request again if the fork server ends after receiving it, even though
            it may have forked a process already.

    Returns:
        The process; None if no fork server can run here, or if a forked process would differ from
        a new one.

    Raises:
        ForkServerLost: The fork server ended after a request that must not be repeated.
    """
    global _server, _is_hopeless, _is_first, _failures
    with _turn:
        if _is_first and not is_first_worth_it:
            _is_first = False
            return None
        for _ in range(2):
            if _is_hopeless:
                return None
            try:
                begins_as = _begins_as(os.environ)
                if _server is not None and _server.begins_as != begins_as:
                    _retired.append(_server)  # its children still need it
                    _server = next((old for old in _retired if old.begins_as == begins_as), None)
                    if _server is not None:
                        _retired.remove(_server)
                if _server is None:
                    if time.monotonic() < _next_at:
                        return None
                    _server = _started()
                if not _fits(_server, request):
                    return None
                _server.get_ready()
                _failures = 0
                request.limits = [(limit, resource.getrlimit(limit)) for limit in LIMITS]
                request.processors = sorted(os.sched_getaffinity(0))
                return _server.fork(request, streams)
            except ForkServerLost:
                _drop()
                if not may_repeat:
                    raise
            except ConnectionError:  # the fork server was killed
                _drop()
            except _Hopeless as error:
                logger.debug("processes are started, not forked: %s", error)
                _is_hopeless, _server = True, None
            except OSError as error:
                if _server is None or not _server.is_ready:
                    _server = None
                    _pause(error)
                return None
    return None


class _Hopeless(OSError):
    """No fork server can run on this system."""


def _started() -> ForkServerHandle:
    try:
        os.close(os.pidfd_open(os.getpid()))  # a kernel or a sandbox may not support it
    except OSError as error:
        raise _Hopeless(f"no pidfd_open: {error}") from error
    return ForkServerHandle()


def _pause(error: OSError) -> None:
    """Start no fork server for a while, after a failed start."""
    global _failures, _next_at
    _failures += 1
    pause_s = backoff_s(_failures, FIRST_PAUSE_S, LONGEST_PAUSE_S)
    _next_at = time.monotonic() + pause_s
    logger.warning(
        "no fork server: %s. Processes are started one by one, which takes longer; it is tried "
        "again in %g s",
        error,
        pause_s,
    )


def _fits(server: ForkServerHandle, request: ForkRequest) -> bool:
    return server.executable == sys.executable and server.begins_as == _begins_as(request.environ)


def _begins_as(environ: Mapping[str, str]) -> Any:
    """Return the inherited state that a program starts with: variables, user, priority, umask."""
    variables = {k: v for k, v in environ.items() if k.startswith(STARTUP_VARIABLES)}
    variables["PYTHONPATH"] = absolute_path(environ)
    return (
        variables,
        os.getresuid(),
        os.getresgid(),
        os.getgroups(),
        os.getpriority(os.PRIO_PROCESS, 0),
        [line for line in Path("/proc/self/status").read_text().splitlines() if "Umask" in line],
    )


def _drop() -> None:
    global _server
    server, _server = _server, None
    if server is not None:
        server.close()


def _take_all() -> list[ForkServerHandle]:
    global _server
    servers = [*_retired, *([_server] if _server is not None else ())]
    _server = None
    _retired.clear()
    return servers


def _abandon_in_child() -> None:
    global _turn
    _turn = threading.Lock()
    for server in _take_all():
        server.abandon()


@atexit.register
def _close_all() -> None:
    for server in _take_all():
        server.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_in_child)
