"""Control groups: where there are some, the kernel keeps the limits; where not, that is said.

Most of this needs cgroup v2 that was delegated to the tests, such as by
``systemd-run --user --scope -p Delegate=yes make test``, or by a group in OPENENV_CGROUP.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from openenv.errors import SandboxEnded, SandboxUnavailable
from openenv.sandbox import Sandbox, SandboxPolicy, cgroups
from openenv.sandbox.cgroups import why_no_group

MIB = 2**20
WHY_NOT = why_no_group()
needs_groups = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))


@pytest.fixture
def another_place(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Where groups are made is found out anew."""
    cgroups._home.cache_clear()
    yield
    monkeypatch.undo()
    cgroups._home.cache_clear()


@pytest.mark.skipif(WHY_NOT is None, reason="there are control groups here")
def test_without_a_group_nobody_promises_what_it_would_keep() -> None:
    with Sandbox() as sandbox:  # which does not ask for it
        assert sandbox.run("true").exit_code == 0
    with pytest.raises(SandboxUnavailable) as caught:
        Sandbox(SandboxPolicy(strict_memory=True), require="process")
    assert caught.value.reasons["bubblewrap"] == caught.value.reasons["landlock"] == WHY_NOT


@pytest.mark.parametrize("given", ["/nowhere", "/proc", "/sys/fs/cgroup/memory"])
def test_what_is_no_group_is_refused(
    given: str, monkeypatch: pytest.MonkeyPatch, another_place: None
) -> None:
    monkeypatch.setenv("OPENENV_CGROUP", given)
    if (Path(given) / "cgroup.controllers").exists():
        pytest.skip("it is one here")
    assert why_no_group() == f"OPENENV_CGROUP is {given}, which is no group of cgroup v2"


def test_a_group_without_controllers_is_refused(
    monkeypatch: pytest.MonkeyPatch, another_place: None
) -> None:
    hybrid = Path("/sys/fs/cgroup/unified")
    if not (hybrid / "cgroup.controllers").exists():
        pytest.skip("the machine has cgroup v2 alone")
    monkeypatch.setenv("OPENENV_CGROUP", str(hybrid))
    assert "has no controller for memory and pids" in str(why_no_group())


# ------------------------------------------------------------------ where there are some


def groups() -> list[Path]:
    home = cgroups._home()
    assert isinstance(home, Path)
    return sorted(home.glob(f"openenv-{os.getpid()}-*"))


@needs_groups
def test_a_sandbox_has_a_group_as_long_as_it_is_there(kind: str) -> None:
    policy = SandboxPolicy(strict_memory=True, memory_bytes=100 * MIB)
    with Sandbox(policy, require="process", kind=kind) as sandbox:
        (group,) = groups()
        assert int((group / "memory.max").read_text()) >= 100 * MIB
        sandbox.start("sleep 100")
        assert len((group / "cgroup.procs").read_text().split()) >= 2
        own = Path("/proc/self/cgroup").read_text()
        assert group.name not in own
    assert groups() == []


KERNEL = {
    "page tables": """if True:
        import mmap, time
        held = []
        for _ in range(400):
            one = mmap.mmap(-1, 2**30, flags=mmap.MAP_PRIVATE | 0x4000 | 0x20, prot=mmap.PROT_READ)
            one.madvise(15)
            for at in range(0, 2**30, 2**21): one[at]
            held.append(one)
        time.sleep(60)
    """,
    "sockets": """if True:
        import socket, subprocess, sys, time
        if len(sys.argv) < 2:
            again = [sys.executable, 'f', 'again']
            more = [subprocess.Popen(again) for _ in range(20)]
        held = []
        for _ in range(100):
            one, other = socket.socketpair()
            for end in (one, other):
                end.setblocking(False)
                try:
                    while True: end.send(b'x' * 65536)
                except OSError: pass
            held += [one, other]
        time.sleep(60)
    """,
    "pipes": """if True:
        import fcntl, os, subprocess, sys, time
        if len(sys.argv) < 2:
            again = [sys.executable, 'f', 'again']
            more = [subprocess.Popen(again) for _ in range(20)]
        for _ in range(100):
            _, end = os.pipe()
            os.set_blocking(end, False)
            try:
                fcntl.fcntl(end, 1031, 2**20)
            except OSError: pass
            try:
                while True: os.write(end, b'x' * 65536)
            except OSError: pass
        time.sleep(60)
    """,
    "a burst": """if True:
        import mmap, time
        held = mmap.mmap(-1, 2**31)
        held[:] = b'x' * 2**31
        time.sleep(60)
    """,
}


@needs_groups
@pytest.mark.slow("fills memory until a limit ends it")
@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
@pytest.mark.parametrize("what", KERNEL)
def test_what_the_kernel_keeps_for_it_counts(what: str, kind: str) -> None:
    policy = SandboxPolicy(strict_memory=True, memory_bytes=64 * MIB, disk_bytes=16 * MIB)
    peak = 0
    with Sandbox(policy, require="process", kind=kind) as sandbox:
        (group,) = groups()
        sandbox.write("f", KERNEL[what])
        with pytest.raises(SandboxEnded, match="memory"):
            sandbox.run([sandbox.python, "f"], wall_s=50)
        if (group / "memory.peak").exists():
            peak = int((group / "memory.peak").read_text())
    assert peak < (64 + 64 + 2 * 16 + 16 + 1) * MIB
    assert groups() == []
