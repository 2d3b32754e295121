"""The first process in a sandbox: it starts commands, and passes on what they print.

It runs alone (``python -I guest.py SETTINGS``), on the standard library, and speaks frames on its
standard input and output. Where the sandbox has process ids of its own it is process 1: nothing in
there can kill it, it takes in orphans, and all of them end with it. It ends when its input does.

What it is told (`do`) and tells (`is`); `id` is a number that the holder has chosen for a job:

    start   id, argv, cwd, environment, terminal (rows, columns), channel, limit, cpu_s -> started
    input   id, bytes for the standard input; none closes it
    say     id, begins (whether the limit of its output does anew), bytes for the channel
    resize  id, terminal
    signal  id, signal, to the whole process group
    kill    id, or everything where there is none -> killed (everything: also where it could not
            be told what belongs to the job)
    settle  id: the rest of what was printed so far -> settled (left_out)
    write   path, mode, append, bytes                       -> written, or failed (why, errno)
    read    path, offset, length                            -> read (bytes), or failed
    output  (told) id, stream, bytes; said (told) id, more (to settle), bytes of the channel
    exited  (told) id, code (negative: by that signal), left_out
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
import struct
import sys
import termios
import time
from collections import deque
from collections.abc import Callable
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

# Beside this file, which is no package in there.
from frames import Decoder, encode  # pyright: ignore[reportMissingImports]

CHUNK = 2**16
MAX_WAITING = 2**18  # bytes for the holder; while there are more, nobody's output is read
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
STREAMS = ("stdout", "stderr")


class Allowance:
    """What of a stream is passed on: the first half of a limit at once, the last at the end."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.passed = 0
        self.left_out = 0
        self._tail: deque[bytes] = deque()
        self._tail_size = 0

    def take(self, data: bytes) -> bytes:
        """Give what of `data` is passed on now."""
        if self.limit is None:
            return data
        now = data[: max(0, self.limit // 2 - self.passed)]
        self.passed += len(now)
        if rest := data[len(now) :]:
            self._keep(rest)
        return now

    def _keep(self, data: bytes) -> None:
        assert self.limit is not None
        self._tail.append(data)
        self._tail_size += len(data)
        while self._tail_size > self.limit - self.limit // 2:
            over = self._tail_size - (self.limit - self.limit // 2)
            first = self._tail.popleft()
            if len(first) > over:
                self._tail.appendleft(first[over:])
            dropped = min(over, len(first))
            self.left_out += dropped
            self._tail_size -= dropped

    @property
    def has_rest(self) -> bool:
        """Something of it has not been passed on."""
        return bool(self._tail)

    def rest(self) -> bytes:
        """Give the last of it, and begin anew."""
        tail = b"".join(self._tail)
        self._tail.clear()
        self._tail_size = self.passed = 0
        return tail


class Job:
    """One command: its process, and the files by which it is spoken to."""

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
    """A file that is written to when it can be."""

    def __init__(self, guest: Guest, fd: int) -> None:
        self._guest = guest
        self.fd = fd
        self.waiting = bytearray()
        self._ends = False
        os.set_blocking(fd, False)

    def write(self, data: bytes) -> None:
        """Write it, now or later."""
        self.waiting += data
        self.flush()

    def end(self) -> None:
        """Close the file once all is written."""
        self._ends = True
        self.flush()

    def flush(self) -> None:
        """Write what can be written."""
        try:
            while self.waiting:
                del self.waiting[: os.write(self.fd, self.waiting[:CHUNK])]
        except BlockingIOError:
            self._guest.watch(self.fd, selectors.EVENT_WRITE, self.flush)
            return
        except OSError:  # nobody reads it any more
            self.waiting.clear()
        self._guest.unwatch(self.fd, selectors.EVENT_WRITE)
        if self._ends:
            self._guest.close(self.fd)


class Guest:
    """The jobs of a sandbox, in one thread around one selector."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.selector = selectors.DefaultSelector()
        self.watched: dict[int, dict[int, Callable[[], None]]] = {}
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
        """Call `call` when `fd` is ready for `event`."""
        calls = self.watched.setdefault(fd, {})
        was = self._events(calls)
        calls[event] = call
        if self._events(calls) != was:
            (self.selector.modify if was else self.selector.register)(fd, self._events(calls))

    def unwatch(self, fd: int, event: int) -> None:
        """Call nothing any more."""
        calls = self.watched.get(fd, {})
        if calls.pop(event, None) is None:
            return
        if calls:
            self.selector.modify(fd, self._events(calls))
        else:
            self.selector.unregister(fd)
            del self.watched[fd]

    @staticmethod
    def _events(calls: dict[int, Callable[[], None]]) -> int:
        return sum(calls)

    def close(self, fd: int) -> None:
        """Close a file that may be watched."""
        if self.watched.pop(fd, None) is not None:
            self.selector.unregister(fd)
        with contextlib.suppress(OSError):
            os.close(fd)

    def serve(self) -> None:
        """Do as is told until the input ends."""
        self.tell({"is": "ready", "pid": os.getpid(), "uid": os.getuid()})
        while True:
            for key, events in self.selector.select():
                for event, call in list(self.watched.get(key.fd, {}).items()):
                    if events & event and event in self.watched.get(key.fd, {}):
                        call()

    def tell(self, header: dict[str, Any], body: bytes = b"") -> None:
        """Send a frame."""
        self.holder.write(encode(header, body))
        if len(self.holder.waiting) > MAX_WAITING and not self.is_held_up:
            self.is_held_up = True
            self._wait_for_the_holder()

    def _wait_for_the_holder(self) -> None:
        """Read nobody's output until the holder has read what waits."""
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

    # ------------------------------------------------------------------ being told

    def obey(self) -> None:
        """Read what the holder wants, and do it."""
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
        """Tell why a request failed; a ValueError is of a path or an argument with a NUL in it."""
        number = error.errno if isinstance(error, OSError) else errno.EINVAL
        self.tell({"is": "failed", "id": id, "why": _words(error), "errno": number})

    def do_start(self, body: bytes, id: int, **how: Any) -> None:
        """Start a command."""
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
        """Fork a child, and wire it.

        The child's files are 0 to 2, and 3 and 4 where there is a channel.
        """
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
        """Give a job input; none closes it."""
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
        """Say something on a job's channel; what it prints from a beginning on has a limit anew."""
        job = self.jobs.get(id)
        if job is not None and job.channel is not None:
            if begins:
                for allowance in job.allowances.values():
                    allowance.rest()
                    allowance.left_out = 0
            job.channel.write(body)

    def do_resize(self, body: bytes, id: int, terminal: list[int]) -> None:
        """Change the size of a job's terminal."""
        job = self.jobs.get(id)
        if job is not None and job.terminal is not None:
            _resize(job.terminal, terminal)

    def do_signal(self, body: bytes, id: int, signal: int) -> None:
        """Send a signal to the process group of a job."""
        job = self.jobs.get(id)
        if job is not None and job.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal)

    def do_kill(self, body: bytes, id: int | None = None) -> None:
        """End a job and all that came of it, or everything."""
        job = self.jobs.get(id) if id is not None else None
        everything = job is None or not self._kill_tree(job)
        if everything:
            self.kill_everything()
        self.reap()
        self.tell({"is": "killed", "id": id, "everything": everything})

    def end(self) -> None:
        """End, and everything before."""
        self.kill_everything()
        os._exit(0)

    def kill_everything(self) -> None:
        """End every process of the sandbox but this one."""
        if os.getuid() == 0 and os.getpid() != 1:
            raise RuntimeError("this process is no sandbox's, so it kills nobody")
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)

    def _kill_tree(self, job: Job) -> bool:
        """End what descends from a job, orphans included; False where that cannot be told."""
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
            time.sleep(0.001 * min(attempt, 20))  # until the kernel has taken them away
            self.reap()
        return False

    def do_settle(self, body: bytes, id: int) -> None:
        """Send the rest of what a job has printed."""
        job = self.jobs.get(id)
        left_out = self._settle(job) if job is not None else {}
        self.tell({"is": "settled", "id": id, "left_out": left_out})

    def do_write(
        self, body: bytes, path: str, mode: int, append: bool, is_last: bool, id: int
    ) -> None:
        """Write (a part of) a file."""
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
        """Read (a part of) a file."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            with open(fd, "rb") as file:
                if not _is_regular(fd):
                    raise OSError(errno.EINVAL, "no regular file", path)
                file.seek(offset)
                data = file.read(min(length, 2**20))
                size = os.fstat(fd).st_size
        except (OSError, ValueError) as error:
            self.tell_failure(id, error)
        else:
            self.tell({"is": "read", "id": id, "size": size}, data)

    # ------------------------------------------------------------------ what jobs do

    def pass_on(self, job: Job, fd: int, stream: str) -> None:
        """Tell what a job has printed or said."""
        if stream == "said":
            self._drain(job)
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return
        except OSError:  # a terminal whose other side is closed
            data = b""
        if not data:
            self._stop_reading(job, fd)
            return
        self._tell_output(job, stream, data)

    def _stop_reading(self, job: Job, fd: int) -> None:
        """Close what is at its end, and forget a job of which nothing more can come."""
        del job.reads[fd]
        if fd == job.terminal:
            job.terminal = None
        self.close(fd)
        if not job.reads and job.code is not None:
            self.jobs.pop(job.id, None)

    def _tell_output(self, job: Job, stream: str, data: bytes) -> None:
        if job.code is not None:  # it is over: what children of it go on to print is nobody's
            return
        if stream == "said":
            has_more = any(one.has_rest for one in job.allowances.values())
            self.tell({"is": "said", "id": job.id, "more": has_more}, data)
        elif now := job.allowances[stream].take(data):
            self.tell({"is": "output", "id": job.id, "stream": stream}, now)

    def _drain(self, job: Job) -> None:
        """Read what a job has printed so far, and some more at most."""
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
        """Tell the rest of what was printed; give how many bytes of each stream were left out."""
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
        """Take note of every process that has ended."""
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
    """Turn this new child into the command; does not return."""
    try:
        os.setsid()
        # Whoever has started the holder may have it ignore some, as nohup does.
        for name in ("SIGCHLD", "SIGPIPE", "SIGINT", "SIGQUIT", "SIGHUP", "SIGTERM"):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        if is_terminal:
            fcntl.ioctl(files[0], termios.TIOCSCTTY, 0)
        # Out of the way of 0 to 2, and no further: the limit of open files may be low.
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


def _is_regular(fd: int) -> bool:
    import stat

    return stat.S_ISREG(os.fstat(fd).st_mode)


def _words(error: OSError | ValueError) -> str:
    if not isinstance(error, OSError):
        return str(error)
    words = error.strerror or str(error)
    return f"{words}: {error.filename}" if error.filename else words


def _processes() -> dict[int, tuple[int, int]] | None:
    """Every process's parent and beginning, in ticks since the machine's; None without /proc."""
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
    """The processes that descend from a job; orphans count that began after it.

    None where that cannot be told.
    """
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


# ---------------------------------------------------------------------- beginning


def settle_in(settings: dict[str, Any]) -> None:
    """Give up every privilege, and keep to the limits."""
    for name, value in settings["limits"].items():
        number = getattr(resource, name)
        value = min(value, resource.getrlimit(number)[1]) if _is_bounded(number) else value
        resource.setrlimit(number, (value, value))
    os.nice(settings["nice"])
    if (uid := settings["uid"]) is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    libc = ctypes.CDLL(None, use_errno=True)
    # Changing the user has made the kernel forget that it ends with what has started it.
    ending = signal.SIGKILL if os.getpid() == 1 else signal.SIGTERM
    options = {PR_SET_DUMPABLE: 0, PR_SET_CHILD_SUBREAPER: 1, PR_SET_PDEATHSIG: ending}
    for option, value in options.items():
        if libc.prctl(option, value, 0, 0, 0):
            raise OSError(ctypes.get_errno(), f"prctl({option})")
    os.umask(0o022)


def _is_bounded(number: int) -> bool:
    return resource.getrlimit(number)[1] != resource.RLIM_INFINITY


def main() -> None:
    """Run as the first process of a sandbox."""
    settings = json.loads(sys.argv[1])
    settle_in(settings)
    Guest(settings).serve()


if __name__ == "__main__":
    main()
