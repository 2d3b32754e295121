"""Servers that are forked: they are what new ones would be; the fork server is in nobody's way."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.probe import Ask, ProbeEnv
from support.processes import is_alive
from support.waiting import wait_until

from openenv import SessionLost
from openenv._internal import children as _children
from openenv.errors import ProviderExited
from openenv.providers import ProcessLimits, ProcessProvider
from openenv.providers.process import HostServer, ServerProcess

PROBE = Path(__file__).parents[1] / "support" / "probe.py"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="servers are forked on Linux only"),
]


@pytest.fixture(autouse=True, scope="module")
def none_of_others() -> Iterator[None]:
    """Set the fork servers of other tests aside, with the children that still live."""
    others = _children._take_all()
    yield
    _children._retired.extend(others)


@pytest.fixture(autouse=True)
def fork_server() -> Iterator[_children.ForkServerHandle]:
    """The fork server of this program, there from the first server on."""
    _children._is_first = False
    with ProcessProvider("echo_env"):
        pass
    assert _children._server is not None
    yield _children._server


def ask(provider: ProcessProvider, what: str, value: Any = None) -> Any:
    with ProbeEnv(base_url=provider.base_url) as env:
        env.reset()
        return env.step(Ask(what=what, value=value)).observation.value


def process_of(provider: ProcessProvider) -> ServerProcess:
    assert isinstance(provider._server, HostServer)
    return provider._server.process


def is_forked(provider: ProcessProvider) -> bool:
    assert _children._server is not None
    return bool(ask(provider, "parent") == _children._server._process.pid)


@pytest.mark.extended("starts fork servers of its own")
def test_a_forked_server_begins_as_a_new_one_does() -> None:
    found = []
    for begun in ({"PYTHON_OF_TEST": "1"}, {}):
        provider = ProcessProvider(PROBE, env_vars={"TZ": "Asia/Tokyo", **begun})
        with provider:
            provider.wait_for_ready()
            assert is_forked(provider) is not bool(begun)
            assert ask(provider, "children") == []
            found.append(ask(provider, "facts"))
    new, forked = found
    for told in found:  # which differ by the port that was asked for, and by nothing else
        told["arguments"] = [a for a in told["arguments"] if not a.startswith("--port=")]
    for fact, value in new.items():
        assert forked[fact] == value, fact
    assert forked["files"][0] == "/dev/null"


def test_limits_that_this_program_has_set_itself_meanwhile_hold_too() -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[0] - 1, before[1]))
    try:
        limits = ProcessLimits(open_files=None)
        with ProcessProvider(PROBE, limits=limits) as provider:
            provider.wait_for_ready()
            assert is_forked(provider)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_forked_servers_share_no_random_numbers() -> None:
    with ProcessProvider(PROBE) as one, ProcessProvider(PROBE) as other:
        assert is_forked(one) and is_forked(other)
        drawn = [ask(provider, "draw") for provider in (one, other)]
    assert not {*drawn[0]} & {*drawn[1]}


@pytest.mark.extended("starts fork servers of its own")
def test_what_the_interpreter_reads_at_its_start_is_not_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for provider in (
        ProcessProvider(PROBE, env_vars={"PYTHONHASHSEED": "7"}),
        ProcessProvider(PROBE, env_vars={"LD_LIBRARY_PATH": "/nowhere"}),
    ):
        with provider:
            assert not is_forked(provider)
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    with ProcessProvider(PROBE) as provider:
        assert "/nowhere" in ask(provider, "facts")["path"]


def test_the_fork_server_is_single_threaded_and_holds_nobodys_descriptors(
    fork_server: _children.ForkServerHandle,
) -> None:
    place = Path(f"/proc/{fork_server._process.pid}")
    assert len(list((place / "task").iterdir())) == 1
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.set_inheritable(True)
        # With those of children that have just ended there are more.
        wait_until(lambda: len(descriptors(place)) == 4, shown=lambda: descriptors(place))
        before = descriptors(place)
        assert before[:3] == ["/dev/null"] * 3
        with ProcessProvider(PROBE):
            kinds = descriptors(place)[4:]
            assert sorted(kind.partition(":")[0] for kind in kinds) == ["anon_inode", "pipe"]
        wait_until(lambda: descriptors(place) == before, shown=lambda: descriptors(place))


def descriptors(place: Path) -> list[str]:
    numbers = sorted(int(name) for name in os.listdir(place / "fd"))
    return [os.readlink(place / "fd" / str(number)) for number in numbers]


def test_a_crash_of_one_leaves_the_fork_server_and_the_others_alone(
    fork_server: _children.ForkServerHandle,
) -> None:
    with ProcessProvider(PROBE) as other:
        provider = ProcessProvider(PROBE)
        provider.start()
        with pytest.raises(SessionLost):
            ask(provider, "segfault", 0)
        wait_until(lambda: process_of(provider).exit_code is not None)
        with pytest.raises(ProviderExited) as exited:
            provider.check_running()
        assert exited.value.exit_code == -signal.SIGSEGV
        provider.stop()
        assert is_forked(other)
        assert _children._server is fork_server


def test_a_fork_server_that_is_killed_is_replaced_and_its_servers_go_on(
    fork_server: _children.ForkServerHandle,
) -> None:
    with ProcessProvider(PROBE) as orphan:
        pid = orphan.pid
        assert pid is not None and is_forked(orphan)
        os.kill(fork_server._process.pid, signal.SIGKILL)
        fork_server._process.wait(5)
        with ProcessProvider(PROBE) as new:
            assert is_forked(new)
        assert ask(orphan, "where")["pid"] == pid
        orphan.check_running()
        with pytest.raises(SessionLost):
            ask(orphan, "kill")
        wait_until(lambda: process_of(orphan).exit_code is not None)
        with pytest.raises(ProviderExited):
            orphan.check_running()
    assert not is_alive(pid)


@pytest.mark.extended("starts several fork servers")
def test_a_program_that_changes_back_and_forth_has_one_fork_server_for_each(
    fork_server: _children.ForkServerHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = None
    for _ in range(2):
        with monkeypatch.context() as changed:
            changed.setenv("PYTHON_OF_TEST", "1")
            with ProcessProvider("echo_env"):
                assert _children._server is not fork_server
                assert other in (None, _children._server)
                other = _children._server
        with ProcessProvider("echo_env"):
            assert _children._server is fork_server


def test_one_that_does_not_end_is_waited_for_in_vain_and_killed() -> None:
    with ProcessProvider(PROBE) as provider:
        provider.wait_for_ready()
        server = process_of(provider)
        stopped = threading.Thread(target=server.stop, args=[0.1])
        os.kill(server.pid, signal.SIGSTOP)
        stopped.start()
        stopped.join(10)
        assert server.exit_code == -signal.SIGKILL


@pytest.mark.extended("starts a fork server and eight servers")
def test_many_are_started_at_once_from_many_threads() -> None:
    providers = [ProcessProvider(PROBE) for _ in range(8)]
    try:
        with ThreadPoolExecutor(8) as threads:
            urls = list(threads.map(lambda provider: provider.start(), providers))
        assert len(set(urls)) == 8
        assert {ask(provider, "where")["pid"] for provider in providers} == {
            provider.pid for provider in providers
        }
        assert all(map(is_forked, providers))
    finally:
        for provider in providers:
            provider.stop()
