"""Commands in a sandbox, and what becomes of them, of their files and of the sandbox."""

from __future__ import annotations

import errno
import os
import pickle
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from support.amounts import mostly_extended
from support.waiting import wait_until

from openenv.sandbox import (
    Guarantee,
    Sandbox,
    SandboxEnded,
    SandboxFileError,
    SandboxPolicy,
    SandboxUnavailable,
    kinds_of_this_machine,
    watch,
)
from openenv.sandbox.inside.frames import Decoder, FrameError, encode
from openenv.sandbox.policy import MIB
from openenv.sandbox.sandbox import Running

Make = Callable[..., Sandbox]


def test_a_command_gives_what_it_printed_and_its_exit_code(sandbox: Sandbox) -> None:
    done = sandbox.run("echo out; echo err >&2; exit 3")
    assert (done.exit_code, done.stdout, done.stderr) == (3, "out\n", "err\n")
    assert not done.timed_out and not done.left_out


def test_arguments_are_no_shells(sandbox: Sandbox) -> None:
    assert sandbox.run(["printf", "%s|", "a b", "$HOME", "'"]).stdout == "a b|$HOME|'|"


def test_what_is_no_program_is_told_as_by_a_shell(sandbox: Sandbox) -> None:
    done = sandbox.run(["no-such-program"])
    assert done.exit_code == 127
    assert done.stderr == "no-such-program: No such file or directory\n"
    assert sandbox.run(["/etc"]).exit_code == 126


def test_a_signal_is_told_as_by_a_shell(sandbox: Sandbox) -> None:
    assert sandbox.run("kill -9 $$").exit_code == 128 + 9


def test_a_command_reads_its_input(sandbox: Sandbox) -> None:
    text = "ä" * 300_000
    done = sandbox.run(["wc", "-c"], stdin=text)
    assert done.stdout.strip() == str(len(text.encode()))


def test_a_command_that_reads_nothing_may_be_given_much(sandbox: Sandbox) -> None:
    assert sandbox.run(["true"], stdin=b"x" * 3_000_000).exit_code == 0


