"""`check_sandbox`: check that a sandbox contains untrusted code.

Each of `ESCAPES` is a piece of Python code that attempts an escape, as was attempted on real
sandboxes. The effects are observed from outside: the code must not read a secret, change a file,
reach a port or end a process, and must not exceed limits of memory, processes and disk.

Each attempt gets a new sandbox and new canaries. A thread samples the sandbox's memory and
processes every 50 ms while the attempt runs on the calling thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from openenv.errors import SandboxEnded, SandboxFileError
from openenv.sandbox.interpreter import Interpreter
from openenv.sandbox.policy import MIB, SandboxPolicy
from openenv.sandbox.sandbox import Sandbox
from openenv.sandbox.watch import memory_of

POLICY = SandboxPolicy(
    memory_bytes=192 * MIB,
    disk_bytes=24 * MIB,
    file_bytes=16 * MIB,
    processes=24,
    output_bytes=64 * 1024,
    wall_s=4.0,
)
"""The policy of the sandboxes under check, with low limits so that attempts reach them soon."""

SLACK_BYTES = 256 * MIB  # memory that code may take between two samples of the sandbox's own watch
KERNEL_BYTES = 2**30  # limit of the kernel's memory, with room for other programs of the machine
MARK = "ESCAPED"  # printed by code that detects its own escape
ENOUGH_S = 20.0  # time limit for any attempt, including the end of its sandbox


@dataclass(frozen=True)
class Escape:
    """The code of an escape attempt.

    Attributes:
        name: A short description of what the code tries.
        kind: The target: files, processes, network, kernel, memory, disk, output, IPC, sockets,
            metadata, kernel memory, accounts (of the disk), the watch, Python.
        code: Python code that runs after `MachineCanaries.names`. The code prints ESCAPED if it
            detects that it escaped.
    """

    name: str
    kind: str
    code: str


@dataclass(frozen=True)
class Attempt:
    """The result of an escape attempt.

    Attributes:
        escape: The escape that was attempted.
        breaches: Forbidden effects that were observed; empty if the code was contained.
        outcome: How the attempt ended: the exit code, a timeout, or the end of the sandbox.
        seconds: Time in seconds until the sandbox answered again or ended.
    """

    escape: Escape
    breaches: tuple[str, ...]
    outcome: str
    seconds: float

    @property
    def is_contained(self) -> bool:
        """True if there was no breach."""
        return not self.breaches


@dataclass
class EscapeReport:
    """The results of all attempts on a kind of sandbox."""

    kind: str
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def escaped(self) -> list[Attempt]:
        """The attempts that were not contained."""
        return [one for one in self.attempts if not one.is_contained]


class MachineCanaries:
    """Resources of the machine, outside the sandbox, that show whether code touched them.

    The resources are a secret file, a file to change, a listening port, an abstract socket, a
    socket with a path, System V and POSIX IPC, and a process. All belong to the current user; the
    files are open to every user.
    """

    def __init__(self) -> None:
        self.token = secrets.token_hex(16)
        self.folder = Path(tempfile.mkdtemp(prefix="openenv-outside-"))
        self.folder.chmod(0o777)
        self.secret, self.canary = self.folder / "secret.txt", self.folder / "canary.txt"
        self.secret.write_text(self.token)
        self.canary.write_text("untouched")
        self.secret.chmod(0o644)
        self.canary.chmod(0o666)
        self._before = self._about_canary()
        self.shared = _SharedIPC(self.token)
        sleeper = [sys.executable, "-c", "import time; time.sleep(3600)"]
        self.process = subprocess.Popen(sleeper)  # nosec B603  # no shell
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.abstract = socket.socket(socket.AF_UNIX)
        self.abstract.bind(f"\0openenv-{self.token[:12]}")
        self.abstract.listen()
        self.path = self.folder / "socket"
        self.named = socket.socket(socket.AF_UNIX)
        self.named.bind(str(self.path))
        self.path.chmod(0o666)
        self.named.listen()
        self.visitors = 0
        for server in (self.listener, self.abstract, self.named):
            threading.Thread(target=self._count, args=(server,), daemon=True).start()

    def _count(self, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                server.accept()[0].close()
                self.visitors += 1

    def names(self) -> str:
        """Return the first lines of the code: imports, and variables that name the resources."""
        port, name = self.listener.getsockname()[1], f"openenv-{self.token[:12]}"
        return (
            f"{_IMPORTS}"
            f"SECRET, CANARY, PORT, PID, SOCKET = {str(self.secret)!r}, {str(self.canary)!r}, "
            f"{port}, {self.process.pid}, {name!r}\n"
            f"PATH, SHM, QUEUE, SEMAPHORE, MQ = {str(self.path)!r}, {self.shared.memory}, "
            f"{self.shared.queue}, {self.shared.semaphore}, {self.shared.posix!r}\n"
        )

    def _about_canary(self) -> tuple[Any, ...]:
        about = self.canary.stat()
        return about.st_mode, about.st_uid, about.st_mtime_ns, os.listxattr(self.canary)

    def breaches(self, stdout: str, stderr: str) -> list[str]:
        """Return the forbidden effects that are visible now.

        Args:
            stdout: The standard output of the code.
            stderr: The standard error of the code.
        """
        found = []
        if self.token in stdout + stderr:
            found.append("it has read the secret file")
        if MARK in stdout:  # not stderr, where tracebacks quote the code
            found.append(f"it says: {stdout[stdout.index(MARK) :][:200].strip()}")
        if not self.canary.exists() or self.canary.read_text() != "untouched":
            found.append("it has changed a file of the machine")
        elif self._about_canary() != self._before:
            found.append("it has changed the mode, owner, times or attributes of a file")
        if self.shared.is_touched():
            found.append("it has touched what processes of the machine share")
        if self.visitors:
            found.append("it has reached a port of the machine")
        if self.process.poll() is not None:
            found.append("it has ended a process of the machine")
        return found

    def close(self) -> None:
        """Remove the resources."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        for server in (self.listener, self.abstract, self.named):
            server.close()
        self.shared.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class _SharedIPC:
    """System V IPC objects and a POSIX message queue of the machine, open to all users.

    Attributes:
        memory: The id of a shared memory segment that holds the token.
        queue: The id of a message queue that holds a message.
        semaphore: The id of a set of one semaphore with the value 0.
        posix: The name of a POSIX message queue.
    """

    def __init__(self, token: str) -> None:
        self._libc = libc = ctypes.CDLL(None, use_errno=True)
        libc.shmat.restype = ctypes.c_void_p
        self._token = token.encode()
        self.memory = libc.shmget(0, 4096, 0o1666)
        self._at = libc.shmat(self.memory, None, 0)
        ctypes.memmove(self._at, self._token, len(self._token))
        self.queue = libc.msgget(0, 0o1666)
        libc.msgsnd(self.queue, struct.pack("l16s", 1, b"message"), 16, 0)
        self.semaphore = libc.semget(0, 1, 0o1666)
        self.posix = f"/openenv-{token[:12]}"
        self._opened = libc.mq_open(self.posix.encode(), os.O_CREAT | os.O_RDWR, 0o666, None)

    def is_touched(self) -> bool:
        libc, about = self._libc, ctypes.create_string_buffer(256)
        is_there = (
            libc.msgctl(self.queue, 2, about) == 0 and libc.shmctl(self.memory, 2, about) == 0
        )
        text = ctypes.string_at(self._at, len(self._token))
        return not is_there or text != self._token or libc.semctl(self.semaphore, 0, 12) != 0

    def close(self) -> None:
        libc = self._libc
        libc.shmdt(ctypes.c_void_p(self._at))
        libc.shmctl(self.memory, 0, None)
        libc.msgctl(self.queue, 0, None)
        libc.semctl(self.semaphore, 0, 0)
        if self._opened >= 0:
            os.close(self._opened)
            libc.mq_unlink(self.posix.encode())


