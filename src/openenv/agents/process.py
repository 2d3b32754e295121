"""An agent harness as a process: lines in, lines out, and an end to all that it has started."""

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
from openenv._internal.timeouts import Expired, within
from openenv.agents.errors import (
    HarnessCrashedError,
    HarnessNotRunningError,
    HarnessOutputTooLarge,
    HarnessStartupError,
)
from openenv.errors import how_it_ended

__all__ = ["HarnessProcess"]

KEPT_LINES, KEPT_CHARACTERS = 50, 1000  # of what it writes to standard error, and of a line
MAX_LINE_BYTES = 16 * 2**20
LOOK_S = 0.2  # how often it is looked whether a silent one still runs


class HarnessProcess(PipedProcess):
    """A process in a group of its own, which is spoken to by lines of UTF-8.

    It may be started again once it was stopped. It is used from one event loop at a time; what this
    program leaves running is killed when it ends.

    Args:
        command: The program and its arguments.
        cwd: Where it runs.
        env_vars: All of its environment variables; None is those of this process.
        startup_timeout_s: Seconds that it has to write a line in that `start` waits for.
        terminate_grace_s: Seconds that its group has to end in before it is killed.
        max_line_bytes: The longest line that is read.
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
        """The last lines that it wrote to standard error, without secrets, and forget them."""
        text = self._said_so_far()
        self._said.clear()
        return text

    # ------------------------------------------------------------------ its life

    async def start(self, ready_check: Callable[[str], bool] | None = None) -> None:
        """Start it.

        Args:
            ready_check: Says of each line that it writes whether it is ready now. Without one, it
                is ready at once.

        Raises:
            HarnessStartupError: There is no such program or directory, it ended, or did not get
                ready in time. Nothing of it is left.
        """
        await self.stop()
        process = self._spawned()
        try:
            await self._connect(process)
            if ready_check is not None:
                await within(self.startup_timeout_s, self._ready(ready_check))
        except Expired:
            why = f"did not become ready within {self.startup_timeout_s:g} s"
            raise await self._not_started(why) from None
        except HarnessCrashedError as error:
            why = f"ended during startup ({how_it_ended(error.exit_code)})"
            raise await self._not_started(why) from None
        except BaseException:
            await self.stop()
            raise

    def _spawned(self) -> subprocess.Popen[bytes]:
        program = self.command[0]
        try:
            return self._spawn(self.command, self.cwd, self._env_vars)
        except OSError as error:
            if not os.path.isdir(self.cwd):
                cure = "make the directory, or name another as working_directory"
                raise HarnessStartupError(
                    f"harness not started: no directory {self.cwd!r}; {cure}"
                ) from None
            why = error.strerror or str(error)
            cure = (
                "install it where the environment runs (in its Dockerfile), or give its full path"
            )
            raise HarnessStartupError(
                redact(f"harness not started: {program}: {why}; {cure}")
            ) from None

    async def _connect(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin and process.stdout and process.stderr
        pipes = self._pipes = contextlib.ExitStack()
        self._stdout = await read_pipe(process.stdout, self.max_line_bytes, pipes)
        stderr = await read_pipe(process.stderr, CHUNK_BYTES, pipes)
        self._listening = asyncio.ensure_future(self._listen(stderr))

    async def _ready(self, ready_check: Callable[[str], bool]) -> None:
        while not ready_check(await self.next_line()):
            pass

    async def _not_started(self, why: str) -> HarnessStartupError:
        await self.stop()
        return HarnessStartupError(f"{self.command[0]} {why}{self.last_words()}")

    def last_words(self) -> str:
        """What it wrote to standard error, as the end of a sentence; empty if it wrote nothing."""
        said = self.drain_stderr().strip()
        return f". It wrote:\n{said}" if said else ""

    async def stop(self) -> None:
        """End it and all of its group: its input is closed, then it is asked to, then killed."""
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
            self._disconnect()

    def _disconnect(self) -> None:
        pipes, self._pipes, self._stdout = self._pipes, None, None
        if pipes is not None:
            with contextlib.suppress(RuntimeError):  # their event loop has closed
                pipes.close()

    # ------------------------------------------------------------------ lines

    async def write_line(self, text: str) -> None:
        """Write a line.

        Raises:
            HarnessNotRunningError: It has ended, or does not read any more.
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
        """Let it know that nothing else will be written."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    async def read_line(self, timeout_s: float | None = None) -> str | None:
        """The next line that it writes, without its end; None if it writes none in that time, or
        no more at all.

        Raises:
            HarnessOutputTooLarge: The line is longer than `max_line_bytes`.
        """
        try:
            return await within(timeout_s, self.next_line())
        except (Expired, HarnessCrashedError, HarnessNotRunningError):
            return None

    async def next_line(self) -> str:
        """The next line that it writes, without its end.

        Raises:
            HarnessNotRunningError: It was not started.
            HarnessCrashedError: It writes no more; `exit_code` says how it ended.
            HarnessOutputTooLarge: The line is longer than `max_line_bytes`.
        """
        if self._stdout is None:
            raise HarnessNotRunningError("cannot read from the harness: it is not running")
        try:
            line = await self._read(self._stdout)
        except ValueError:
            raise HarnessOutputTooLarge(
                f"the harness wrote a line of over {self.max_line_bytes} bytes; raise "
                "max_output_bytes of its HarnessConfig, or have it write less"
            ) from None
        if not line:
            how = await self._how_it_ended()
            raise HarnessCrashedError(f"the harness has ended: {how}", self.exit_code)
        return line.decode(errors="replace").rstrip("\r\n")

    async def _read(self, stdout: asyncio.StreamReader) -> bytes:
        """A line; an empty one at the end, also where something that it has started lives on and
        holds its output open.
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
        """Wait for its end, once its output has ended; its exit code.

        Raises:
            HarnessNotRunningError: It was not started.
        """
        if self._process is None:
            raise HarnessNotRunningError("the harness is not running")
        await self._ends_within(math.inf)
        await self._hear_last_words()
        code = self.exit_code
        return -signal.SIGKILL if code is None else code  # killed, and not gone yet

    async def _how_it_ended(self) -> str:
        """How it ended; or that it lives, and has closed a pipe."""
        if not await self._ends_within(LATE_S):
            return "it has closed its output, and still runs"
        return how_it_ended(await self.wait())
