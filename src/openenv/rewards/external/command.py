"""Scorers that are programs: they read a request on stdin and write a response to stdout.

`wire` defines both. A program runs in its own process group, and its own thread (`on_thread`) waits
for it. `cancel` may be called from any thread and takes effect within 50 ms (`LOOK_EVERY_S`). The
group is killed while its leader is still unreaped, so that the system cannot have reused the
process id.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
import os
import selectors
import shutil
import signal
import subprocess  # nosec B404
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from openenv.errors import SandboxError, Unscored, how_it_ended
from openenv.reward import Score
from openenv.rewards.delayed import Trajectory, TrajectoryScorer
from openenv.rewards.external.conversation import Message, as_messages
from openenv.rewards.external.scorers import TemporarilyUnscored, extend_identity, on_thread
from openenv.rewards.external.wire import answer_request, read_response, write_request

TIMEOUT_S = 60.0
MAX_OUTPUT_BYTES = 2**20
KEPT_STDERR_BYTES = 2000
CHUNK_BYTES = 2**16
LOOK_EVERY_S = 0.05
END_GRACE_S = 5.0
TRY_AGAIN = os.EX_TEMPFAIL if hasattr(os, "EX_TEMPFAIL") else 75  # of sysexits.h


class _ProgramResult(NamedTuple):
    """The exit code and output of a program, and why the scorer ended the program, if it did."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    why: str | None = None
    is_late: bool = False


class CommandScorer:
    """A scorer that runs a program, created by `command_scorer`."""

    def __init__(
        self,
        command: Sequence[str],
        timeout_s: float,
        max_bytes: int,
        environment: Mapping[str, str],
        sandbox: Callable[[], Any] | None,
        files: Mapping[str, bytes | str],
        messages: Callable[[Trajectory[Any, Any]], list[Message]],
    ) -> None:
        if not command:
            raise ValueError("expected a program and its arguments, got nothing")
        if files and sandbox is None:
            raise ValueError("files need a sandbox: pass sandbox=Sandbox")
        if sandbox is None and shutil.which(command[0]) is None:
            raise ValueError(f"no executable program {command[0]!r}")
        self.command = list(command)
        self.name = Path(self.command[0]).name
        self.identity = extend_identity(
            f"command:{_digest(self.command, environment, files, in_sandbox=sandbox is not None)}",
            messages,
        )
        self.timeout_s = timeout_s
        self.max_bytes = max_bytes
        self.environment = dict(environment)
        self.files = dict(files)
        self._sandbox = sandbox
        self._messages = messages

    async def __call__(self, trajectory: Trajectory[Any, Any]) -> Score:
        """Run the program to score an episode.

        Raises:
            TemporarilyUnscored: The program exceeded its time limit or exited with 75
                (EX_TEMPFAIL).
            Unscored: The program failed, wrote an invalid response, or gave a reason for no score.
        """
        request = write_request(trajectory, self._messages)
        run = _ProgramRun(self) if self._sandbox is None else _SandboxedRun(self, self._sandbox)
        try:
            outcome = await asyncio.wrap_future(on_thread(run.run, request))
        except asyncio.CancelledError:
            run.cancel()
            raise
        if outcome.why is None and outcome.exit_code == 0:
            return read_response(outcome.stdout, len(trajectory))
        words = outcome.stderr.decode("utf-8", "replace").strip()[-300:]
        ended = outcome.why or f"it failed: {how_it_ended(outcome.exit_code)}"
        why = f"{self.name}: {ended}" + (f": {words}" if words else "")
        if outcome.is_late or (outcome.why is None and outcome.exit_code == TRY_AGAIN):
            raise TemporarilyUnscored(why)
        raise Unscored(why)


