"""Programs with pipes for the standard streams, driven from an event loop.

`PipedProcess` runs a program in a process group of its own, keeps its last lines of standard error,
and kills the whole group when this program ends. The process id stays reserved until `kill`: the
end is detected by `waitid` with WNOWAIT, so that a signal never reaches another process.
`read_pipe` and `write_all` read and write a pipe without blocking the loop.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import signal
import subprocess  # nosec B404  # without a shell
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from openenv._internal.redaction import redact

CHUNK_BYTES = 2**16
LATE_S = 1.0  # time limit for the process's end and its last stderr lines after stdout has ended
TICK_S = 0.01

_running: weakref.WeakSet[PipedProcess] = weakref.WeakSet()


class PipedProcess:
    """A program in a new process group, with a pipe for each standard stream.

    An instance is used from one event loop at a time, and may be spawned again after `kill`.

    Args:
        kept_lines: Number of lines of standard error to keep.
        kept_characters: Number of characters of each line to keep.
    """

    def __init__(self, kept_lines: int, kept_characters: int) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._exit_code: int | None = None
        self._maker = os.getpid()
        self._kept_characters = kept_characters
        self._said: deque[str] = deque(maxlen=kept_lines)
        self._listening: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The process id, which is also the group's; None if no process was spawned."""
        return None if self._process is None else self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None before the end."""
        return self._exit_code if self._process is None else _code_of(self._process)

    def is_running(self) -> bool:
        """Whether the program was started and has not ended."""
        return self._process is not None and _code_of(self._process) is None

    # ------------------------------------------------------------------ life cycle

    def _spawn(
        self, command: Sequence[str], cwd: str | None, env: Mapping[str, str] | None
    ) -> subprocess.Popen[bytes]:
        """Start the program.

        Raises:
            OSError: The program or the directory does not exist.
        """
        self._said.clear()
        self._exit_code = None
        self._process = subprocess.Popen(  # nosec B603  # what the operator names, without a shell
            command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=env,
            start_new_session=True,
        )
        _running.add(self)
        return self._process

    def _signal(self, by: signal.Signals) -> None:
        # Before the process has been waited for, the system cannot reuse its id or its group's.
        if self._process is not None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, by)

    async def _ends_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.is_running():
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(TICK_S)
        return True

    def kill(self) -> None:
        """Kill the program and the whole group. Safe to repeat."""
        process = self._process
        if process is None:
            return
        self._signal(signal.SIGKILL)
        self._process = None
        if process.stdin is not None:
            process.stdin.close()  # the transports close the other pipes
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._exit_code = process.wait(LATE_S)
        _running.discard(self)

    def kill_if_ours(self) -> None:
        """Kill the program, unless another process has started the program and forked this one."""
        if self._maker == os.getpid():
            self.kill()

    # ------------------------------------------------------------------ standard error

    async def _listen(self, stderr: asyncio.StreamReader) -> None:
        """Keep the last lines of standard error, until the stream ends."""
        tail = b""
        while chunk := await stderr.read(CHUNK_BYTES):
            *lines, tail = (tail + chunk).split(b"\n")
            tail = tail[-self._kept_characters :]
            for line in lines:
                self._note(line.decode(errors="replace"))
        if tail:
            self._note(tail.decode(errors="replace"))

    def _note(self, line: str) -> None:
        self._said.append(line.rstrip()[: self._kept_characters])

    async def _hear_last_words(self) -> None:
        """Wait up to `LATE_S` for the end of standard error, which a child may hold open."""
        if self._listening is not None:
            await asyncio.wait([self._listening], timeout=LATE_S)

    def _said_so_far(self) -> str:
        """Return the kept lines, without secrets."""
        return redact("\n".join(self._said))


@atexit.register
def _kill_all() -> None:
    for process in list(_running):
        process.kill_if_ours()


def _code_of(process: subprocess.Popen[bytes]) -> int | None:
    """Return the exit code without reaping the process, so that no other takes the id."""
    try:
        how = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return process.poll()
    except AttributeError:  # on macOS, waitid needs Python 3.13
        return process.poll()
    if how is None:
        return None
    return how.si_status if how.si_code == os.CLD_EXITED else -how.si_status


# ------------------------------------------------------------------ pipes


async def read_pipe(
    pipe: Any, limit: int, stack: contextlib.ExitStack | contextlib.AsyncExitStack
) -> asyncio.StreamReader:
    """Return a reader of a pipe, on the running loop.

    Args:
        pipe: The file object of the pipe.
        limit: Maximum number of bytes of a line.
        stack: The exit stack that closes the reader's transport.
    """
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit, loop=loop)
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader, loop=loop), pipe
    )
    stack.callback(transport.close)
    return reader


async def write_all(pipe: int, data: bytes) -> None:
    """Write all of `data` to a pipe, which is set to non-blocking.

    Raises:
        OSError: The other end is closed.
    """
    os.set_blocking(pipe, False)
    rest = memoryview(data)
    while rest:
        with contextlib.suppress(BlockingIOError):
            rest = rest[os.write(pipe, rest) :]
        if rest:
            await _writable(pipe)


async def _writable(pipe: int) -> None:
    loop = asyncio.get_running_loop()
    is_so = asyncio.Event()
    loop.add_writer(pipe, is_so.set)
    try:
        await is_so.wait()
    finally:
        loop.remove_writer(pipe)