def test_nothing_of_this_process_is_in_its_environment(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENENV_API_KEY", "planted")
    done = sandbox.run("env", environment={"MINE": "1"})
    names = {line.partition("=")[0] for line in done.stdout.splitlines()}
    assert names - {"PWD", "SHLVL", "_", "OLDPWD"} == {
        "HOME",
        "LANG",
        "MINE",
        "PATH",
        "PYTHONDONTWRITEBYTECODE",
        "USER",
    }


def test_a_command_that_takes_too_long_is_ended_with_all_that_it_started(sandbox: Sandbox) -> None:
    beat = "while true; do date +%s%N > beat; sleep 0.02; done"
    for wall_s in (0.5, 2.0, 8.0):  # a busy machine may take longer to begin
        done = sandbox.run(f"(setsid sh -c '{beat}' &) ; sleep 60", wall_s=wall_s)
        assert done.timed_out and done.exit_code == 128 + 9
        assert done.seconds < wall_s + 9.5
        if "beat" in sandbox.run("ls").stdout:
            break
    last = sandbox.read("beat")
    assert sandbox.run("sleep 0.3; cat beat").stdout.encode() == last


def test_what_ended_in_time_has_not_taken_others_with_it(make: Make) -> None:
    sandbox = make(kind="bubblewrap")
    stays = sandbox.start(["sleep", "60"])
    assert sandbox.run("sleep 60", wall_s=0.2).timed_out
    assert not stays.wait(0.1)
    assert sandbox.run("exit 4").exit_code == 4


def test_output_over_the_limit_keeps_its_beginning_and_its_end(make: Make, kind: str) -> None:
    sandbox = make(SandboxPolicy(output_bytes=1000), kind=kind)
    done = sandbox.run("seq 1 100000; echo short >&2")
    assert done.stdout.startswith("1\n2\n3\n") and done.stdout.endswith("\n99999\n100000\n")
    (left_out,) = done.left_out.values()
    assert f"[... {left_out} bytes are left out here ...]" in done.stdout
    assert len(done.stdout) < 1100
    assert left_out + 1000 == len("".join(f"{n}\n" for n in range(1, 100001)))
    assert done.stderr == "short\n"


def test_output_comes_while_a_command_runs(sandbox: Sandbox) -> None:
    heard: list[tuple[str, str, float]] = []
    began = time.monotonic()
    done = sandbox.run(
        "echo first; sleep 0.7; echo second >&2",
        on_output=lambda stream, text: heard.append((stream, text, time.monotonic() - began)),
    )
    assert [one[:2] for one in heard] == [("stdout", "first\n"), ("stderr", "second\n")]
    assert heard[1][2] - heard[0][2] > 0.4
    assert done.stdout == "first\n"


def test_a_callback_that_raises_leaves_the_sandbox_whole(sandbox: Sandbox) -> None:
    def refuse(stream: str, text: str) -> None:
        raise KeyError(text)

    with pytest.raises(KeyError):
        sandbox.run("echo a; sleep 0.1; echo b", on_output=refuse)
    assert sandbox.run("echo c").stdout == "c\n"


def test_a_command_may_be_spoken_to(sandbox: Sandbox) -> None:
    cat = sandbox.start(["cat"])
    cat.write(b"one\n")
    assert cat.read(5) == "one\n"
    cat.write(b"two\n")
    cat.end_input()
    assert cat.wait(5) and cat.code == 0
    assert cat.read(0) == "two\n"


def test_characters_come_whole_however_their_bytes_come(sandbox: Sandbox) -> None:
    job = sandbox.start(r"printf '\342\202'; sleep 0.5; printf '\254'")
    text = ""
    while job.code is None:
        text += job.read(1)
    assert text + job.read(0) == "€"


def test_a_terminal_is_one(sandbox: Sandbox) -> None:
    shell = sandbox.start(["/bin/sh", "-c", "tty -s && stty size; cat"], terminal=(24, 100))
    assert _until(shell, "24 100")
    shell.resize(50, 132)
    shell.write(b"typed\n")
    assert _until(shell, "typed\r\ntyped\r\n")
    if sandbox.kind == "gvisor":
        return  # of which older versions send no signal to a terminal's processes
    shell.write(b"\x03")
    assert shell.wait(5) and shell.code == -signal.SIGINT


def _until(job: Running, text: str) -> str:
    read, deadline = "", time.monotonic() + 10
    while text not in read and time.monotonic() < deadline and job.code is None:
        read += job.read(0.2)
    assert text in read
    return read


def test_files_go_in_and_out(sandbox: Sandbox) -> None:
    data = os.urandom(3_000_000)
    sandbox.write("deep/down/file.bin", data, mode=0o600)
    assert sandbox.read("deep/down/file.bin") == data
    assert sandbox.read("deep/down/file.bin", max_bytes=10) == data[:10]
    look = (
        "import os; found = os.stat('deep/down/file.bin'); print(oct(found.st_mode), found.st_size)"
    )
    assert sandbox.run([sandbox.python, "-c", look]).stdout == "0o100600 3000000\n"
    sandbox.write("deep/down/file.bin", b"")
    assert sandbox.read("deep/down/file.bin") == b""


@pytest.mark.parametrize(
    ("path", "number"), [("nothing", errno.ENOENT), ("/", errno.EISDIR), ("pipe", errno.EINVAL)]
)
def test_a_file_that_cannot_be_read_is_told_why(make: Make, path: str, number: int) -> None:
    sandbox = make(kind="bubblewrap")
    sandbox.run("mkfifo pipe")
    with pytest.raises(SandboxFileError) as caught:
        sandbox.read(path)
    assert caught.value.errno == number
    assert isinstance(caught.value, OSError)


def test_a_file_that_cannot_be_written_is_told_why(sandbox: Sandbox) -> None:
    for path in ("/usr/bin/ls", "/etc/hosts"):
        with pytest.raises(SandboxFileError):
            sandbox.write(path, "mine")


def test_a_link_leads_nowhere_outside(sandbox: Sandbox, tmp_path: os.PathLike[str]) -> None:
    secret = os.path.join(tmp_path, "secret")
    with open(secret, "w") as file:
        file.write("planted")
    os.chmod(secret, 0o644)
    sandbox.run(["ln", "-s", secret, "link"])
    with pytest.raises(SandboxFileError):
        sandbox.read("link")


# Memory that no limit of a process counts (setrlimit), so that the watch has to.
EAT = """if True:
    import mmap, time
    held = mmap.mmap(-1, 2**28)
    for _ in range(2**8): held.write(b"x" * 2**20)
    time.sleep(60)
"""


def test_one_that_takes_too_much_memory_is_ended_and_says_so(make: Make, kind: str) -> None:
    if kind == "gvisor":
        pytest.skip("its processes' memory is its kernel's, whose own is not told from it")
    sandbox = make(SandboxPolicy(memory_bytes=100 * MIB), kind=kind)
    with pytest.raises(SandboxEnded, match=r"it took \d+ MiB of memory, and may take 100"):
        sandbox.run([sandbox.python, "-c", EAT])
    assert sandbox.is_over
    with pytest.raises(SandboxEnded, match="MiB of memory"):
        sandbox.run("true")


@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
def test_what_takes_too_much_memory_in_the_background_ends_it(make: Make, kind: str) -> None:
    sandbox = make(SandboxPolicy(memory_bytes=100 * MIB), kind=kind)
    eat = "import time; held = [b'x' * 2**20 for _ in range(50)]; time.sleep(60)"
    for _ in range(3):  # none of which takes too much by itself
        sandbox.start([sandbox.python, "-c", eat])
    wait_until(lambda: sandbox.is_over)
    with pytest.raises(SandboxEnded, match=r"it took \d+ MiB of memory, and may take 100"):
        sandbox.run("true")


def test_what_it_writes_is_limited(make: Make, kind: str) -> None:
    policy = SandboxPolicy(disk_bytes=8 * MIB, file_bytes=4 * MIB)
    sandbox = make(policy, kind=kind)
    assert sandbox.run("head -c 5000000 /dev/zero > big").exit_code != 0
    assert int(sandbox.run("wc -c < big").stdout) <= 4 * MIB
    fill = "for n in 1 2 3 4 5 6 7 8; do head -c 3000000 /dev/zero > f$n || exit 9; done; sleep 2"
    try:
        assert sandbox.run(fill).exit_code == 9
    except SandboxEnded as error:
        assert "of disk, and may take 8" in error.why


def test_a_closed_sandbox_says_so_and_leaves_nothing_behind(sandbox: Sandbox) -> None:
    sandbox.start("sleep 1000 & setsid sleep 1000")
    folder = sandbox.home
    processes = sandbox.processes()
    assert len(processes) >= 2
    sandbox.close()
    sandbox.close()
    with pytest.raises(SandboxEnded, match="it was closed"):
        sandbox.run("true")
    wait_until(lambda: not sandbox.processes())
    assert not os.path.exists(folder)


def test_closing_ends_what_another_thread_waits_for(sandbox: Sandbox) -> None:
    threading.Timer(0.4, sandbox.close).start()
    with pytest.raises(SandboxEnded):
        sandbox.run("sleep 60")


def test_one_that_is_killed_from_outside_says_so(sandbox: Sandbox) -> None:
    os.kill(sandbox.processes()[-1], signal.SIGKILL)
    with pytest.raises(SandboxEnded, match="its first process was ended"):
        for _ in range(100):
            sandbox.run("sleep 0.05")


@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
def test_a_sandbox_ends_with_its_holder(kind: str) -> None:
    program = textwrap.dedent(
        f"""
        import time
        from openenv.sandbox import Sandbox
        sandbox = Sandbox(kind={kind!r}, require="process")
        sandbox.start("setsid sleep 1000 & sleep 1000")
        print(*sandbox.processes(), flush=True)
        time.sleep(1000)
        """
    )
    holder = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    processes = [int(pid) for pid in holder.stdout.readline().split()]
    assert len(processes) >= 2
    holder.kill()
    holder.wait()
    holder.stdout.close()
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}/exe") for pid in processes))


