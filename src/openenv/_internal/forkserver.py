"""The fork server: a clean process that has imported the modules that every server needs.

Imports take ten times as long as the rest of a server's start. So a program that starts servers or
worker processes first starts a fork server. It is single-threaded, loads no environment, keeps no
file descriptors of its clients, and ends with the program. A fork ends up in the same state as a
process of ``python -m``; see `ForkRequest`. The program's side is `openenv._internal.children`.

`multiprocessing.forkserver` does the same for functions of the program itself, but does not fit
here. Its children inherit its directory, variables and standard streams, and import the program's
main module. The interface that identifies them is not public. And each program has only one, whose
preloaded modules the program chooses.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import os
import pickle
import resource
import select
import signal
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

# Modules that servers and workers import before any environment, and their common preparation.
PRELOADED: tuple[str, ...] = ("openenv.client", "openenv.execution.worker", "uvloop", "yaml")
WARM_UP = ("openenv.server.run", "warm_up")
HEAD = struct.Struct("<Q")
CODE = struct.Struct("<i")  # an exit code
STREAMS = 3


@dataclass
class ForkRequest:
    """A process to fork.

    Attributes:
        entry: The function to call, as ``module:function``, which returns the exit code.
        arguments: The arguments after the program's name in `sys.argv`.
        environ: The environment variables.
        directory: The working directory.
        watch: A program and arguments to run first, with the process's standard input and the
            process id as last argument. The process's own standard input is then empty.
        outlives_s: Seconds that the process group may outlive the program. None: `watch` ends the
            process.
        limits: The resource limits, as arguments of `resource.setrlimit`.
        processors: The processors that the process may run on.
    """

    entry: str
    arguments: Sequence[str]
    environ: Mapping[str, str]
    directory: str
    watch: Sequence[str] | None = None
    outlives_s: float | None = None
    limits: Sequence[tuple[int, tuple[int, int]]] = ()
    processors: Sequence[int] = ()


def send(link: socket.socket, message: Any, descriptors: Sequence[int] = ()) -> None:
    """Send a message with file descriptors."""
    data = pickle.dumps(message)
    socket.send_fds(link, [HEAD.pack(len(data))], list(descriptors))
    link.sendall(data)


def receive(link: socket.socket, most: int) -> tuple[Any, list[int]]:
    """Receive a message with up to `most` file descriptors.

    Raises:
        EOFError: The other end is gone.
    """
    head, descriptors, _, _ = socket.recv_fds(link, HEAD.size, most)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    head += read_exactly(link, HEAD.size - len(head))
    return pickle.loads(read_exactly(link, HEAD.unpack(head)[0])), descriptors  # nosec B301  # of our parent


def read_exactly(link: socket.socket, size: int) -> bytes:
    """Read `size` bytes.

    Raises:
        EOFError: The other end is gone.
    """
    data = b""
    while len(data) < size:
        more = link.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


# ------------------------------------------------------------------ the process


@dataclass
class _ForkedChild:
    """A forked process that has not ended."""

    pid: int
    report: int  # the pipe to which the exit code is written
    outlives_s: float | None


class ForkServer:
    """A server that forks processes on request.

    Args:
        link: The socket on which the program sends requests.
    """

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._children: dict[int, _ForkedChild] = {}  # by pidfd, which reports a child's end
        self._poll = select.poll()

    def serve(self) -> Callable[[], int] | None:
        """Serve until the program ends; in a forked process, return the function to run."""
        self._poll.register(self._link, select.POLLIN)
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor in self._children:
                    self._reap(descriptor)
                    continue
                try:
                    request, given = receive(self._link, STREAMS + 1)
                except (EOFError, OSError):
                    self._outlive()
                    return None
                if self._fork(request, given) == 0:
                    return lambda: _become(request, given[:STREAMS])

    def _fork(self, request: ForkRequest, given: list[int]) -> int:
        *streams, report = given
        try:
            pid = os.fork()
        except OSError as error:
            send(self._link, -(error.errno or 1))
            for descriptor in given:
                os.close(descriptor)
            return -1
        if pid == 0:
            self._link.detach()
            return 0
        for descriptor in streams:
            os.close(descriptor)
        watched = os.pidfd_open(pid)
        self._children[watched] = _ForkedChild(pid, report, request.outlives_s)
        self._poll.register(watched, select.POLLIN)
        send(self._link, pid, [watched])
        return pid

    def _reap(self, watched: int) -> None:
        self._poll.unregister(watched)
        child = self._children.pop(watched)
        if child.outlives_s is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)  # before waitpid, so the id is not reused
        _, status = os.waitpid(child.pid, 0)
        with contextlib.suppress(OSError):
            os.write(child.report, CODE.pack(os.waitstatus_to_exitcode(status)))
        os.close(child.report)
        os.close(watched)

    def _outlive(self) -> None:
        """Kill children with `outlives_s` after that time; return when all of these have ended."""
        self._poll.unregister(self._link)
        began = time.monotonic()
        while watched := {w: c for w, c in self._children.items() if c.outlives_s is not None}:
            now = time.monotonic()
            for child in watched.values():
                if now - began >= (child.outlives_s or 0):
                    os.kill(child.pid, signal.SIGKILL)
            for descriptor, _ in self._poll.poll(100):
                self._reap(descriptor)


def main() -> int:
    """Run the fork server for the program at the other end of standard input."""
    link = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    module, function = WARM_UP
    getattr(importlib.import_module(module), function)()
    gc.collect()
    gc.freeze()  # memory that the collector does not touch stays shared with the forks
    send(link, len(os.listdir("/proc/self/task")))
    be = ForkServer(link).serve()
    return 0 if be is None else be()


# ------------------------------------------------------------------ in the fork


def _become(request: ForkRequest, streams: list[int]) -> int:
    os.setsid()
    for limit in request.limits:
        resource.setrlimit(*limit)
    os.sched_setaffinity(0, request.processors)
    os.chdir(request.directory)
    os.environ.clear()
    os.environ.update(request.environ)
    if "PWD" in os.environ:  # as a shell would
        os.environ["PWD"] = request.directory
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = _stream(number, getattr(sys, name))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    if request.watch is not None:
        _watch([*request.watch, str(os.getpid())])
    time.tzset()
    tempfile.tempdir = None  # TMPDIR may differ here
    # `random` reseeds itself. NumPy is seeded only if a preloaded module should ever import it.
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()
    module_name, _, function = request.entry.partition(":")
    module = importlib.import_module(module_name)
    sys.modules["__main__"] = module
    sys.argv[:] = [module.__file__ or module_name, *request.arguments]
    if not getattr(sys.flags, "safe_path", False):  # Python 3.11
        sys.path[0] = request.directory
    code: int = getattr(module, function)()
    return code


def _stream(number: int, old: Any) -> TextIO:
    """Open a standard stream as the interpreter does at startup."""
    is_buffered = not os.environ.get("PYTHONUNBUFFERED")
    raw = io.FileIO(number, "w" if number else "r", closefd=False)
    raw.name = old.name
    buffer: Any = raw
    if number == 0:
        buffer = io.BufferedReader(raw)
    elif is_buffered:
        buffer = io.BufferedWriter(raw)
    return io.TextIOWrapper(
        buffer,
        old.encoding,
        old.errors,
        line_buffering=is_buffered and (number == 2 or raw.isatty()),
        write_through=not is_buffered,
    )


def _watch(command: Sequence[str]) -> None:
    pid = os.posix_spawnp(command[0], list(command), os.environ)
    os.waitpid(pid, 0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


if __name__ == "__main__":
    sys.exit(main())
