"""A sandbox: code that nobody has read runs in it, and its holder goes on as before.

Nothing that comes out of a sandbox is believed: what it says is bounded before it is read, every
wait has an end, and the holder keeps the time and ends it from outside.
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
from openenv.sandbox.kinds import PARENTS, Kind, Place, strongest
from openenv.sandbox.policy import Guarantee, SandboxPolicy
from openenv.sandbox.watch import Watched, keep_watch, tree_of, unwatch

__all__ = ["Completed", "Running", "Sandbox"]

Frame = tuple[dict[str, Any], bytes]
OnOutput = Callable[[str, str], Any]

START_TIMEOUT_S = 30.0
ANSWER_TIMEOUT_S = 30.0  # of the first process, which never computes
INTERRUPT_GRACE_S = 1.0
# Bytes of a running command that nobody has read: the last of each stream are kept. On a channel
# nothing may be left out, so that ends the sandbox.
MAX_UNREAD, MAX_UNREAD_OF_CHANNEL = 2**20, 16 * 2**20


@dataclass(frozen=True)
class Completed:
    """What became of a command.

    Attributes:
        exit_code: As the shell has it: 128 and the signal's number where a signal ended it.
        stdout: What it printed, at most `SandboxPolicy.output_bytes` of it.
        stderr: Likewise.
        timed_out: It was ended, since its time was over.
        left_out: How many bytes of each stream are missing from the middle of it.
        seconds: How long it took.
    """

    exit_code: int
    stdout: str
    stderr: str
    timed_out: bool = False
    left_out: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0


class Sandbox:
    """A place of its own for code that nobody has read.

        with Sandbox() as sandbox:
            done = sandbox.run("python3 -c 'print(6 * 7)'", wall_s=5)
            print(done.exit_code, done.stdout, sandbox.kind)

    Commands share its files and its processes; another sandbox shares nothing with it. Its methods
    block; one thread at a time may use it, but any may `close` it.

    Args:
        policy: The limits; by default those of `SandboxPolicy()`.
        require: The least that it must guarantee: ``"process"``, ``"namespaces"`` or ``"kernel"``.
        kind: Only this kind: ``"gvisor"``, ``"bubblewrap"`` or ``"landlock"``. By default the
            strongest that this machine has.

    Raises:
        SandboxUnavailable: This machine has none such. Nothing weaker is used instead.
        SandboxEnded: It did not start.
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
        """Start one of a kind that need not be one of this package's."""
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
        self._lock = threading.RLock()  # held while its files are read or written
        try:
            self._place = kind.start(policy)
        except OSError as error:
            raise SandboxEnded(f"it did not start: {error}") from error
        process = self._place.process
        assert process.stdin is not None and process.stdout is not None
        self._to, self._from = process.stdin.fileno(), process.stdout.fileno()
        os.set_blocking(self._to, False)
        os.set_blocking(self._from, False)
        self._watched = Watched(
            process.pid,
            policy.memory_bytes,
            policy.processes + PARENTS,
            self._place.watched,
            policy.disk_bytes,
            self._place.mounts,
            self._place.group,
            _ender(weakref.ref(self)),
        )
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
        """Start what takes connections to the proxy outside."""
        from openenv.sandbox.proxy import PORT, PROXY_SOCKET

        program = f"{self._place.guest}/forward.py"
        forwarder = self.start([self.python, "-I", program, str(PORT), PROXY_SOCKET])
        if "ready" not in forwarder.read(START_TIMEOUT_S):
            self._fail("it has no way to the proxy that its policy's hosts are asked by")

    # ------------------------------------------------------------------ what it is for

    @property
    def home(self) -> str:
        """The directory that commands begin in, as they see it."""
        return self._place.home

    @property
    def python(self) -> str:
        """The Python interpreter in it."""
        return self._place.python

    @property
    def is_over(self) -> bool:
        """It has ended, or was closed."""
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
        """Run a command to its end.

        Args:
            command: A line for ``/bin/sh``, or a program and its arguments.
            stdin: What it can read.
            cwd: The directory that it begins in; by default `home`.
            environment: Further variables.
            wall_s: After so many seconds it is ended, with all that it has started, and
                `Completed.timed_out` says so; by default `SandboxPolicy.wall_s`.
            on_output: Called with ``"stdout"`` or ``"stderr"`` and some text, as it comes.

        Raises:
            SandboxEnded: The sandbox is over: it took too much memory, for example.
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
        if self._why is not None:  # and the command with it
            raise SandboxEnded(self._why)
        if job.code is None:
            self._fail("a command could not be ended")
        return Completed(
            exit_code=_exit_code(job.code),
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
        """Start a command, to be spoken to while it runs.

        Args:
            command: A line for ``/bin/sh``, or a program and its arguments.
            cwd: The directory that it begins in; by default `home`.
            environment: Further variables.
            terminal: Rows and columns of the terminal that it shall have; None for pipes.
            limit: Keep so many bytes of each stream, from its beginning and its end; None for a
                stream that is read as it comes.
            on_output: Called with the stream and some text, as it comes.
            has_channel: It has two further files, 3 to read from and 4 to write to, for `say`.

        Raises:
            SandboxEnded: The sandbox is over.
            SandboxFileError: It could not be started; there may be too many processes already.
        """
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        variables = self._environment(environment, terminal)
        if any("\0" in text for text in (*argv, cwd or "", *variables, *variables.values())):
            why = "a NUL cannot stand in an argument, a directory or a variable"
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
        """Write a file, and the directories that it lies in; a relative path begins at `home`.

        Raises:
            SandboxFileError: It cannot be written there.
            SandboxEnded: The sandbox is over.
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
        """Read a file, or the first `max_bytes` of it; a relative path begins at `home`.

        Raises:
            SandboxFileError: There is none, or it cannot be read.
            SandboxEnded: The sandbox is over.
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
        """The numbers of its processes on this machine, the outermost first; empty once it is over.

        gVisor shows its own processes, and not those that it runs.
        """
        return tree_of(self._place.process.pid)

    def kill_all(self) -> None:
        """End every process in it; its files stay.

        Raises:
            SandboxEnded: The sandbox is over.
        """
        self._kill(None)

    def _kill(self, id: int | None) -> None:
        """End a job, or everything; what leads to the policy's hosts is started again."""
        self._tell({"do": "kill", "id": id})
        header, _ = self._answer(id, "killed", "")
        if header.get("everything") and self.policy.network:
            self._forward()

    def close(self) -> None:
        """End it, with every process and file in it. A second call does nothing."""
        if self._why is None:
            self._why = "it was closed"
        if not self._lock.acquire(blocking=False):
            # Another thread waits for it, hears it end, and does the rest: were its files closed
            # here, their numbers might be another file's by the time that thread reads them.
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

    # ------------------------------------------------------------------ speaking to it

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
        """Send a frame; what comes meanwhile is taken in."""
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
                        self._fail("it does not take what it is told")
                    self._take_in()
                except OSError:
                    self._fail(self._last_words())

    def _answer(self, id: int | None, expected: str, what: str) -> Frame:
        """Wait for the answer of this name and id."""
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

    def _pump(self, deadline: float | None) -> bool:
        """Take in what comes, and hand it on; False where nothing came in time."""
        with self._lock:
            frame = self._decoded()
            if frame is None:
                if not self._wait_until(deadline):
                    return False
                self._take_in()
                frame = self._decoded()
        while frame is not None:
            self._dispatch(*frame)
            frame = self._decoded()
        return True

    def _next(self, deadline: float) -> Frame:
        with self._lock:
            while (frame := self._decoded()) is None:
                if not self._wait_until(deadline):
                    self._fail("it does not answer")
                self._take_in()
        return frame

    def _decoded(self) -> Frame | None:
        try:
            return self._decoder.next()
        except FrameError as error:
            self._fail(f"it says what makes no sense: {error}")

    def _wait_until(self, deadline: float | None, writes: bool = False) -> bool:
        """Wait until something has come (or can be sent); False if nothing did in time."""
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
        """What its first process, or what has started it, printed before it ended."""
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
        """End it, and say why."""
        if self._why is None:
            self._why = why
        self._finalizer()
        raise SandboxEnded(self._why)

    def _over(self, why: str) -> None:
        """End it from the thread of the watch; whoever waits for it hears its files close."""
        if self._why is None:
            self._why = why
        _stop(self._place)