def test_a_thread_that_ends_does_not_end_the_sandbox_that_it_started(kind: str) -> None:
    made: list[Sandbox] = []
    thread = threading.Thread(target=lambda: made.append(Sandbox(kind=kind, require="process")))
    thread.start()
    thread.join()
    time.sleep(0.1)
    with made[0] as sandbox:
        assert sandbox.run("echo here").stdout == "here\n"


def test_sandboxes_share_nothing(make: Make, kind: str) -> None:
    one, other = make(kind=kind), make(kind=kind)
    one.run("echo mine > ~/file; echo mine > /tmp/file; sleep 100 &")
    assert "mine" not in other.run("cat ~/file /tmp/file; ls -R ~ /tmp").stdout
    assert one.run("id -u").stdout != other.run("id -u").stdout or os.geteuid() != 0


def test_the_network_is_its_own(make: Make) -> None:
    sandbox = make(kind="bubblewrap")
    sandbox.start([sandbox.python, "-m", "http.server", "--bind", "127.0.0.1", "8000"])
    ask = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8000/').status)"
    for _ in range(50):
        done = sandbox.run([sandbox.python, "-c", ask])
        if done.exit_code == 0:
            break
        time.sleep(0.1)
    assert done.stdout == "200\n"


# ------------------------------------------------------------------ which sandbox


