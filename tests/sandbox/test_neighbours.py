"""A sandbox that goes over a limit is stopped, and the one beside it notices nothing.

For each limit of a `SandboxPolicy` there is an attack, which goes over it and asserts what stops
it. It is repeated until a witness in another sandbox has taken `STEPS` steps, each of them a
process, a file and an answer that is known beforehand.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from sandbox.conftest import KINDS, Make
from support.memory import kept_below
from support.waiting import wait_until

from openenv.sandbox import Sandbox, SandboxEnded, SandboxPolicy
from openenv.sandbox.policy import MIB
from openenv.sandbox.proxy import Proxy
from openenv.sandbox.sandbox import MAX_UNREAD, MAX_UNREAD_OF_CHANNEL

STEPS = 3  # that a witness takes, at least, while its neighbour is over a limit


@dataclass
class Witness:
    """A sandbox that is at work all the time, and must not notice anything."""

    sandbox: Sandbox
    steps: int = 0
    failure: list[BaseException] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def play(self) -> None:
        try:
            total = ""
            while not self.over.is_set():
                total += f"{self.steps}\n"
                done = self.sandbox.run(f"echo {self.steps} >> written; cat written")
                assert (done.exit_code, done.stdout, done.stderr) == (0, total, "")
                self.steps += 1
        except BaseException as error:
            self.failure.append(error)


@contextlib.contextmanager
def witness(sandbox: Sandbox) -> Iterator[Witness]:
    seen = Witness(sandbox)
    thread = threading.Thread(target=seen.play)
    thread.start()
    try:
        wait_until(lambda: seen.steps or seen.failure)
        yield seen
    finally:
        seen.over.set()
        thread.join(20)
    assert not thread.is_alive() and seen.failure == []
    assert not sandbox.is_over


# Memory that no limit of a process counts (setrlimit), so that the watch has to.
EAT = """if True:
    import mmap, time
    held = mmap.mmap(-1, 2**27)
    for _ in range(2**7): held.write(b"x" * 2**20)
    time.sleep(60)