def check_sandbox(
    make: Callable[[SandboxPolicy], Sandbox],
    escapes: Sequence[Escape] | None = None,
    progress: Callable[[Attempt], object] | None = None,
) -> EscapeReport:
    """Try every escape, each in a new sandbox.

    Args:
        make: Function that starts a sandbox with the given policy.
        escapes: The escapes to try; by default all of `ESCAPES`.
        progress: Function to call with each attempt after it ended.

    Returns:
        The results. `EscapeReport.escaped` should be empty.
    """
    report = EscapeReport("")
    for escape in ESCAPES if escapes is None else escapes:
        with contextlib.closing(MachineCanaries()) as outside, make(POLICY) as sandbox:
            report.kind = sandbox.kind
            report.attempts.append(_attempt(escape, sandbox, outside))
        if progress is not None:
            progress(report.attempts[-1])
    return report


def _attempt(escape: Escape, sandbox: Sandbox, outside: MachineCanaries) -> Attempt:
    began = time.monotonic()
    with _watch(sandbox) as seen:
        output, outcome, breaches = _run_escape(escape, sandbox, outside)
    if seen.memory > POLICY.memory_bytes + SLACK_BYTES:
        breaches.append(f"it has taken {seen.memory >> 20} MiB of memory")
    if seen.kernel > KERNEL_BYTES:
        breaches.append(f"it has taken {seen.kernel >> 20} MiB of the kernel's memory")
    if (seconds := time.monotonic() - began) > ENOUGH_S:
        breaches.append(f"it has held its holder for {seconds:.0f} s")
    if len(output) > 4 * POLICY.output_bytes:
        breaches.append(f"it has printed {len(output)} bytes")
    sandbox.close()
    breaches += _list_leftovers(seen)
    return Attempt(escape, tuple(breaches), outcome, seconds)


def _run_escape(
    escape: Escape, sandbox: Sandbox, outside: MachineCanaries
) -> tuple[str, str, list[str]]:
    """Run an escape; return the output, the outcome, and the observed breaches."""
    done = None
    try:
        with Interpreter(sandbox) as python:
            done = python.run(outside.names() + escape.code)
        outcome = "it was timed out" if done.timed_out else f"exit code {done.exit_code}"
        if done.names_are_gone:
            outcome += ", and the interpreter has ended"
        breaches = _check_still_serving(sandbox)
    except SandboxEnded as error:
        outcome, breaches = str(error), []
    stdout, stderr = (done.stdout, done.stderr) if done is not None else ("", "")
    return stdout + stderr, outcome, breaches + outside.breaches(stdout, stderr)


