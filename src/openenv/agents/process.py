"""An agent harness process: lines in, lines out, and cleanup of the process group.

A harness may start processes that outlive it and hold its pipes open. Therefore reading polls every
0.2 s whether the process still runs, and `stop` ends the whole group: it closes stdin, sends
SIGTERM, and kills the group after a grace period.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence

from openenv._internal.pipes import CHUNK_BYTES, LATE_S, PipedProcess, read_pipe, write_all
from openenv._internal.redaction import redact
from openenv._internal.timing import Expired, within
from openenv.agents.errors import (
    HarnessCrashedError,
    HarnessNotRunningError,
    HarnessOutputTooLarge,
    HarnessStartupError,
)
from openenv.errors import how_it_ended

__all__ = ["HarnessProcess"]

KEPT_LINES, KEPT_CHARACTERS = 50, 1000  # of stderr: lines kept, and characters kept of each line
MAX_LINE_BYTES = 16 * 2**20
LOOK_S = 0.2  # poll interval for the end of a silent process


class HarnessProcess(PipedProcess):
    """A process in its own process group that exchanges UTF-8 lines.

    A stopped process can be started again. It may be used from one event loop at a time, and is
    killed when this program ends.

    Args:
        command: The program and its arguments.
        cwd: The working directory.
        env_vars: All environment variables; None inherits those of this process.
        startup_timeout_s: Time limit in seconds for the line that `start` waits for.
        terminate_grace_s: Seconds between the request to terminate and the kill.
        max_line_bytes: Maximum length of a line, in bytes.
    """

    def __init__(
        self,
        command: Sequence[str],
        cwd: str,
        env_vars: Mapping[str, str] | None = None,
        startup_timeout_s: float = 30.0,
        terminate_grace_s: float = 5.0,
        *,
        max_line_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        super().__init__(KEPT_LINES, KEPT_CHARACTERS)
        self.command = list(command)
        self.cwd = cwd
        self.startup_timeout_s = startup_timeout_s
        self.terminate_grace_s = terminate_grace_s
        self.max_line_bytes = max_line_bytes
        self._env_vars = None if env_vars is None else dict(env_vars)
        self._stdout: asyncio.StreamReader | None = None
        self._pipes: contextlib.ExitStack | None = None

    def drain_stderr(self) -> str:
        """Return the last lines of stderr, without secrets, and forget them."""
        text = self._said_so_far()
        self._said.clear()
        return text

    # ------------------------------------------------------------------ life cycle

    async def start(self, ready_check: Callable[[str], bool] | None = None) -> None:
        """Start the process.

        Args:
            ready_check: Called with each line of output; returns whether the process is ready. By
                default the process is ready at once.

        Raises:
            HarnessStartupError: The program or directory does not exist, or the process ended or
                was not ready in time. No process is left running.
        """

        async def wait_until_ready() -> None:
            while ready_check is not None and not ready_check(await self.next_line()):
                pass

        await self.stop()
        process = self._start_process()
        try:
            assert process.stdin and process.stdout and process.stderr
            pipes = self._pipes = contextlib.ExitStack()
            self._stdout = await read_pipe(process.stdout, self.max_line_bytes, pipes)
            stderr = await read_pipe(process.stderr, CHUNK_BYTES, pipes)
            self._listening = asyncio.ensure_future(self._listen(stderr))
            await within(self.startup_timeout_s, wait_until_ready())
        except (Expired, HarnessCrashedError) as error:
            why = f"did not become ready within {self.startup_timeout_s:g} s"
            if isinstance(error, HarnessCrashedError):
                why = f"ended during startup ({how_it_ended(error.exit_code)})"
            await self.stop()
            raise HarnessStartupError(f"{self.command[0]} {why}{self.last_words()}") from None
        except BaseException:
            await self.stop()
            raise

    def _start_process(self) -> subprocess.Popen[bytes]:
        try:
            return self._spawn(self.command, self.cwd, self._env_vars)
        except OSError as error:
            why = f"{self.command[0]}: {error.strerror or error}"
            cure = (
                "install it where the environment runs (in its Dockerfile), or give its full path"
            )
            if not os.path.isdir(self.cwd):
                why = f"no directory {self.cwd!r}"
                cure = "make the directory, or name another as working_directory"
            raise HarnessStartupError(redact(f"harness not started: {why}; {cure}")) from None

    def last_words(self) -> str:
        """Return the end of stderr as a continuation of an error message, or ""."""
        said = self.drain_stderr().strip()
        return f". It wrote:\n{said}" if said else ""

    async def stop(self) -> None:
        """End the process group: close stdin, terminate, then kill."""
        process = self._process
        if process is None:
            return
        try:
            assert process.stdin is not None
            process.stdin.close()
            self._signal(signal.SIGTERM)
            await self._ends_within(self.terminate_grace_s)
        finally:
            self.kill()
            with contextlib.suppress(asyncio.CancelledError, RuntimeError):
                await self._hear_last_words()
            listening, self._listening = self._listening, None
            if listening is not None:
                listening.cancel()
            pipes, self._pipes, self._stdout = self._pipes, None, None
            if pipes is not None:
                with contextlib.suppress(RuntimeError):  # their event loop has closed
                    pipes.close()

    # ------------------------------------------------------------------ lines

    async def write_line(self, text: str) -> None:
        """Write a line.

        Raises:
            HarnessNotRunningError: The process has ended, or closed its input.
        """
        process = self._process
        if process is None or process.stdin is None or process.stdin.closed:
            raise HarnessNotRunningError("cannot write to the harness: it is not running")
        try:
            await write_all(process.stdin.fileno(), f"{text}\n".encode())
        except OSError:
            raise HarnessNotRunningError(
                f"cannot write to the harness: {await self._how_it_ended()}{self.last_words()}"
            ) from None

    async def close_input(self) -> None:
        """Close the process's standard input."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    async def read_line(self, timeout_s: float | None = None) -> str | None:
        """Read a line; return None after `timeout_s` seconds or at the end of output.

        Raises:
            HarnessOutputTooLarge: The line is longer than `max_line_bytes`.
        """
        try:
            return await within(timeout_s, self.next_line())
        except (Expired, HarnessCrashedError, HarnessNotRunningError):
            return None

    async def next_line(self) -> str:
        """Read a line and return it without its line ending.

        Raises:
            HarnessNotRunningError: The process was not started.
            HarnessCrashedError: The output has ended; `exit_code` has the exit code.
            HarnessOutputTooLarge: The line is longer than `max_line_bytes`.
        """
        if self._stdout is None:
            raise HarnessNotRunningError("cannot read from the harness: it is not running")
        try:
            line = await self._read(self._stdout)
        except ValueError:
            raise HarnessOutputTooLarge(
                f"the harness wrote a line of over {self.max_line_bytes} bytes; raise "
                "max_output_bytes of its HarnessConfig, or make it write less"
            ) from None
        if not line:
            how = await self._how_it_ended()
            raise HarnessCrashedError(f"the harness has ended: {how}", self.exit_code)
        return line.decode(errors="replace").rstrip("\r\n")

    async def _read(self, stdout: asyncio.StreamReader) -> bytes:
        """Read a line; return b"" at the end of output or after the process has ended.

        After the process has ended, a child process may still hold the output open.
        """
        reading = asyncio.ensure_future(stdout.readline())
        try:
            is_late = False
            while not reading.done() and not is_late:
                is_late = not self.is_running()
                await asyncio.wait([reading], timeout=LATE_S if is_late else LOOK_S)
            return reading.result() if reading.done() else b""
        finally:
            reading.cancel()

    async def wait(self) -> int:
        """Wait for the end of the process and return the exit code; read the output first.

        Raises:
            HarnessNotRunningError: The process was not started.
        """
        if self._process is None:
            raise HarnessNotRunningError("the harness is not running")
        await self._ends_within(math.inf)
        await self._hear_last_words()
        code = self.exit_code
        return -signal.SIGKILL if code is None else code  # killed, but not reaped yet

    async def _how_it_ended(self) -> str:
        """Return how the process ended, or that only the output was closed."""
        if not await self._ends_within(LATE_S):
            return "it has closed its output, and still runs"
        return how_it_ended(await self.wait())