def test_the_machine_says_what_it_has() -> None:
    offers = kinds_of_this_machine()
    assert [one.kind for one in offers] == ["gvisor", "bubblewrap", "landlock"]
    assert sorted(offers, key=lambda one: -one.guarantee) == offers
    assert all(one.is_there for one in offers if one.kind != "gvisor")


def test_the_strongest_is_used_and_named(make: Make) -> None:
    strongest = next(one for one in kinds_of_this_machine() if one.is_there)
    sandbox = make(require="namespaces")
    assert (sandbox.kind, sandbox.guarantee) == (strongest.kind, strongest.guarantee)
    assert sandbox.guarantee >= Guarantee.NAMESPACES


def test_a_guarantee_that_cannot_be_had_is_refused_with_the_cure() -> None:
    with pytest.raises(SandboxUnavailable) as caught:
        Sandbox(require="namespaces", kind="landlock")
    assert caught.value.reasons == {"landlock": "it guarantees process only"}
    assert pickle.loads(pickle.dumps(caught.value)).reasons == caught.value.reasons


def test_nothing_weaker_is_used_where_a_program_is_missing() -> None:
    program = """
from openenv.sandbox import Sandbox, SandboxUnavailable
try:
    Sandbox()
except SandboxUnavailable as error:
    print(error)
"""
    environment = {**os.environ, "PATH": "/nowhere"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert "no sandbox here guarantees 'namespaces'" in done.stdout
    assert "bubblewrap: there is no bwrap; apt-get install bubblewrap" in done.stdout
    assert "landlock: it guarantees process only" in done.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "chroot"}, r"kind is 'chroot'; expected one of 'gvisor', 'bubblewrap'"),
        ({"require": "much"}, r"require is 'much'; expected one of 'process', 'namespaces'"),
    ],
)
def test_what_there_is_not_is_named(options: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Sandbox(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"memory_bytes": 0}, "memory_bytes is 0; it must be positive"),
        ({"wall_s": float("inf")}, "wall_s is inf"),
        ({"open_files": 31}, "open_files is 31; it must be at least 32"),
        ({"network": ("pypi.org",)}, "network has 'pypi.org'; expected HOST:PORT"),
        ({"readable": ("data",)}, "readable has 'data'; expected an absolute path"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(limits: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        SandboxPolicy(**limits)  # type: ignore[arg-type]


def test_what_the_policy_names_can_be_read_and_not_written(
    make: Make, kind: str, tmp_path: os.PathLike[str]
) -> None:
    folder = os.path.join("/var/tmp", f"openenv-readable-{os.getpid()}")
    os.mkdir(folder, 0o777)
    try:
        os.chmod(folder, 0o777)
        with open(os.path.join(folder, "data"), "w") as file:
            file.write("planted")
        sandbox = make(SandboxPolicy(readable=(folder,)), kind=kind)
        assert sandbox.run(["cat", f"{folder}/data"]).stdout == "planted"
        assert sandbox.run(["touch", f"{folder}/mine"]).exit_code != 0
        assert os.listdir(folder) == ["data"]
    finally:
        os.remove(os.path.join(folder, "data"))
        os.rmdir(folder)


# ------------------------------------------------------------------ its guest


def test_a_guest_that_lies_is_bounded() -> None:
    decoder = Decoder()
    decoder.feed(b"\xff" * 8)
    with pytest.raises(FrameError, match="too long"):
        decoder.next()
    decoder = Decoder()
    decoder.feed(encode({"is": "x"}).replace(b'{"is": "x"}', b'["is", "x"]'))
    with pytest.raises(FrameError, match="no object"):
        decoder.next()


def test_frames_come_out_as_they_went_in_however_they_are_cut() -> None:
    frames = [({"n": n}, os.urandom(n)) for n in (0, 1, 1000, 70_000)]
    data = b"".join(encode(*frame) for frame in frames)
    decoder, got = Decoder(), []
    for at in range(0, len(data), 777):
        decoder.feed(data[at : at + 777])
        while (frame := decoder.next()) is not None:
            got.append(frame)
    assert got == frames


# ------------------------------------------------------------------ what the watch survives


DEEP = """if True:
    import os, time
    for _ in range(1500): os.mkdir('d'); os.chdir('d')
    time.sleep(60)
"""


def test_directories_in_each_other_end_their_sandbox_and_no_other(make: Make) -> None:
    """The thread that watches all sandboxes looks through them."""
    deep = make(kind="landlock")
    other = make(SandboxPolicy(memory_bytes=100 * MIB), kind="landlock")
    home = Path(deep.home).parent
    with pytest.raises(SandboxEnded, match="directories are nested more than 200 deep"):
        deep.run([deep.python, "-c", DEEP])
    deep.close()
    assert not home.exists()
    with pytest.raises(SandboxEnded, match=r"MiB of memory, and may take 100"):
        other.run([other.python, "-c", EAT])


def test_a_sandbox_that_cannot_be_looked_at_is_ended_and_no_other(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it is that goes wrong: without the watch it has no limits."""
    one, other = make(kind="landlock"), make(kind="landlock")
    looks = watch._size

    def size(directories: Sequence[str]) -> int:
        if one.home in directories:
            raise OSError(errno.EMFILE, "too many open files")
        return looks(directories)

    monkeypatch.setattr(watch, "_size", size)
    with pytest.raises(SandboxEnded, match="it cannot be measured: OSError"):
        one.run("sleep 60")
    assert other.run("echo well").stdout == "well\n"


DISK = {
    "room that is set aside": """
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        fd = os.open('a', os.O_RDWR | os.O_CREAT)
        offset, length = ctypes.c_long(0), ctypes.c_long(32 << 20)
        for name in 'abcdef':
            fd = os.open(name, os.O_RDWR | os.O_CREAT)
            assert libc.fallocate(fd, 1, offset, length) == 0
    """,
    "files without a name": """
        import os
        for number in range(6):
            fd = os.open('gone', os.O_RDWR | os.O_CREAT)
            os.unlink('gone')
            for _ in range(32): os.write(fd, b'x' * 2**20)
    """,
    "directories": """
        import os
        for number in range(100):
            os.mkdir(f'd{number}')
            for inner in range(400): os.mkdir(f'd{number}/{inner}' + 'x' * 200)
    """,
    "empty files": """
        for number in range(70_000): open(f'f{number}', 'w').close()
    """,
}


@pytest.mark.parametrize("way", mostly_extended(list(DISK), ["room that is set aside"]))
def test_whatever_takes_room_on_the_disk_counts(make: Make, way: str) -> None:
    policy = SandboxPolicy(disk_bytes=64 * MIB)
    sandbox = make(policy, kind="landlock")
    code = textwrap.dedent(DISK[way]) + "\nimport time; time.sleep(60)"
    with pytest.raises(SandboxEnded, match=r"it took \d+ MiB of disk, and may take 64"):
        sandbox.run([sandbox.python, "-c", code], wall_s=50)


def test_memory_of_the_kernel_counts(make: Make) -> None:
    """Page tables here: of memory that nobody has, mapped a page at a time."""
    sandbox = make(SandboxPolicy(memory_bytes=64 * MIB), kind="bubblewrap")
    code = """if True:
        import ctypes, mmap, time
        held = []
        for _ in range(200):
            one = mmap.mmap(-1, 2**30, flags=mmap.MAP_PRIVATE | 0x4000 | 0x20, prot=mmap.PROT_READ)
            one.madvise(15)
            for at in range(0, 2**30, 2**21): one[at]
            held.append(one)
        time.sleep(60)
    """
    with pytest.raises(SandboxEnded, match=r"it took \d+ MiB of memory, and may take 64"):
        sandbox.run([sandbox.python, "-c", code], wall_s=50)


@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
def test_what_the_filter_refuses_fails_as_it_should(make: Make, kind: str) -> None:
    sandbox = make(kind=kind)
    code = """if True:
        import ctypes, errno, os, platform, socket
        libc = ctypes.CDLL(None, use_errno=True)
        def fails(number, *arguments):
            assert libc.syscall(number, *arguments) == -1
            return errno.errorcode[ctypes.get_errno()]
        open('f', 'w').close()
        try: os.setxattr('f', 'user.a', b'x')
        except OSError as error: print("ENOTSUP" if error.errno == errno.ENOTSUP else error.errno)
        print(fails(467, -100, b'/', 0), fails(1000), fails(463))
        if platform.machine() == 'x86_64':
            print(fails(30, 0, 0, 0), fails(240, b'a', 0), fails(65, 0, 0, 0))
        one, other = socket.socketpair()
        one.send(b'well'); print(other.recv(9).decode())
    """
    done = sandbox.run([sandbox.python, "-c", code])
    expected = ["ENOTSUP", "ENOSYS ENOSYS ENOSYS", "EPERM EPERM EPERM", "well"]
    if platform.machine() != "x86_64":
        del expected[2]
    assert done.stdout.splitlines() == expected, done.stderr


def test_landlock_reaches_no_socket_that_has_a_name(make: Make, tmp_path: Path) -> None:
    sandbox = make(kind="landlock")
    with socket.socket(socket.AF_UNIX) as server:
        path = Path(tempfile.mkdtemp(prefix="openenv-outside-")) / "socket"
        path.parent.chmod(0o755)
        server.bind(str(path))
        path.chmod(0o666)
        server.listen()
        code = f"""if True:
            import socket
            for make in (
                lambda: socket.socket(socket.AF_UNIX).connect({str(path)!r}),
                lambda: socket.socketpair(type=socket.SOCK_DGRAM)[0].sendto(b'x', {str(path)!r}),
                lambda: socket.socketpair()[0].connect({str(path)!r}),
            ):
                try: make(); print('reached')
                except OSError as error: print(type(error).__name__)
        """
        done = sandbox.run([sandbox.python, "-c", code])
        server.settimeout(0.2)
        with pytest.raises(TimeoutError):
            server.accept()
    shutil.rmtree(path.parent)
    assert done.stdout.split() == ["PermissionError", "PermissionError", "OSError"], done.stderr


def test_a_nul_in_a_path_is_an_error_of_the_call(sandbox: Sandbox) -> None:
    for call in (
        lambda: sandbox.write("a\0b", b"x"),
        lambda: sandbox.read("a\0b"),
        lambda: sandbox.run(["echo", "a\0b"]),
        lambda: sandbox.run(["echo"], cwd="a\0b"),
    ):
        with pytest.raises(SandboxFileError):
            call()
    assert sandbox.run("echo well").stdout == "well\n"