class Running:
    """A command that runs in a sandbox.

    Attributes:
        code: How it ended: its exit code, or a signal's number with a minus; None until then.
        left_out: How many bytes of each stream are missing from the middle of what was kept.
        has_more: Of what it had printed before it last said something, some is to be settled.
    """

    def __init__(
        self, sandbox: Sandbox, id: int, on_output: OnOutput | None, is_stream: bool
    ) -> None:
        self.code: int | None = None
        self.left_out: dict[str, int] = {}
        self.has_more = False
        self._sandbox = sandbox
        self._id = id
        self._on_output = on_output
        self._is_stream = is_stream
        self._heard: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._said: deque[bytes] = deque()
        self._said_bytes = 0

    def write(self, data: bytes) -> None:
        """Give it input.

        Raises:
            SandboxEnded: The sandbox is over.
        """
        for at in range(0, len(data), MAX_BODY):
            self._sandbox._tell({"do": "input", "id": self._id}, data[at : at + MAX_BODY])

    def end_input(self) -> None:
        """Close its input; a terminal gets Control-D."""
        self._sandbox._tell({"do": "input", "id": self._id})

    def say(self, data: bytes, begins: bool = False) -> None:
        """Write to its channel.

        Args:
            data: What to write.
            begins: From here on the limit of its output counts anew.
        """
        if begins:
            self.has_more, self.left_out = False, {}
        for at in range(0, len(data), MAX_BODY):
            how = {"do": "say", "id": self._id, "begins": begins and at == 0}
            self._sandbox._tell(how, data[at : at + MAX_BODY])

    def hear(self, timeout_s: float | None) -> bytes:
        """Read from its channel; empty where nothing came in time, or nothing can come any more."""
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
        """Give what it has printed, on either stream, and nobody has read; wait for some.

        Empty where nothing came in time. A character whose bytes have not all come waits for the
        next call.
        """
        return self._decoder.decode(self.read_bytes(timeout_s), final=self.code is not None)

    def read_bytes(self, timeout_s: float) -> bytes:
        """Give the same as bytes."""
        deadline = time.monotonic() + timeout_s
        with self._sandbox._watched.at_work():
            while not any(self._heard.values()) and self.code is None:
                if not self._sandbox._pump(deadline):
                    break
        data = b"".join(bytes(part) for part in self._heard.values())
        self.forget()
        return data

    def text(self, stream: str) -> str:
        """What was kept of a stream."""
        return self._heard[stream].decode(errors="replace")

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for its end; False where it goes on.

        Raises:
            SandboxEnded: The sandbox is over.
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
        """Have all that it has printed so far, and begin its limit anew."""
        if self.code is not None:
            return
        self._sandbox._tell({"do": "settle", "id": self._id})
        header, _ = self._sandbox._answer(self._id, "settled", "")
        if not self._is_stream:
            self.left_out = _counts(header.get("left_out"))

    def forget(self) -> None:
        """Drop what it has printed so far."""
        for part in self._heard.values():
            part.clear()

    def resize(self, rows: int, columns: int) -> None:
        """Change the size of its terminal."""
        self._sandbox._tell({"do": "resize", "id": self._id, "terminal": [rows, columns]})

    def signal(self, number: int) -> None:
        """Send a signal to its process group."""
        self._sandbox._tell({"do": "signal", "id": self._id, "signal": int(number)})

    def interrupt(self) -> None:
        """Do what Control-C does."""
        self.signal(signal.SIGINT)

    def kill(self) -> None:
        """End it, and all that it has started."""
        if self.code is None:
            self._sandbox._kill(self._id)

    def abandon(self) -> None:
        """End it, and whatever it goes on to print is nobody's; never raises."""
        self._on_output = None
        with contextlib.suppress(SandboxEnded):
            self.kill()

    # ------------------------------------------------------------------ what comes of it

    def _hear(self, header: dict[str, Any], body: bytes) -> None:
        what = header.get("is")
        if what == "output" and header.get("stream") in self._heard:
            self._keep(header["stream"], header.get("after"), body)
        elif what == "said":
            self.has_more = bool(header.get("more"))
            self._said.append(body)
            self._said_bytes += len(body)
            if self._said_bytes > MAX_UNREAD_OF_CHANNEL:
                self._sandbox._fail(
                    f"it said over {MAX_UNREAD_OF_CHANNEL} bytes on a channel that nobody has read"
                )
        elif what == "exited":
            code = header.get("code")
            self.code = code if isinstance(code, int) else 255
            if not self._is_stream:  # else it is known here alone, where nobody read it
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


def _exit_code(code: int) -> int:
    return 128 - code if code < 0 else code


def _ender(sandbox: weakref.ref[Sandbox]) -> Callable[[str], None]:
    def over(why: str) -> None:
        found = sandbox()
        if found is not None:
            found._over(why)

    return over


def _stop(place: Place) -> None:
    """Have the outermost process end, and all of the sandbox with it."""
    if place.ends_on == signal.SIGKILL:
        # One by one: as root, bubblewrap has no right any more to end those of another user.
        for pid in tree_of(place.process.pid):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(OSError):
        place.process.send_signal(place.ends_on)


def _end(place: Place, watched: Watched, owner: int) -> None:
    """End a sandbox from outside; a forked child leaves that to its parent."""
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
        # Its descendants first: without it, none of them would be known as the sandbox's.
        while descendants := tree_of(process.pid)[1:]:
            for pid in descendants:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        process.kill()
        process.wait()
    if place.group is not None:
        place.group.close()
    for release in place.release:
        release()