def _digest(
    command: Sequence[str],
    environment: Mapping[str, str],
    files: Mapping[str, bytes | str],
    *,
    in_sandbox: bool,
) -> str:
    """Hash the command, the program, and the files that are arguments or go into the sandbox."""
    digest = hashlib.sha256(repr((list(command), sorted(environment.items()))).encode())
    program = None if in_sandbox else shutil.which(command[0])
    for part in (program or command[0], *command[1:]):
        with contextlib.suppress(OSError, ValueError):
            if os.path.isfile(part):
                digest.update(hashlib.sha256(Path(part).read_bytes()).digest())
    for path, data in sorted(files.items()):
        content = data.encode() if isinstance(data, str) else data
        digest.update(repr((path, hashlib.sha256(content).hexdigest())).encode())
    return digest.hexdigest()


# ------------------------------------------------------------------ runs


class _ProgramRun:
    """A run of a program together with the processes in the same group."""

    def __init__(self, scorer: CommandScorer) -> None:
        self._scorer = scorer
        self._stdout = bytearray()
        self._stderr = bytearray()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_cancelled = threading.Event()

    def cancel(self) -> None:
        """End the run; callable from any thread."""
        self._is_cancelled.set()

    def run(self, request: bytes) -> _ProgramResult:
        """Run the program until it ends or reaches the time limit."""
        deadline = time.monotonic() + self._scorer.timeout_s
        with tempfile.TemporaryFile() as stdin:
            stdin.write(request)
            stdin.seek(0)
            # The program inherits no other variables, so that no key or token reaches it.
            inherited = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}
            try:
                process = subprocess.Popen(  # nosec B603  # no shell; it is the caller's program
                    self._scorer.command,
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env={**inherited, **self._scorer.environment},
                    start_new_session=True,
                    bufsize=0,
                )
            except OSError as error:
                return _ProgramResult(-1, b"", b"", f"it did not start: {error.strerror}")
        with process:
            assert process.stdout is not None and process.stderr is not None
            try:
                why = self._listen(process, deadline) or self._wait(process, deadline)
            finally:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait(END_GRACE_S)
        is_late = why is not None and time.monotonic() >= deadline
        return _ProgramResult(
            process.returncode, bytes(self._stdout), bytes(self._stderr), why, is_late
        )

    def _listen(self, process: subprocess.Popen[bytes], deadline: float) -> str | None:
        """Read output until the program ends; return a reason for ending the program, or None."""
        with selectors.DefaultSelector() as selector:
            for stream in (process.stdout, process.stderr):
                assert stream is not None
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, selectors.EVENT_READ)
            while selector.get_map():
                if why := self._why_to_end(deadline):
                    return why
                # A child process may hold the output open, so the exit of the program decides.
                is_over = _has_exited(process)
                ready = selector.select(0 if is_over else LOOK_EVERY_S)
                for key, _ in ready:
                    data = os.read(key.fd, CHUNK_BYTES)
                    if key.fileobj is process.stdout:
                        self._stdout += data
                    else:
                        self._stderr = (self._stderr + data)[-KEPT_STDERR_BYTES:]
                    if not data:
                        selector.unregister(key.fileobj)
                if is_over and not ready:
                    break
        return None

    def _why_to_end(self, deadline: float) -> str | None:
        if len(self._stdout) > self._scorer.max_bytes:
            return f"it wrote more than {self._scorer.max_bytes} bytes"
        if self._is_cancelled.is_set():
            return "scoring was cancelled"
        if time.monotonic() >= deadline:
            return f"it was not done within {self._scorer.timeout_s:g} s"
        return None

    def _wait(self, process: subprocess.Popen[bytes], deadline: float) -> str | None:
        pause = 0.0005
        while not _has_exited(process):
            if why := self._why_to_end(deadline):
                return why
            time.sleep(pause)
            pause = min(pause * 2, LOOK_EVERY_S)
        return self._why_to_end(math.inf)


def _has_exited(process: subprocess.Popen[bytes]) -> bool:
    """Return whether the process has exited, without reaping it if the system allows that.

    While a process is unreaped, the system does not reuse the id of the process or its group.
    """
    if sys.platform == "darwin" or sys.platform == "win32":  # without `waitid`
        return process.poll() is not None
    how = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, process.pid, how) is not None