def _check_still_serving(sandbox: Sandbox) -> list[str]:
    """Return a breach if the sandbox runs no commands after all of its processes were killed."""
    sandbox.kill_all()
    for _ in range(20):  # the kernel removes the last of many processes with a delay
        with contextlib.suppress(SandboxFileError):
            if sandbox.run(["/bin/echo", "well"], wall_s=10).stdout.strip() == "well":
                return []
        time.sleep(0.1)
    return ["its sandbox serves nobody any more"]


@dataclass
class _SandboxWatch:
    memory: int = 0  # peak memory in bytes
    kernel: int = 0  # growth of the kernel's own memory in bytes
    # The start time of each process that was seen, by pid.
    processes: dict[int, bytes] = field(default_factory=dict)
    at_first: int = field(default_factory=lambda: _kernel_bytes())

    def look(self, sandbox: Sandbox) -> None:
        processes = sandbox.processes()
        for pid in processes:
            if (began := _start_ticks(pid)) is not None:
                self.processes[pid] = began
        self.memory = max(self.memory, memory_of(processes))
        self.kernel = max(self.kernel, _kernel_bytes() - self.at_first)


@contextlib.contextmanager
def _watch(sandbox: Sandbox) -> Iterator[_SandboxWatch]:
    """Sample the memory and processes of a sandbox every 50 ms."""
    seen = _SandboxWatch()
    seen.look(sandbox)
    is_over = threading.Event()

    def look_on() -> None:
        while not is_over.wait(0.05):
            seen.look(sandbox)

    thread = threading.Thread(target=look_on, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        is_over.set()
        thread.join()


def _kernel_bytes() -> int:
    """Return the kernel's unreclaimable memory in bytes."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    values = {name: int(rest.split()[0]) for name, _, rest in (one.partition(":") for one in lines)}
    return 1024 * sum(values[name] for name in ("SUnreclaim", "PageTables", "KernelStack"))


def _start_ticks(pid: int) -> bytes | None:
    """Return when a process started, in ticks since boot; None if the process has ended."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if state in (b"Z", b"X") else fields[18]


def _list_leftovers(seen: _SandboxWatch) -> list[str]:
    """Return a breach if processes are left 5 s after the end of the sandbox.

    Each process is checked by its pid, because the sandbox no longer knows a process whose
    ancestors have ended.
    """
    deadline = time.monotonic() + 5
    left = list(seen.processes)
    while left and time.monotonic() < deadline:
        left = [pid for pid in left if _start_ticks(pid) == seen.processes[pid]]
        time.sleep(0.02)
    return [] if not left else [f"it has left processes behind: {left}"]


# If a sandbox lacks a module, only the escapes that need the module fail.
_IMPORTS = """\
for name in "os signal socket struct subprocess sys time".split():
    try: globals()[name] = __import__(name)
    except BaseException: pass
try:
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True); libc.shmat.restype = ctypes.c_void_p
except (ImportError, OSError): pass
"""

_WAYS: dict[str, dict[str, str]] = {
    "files": {
        "read a file of the machine": "print(open(SECRET).read())",
        "list the machine's directory for temporary files": """
            if os.path.basename(os.path.dirname(SECRET)) in os.listdir("/tmp"): print("ESCAPED")
        """,
        "write a file of the machine": "open(CANARY, 'w').write('touched')",
        "read it by a symbolic link": "os.symlink(SECRET, 'link'); print(open('link').read())",
        "read it by a hard link": "os.link(SECRET, 'hard'); print(open('hard').read())",
        "read it by many parents": "print(open('../' * 40 + SECRET.lstrip('/')).read())",
        "read it by the root of process 1": "print(open('/proc/1/root' + SECRET).read())",
        "read it by the directory of process 1": "print(open('/proc/1/cwd/' + SECRET).read())",
        "read it by the root of its own process": "print(open('/proc/self/root' + SECRET).read())",
        "read it by an open file of process 1": """
            for fd in os.listdir('/proc/1/fd'):
                try: print(open(f'/proc/1/fd/{fd}/../..' + SECRET).read())
                except OSError: pass
        """,
        "read it by an inherited open directory": """
            for fd in range(3, 256):
                try: print(os.read(os.open('../' * 40 + SECRET[1:], os.O_RDONLY, dir_fd=fd), 99))
                except OSError: pass
        """,
        "read it by a handle of the file system": """
            handle = struct.pack('II', 8, 1) + struct.pack('II', 2, 0)
            for fd in (os.open('/', os.O_RDONLY), os.open('/usr', os.O_RDONLY)):
                got = libc.open_by_handle_at(fd, handle, os.O_RDONLY)
                if got >= 0: print('ESCAPED', os.listdir(got))
        """,
        "write where the machine's programs are": """
            for path in ('/usr/bin/x', '/bin/x', '/etc/x', '/lib/x', '/x', '/root/x', '/dev/x'):
                try: open(path, 'w').write('x'); print('ESCAPED', path)
                except OSError: pass
        """,
        "write where Python is": """
            path = os.path.join(os.path.dirname(os.__file__), 'x.py')
            try: open(path, 'w').write('x'); print('ESCAPED', path)
            except OSError: pass
        """,
        "write over the sandbox's own program": """
            own = open('/proc/self/cmdline').read().split(chr(0)) if os.path.exists('/proc/self/cmdline') else []
            for path in [one for one in own if one.endswith('.py')]:
                try: open(path, 'a').write('print(1)'); print('ESCAPED', path)
                except OSError: pass
        """,
        "mount the machine's disk": """
            os.makedirs('m', exist_ok=True)
            for kind in (b'ext4', b'proc', b'sysfs', b'tmpfs', b'overlay'):
                if libc.mount(b'/dev/vda', b'm', kind, 0, None) == 0: print('ESCAPED', kind)
        """,
        "unmount what hides the machine": """
            for path in (b'/', b'/proc', b'/tmp', b'/dev', b'/home/agent'):
                if libc.umount2(path, 2) == 0: print('ESCAPED', path)
        """,
        "mount anew what is read-only": """
            for path in (b'/', b'/usr'):
                if libc.mount(None, path, None, 32 | 4096, None) == 0: print('ESCAPED', path)
        """,
        "change the root": """
            os.makedirs('r', exist_ok=True)
            os.chroot('r'); os.chdir('../' * 40); os.chroot('.'); print(open(SECRET).read())
        """,
        "make a device of the disk": """
            import stat
            os.mknod('disk', 0o600 | stat.S_IFBLK, os.makedev(254, 0)); open('disk', 'rb').read(1); print('ESCAPED')
        """,
        "read the machine's memory": """
            for path in ('/dev/mem', '/dev/kmem', '/proc/kcore', '/dev/port'):
                try: open(path, 'rb').read(1); print('ESCAPED', path)
                except OSError: pass
        """,
        "read the machine's passwords": "open('/etc/shadow').read(); print('ESCAPED')",
        "read the holder's secrets from its variables": """
            if any('OPENENV' in name or 'TOKEN' in name or 'KEY' in name for name in os.environ): print('ESCAPED')
        """,
    },
    "processes": {
        "end a process of the machine": "import os; os.kill(PID, 9)",
        "end everything": """
            if os.fork() == 0:
                os.kill(-1, 9)
        """,
        "end the holder by the parent's number": "for pid in {os.getppid(), 1, 2}: os.kill(pid, 9)",
        "end all whose number it can guess": """
            for pid in range(1, 100000):
                if pid != os.getpid():
                    try: os.kill(pid, 9)
                    except OSError: pass
        """,
        "ignore every signal and go on": """
            for number in range(1, 65):
                try: signal.signal(number, signal.SIG_IGN)
                except (OSError, ValueError): pass
            while True: pass
        """,
        "catch the interrupt and go on": """
            while True:
                try:
                    while True: pass
                except BaseException: pass
        """,
        "live on as a daemon": """
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    time.sleep(600)
                os._exit(0)
        """,
        "live on as a thousand daemons": """
            for _ in range(1000):
                try:
                    if os.fork() == 0:
                        os.setsid(); time.sleep(600); os._exit(0)
                except OSError: break
        """,
        "fork without end": """
            while True:
                try: os.fork()
                except OSError: pass
        """,
        "fork without end, in a shell": """
            subprocess.run(['/bin/bash', '-c', 'b() { b | b & }; b; wait'])
        """,
        "leave zombies": """
            for _ in range(10000):
                try:
                    if os.fork() == 0: os._exit(0)
                except OSError: break
        """,
        "start threads without end": """
            import threading
            while True:
                try: threading.Thread(target=time.sleep, args=(600,)).start()
                except RuntimeError: time.sleep(0.01)
        """,
        "stop itself": "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
        "crash the interpreter": "import ctypes; ctypes.string_at(0)",
        "end the interpreter": "import os; os._exit(0)",
        "trace the first process": """
            for pid in (1, 2, os.getppid(), PID):
                if libc.ptrace(16, pid, 0, 0) == 0: print('ESCAPED', pid)
        """,
        "write into the memory of the first process": """
            for pid in {1, os.getppid(), PID} - {os.getpid()}:
                try: open(f'/proc/{pid}/mem', 'r+b'); print('ESCAPED', pid)
                except OSError: pass
        """,
        "read the memory of another process": """
            here, there = (ctypes.c_size_t * 2)(), (ctypes.c_size_t * 2)(4194304, 16)
            buffer = ctypes.create_string_buffer(16)
            here[0], here[1] = ctypes.addressof(buffer), 16
            for pid in (1, os.getppid(), PID):
                if libc.process_vm_readv(pid, here, 1, there, 1, 0) > 0: print('ESCAPED', pid)
        """,
        "take a file of another process": """
            for pid in {1, os.getppid(), PID} - {os.getpid()}:
                handle = libc.syscall(434, pid, 0)
                for fd in range(16):
                    if handle >= 0 and libc.syscall(438, handle, fd, 0) >= 0: print('ESCAPED', pid, fd)
        """,
        "see the machine's processes": """
            if os.path.isdir(f'/proc/{PID}') and b'time.sleep(3600)' in open(f'/proc/{PID}/cmdline', 'rb').read(): print('ESCAPED')
        """,
        "become root": """
            for become in (os.setuid, os.seteuid, os.setgid):
                try: become(0); print('ESCAPED', become.__name__)
                except OSError: pass
        """,
        "become root by a program that makes it so": """
            for command in (['su', '-c', 'id -u'], ['sudo', '-n', 'id', '-u'], ['pkexec', 'id', '-u'], ['newgrp']):
                try: done = subprocess.run(command, capture_output=True, text=True, timeout=1, stdin=subprocess.DEVNULL)
                except (OSError, subprocess.TimeoutExpired): continue
                if done.stdout.strip() == '0': print('ESCAPED', command)
        """,
        "raise its own limits": """
            import resource
            for name in ('NPROC', 'FSIZE', 'DATA', 'NOFILE'):
                number = getattr(resource, 'RLIMIT_' + name)
                try: resource.setrlimit(number, (resource.RLIM_INFINITY,) * 2); print('ESCAPED', name)
                except (OSError, ValueError): pass
        """,
        "take the processor from everybody": """
            for nice in (-20, -1):
                try: os.nice(nice); print('ESCAPED', os.nice(0))
                except OSError: pass
            try: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(99)); print('ESCAPED')
            except OSError: pass
        """,
    },
    "network": {
        "reach a port of the machine": "socket.create_connection(('127.0.0.1', PORT), 1)",
        "reach a port of the machine by its other names": """
            for name in ('localhost', '0.0.0.0', '::1', '::ffff:127.0.0.1', '127.0.0.2', '10.0.2.2', '172.17.0.1'):
                try: socket.create_connection((name, PORT), 0.3)
                except OSError: pass
        """,
        "reach an abstract socket of the machine": """
            socket.socket(socket.AF_UNIX).connect(chr(0) + SOCKET)
        """,
        "ask a name server": """
            try:
                one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); one.settimeout(0.5)
                one.sendto(b'x', ('8.8.8.8', 53)); one.recv(1); print('ESCAPED')
            except OSError: pass
        """,
        "see or send raw packets": """
            for family, kind in ((socket.AF_PACKET, socket.SOCK_RAW), (socket.AF_INET, socket.SOCK_RAW), (socket.AF_NETLINK, socket.SOCK_RAW)):
                try: socket.socket(family, kind, socket.ntohs(3) if family == socket.AF_PACKET else 1 if family == socket.AF_INET else 0); print('ESCAPED', family)
                except OSError: pass
        """,
        "find the machine's network cards": """
            if os.path.isdir('/sys/class/net') and set(os.listdir('/sys/class/net')) - {'lo'}: print('ESCAPED')
            names = [line.split(':')[0].strip() for line in open('/proc/net/dev').read().splitlines()[2:]] if os.path.exists('/proc/net/dev') else []
            if any(name.startswith(('eth', 'en', 'wl')) for name in names): print('ESCAPED', names)
        """,
        "ask the cloud for its keys": """
            from urllib import request
            request.urlopen('http://169.254.169.254/latest/meta-data/', timeout=0.5); print('ESCAPED')
        """,
        "use the container engine's socket": """
            for path in ('/var/run/docker.sock', '/run/docker.sock', '/run/podman/podman.sock', '/run/containerd/containerd.sock'):
                try: socket.socket(socket.AF_UNIX).connect(path); print('ESCAPED', path)
                except OSError: pass
        """,
    },
    "kernel": {
        "make namespaces": """
            for flag in (0x10000000, 0x00020000, 0x20000000, 0x40000000):
                if libc.unshare(flag) == 0: print('ESCAPED', hex(flag))
        """,
        "make a child in namespaces": """
            pid = libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0)
            if pid == 0: os._exit(0)
            if pid > 0: print('ESCAPED')
        """,
        "enter the namespaces of process 1": """
            for name in ('user', 'mnt', 'pid', 'net'):
                try: fd = os.open(f'/proc/{PID}/ns/{name}', os.O_RDONLY)
                except OSError: continue
                if libc.setns(fd, 0) == 0: print('ESCAPED', name)
        """,
        "load a program into the kernel": """
            for number in (321, 298, 323, 425): # bpf, perf_event_open, userfaultfd, io_uring_setup
                if libc.syscall(number, 1, ctypes.create_string_buffer(256), 128, 0, 0) >= 0: print('ESCAPED', number)
        """,
        "load a module": """
            if libc.syscall(175, b'', 0, b'') == 0 or libc.syscall(246, 0, 0, 0, 0, 0) == 0: print('ESCAPED')
        """,
        "use the keys of the kernel": """
            if libc.syscall(248, b'user', b'a', b'b', 1, -3) > 0: print('ESCAPED')
        """,
        "change the kernel's settings": """
            for path in ('/proc/sys/kernel/hostname', '/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger', '/proc/sys/vm/overcommit_memory'):
                try: open(path, 'w').write('x'); print('ESCAPED', path)
                except OSError: pass
        """,
        "change the clock, or the machine's name": """
            for change in (lambda: time.clock_settime(0, 0), lambda: socket.sethostname('x')):
                try: change(); print('ESCAPED')
                except OSError: pass
        """,
        "restart the machine": "if libc.reboot(0x89abcdef) == 0: print('ESCAPED')",
        "type into the holder's terminal": """
            import fcntl
            for path in ('/dev/tty', '/dev/console', '/proc/self/fd/0'):
                try: fcntl.ioctl(os.open(path, os.O_RDWR), 0x5412, b'x'); print('ESCAPED', path)
                except OSError: pass
        """,
    },
    "memory": {
        "take all of the memory": "held = [bytearray(b'x' * 2**24) for _ in range(4096)]",
        "take all of the memory, with others": """
            for _ in range(12):
                if os.fork() == 0:
                    held = []
                    try:
                        while True: held.append(bytearray(b'x' * 2**23))
                    except MemoryError: time.sleep(600)
            time.sleep(600)
        """,
        "take all of the memory by a file in memory": """
            fd = os.memfd_create('x'); block = b'x' * 2**20
            for _ in range(2**14): os.write(fd, block)
        """,
        "take all of the memory by many files in memory": """
            block, held = b'x' * 2**20, []
            for _ in range(200):
                fd = os.memfd_create('x'); held.append(fd)
                for _ in range(15): os.write(fd, block)
        """,
        "take all of the memory by segments that outlive it": """
            for key in range(64):
                id = libc.shmget(0, 2**24, 0o1777)
                if id >= 0: print('ESCAPED', id)
        """,
        "take all of the memory by shared memory": """
            import mmap
            held = []
            while True:
                one = mmap.mmap(-1, 2**24); one.write(b'x' * 2**24); held.append(one)
        """,
        "recur without end": """
            sys.setrecursionlimit(10**9)
            def f(): return f()
            f()
        """,
        "make a number without end": "x = 10 ** (10 ** 8); y = x * x",
        "match a pattern without end": "import re; re.match('(a+)+$', 'a' * 50 + 'b')",
    },
    "disk": {
        "fill the disk with one file": """
            with open('big', 'wb') as file:
                while True: file.write(b'x' * 2**20)
        """,
        "fill the disk with many files": """
            for number in range(10**6):
                with open(f'f{number}', 'wb') as file: file.write(b'x' * 2**20)
        """,
        "fill the other directories that can be written": """
            for folder in ('/tmp', '/dev/shm', '/var/tmp', '/run', '/dev/mqueue'):
                try:
                    for number in range(4096):
                        with open(f'{folder}/f{number}', 'wb') as file: file.write(b'x' * 2**20)
                    print('ESCAPED', folder)
                except OSError: pass
        """,
    },
    "output": {
        "print without end": "while True: print('x' * 10000)",
        "print a single line of a gigabyte": """
            block = b'x' * 2**20
            for _ in range(1024): os.write(1, block)
        """,
        "print from a child without end": "import subprocess; subprocess.run(['/usr/bin/yes'])",
        "print what is no text": r"""
            os.write(1, bytes(range(256)) * 100); print('\ud800\udfff\x00\x1b[2J' + '\u202e' * 1000)
        """,
        "speak for the interpreter": """
            import json
            head = json.dumps({'is': 'done', 'exit_code': 'ESCAPED'}).encode()
            os.write(4, struct.pack('>II', len(head), 0) + head)
            os.write(4, b'\\xff' * 10000)
        """,
        "say more to the holder than it can hold": """
            while True: os.write(4, b'\\x00\\x00\\x00\\x02\\x00\\x00\\x00\\x00{}' * 10000)
        """,
        "tell the holder a number that never ends": """
            os.write(4, struct.pack('>II', 2**32 - 1, 2**32 - 1))
        """,
        "speak for the first process": """
            for fd in range(5, 256):
                try: os.write(fd, b'x' * 100)
                except OSError: pass
            for pid in (1, os.getppid()):
                for fd in range(8):
                    path = f'/proc/{pid}/fd/{fd}'
                    try:
                        # What leads nowhere, or within the sandbox, does not lead to its holder.
                        if os.readlink(path).startswith(('/dev/null', 'pipe:')): continue
                        os.write(os.open(path, os.O_WRONLY), b'x'); print('ESCAPED', pid, fd)
                    except OSError: pass
        """,
    },
    "IPC": {
        "read the machine's shared memory": """
            at = libc.shmat(SHM, None, 0)
            if at not in (None, 2**64 - 1): print(ctypes.string_at(at, 64).decode(errors='replace'))
        """,
        "write to the machine's shared memory": """
            at = libc.shmat(SHM, None, 0)
            if at not in (None, 2**64 - 1): ctypes.memset(at, 0, 16)
        """,
        "remove the machine's shared memory": "if libc.shmctl(SHM, 0, None) == 0: print('ESCAPED')",
        "find the machine's shared memory by its place in the list": """
            space = ctypes.create_string_buffer(256)
            for index in range(64):
                if libc.shmctl(index, 13, space) == SHM: print('ESCAPED', index)
        """,
        "take a message from the machine's queue": """
            space = ctypes.create_string_buffer(256)
            if libc.msgrcv(QUEUE, space, 128, 0, 0o4000) > 0: print('ESCAPED')
        """,
        "put a message into the machine's queue": """
            if libc.msgsnd(QUEUE, struct.pack('l16s', 1, b'x' * 16), 16, 0o4000) == 0: print('ESCAPED')
        """,
        "remove the machine's queue": "if libc.msgctl(QUEUE, 0, None) == 0: print('ESCAPED')",
        "raise the machine's semaphore": """
            if libc.semop(SEMAPHORE, struct.pack('HhH', 0, 1, 0o4000), 1) == 0: print('ESCAPED')
        """,
        "set the machine's semaphore": "if libc.semctl(SEMAPHORE, 0, 16, 5) == 0: print('ESCAPED')",
        "open a queue of POSIX": """
            opened = libc.mq_open(MQ.encode(), os.O_RDWR | os.O_NONBLOCK)
            if opened >= 0: print('ESCAPED')
        """,
        "remove a queue of POSIX": "if libc.mq_unlink(MQ.encode()) == 0: print('ESCAPED')",
    },
    "sockets": {
        "connect to a socket of the machine by its file": """
            one = socket.socket(socket.AF_UNIX); one.settimeout(1); one.connect(PATH)
        """,
        "send to a socket of the machine from a pair": """
            socket.socketpair(type=socket.SOCK_DGRAM)[0].sendto(b'x', PATH); print('ESCAPED')
        """,
        "turn the end of a pair to a socket of the machine": """
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
                try: socket.socketpair(type=kind)[0].connect(PATH); print('ESCAPED', kind)
                except OSError: pass
        """,
        "send a message to a socket of the machine": """
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                try: socket.socketpair(type=kind)[0].sendmsg([b'x'], [], 0, PATH); print('ESCAPED', kind)
                except OSError: pass
        """,
        "reach a socket by the root of process 1": """
            one = socket.socket(socket.AF_UNIX); one.settimeout(1); one.connect('/proc/1/root' + PATH)
        """,
        "reach a socket by a link in the home directory": """
            os.symlink(PATH, 'link')
            one = socket.socket(socket.AF_UNIX); one.settimeout(1); one.connect('link')
        """,
        "speak to the machine that runs this one": """
            for cid in (0, 1, 2):
                try: one = socket.socket(40, 1, 0); one.settimeout(0.5); one.connect((cid, 1024)); print('ESCAPED', cid)
                except OSError: pass
        """,
        "speak to the kernel by netlink": """
            for protocol in (0, 4, 9, 15, 16):
                try: socket.socket(16, socket.SOCK_RAW, protocol); print('ESCAPED', protocol)
                except OSError: pass
        """,
        "use the kernel's ciphers": """
            socket.socket(38, socket.SOCK_SEQPACKET).bind(('hash', 'sha256')); print('ESCAPED')
        """,
    },
    "metadata": {
        "change the mode of a file of the machine": "os.chmod(CANARY, 0o777)",
        "change it by an open file": """
            for flags in (os.O_RDONLY, os.O_PATH):
                try: os.fchmod(os.open(CANARY, flags), 0o777)
                except OSError: pass
        """,
        "change it by newer system calls": """
            for number in (452, 463, 469): # fchmodat2, setxattrat, file_setattr
                if libc.syscall(number, -100, CANARY.encode(), 0o777, 0, 0, 0) == 0: print('ESCAPED', number)
        """,
        "change the times of a file of the machine": "import os; os.utime(CANARY, (1, 1))",
        "change the owner of a file of the machine": "import os; os.chown(CANARY, os.getuid(), -1)",
        "mark a file of the machine": "import os; os.setxattr(CANARY, 'user.a', b'x')",
        "make a program run as another user": """
            import shutil
            shutil.copy('/usr/bin/id', 'id'); os.chmod('id', 0o4755)
            said = subprocess.run(['./id', '-u'], capture_output=True, text=True).stdout.strip()
            if said and int(said) != os.getuid(): print('ESCAPED', said)
        """,
        "see what is mounted": """
            for number in (457, 458, 467, 428): # statmount, listmount, open_tree_attr, open_tree
                if libc.syscall(number, -100, b'/', 0, 0, 0, 0) >= 0: print('ESCAPED', number)
        """,
    },
    "kernel memory": {
        "take it by attributes of files": """
            for number in range(2000):
                open(f'/tmp/x{number}', 'w').close()
                for name in range(16): os.setxattr(f'/tmp/x{number}', f'user.{name}', b'x' * 60000)
        """,
        "take it by page tables": """
            import mmap
            held = []
            for _ in range(400):
                one = mmap.mmap(-1, 2**30, flags=mmap.MAP_PRIVATE | 0x4000 | 0x20, prot=mmap.PROT_READ)
                one.madvise(15)
                for at in range(0, 2**30, 2**21): one[at]
                held.append(one)
            time.sleep(3)
        """,
        "take it by sockets that nobody reads": """
            for _ in range(20):
                if os.fork() == 0:
                    held = []
                    try:
                        while True:
                            pair = socket.socketpair(); held.append(pair)
                            for end in pair:
                                end.setblocking(False)
                                try:
                                    while True: end.send(b'x' * 65536)
                                except BlockingIOError: pass
                    except OSError: time.sleep(600)
            time.sleep(600)
        """,
        "take it by pipes that are made larger": """
            import fcntl
            held = []
            for _ in range(120):
                try:
                    ends = os.pipe(); held.append(ends)
                    fcntl.fcntl(ends[1], 1031, 2**20)
                    os.set_blocking(ends[1], False)
                    while True: os.write(ends[1], b'x' * 65536)
                except OSError: pass
            time.sleep(2)
        """,
        "take it by files with nothing in them": """
            for folder in ('/tmp', '/dev/shm', '.'):
                try:
                    for number in range(10**6): open(f'{folder}/f{number}', 'w').close()
                except OSError: pass
            time.sleep(2)
        """,
        "take it by long names": """
            for number in range(10**6): os.symlink('x' * 4000, '/tmp/' + f'{number}'.rjust(200, 'x'))
        """,
        "take it by the limits of others": """
            import resource
            resource.setrlimit(resource.RLIMIT_NOFILE, (10**6, 10**6)); print('ESCAPED')
        """,
    },
    "accounts": {
        "set room aside": """
            libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
            taken = 0
            for number in range(200):
                fd = os.open(f'a{number}', os.O_RDWR | os.O_CREAT)
                if libc.fallocate(fd, 1, 0, 15 << 20) == 0: taken += 15
            time.sleep(3)
            if taken > 100: print('ESCAPED', taken)
        """,
        "write to files without a name": """
            taken, held = 0, []
            for number in range(100):
                held.append(os.open('gone', os.O_RDWR | os.O_CREAT)); os.unlink('gone')
                for _ in range(15): taken += os.write(held[-1], b'x' * 2**20)
            time.sleep(3)
            if taken > 100 << 20: print('ESCAPED', taken)
        """,
        "write to mapped files without a name": """
            import mmap
            taken, held = 0, []
            for number in range(100):
                fd = os.open('gone', os.O_RDWR | os.O_CREAT); os.unlink('gone')
                for _ in range(15): taken += os.write(fd, b'x' * 2**20)
                held.append(mmap.mmap(fd, 15 << 20)); os.close(fd)
            time.sleep(3)
            if taken > 100 << 20: print('ESCAPED', taken)
        """,
        "send files without a name from socket to socket": """
            import array
            taken, pairs = 0, []
            for number in range(60):
                fd = os.open('gone', os.O_RDWR | os.O_CREAT); os.unlink('gone')
                for _ in range(15): taken += os.write(fd, b'x' * 2**20)
                pairs.append(socket.socketpair())
                pairs[-1][0].sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [fd]))])
                os.close(fd)
            time.sleep(3)
            if taken > 100 << 20: print('ESCAPED', taken)
        """,
        "make directories without end": """
            for number in range(200_000): os.mkdir('d' + f'{number}'.rjust(200, 'x'))
            time.sleep(3); print('ESCAPED')
        """,
        "write where paths are too long": """
            for _ in range(40):
                os.mkdir('d' * 200); os.chdir('d' * 200)
            for number in range(20):
                with open(f'f{number}', 'wb') as file: file.write(b'x' * (15 << 20))
            time.sleep(3); print('ESCAPED')
        """,
        "write where nobody may look": """
            os.mkdir('closed', 0o300)
            for number in range(20):
                with open(f'closed/f{number}', 'wb') as file: file.write(b'x' * (15 << 20))
            time.sleep(3); print('ESCAPED')
        """,
    },
    "the watch": {
        "hide in directories in each other": """
            for _ in range(3000):
                os.mkdir('d'); os.chdir('d')
            time.sleep(2)
            held = []
            while True: held.append(b'x' * 2**20)
        """,
        "have a name that is no name": r"""
            libc.prctl(15, b') Z 1 (\n\xff', 0, 0, 0)
            if os.fork() == 0:
                libc.prctl(15, b'0) X 0 0', 0, 0, 0)
                held = []
                while True: held.append(b'x' * 2**20)
            held = []
            while True: held.append(b'x' * 2**20)
        """,
        "have files whose names are no text": r"""
            for number in range(256):
                if number not in (0, 47):
                    open(b'\xff' + bytes([number]) + b'\n', 'w').close()
            open('big', 'w').write('x')
            for number in range(100):
                with open(f'f{number}', 'wb') as file: file.write(b'x' * (15 << 20))
        """,
        "change what is there while it is looked through": """
            until = time.monotonic() + 3
            while time.monotonic() < until:
                os.makedirs('a/b/c/d', exist_ok=True)
                os.rename('a', 'x'); os.symlink('/', 'a'); os.unlink('a'); os.rename('x', 'a')
        """,
        "stop, and have others go on": """
            child = os.fork()
            if child == 0:
                os.setsid()
                os.kill(os.getppid(), signal.SIGSTOP)
                held = []
                while True: held.append(b'x' * 2**20)
            time.sleep(600)
        """,
    },
    "Python": {
        "find a way out by __subclasses__": """
            for cls in object.__subclasses__():
                if cls.__name__ == '_wrap_close':
                    cls.__init__.__globals__['system']('cat ' + SECRET)
        """,
        "take the interpreter's own frames": """
            frame, found = sys._getframe(), []
            while frame: found.append(frame.f_globals); frame = frame.f_back
            for names in found:
                names['print'] = lambda *a: None
                names.get('os', sys).__dict__.get('system', len)('cat ' + SECRET)
        """,
        "replace what the interpreter calls": """
            import builtins, traceback
            builtins.compile = lambda *a, **k: exec('raise SystemExit(0)')
            traceback.TracebackException = None
            sys.stdout = sys.stderr = None
            raise ValueError('x')
        """,
        "raise what cannot be shown": """
            class Evil(Exception):
                def __str__(self): raise SystemExit(0)
                __repr__ = __str__
            raise Evil
        """,
        "unpickle a command": """
            import pickle
            pickle.loads(b"cos\\nsystem\\n(S'cat " + SECRET.encode() + b"'\\ntR.")
        """,
        "leave code for what runs next": """
            for path in ('sitecustomize.py', 'frames.py', 'json.py', 'usercustomize.py'):
                open(path, 'w').write("print('ESCAPED into', __file__)")
            os.environ['PYTHONSTARTUP'] = os.environ['PYTHONPATH'] = os.getcwd()
            os._exit(0)
        """,
    },
}

ESCAPES = tuple(
    Escape(name, kind, textwrap.dedent(code))
    for kind, ways in _WAYS.items()
    for name, code in ways.items()
)
"""All escapes that `check_sandbox` tries by default."""