"""


def too_much_memory(make: Make, kind: str) -> None:
    sandbox = make(SandboxPolicy(memory_bytes=64 * MIB), kind=kind)
    with pytest.raises(SandboxEnded, match="MiB of memory, and may take 64"):
        sandbox.run([sandbox.python, "-c", EAT])


def too_many_processes(make: Make, kind: str) -> None:
    sandbox = make(SandboxPolicy(processes=16), kind=kind)
    code = "import os, time\nfor _ in range(64):\n  if not os.fork(): time.sleep(60)"
    try:
        done = sandbox.run([sandbox.python, "-c", code])
        assert "BlockingIOError" in done.stderr and len(sandbox.processes()) < 16 + 5
    except SandboxEnded as error:
        assert "processes" in error.why


def too_much_of_the_disk(make: Make, kind: str) -> None:
    sandbox = make(SandboxPolicy(disk_bytes=8 * MIB), kind=kind)
    fill = "for n in 1 2 3 4 5 6; do head -c 3000000 /dev/zero > f$n || exit 9; done; sleep 5"
    try:
        assert sandbox.run(fill).exit_code == 9
    except SandboxEnded as error:
        assert "of disk, and may take 8" in error.why


def too_large_a_file(make: Make, kind: str) -> None:
    sandbox = make(SandboxPolicy(file_bytes=1 * MIB), kind=kind)
    assert sandbox.run("head -c 5000000 /dev/zero > big").exit_code != 0
    assert int(sandbox.run("wc -c < big").stdout) <= 1 * MIB


def too_many_open_files(make: Make, kind: str) -> None:
    sandbox = make(SandboxPolicy(open_files=32), kind=kind)
    code = "held = [open('/dev/null') for _ in range(100)]"
    assert "Too many open files" in sandbox.run([sandbox.python, "-c", code]).stderr


def too_much_output(make: Make, kind: str) -> None:
    sandbox = make(SandboxPolicy(output_bytes=1000), kind=kind)
    done = sandbox.run("seq 1 300000")
    assert len(done.stdout) < 1100 and done.left_out["stdout"] > 1_000_000


def too_much_that_nobody_reads(make: Make, kind: str) -> None:
    """The last of it is kept, and how much is missing is said."""
    sandbox = make(kind=kind)
    job = sandbox.start("seq 1 300000")
    with kept_below(32 * MIB):
        assert job.wait(20)
    kept = job.read_bytes(0)
    assert len(kept) == MAX_UNREAD and kept.endswith(b"\n300000\n")
    whole = sum(len(f"{n}\n") for n in range(1, 300_001))
    assert job.left_out == {"stdout": whole - MAX_UNREAD}
    assert sandbox.run("echo on").stdout == "on\n"


def too_much_on_a_channel(make: Make, kind: str) -> None:
    sandbox = make(kind=kind)
    job = sandbox.start("head -c 64000000 /dev/zero >&4; sleep 60", has_channel=True)
    told = f"its channel has over {MAX_UNREAD_OF_CHANNEL} unread bytes"
    with kept_below(64 * MIB), pytest.raises(SandboxEnded, match=told):
        job.wait(20)
    with pytest.raises(SandboxEnded, match=told):
        sandbox.run("true")


def too_long_a_command(make: Make, kind: str) -> None:
    assert make(SandboxPolicy(wall_s=0.3), kind=kind).run("sleep 60").timed_out


def too_much_computing(make: Make, kind: str) -> None:
    done = make(SandboxPolicy(cpu_s=1), kind=kind).run("while :; do :; done")
    assert done.exit_code > 128 and not done.timed_out


ATTACKS = [
    too_much_memory,
    too_many_processes,
    too_much_of_the_disk,
    too_large_a_file,
    too_many_open_files,
    too_much_output,
    too_much_that_nobody_reads,
    too_much_on_a_channel,
    too_long_a_command,
    too_much_computing,
]


# gVisor counts memory and processes with those of its kernel, from which they are not told. As
# anybody but root, all Landlock sandboxes have one count of processes.
UNLIKE = {("gvisor", too_much_memory), ("gvisor", too_many_processes)}
if os.geteuid() != 0:
    UNLIKE.add(("landlock", too_many_processes))
SLOW = pytest.mark.extended("each sandbox of gVisor takes seconds")
WAYS = [
    pytest.param(
        kind,
        attack,
        id=f"{kind}-{attack.__name__}",
        marks=[SLOW] if kind == "gvisor" else [],
    )
    for kind in KINDS
    for attack in ATTACKS
    if (kind, attack) not in UNLIKE
]


@pytest.mark.parametrize(("kind", "attack"), WAYS)
def test_a_sandbox_over_its_limit_harms_no_other(
    make: Make, kind: str, attack: Callable[[Make, str], None]
) -> None:
    with witness(make(kind=kind)) as seen:
        before = seen.steps
        while seen.steps < before + STEPS and not seen.failure:
            attack(make, kind)


def test_a_sandbox_with_too_many_connections_takes_none_of_anothers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The proxy of each counts its own."""
    monkeypatch.setattr("openenv.sandbox.proxy.MAX_CONNECTIONS", 3)
    refused = b"GET http://127.0.0.1:1/ HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n"
    with (
        contextlib.closing(Proxy(())) as crowded,
        contextlib.closing(Proxy(())) as other,
        contextlib.ExitStack() as stack,
    ):

        def another(proxy: Proxy) -> socket.socket:
            made = stack.enter_context(socket.socket(socket.AF_UNIX))
            made.settimeout(20)
            made.connect(str(proxy.path))
            return made

        for _ in range(3):
            another(crowded)
        assert another(crowded).recv(1000).startswith(b"HTTP/1.1 503 ")
        asking = another(other)
        asking.sendall(refused)
        assert asking.recv(1000).startswith(b"HTTP/1.1 403 ")