class _SandboxedRun:
    """A run of a program in a new sandbox."""

    def __init__(self, scorer: CommandScorer, sandbox: Callable[[], Any]) -> None:
        self._scorer = scorer
        self._make = sandbox
        self._sandbox: Any = None
        self._is_cancelled = threading.Event()

    def cancel(self) -> None:
        """End the run; callable from any thread."""
        self._is_cancelled.set()
        if self._sandbox is not None:
            self._sandbox.close()

    def run(self, request: bytes) -> _ProgramResult:
        """Run the program until it ends or reaches the time limit."""
        try:
            with self._make() as sandbox:
                self._sandbox = sandbox
                if self._is_cancelled.is_set():
                    return _ProgramResult(-1, b"", b"", "scoring was cancelled")
                for path, data in self._scorer.files.items():
                    sandbox.write(path, data, 0o755)
                done = sandbox.run(
                    self._scorer.command,
                    stdin=request,
                    environment=self._scorer.environment,
                    wall_s=self._scorer.timeout_s,
                )
        except SandboxError as error:
            return _ProgramResult(-1, b"", b"", f"its sandbox: {error}")
        stdout, stderr = done.stdout.encode(), done.stderr.encode()
        why = None
        if done.timed_out:
            why = f"it was not done within {self._scorer.timeout_s:g} s"
        elif done.left_out.get("stdout") or len(stdout) > self._scorer.max_bytes:
            why = "it wrote more than is read"
        return _ProgramResult(
            done.exit_code, stdout, stderr[-KEPT_STDERR_BYTES:], why, done.timed_out
        )


def command_scorer(
    command: Sequence[str],
    *,
    timeout_s: float = TIMEOUT_S,
    max_bytes: int = MAX_OUTPUT_BYTES,
    environment: Mapping[str, str] | None = None,
    sandbox: Callable[[], Any] | None = None,
    files: Mapping[str, bytes | str] | None = None,
    messages: Callable[[Trajectory[Any, Any]], list[Message]] = as_messages,
) -> CommandScorer:
    """Make a scorer that starts a program for each episode.

        scorer = command_scorer(["./grade", "--strict"], timeout_s=10)
        scorer = command_scorer(["python3", "grade.py"], sandbox=Sandbox, files={"grade.py": CODE})

    The program reads the episode on stdin and writes the response to stdout, both as JSON. Its
    environment has only PATH, ``LANG=C.UTF-8`` and `environment`. The program is killed with its
    process group if it exceeds the time limit or writes too much. A child that leaves the group
    survives, unless it runs in a sandbox.

    Args:
        command: The program and its arguments; no shell is involved.
        timeout_s: Time limit in seconds. Default: 60.
        max_bytes: Maximum size of the response in bytes. Default: 1 MiB.
        environment: Further environment variables.
        sandbox: Function that creates a sandbox for each run: `openenv.sandbox.Sandbox`, or a
            function that returns a `Sandbox` with a policy.
        files: Executable files to write into the sandbox: contents by relative path.
        messages: Function that converts an episode to a conversation.

    Raises:
        ValueError: The command is empty, the program does not exist, or there are files but no
            sandbox.
    """
    return CommandScorer(
        command, timeout_s, max_bytes, environment or {}, sandbox, files or {}, messages
    )


# ------------------------------------------------------------------ the reverse direction


def score_stdin(scorer: TrajectoryScorer) -> None:
    """Read a request of `command_scorer` on stdin and write the response to stdout.

    Output that the scorer prints goes to stderr.

    Args:
        scorer: The scorer; use `from_rubric` for a rubric.

    Raises:
        ValueError: The data on stdin is not a valid request.
    """
    with contextlib.redirect_stdout(sys.stderr):
        answer = asyncio.run(answer_request(scorer, sys.stdin.buffer.read()))
    sys.stdout.buffer.write(answer)
    sys.stdout.buffer.flush()
