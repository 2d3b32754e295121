"""Sandboxes and their commands, as seen by the holder: the process that created the sandbox.

Nothing that comes out of a sandbox is trusted: lengths are bounded before anything is read, every
wait has a limit, and the holder measures time and ends the sandbox from outside.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import itertools
import os
import select
import shlex
import signal
import subprocess
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from typing_extensions import Self

from openenv.errors import SandboxEnded, SandboxFileError
from openenv.sandbox.inside.frames import MAX_BODY, Decoder, FrameError, encode
from openenv.sandbox.kinds import Kind, Place, strongest
from openenv.sandbox.policy import Guarantee, SandboxPolicy
from openenv.sandbox.watch import Watched, keep_watch, tree_of, unwatch

__all__ = ["Completed", "Running", "Sandbox"]

Frame = tuple[dict[str, Any], bytes]
OnOutput = Callable[[str, str], Any]

START_TIMEOUT_S = 30.0
ANSWER_TIMEOUT_S = 30.0  # for the first process, which never computes
INTERRUPT_GRACE_S = 1.0
# Maximum unread bytes of a running command. A stream keeps its last bytes. A channel must be
# complete, so more bytes end the sandbox.
MAX_UNREAD, MAX_UNREAD_OF_CHANNEL = 2**20, 16 * 2**20


@dataclass(frozen=True)
class Completed:
    """The result of a command.

    Attributes:
        exit_code: The exit code, as in a shell: 128 plus the signal's number if a signal ended the
            command.
        stdout: Standard output, at most `SandboxPolicy.output_bytes`.
        stderr: Standard error, with the same limit.
        timed_out: Whether the command exceeded its time limit and was ended.
        left_out: Number of bytes omitted from the middle of each stream.
        seconds: Duration of the command.
    """

    exit_code: int
    stdout: str
    stderr: str
    timed_out: bool = False
    left_out: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0


class Sandbox:
    """An isolated place for untrusted code.

        with Sandbox() as sandbox:
            done = sandbox.run("python3 -c 'print(6 * 7)'", wall_s=5)
            print(done.exit_code, done.stdout, sandbox.kind)

    Commands share the sandbox's files and processes; two sandboxes share nothing. Methods block.
    Only one thread at a time may use a sandbox, but any thread may `close` it.

    Args:
        policy: The limits; by default those of `SandboxPolicy()`.
        require: The weakest acceptable guarantee: ``"process"``, ``"namespaces"`` or ``"kernel"``.
        kind: The only kind to use: ``"gvisor"``, ``"bubblewrap"`` or ``"landlock"``. By default the
            strongest that this machine has.

    Raises:
        SandboxUnavailable: This machine has no suitable kind. A weaker kind is never used instead.
        SandboxEnded: The sandbox did not start.
    """

    def __init__(
        self,
        policy: SandboxPolicy | None = None,
        *,
        require: Guarantee | str = Guarantee.NAMESPACES,
        kind: str | None = None,
    ) -> None:
        policy = policy or SandboxPolicy()
        self._begin(strongest(require, kind, policy), policy)

    @classmethod
    def of_kind(cls, kind: Kind, policy: SandboxPolicy) -> Self:
        """Start a sandbox of any kind, even one that is not part of this package."""
        sandbox = cls.__new__(cls)
        sandbox._begin(kind, policy)
        return sandbox

    def _begin(self, kind: Kind, policy: SandboxPolicy) -> None:
        self.kind = kind.name
        self.guarantee = kind.guarantee
        self.policy = policy
        self._ids = itertools.count(1)
        self._decoder = Decoder()
        self._jobs: dict[int, Running] = {}
        self._why: str | None = None
        self._lock = threading.RLock()  # held while the sandbox's pipes are read or written
        try:
            self._place = kind.start(policy)
        except OSError as error:
            raise SandboxEnded(f"it did not start: {error}") from error
        process = self._place.process
        assert process.stdin is not None and process.stdout is not None
        self._to, self._from = process.stdin.fileno(), process.stdout.fileno()
        os.set_blocking(self._to, False)
        os.set_blocking(self._from, False)
        over = weakref.WeakMethod(self._over)  # the monitor must not keep the sandbox alive

        def end(why: str) -> None:
            if (call := over()) is not None:
                call(why)

        self._watched = Watched(self._place, policy, end)
        self._finalizer = weakref.finalize(self, _end, self._place, self._watched, os.getpid())
        keep_watch(self._watched)
        try:
            header, _ = self._next(time.monotonic() + START_TIMEOUT_S)
        except SandboxEnded as error:
            raise SandboxEnded(f"it did not start: {error.why}") from error
        if header.get("is") != "ready":
            self._fail("it did not start as it should")
        if policy.network:
            self._forward()

    def _forward(self) -> None:
        """Start the program that forwards connections to the proxy outside."""
        from openenv.sandbox.proxy import PORT, PROXY_SOCKET

        program = f"{self._place.guest}/forward.py"
        forwarder = self.start([self.python, "-I", program, str(PORT), PROXY_SOCKET])
        if "ready" not in forwarder.read(START_TIMEOUT_S):
            self._fail("its forwarder to the proxy for the policy's hosts did not start")

    # ------------------------------------------------------------------ commands and files

    @property
    def home(self) -> str:
        """The working directory of commands, as seen inside."""
        return self._place.home

    @property
    def python(self) -> str:
        """The path of the Python interpreter inside."""
        return self._place.python

    @property
    def is_over(self) -> bool:
        """Whether the sandbox has ended or was closed."""
        return self._why is not None

    def run(
        self,
        command: str | Sequence[str],
        *,
        stdin: bytes | str = b"",
        cwd: str | None = None,
        environment: Mapping[str, str] | None = None,
        wall_s: float | None = None,
        on_output: OnOutput | None = None,
    ) -> Completed:
        """Run a command, and wait until it ends.

        Args:
            command: A line for ``/bin/sh``, or a program and its arguments.
            stdin: The standard input.
            cwd: The working directory; by default `home`.
            environment: Additional environment variables.
            wall_s: End the command and its processes after this many seconds, and set
                `Completed.timed_out`; by default `SandboxPolicy.wall_s`.
            on_output: Called with ``"stdout"`` or ``"stderr"`` and some text as output arrives.

        Raises:
            SandboxEnded: The sandbox has ended, for example because it took too much memory.
        """
        began = time.monotonic()
        wall_s = self.policy.wall_s if wall_s is None else wall_s
        job = self.start(
            command,
            cwd=cwd,
            environment=environment,
            limit=self.policy.output_bytes,
            on_output=on_output,
        )
        try:
            job.write(stdin.encode() if isinstance(stdin, str) else stdin)
            job.end_input()
            timed_out = not job.wait(wall_s)
        except BaseException:
            job.abandon()
            raise
        if timed_out:
            job.kill()
            job.wait(ANSWER_TIMEOUT_S)
        if self._why is not None:  # the command ended with the sandbox
            raise SandboxEnded(self._why)
        if job.code is None:
            self._fail("a command could not be ended")
        return Completed(
            exit_code=128 - job.code if job.code < 0 else job.code,
            stdout=job.text("stdout"),
            stderr=job.text("stderr"),
            timed_out=timed_out,
            left_out=job.left_out,
            seconds=time.monotonic() - began,
        )

    def start(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        environment: Mapping[str, str] | None = None,
        terminal: tuple[int, int] | None = None,
        limit: int | None = None,
        on_output: OnOutput | None = None,
        has_channel: bool = False,
    ) -> Running:
        """Start a command, and return a handle for its input and output.

        Args:
            command: A line for ``/bin/sh``, or a program and its arguments.
            cwd: The working directory; by default `home`.
            environment: Additional environment variables.
            terminal: Rows and columns of a terminal for the command; None for pipes.
            limit: Number of bytes of each stream to keep, from the beginning and the end; None for
                streams that are read as output arrives.
            on_output: Called with the stream's name and some text as output arrives.
            has_channel: Give the command two additional files for `Running.say` and `Running.hear`:
                3 to read from, and 4 to write to.

        Raises:
            SandboxEnded: The sandbox has ended.
            SandboxFileError: The command could not be started, for example with too many processes.
        """
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        variables = self._environment(environment, terminal)
        if any("\0" in text for text in (*argv, cwd or "", *variables, *variables.values())):
            why = "arguments, directories and variables cannot contain a NUL"
            raise SandboxFileError(errno.EINVAL, why, shlex.join(argv)[:80])
        id = next(self._ids)
        job = self._jobs[id] = Running(self, id, on_output, limit is None)
        cpu_s = max(1, round(self.policy.cpu_s))
        how = {
            "argv": argv,
            "cwd": self.home if cwd is None else cwd,
            "environment": variables,
            "terminal": terminal,
            "channel": has_channel,
            "limit": limit,
            "cpu_s": None if has_channel or terminal else cpu_s,
        }
        with self._watched.at_work():
            try:
                self._tell({"do": "start", "id": id, **how})
                self._answer(id, "started", shlex.join(argv)[:80])
            except BaseException:
                self._jobs.pop(id, None)
                raise
        return job

    def write(self, path: str, data: bytes | str, mode: int = 0o644) -> None:
        """Write a file, and create its directories; a relative path is relative to `home`.

        Raises:
            SandboxFileError: The file cannot be written.
            SandboxEnded: The sandbox has ended.
        """
        data = data.encode() if isinstance(data, str) else data
        path, id = os.path.join(self.home, path), next(self._ids)
        step = MAX_BODY // 2
        parts = [data[at : at + step] for at in range(0, len(data), step)] or [b""]
        for number, part in enumerate(parts):
            is_last = number == len(parts) - 1
            how = {"path": path, "mode": mode, "append": number > 0, "is_last": is_last}
            self._tell({"do": "write", "id": id, **how}, part)
        self._answer(id, "written", path)

    def read(self, path: str, max_bytes: int = 16 * 2**20) -> bytes:
        """Read at most `max_bytes` of a file; a relative path is relative to `home`.

        Raises:
            SandboxFileError: The file does not exist or cannot be read.
            SandboxEnded: The sandbox has ended.
        """
        path, found = os.path.join(self.home, path), bytearray()
        while len(found) < max_bytes:
            id = next(self._ids)
            length = min(MAX_BODY, max_bytes - len(found))
            how = {"path": path, "offset": len(found), "length": length}
            self._tell({"do": "read", "id": id, **how})
            _, data = self._answer(id, "read", path)
            found += data[:length]
            if len(data) < length:
                break
        return bytes(found)

    def processes(self) -> list[int]:
        """Return the ids of the sandbox's processes on this machine, the outermost first.

        The list is empty after the sandbox has ended. For gVisor it has only gVisor's own
        processes.
        """
        return tree_of(self._place.process.pid)

    def kill_all(self) -> None:
        """End every process in the sandbox; files stay.

        Raises:
            SandboxEnded: The sandbox has ended.
        """
        self._kill(None)

    def _kill(self, id: int | None) -> None:
        """End a job, or everything; restart the forwarder to the policy's hosts if needed."""
        self._tell({"do": "kill", "id": id})
        header, _ = self._answer(id, "killed", "")
        if header.get("everything") and self.policy.network:
            self._forward()

    def close(self) -> None:
        """End the sandbox with every process and file in it. Idempotent."""
        if self._why is None:
            self._why = "it was closed"
        if not self._lock.acquire(blocking=False):
            # Another thread waits for output, notices the end and does the rest. If this thread
            # closed the pipes, their numbers might be another file's by the time the other thread
            # reads.
            _stop(self._place)
            return
        try:
            self._finalizer()
        finally:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        how = f", {self._why}" if self._why else ""
        return f"<{type(self).__name__} {self.kind} ({self.guarantee}){how}>"

    # ------------------------------------------------------------------ frames

    def _environment(
        self, further: Mapping[str, str] | None, terminal: tuple[int, int] | None
    ) -> dict[str, str]:
        bin = os.path.dirname(self.python)
        path = "/usr/local/bin:/usr/bin:/bin"
        own = {
            "PATH": path if bin in path.split(":") else f"{bin}:{path}",
            "HOME": self.home,
            "USER": "agent",
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        if terminal is not None:
            own["TERM"] = "xterm-256color"
        if self.policy.network:
            from openenv.sandbox.proxy import variables

            own |= variables()
        return {**own, **self.policy.environment, **(further or {})}

    def _tell(self, header: dict[str, Any], body: bytes = b"") -> None:
        """Send a frame; while waiting, receive the frames that arrive."""
        data = memoryview(encode(header, body))
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        with self._lock:
            while data:
                if self._why is not None:
                    raise SandboxEnded(self._why)
                try:
                    data = data[os.write(self._to, data) :]
                except BlockingIOError:
                    if not self._wait_until(deadline, writes=True):
                        self._fail("it does not read its requests")
                    self._take_in()
                except OSError:
                    self._fail(self._last_words())

    def _answer(self, id: int | None, expected: str, what: str) -> Frame:
        """Wait for the answer of this type and id."""
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while True:
            header, body = self._next(deadline)
            if header.get("id") != id or header.get("is") not in (expected, "failed"):
                self._dispatch(header, body)
                continue
            if header["is"] == expected:
                return header, body
            number = header.get("errno")
            why = str(header.get("why"))[:500].rpartition(": /")[0] or str(header.get("why"))[:500]
            raise SandboxFileError(number if isinstance(number, int) else 0, why, what)

    def _receive(self, deadline: float | None) -> Frame | None:
        """Return the next frame, or None if none arrives in time."""
        with self._lock:
            while (frame := self._decoded()) is None:
                if not self._wait_until(deadline):
                    return None
                self._take_in()
        return frame

    def _next(self, deadline: float) -> Frame:
        return self._receive(deadline) or self._fail("it does not answer")

    def _pump(self, deadline: float | None) -> bool:
        """Dispatch all frames that have arrived; return False if none arrived in time."""
        frame = self._receive(deadline)
        is_late = frame is None
        while frame is not None:
            self._dispatch(*frame)
            frame = self._decoded()
        return not is_late

    def _decoded(self) -> Frame | None:
        try:
            return self._decoder.next()
        except FrameError as error:
            self._fail(f"it sent an invalid frame: {error}")

    def _wait_until(self, deadline: float | None, writes: bool = False) -> bool:
        """Wait until the sandbox can be read (or written); return False if it cannot in time."""
        if self._why is not None:
            raise SandboxEnded(self._why)
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        poll = select.poll()
        poll.register(self._from, select.POLLIN)
        if writes:
            poll.register(self._to, select.POLLOUT)
        return bool(poll.poll(None if left is None else left * 1000))

    def _take_in(self) -> None:
        try:
            data = os.read(self._from, 2**18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._fail(self._last_words())
        self._decoder.feed(data)

    def _dispatch(self, header: dict[str, Any], body: bytes) -> None:
        id = header.get("id")
        job = self._jobs.get(id) if isinstance(id, int) else None
        if job is not None:
            job._hear(header, body)

    def _last_words(self) -> str:
        """Return why the sandbox ended: the kernel's reason, or the last line of its stderr."""
        if self._why is not None:
            return self._why
        process = self._place.process
        with contextlib.suppress(Exception):
            process.wait(2)
        if self._place.group is not None:
            with contextlib.suppress(OSError):
                why = self._place.group.why_ended(self.policy)
                if why is not None:
                    return why
        assert process.stderr is not None
        os.set_blocking(process.stderr.fileno(), False)
        words = (process.stderr.read(4096) or b"").decode(errors="replace").strip()
        return words.splitlines()[-1][:300] if words else "its first process was ended"

    def _fail(self, why: str) -> NoReturn:
        """End the sandbox, and raise SandboxEnded with the reason."""
        if self._why is None:
            self._why = why
        self._finalizer()
        raise SandboxEnded(self._why)

    def _over(self, why: str) -> None:
        """End the sandbox from the monitor's thread; a waiting holder notices the closed pipes."""
        if self._why is None:
            self._why = why
        _stop(self._place)


@dataclass(eq=False, repr=False)
class Running:
    """A command that was started in a sandbox.

    Attributes:
        code: The exit code, or the negative number of a signal; None while the command runs.
        left_out: Number of bytes omitted from the middle of each kept stream.
        has_more: Whether `settle` would return more output from before the last message on the
            channel.
    """

    _sandbox: Sandbox
    _id: int
    _on_output: OnOutput | None
    _is_stream: bool
    code: int | None = None
    left_out: dict[str, int] = field(default_factory=dict)
    has_more: bool = False

    def __post_init__(self) -> None:
        self._heard = {"stdout": bytearray(), "stderr": bytearray()}
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._said: deque[bytes] = deque()
        self._said_bytes = 0

    def write(self, data: bytes) -> None:
        """Write to standard input.

        Raises:
            SandboxEnded: The sandbox has ended.
        """
        for at in range(0, len(data), MAX_BODY):
            self._sandbox._tell({"do": "input", "id": self._id}, data[at : at + MAX_BODY])

    def end_input(self) -> None:
        """Close standard input; a terminal gets Control-D."""
        self._sandbox._tell({"do": "input", "id": self._id})

    def say(self, data: bytes, begins: bool = False) -> None:
        """Write to the channel.

        Args:
            data: The bytes to write.
            begins: Restart the output limit here.
        """
        if begins:
            self.has_more, self.left_out = False, {}
        for at in range(0, len(data), MAX_BODY):
            how = {"do": "say", "id": self._id, "begins": begins and at == 0}
            self._sandbox._tell(how, data[at : at + MAX_BODY])

    def hear(self, timeout_s: float | None) -> bytes:
        """Read from the channel; return b"" if nothing came in time, or the command has ended."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._sandbox._watched.at_work():
            while not self._said and self.code is None and self._sandbox._pump(deadline):
                pass
        if not self._said:
            return b""
        data = self._said.popleft()
        self._said_bytes -= len(data)
        return data

    def read(self, timeout_s: float) -> str:
        """Wait for output, and return the unread output of both streams; "" after the timeout.

        An incomplete character is kept for the next call.
        """
        return self._decoder.decode(self.read_bytes(timeout_s), final=self.code is not None)

    def read_bytes(self, timeout_s: float) -> bytes:
        """Wait for output as `read` does, and return it as bytes."""
        deadline = time.monotonic() + timeout_s
        with self._sandbox._watched.at_work():
            while not any(self._heard.values()) and self.code is None:
                if not self._sandbox._pump(deadline):
                    break
        data = b"".join(bytes(part) for part in self._heard.values())
        self.forget()
        return data

    def text(self, stream: str) -> str:
        """Return the kept output of a stream."""
        return self._heard[stream].decode(errors="replace")

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the command ends; return False if it still runs after `timeout_s`.

        Raises:
            SandboxEnded: The sandbox has ended.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._sandbox._watched.at_work():
            while self.code is None:
                if not self._sandbox._pump(deadline):
                    return False
                if deadline is not None and time.monotonic() > deadline and self.code is None:
                    return False
        return True

    def settle(self) -> None:
        """Receive all output so far, and restart the output limit."""
        if self.code is not None:
            return
        self._sandbox._tell({"do": "settle", "id": self._id})
        header, _ = self._sandbox._answer(self._id, "settled", "")
        if not self._is_stream:
            self.left_out = _counts(header.get("left_out"))

    def forget(self) -> None:
        """Discard the kept output."""
        for part in self._heard.values():
            part.clear()

    def resize(self, rows: int, columns: int) -> None:
        """Change the size of the terminal."""
        self._sandbox._tell({"do": "resize", "id": self._id, "terminal": [rows, columns]})

    def signal(self, number: int) -> None:
        """Send a signal to the command's process group."""
        self._sandbox._tell({"do": "signal", "id": self._id, "signal": int(number)})

    def interrupt(self) -> None:
        """Send SIGINT, as Control-C does."""
        self.signal(signal.SIGINT)

    def kill(self) -> None:
        """End the command and all processes that it started."""
        if self.code is None:
            self._sandbox._kill(self._id)

    def abandon(self) -> None:
        """End the command, and ignore further output; never raises."""
        self._on_output = None
        with contextlib.suppress(SandboxEnded):
            self.kill()

    def _hear(self, header: dict[str, Any], body: bytes) -> None:
        what = header.get("is")
        if what == "output" and header.get("stream") in self._heard:
            self._keep(header["stream"], header.get("after"), body)
        elif what == "said":
            self.has_more = bool(header.get("more"))
            self._said.append(body)
            self._said_bytes += len(body)
            if self._said_bytes > MAX_UNREAD_OF_CHANNEL:
                self._sandbox._fail(f"its channel has over {MAX_UNREAD_OF_CHANNEL} unread bytes")
        elif what == "exited":
            code = header.get("code")
            self.code = code if isinstance(code, int) else 255
            if not self._is_stream:  # only this side knows what a stream omits
                self.left_out = _counts(header.get("left_out"))
            self._sandbox._jobs.pop(self._id, None)

    def _keep(self, stream: str, after: Any, body: bytes) -> None:
        kept = self._heard[stream]
        if isinstance(after, int):
            kept += f"\n[... {after} bytes are left out here ...]\n".encode()
        kept += body
        most = MAX_UNREAD if self._is_stream else 2 * self._sandbox.policy.output_bytes + 1024
        if len(kept) > most:
            self.left_out[stream] = self.left_out.get(stream, 0) + len(kept) - most
            del kept[: len(kept) - most]
        if self._on_output is not None:
            self._on_output(stream, body.decode(errors="replace"))


def _counts(value: Any) -> dict[str, int]:
    items = value.items() if isinstance(value, dict) else ()
    return {k: n for k, n in items if k in ("stdout", "stderr") and isinstance(n, int)}


def _kill_all(pids: Sequence[int]) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _stop(place: Place) -> None:
    """End the outermost process, and thereby the sandbox."""
    if place.ends_on == signal.SIGKILL:
        # One by one: as root, bubblewrap has no right to end the processes of another user.
        _kill_all(tree_of(place.process.pid))
    with contextlib.suppress(OSError):
        place.process.send_signal(place.ends_on)


def _end(place: Place, watched: Watched, owner: int) -> None:
    """End a sandbox from outside; a forked child leaves this to its parent."""
    if os.getpid() != owner:
        return
    unwatch(watched)
    process = place.process
    _stop(place)
    for file in (process.stdin, process.stdout, process.stderr):
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        # Descendants first: once this process is gone, nothing shows which were the sandbox's.
        while descendants := tree_of(process.pid)[1:]:
            _kill_all(descendants)
            time.sleep(0.01)
        process.kill()
        process.wait()
    if place.group is not None:
        place.group.close()
    for release in place.release:
        release()
