"""The first process in a sandbox, which starts commands and sends their output to the holder.

The program (``python -I guest.py SETTINGS``) needs only the standard library, and exchanges frames
with the holder on its standard input and output. In a PID namespace it is process 1: nothing inside
can kill it, orphans become its children, and all of them end with it. It ends when its input ends.

Requests (`do`) and answers (`is`). `id` is a number that the holder chooses for a job:

    start   id, argv, cwd, environment, terminal (rows, columns), channel, limit, cpu_s -> started
    input   id, bytes for the standard input; no bytes close it
    say     id, begins (restart the limit of the output), bytes for the channel
    resize  id, terminal
    signal  id, signal for the whole process group
    kill    id, or None for everything -> killed (everything: also if the processes of the job
            could not be told from others)
    settle  id: send the rest of the output so far          -> settled (left_out)
    write   path, mode, append, bytes                       -> written, or failed (why, errno)
    read    path, offset, length                            -> read (bytes), or failed

Sent without a request:

    output  id, stream, bytes
    said    id, more (output to settle), bytes of the channel
    exited  id, code (negative for a signal), left_out
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import pty
import resource
import selectors
import signal
import stat
import struct
import sys
import termios
import time
from collections import deque
from collections.abc import Callable
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

# These modules are next to this file, which is not in a package inside the sandbox.
from frames import Decoder, encode  # pyright: ignore[reportMissingImports]

CHUNK = 2**16
MAX_WAITING = 2**18  # unsent bytes for the holder; above this, no output is read
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
STREAMS = ("stdout", "stderr")


class Allowance:
    """The limit of a stream's output: the first half is sent at once, the last half at the end."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.passed = 0
        self.left_out = 0
        self._tail: deque[bytes] = deque()
        self._tail_size = 0

    def take(self, data: bytes) -> bytes:
        """Return the part of `data` to send now; keep the rest within the limit."""
        if self.limit is None:
            return data
        now = data[: max(0, self.limit // 2 - self.passed)]
        self.passed += len(now)
        if rest := data[len(now) :]:
            self._tail.append(rest)
            self._tail_size += len(rest)
        while (over := self._tail_size - (self.limit - self.limit // 2)) > 0:
            first = self._tail.popleft()
            if len(first) > over:
                self._tail.appendleft(first[over:])
            dropped = min(over, len(first))
            self.left_out += dropped
            self._tail_size -= dropped
        return now

    @property
    def has_rest(self) -> bool:
        """Whether output is kept."""
        return bool(self._tail)

    def rest(self) -> bytes:
        """Return the kept output, and restart the limit."""
        tail = b"".join(self._tail)
        self._tail.clear()
        self._tail_size = self.passed = 0
        return tail


class Job:
    """A command: its process, and the open files that lead to the process."""

    def __init__(self, id: int, pid: int, limit: int | None) -> None:
        self.id = id
        self.pid = pid
        self.began = 0
        self.code: int | None = None
        self.reads: dict[int, str] = {}
        self.allowances = {stream: Allowance(limit) for stream in STREAMS}
        self.input: Sink | None = None
        self.channel: Sink | None = None
        self.terminal: int | None = None


class Sink:
    """A file that is written without blocking."""

    def __init__(self, guest: Guest, fd: int) -> None:
        self._guest = guest
        self.fd = fd
        self.waiting = bytearray()
        self._ends = False
        os.set_blocking(fd, False)

    def write(self, data: bytes) -> None:
        """Write bytes, now or later."""
        self.waiting += data
        self.flush()

    def end(self) -> None:
        """Close the file once everything is written."""
        self._ends = True
        self.flush()

    def flush(self) -> None:
        """Write as much as the file accepts."""
        try:
            while self.waiting:
                del self.waiting[: os.write(self.fd, self.waiting[:CHUNK])]
        except BlockingIOError:
            self._guest.watch(self.fd, selectors.EVENT_WRITE, self.flush)
            return
        except OSError:  # the reader is gone
            self.waiting.clear()
        self._guest.unwatch(self.fd)
        if self._ends:
            self._guest.close(self.fd)


class Guest:
    """The jobs of a sandbox, served by one thread with a selector."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.selector = selectors.DefaultSelector()
        self.jobs: dict[int, Job] = {}
        self.decoder = Decoder()
        self.control, answers = os.dup(0), os.dup(1)
        nothing = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1):
            os.dup2(nothing, fd)
        self.holder = Sink(self, answers)
        self.is_held_up = False
        os.set_blocking(self.control, False)
        self.watch(self.control, selectors.EVENT_READ, self.obey)
        woken, wakes = os.pipe()
        for fd in (woken, wakes):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wakes)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGTERM, lambda number, frame: self.end())
        self.woken = woken
        self.watch(woken, selectors.EVENT_READ, self.reap)

    # ------------------------------------------------------------------ the selector

    def watch(self, fd: int, event: int, call: Callable[[], None]) -> None:
        """Call `call` when `fd` is ready for `event`. Each file is only read, or only written."""
        if fd not in self.selector.get_map():
            self.selector.register(fd, event, call)

    def unwatch(self, fd: int) -> None:
        """Stop watching `fd`."""
        if fd in self.selector.get_map():
            self.selector.unregister(fd)

    def close(self, fd: int) -> None:
        """Close a file that may be watched."""
        self.unwatch(fd)
        with contextlib.suppress(OSError):
            os.close(fd)

    def serve(self) -> None:
        """Carry out requests until the input ends."""
        self.tell({"is": "ready", "pid": os.getpid(), "uid": os.getuid()})
        while True:
            for key, _ in self.selector.select():
                if self.selector.get_map().get(key.fd) is key:  # not closed by an earlier call
                    key.data()

    def tell(self, header: dict[str, Any], body: bytes = b"") -> None:
        """Send a frame. If too much is unsent, read no output until the holder has read."""
        self.holder.write(encode(header, body))
        if len(self.holder.waiting) <= MAX_WAITING or self.is_held_up:
            return
        self.is_held_up = True
        while len(self.holder.waiting) > MAX_WAITING // 2:
            waits = selectors.DefaultSelector()
            waits.register(self.holder.fd, selectors.EVENT_WRITE)
            waits.register(self.control, selectors.EVENT_READ)
            ready = {key.fd for key, _ in waits.select()}
            waits.close()
            if self.control in ready:
                self.obey()
            self.holder.flush()
        self.is_held_up = False

    # ------------------------------------------------------------------ requests

    def obey(self) -> None:
        """Read and carry out requests of the holder."""
        try:
            data = os.read(self.control, 2**20)
        except BlockingIOError:
            return
        if not data:
            self.end()
        self.decoder.feed(data)
        while (frame := self.decoder.next()) is not None:
            header, body = frame
            getattr(self, f"do_{header.pop('do')}")(body, **header)

    def tell_failure(self, id: int, error: OSError | ValueError) -> None:
        """Report why a request failed; a ValueError means a NUL in a path or an argument."""
        number: int | None = errno.EINVAL
        why = str(error)
        if isinstance(error, OSError):
            why, number = error.strerror or why, error.errno
            why += f": {error.filename}" if error.filename else ""
        self.tell({"is": "failed", "id": id, "why": why, "errno": number})

    def do_start(self, body: bytes, id: int, **how: Any) -> None:
        try:
            job = self._start(id, **how)
        except (OSError, ValueError) as error:
            self.tell_failure(id, error)
            return
        self.jobs[id] = job
        self.tell({"is": "started", "id": id, "pid": job.pid})

    def _start(
        self,
        id: int,
        argv: list[str],
        cwd: str,
        environment: dict[str, str],
        terminal: list[int] | None,
        channel: bool,
        limit: int | None,
        cpu_s: int | None,
    ) -> Job:
        """Fork a child with pipes or a terminal as files 0 to 2, and a channel as 3 and 4."""
        ours: list[int] = []  # the ends that stay here: input, stdout, stderr, channel in and out
        theirs: list[int] = []
        try:
            if terminal is not None:
                master, slave = pty.openpty()
                _resize(master, terminal)
                ours, theirs = [master], [slave, slave, slave]
            else:
                for is_input in (True, False, False):
                    self._pipe(ours, theirs, is_input)
            if channel:
                for is_input in (True, False):
                    self._pipe(ours, theirs, is_input)
            pid = os.fork()
        except OSError:
            for fd in {*ours, *theirs}:
                os.close(fd)
            raise
        if pid == 0:
            _become(argv, cwd, environment, theirs, terminal is not None, cpu_s)
        for fd in set(theirs):
            os.close(fd)
        job = Job(id, pid, limit)
        job.began = _began(pid)
        if channel:
            said = ours.pop()
            job.channel = Sink(self, ours.pop())
            self._listen(job, said, "said")
        if terminal is not None:
            job.terminal = ours[0]
            job.input = Sink(self, os.dup(ours[0]))
            self._listen(job, ours[0], "stdout")
        else:
            job.input = Sink(self, ours[0])
            for fd, stream in zip(ours[1:], STREAMS):  # noqa: B905  # runs on Python 3.9 as well
                self._listen(job, fd, stream)
        return job

    @staticmethod
    def _pipe(ours: list[int], theirs: list[int], is_input: bool) -> None:
        reads, writes = os.pipe()
        ours.append(writes if is_input else reads)
        theirs.append(reads if is_input else writes)

    def _listen(self, job: Job, fd: int, stream: str) -> None:
        os.set_blocking(fd, False)
        job.reads[fd] = stream
        self.watch(fd, selectors.EVENT_READ, lambda: self.pass_on(job, fd, stream))

    def do_input(self, body: bytes, id: int) -> None:
        job = self.jobs.get(id)
        if job is None or job.input is None:
            return
        if body:
            job.input.write(body)
        elif job.terminal is None:
            job.input.end()
            job.input = None
        else:
            job.input.write(b"\x04")

    def do_say(self, body: bytes, id: int, begins: bool) -> None:
        job = self.jobs.get(id)
        if job is not None and job.channel is not None:
            if begins:
                for allowance in job.allowances.values():
                    allowance.rest()
                    allowance.left_out = 0
            job.channel.write(body)

    def do_resize(self, body: bytes, id: int, terminal: list[int]) -> None:
        job = self.jobs.get(id)
        if job is not None and job.terminal is not None:
            _resize(job.terminal, terminal)

    def do_signal(self, body: bytes, id: int, signal: int) -> None:
        job = self.jobs.get(id)
        if job is not None and job.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal)

    def do_kill(self, body: bytes, id: int | None = None) -> None:
        job = self.jobs.get(id) if id is not None else None
        everything = job is None or not self._kill_tree(job)
        if everything:
            self.kill_everything()
        self.reap()
        self.tell({"is": "killed", "id": id, "everything": everything})

    def end(self) -> None:
        """Kill everything and exit."""
        self.kill_everything()
        os._exit(0)

    def kill_everything(self) -> None:
        """Kill every other process of the sandbox."""
        if os.getuid() == 0 and os.getpid() != 1:
            raise RuntimeError("this process runs in no sandbox; it must not kill all processes")
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)

    def _kill_tree(self, job: Job) -> bool:
        """Kill the descendants of a job, orphans included; return False if they are unknown."""
        for attempt in range(50):
            tree = _tree_of(job, [other for other in self.jobs.values() if other is not job])
            if tree is None:
                return False
            if not tree:
                return True
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for pid in tree:
                    with contextlib.suppress(OSError):
                        os.kill(pid, number)
            time.sleep(0.001 * min(attempt, 20))  # until the kernel has removed them
            self.reap()
        return False

    def do_settle(self, body: bytes, id: int) -> None:
        job = self.jobs.get(id)
        left_out = self._settle(job) if job is not None else {}
        self.tell({"is": "settled", "id": id, "left_out": left_out})

    def do_write(
        self, body: bytes, path: str, mode: int, append: bool, is_last: bool, id: int
    ) -> None:
        try:
            how = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if append else os.O_TRUNC)
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            fd = os.open(path, how | os.O_NONBLOCK, mode)
            with open(fd, "wb") as file:
                os.set_blocking(fd, True)
                file.write(body)
        except (OSError, ValueError) as error:
            self.tell_failure(id, error)
        else:
            if is_last:
                self.tell({"is": "written", "id": id})

    def do_read(self, body: bytes, path: str, offset: int, length: int, id: int) -> None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            with open(fd, "rb") as file:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise OSError(errno.EINVAL, "no regular file", path)
                file.seek(offset)
                data = file.read(min(length, 2**20))
                size = os.fstat(fd).st_size
        except (OSError, ValueError) as error:
            self.tell_failure(id, error)
        else:
            self.tell({"is": "read", "id": id, "size": size}, data)

    # ------------------------------------------------------------------ output and ends of jobs

    def pass_on(self, job: Job, fd: int, stream: str) -> None:
        """Send a job's output, or bytes of its channel."""
        if stream == "said":
            self._drain(job)
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return
        except OSError:  # a terminal whose other side is closed
            data = b""
        if data:
            self._tell_output(job, stream, data)
            return
        del job.reads[fd]
        if fd == job.terminal:
            job.terminal = None
        self.close(fd)
        if not job.reads and job.code is not None:
            self.jobs.pop(job.id, None)

    def _tell_output(self, job: Job, stream: str, data: bytes) -> None:
        if job.code is not None:  # it has ended; output of its children is dropped
            return
        if stream == "said":
            has_more = any(one.has_rest for one in job.allowances.values())
            self.tell({"is": "said", "id": job.id, "more": has_more}, data)
        elif now := job.allowances[stream].take(data):
            self.tell({"is": "output", "id": job.id, "stream": stream}, now)

    def _drain(self, job: Job) -> None:
        """Read a job's output so far, up to a limit."""
        for fd, stream in list(job.reads.items()):
            if stream == "said":
                continue
            for _ in range(64):
                try:
                    data = os.read(fd, CHUNK)
                except OSError:
                    break
                if not data:
                    break
                self._tell_output(job, stream, data)

    def _settle(self, job: Job) -> dict[str, int]:
        """Send the kept output; return how many bytes of each stream were left out."""
        left_out = {}
        for stream, allowance in job.allowances.items():
            tail = allowance.rest()
            if allowance.left_out:
                left_out[stream] = allowance.left_out
            for at in range(0, len(tail), CHUNK):
                header = {"is": "output", "id": job.id, "stream": stream}
                if allowance.left_out and at == 0:
                    header["after"] = allowance.left_out
                self.tell(header, tail[at : at + CHUNK])
            allowance.left_out = 0
        return left_out

    def reap(self) -> None:
        """Reap every process that has ended."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self.woken, 512):
                pass
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for job in list(self.jobs.values()):
                if job.pid == pid and job.code is None:
                    self._is_over(job, os.waitstatus_to_exitcode(status))

    def _is_over(self, job: Job, code: int) -> None:
        self._drain(job)
        left_out = self._settle(job)
        job.code = code
        for sink in (job.input, job.channel):
            if sink is not None:
                self.close(sink.fd)
        job.input = job.channel = None
        self.tell({"is": "exited", "id": job.id, "code": code, "left_out": left_out})
        if not job.reads:
            self.jobs.pop(job.id, None)


# ---------------------------------------------------------------------- children


def _become(
    argv: list[str],
    cwd: str,
    environment: dict[str, str],
    files: list[int],
    is_terminal: bool,
    cpu_s: int | None,
) -> None:
    """Replace this new child process with the command; never return."""
    try:
        os.setsid()
        # The holder may have been started with some signals ignored, as by nohup.
        for name in ("SIGCHLD", "SIGPIPE", "SIGINT", "SIGQUIT", "SIGHUP", "SIGTERM"):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        if is_terminal:
            fcntl.ioctl(files[0], termios.TIOCSCTTY, 0)
        # Just above the wanted numbers, since the limit of open files may be low.
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, len(files)) for fd in files]
        for to, fd in enumerate(high):
            os.dup2(fd, to, inheritable=True)
        os.closerange(len(files), 4096)
        if cpu_s is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
        os.umask(0o022)
        os.chdir(cwd)
        os.execvpe(argv[0], argv, environment)  # nosec B606  # what a sandbox is for
    except OSError as error:
        what = cwd if error.filename == cwd else argv[0]
        os.write(2, f"{what}: {error.strerror}\n".encode())
        os._exit(126 if error.errno == errno.EACCES else 127)
    finally:
        os._exit(127)


def _resize(terminal: int, size: list[int]) -> None:
    rows, columns = size
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _processes() -> dict[int, tuple[int, int]] | None:
    """Return every process's parent and start, in ticks since boot; None without /proc."""
    found = {}
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return None
    for pid in pids:
        with contextlib.suppress(OSError, IndexError, ValueError):
            found[pid] = _parent_and_beginning(pid)
    return found


def _parent_and_beginning(pid: int) -> tuple[int, int]:
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    if fields[0] == b"Z":
        raise ValueError("it has ended")
    return int(fields[1]), int(fields[19])


def _began(pid: int) -> int:
    try:
        return _parent_and_beginning(pid)[1]
    except (OSError, IndexError, ValueError):
        return 0


def _tree_of(job: Job, others: list[Job]) -> list[int] | None:
    """Return the descendants of a job, with orphans that started later; None if unknown."""
    processes = _processes()
    if processes is None:
        return None
    own = os.getpid()
    heads = {other.pid for other in others}

    def head_of(pid: int) -> int:
        parent = processes[pid][0] if pid in processes else 0
        while pid not in heads and pid != job.pid and parent not in (0, own):
            pid, parent = parent, processes[parent][0] if parent in processes else 0
        return pid

    tree = []
    for pid, (_, began) in processes.items():
        if pid == own or pid == 1:
            continue
        head = head_of(pid)
        is_orphan = head not in heads and head != job.pid
        if head == job.pid or (is_orphan and began >= job.began):
            tree.append(pid)
    return tree


# ---------------------------------------------------------------------- start


def settle_in(settings: dict[str, Any]) -> None:
    """Give up every privilege, and set the limits."""
    for name, value in settings["limits"].items():
        number = getattr(resource, name)
        most = resource.getrlimit(number)[1]
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(number, (value, value))
    os.nice(settings["nice"])
    if (uid := settings["uid"]) is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    libc = ctypes.CDLL(None, use_errno=True)
    # The change of user has reset the signal that the kernel sends when the parent ends.
    ending = signal.SIGKILL if os.getpid() == 1 else signal.SIGTERM
    options = {PR_SET_DUMPABLE: 0, PR_SET_CHILD_SUBREAPER: 1, PR_SET_PDEATHSIG: ending}
    for option, value in options.items():
        if libc.prctl(option, value, 0, 0, 0):
            raise OSError(ctypes.get_errno(), f"prctl({option})")
    os.umask(0o022)


def main() -> None:
    """Run as the first process of a sandbox."""
    settings = json.loads(sys.argv[1])
    settle_in(settings)
    Guest(settings).serve()


if __name__ == "__main__":
    main()
