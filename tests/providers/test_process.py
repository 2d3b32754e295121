"""Servers as processes of their own: how they start, what they may use, and that they end."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.amounts import mostly_extended
from support.probe import Ask, ProbeEnv
from support.processes import is_alive
from support.waiting import wait_until

from echo_env import EchoAction, EchoEnv
from openenv import ConnectError, ExecutionFailed, SessionLost
from openenv.errors import ProviderError, ProviderExited, ProviderTimeout
from openenv.providers import ProcessLimits, ProcessProvider
from openenv.providers.process import HostServer

pytestmark = pytest.mark.slow  # most start servers in processes of their own

REPOSITORY = Path(__file__).parents[2]
PROBE = REPOSITORY / "tests" / "support" / "probe.py"
ECHO_DIRECTORY = REPOSITORY / "envs" / "echo_env"
PARENT = Path(__file__).with_name("parent.py")

HEADER = """
from openenv import Action, Environment, Observation, State


class E(Environment[Action, Observation, State]):
    def reset(self): return Observation()
    def step(self, action): return Observation()
    @property
    def state(self): return State()

"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Write an environment's file that goes on like this."""

    def write(rest: str) -> Path:
        path = tmp_path / "target.py"
        path.write_text(HEADER + rest)
        return path

    return write


@pytest.fixture(scope="module")
def provider() -> Iterator[ProcessProvider]:
    """One server of the probe, for tests that leave it as it was."""
    with ProcessProvider(PROBE, env_vars={"ONE": "1", "TWO": "1"}) as provider:
        provider.wait_for_ready()
        yield provider


def ask(url: str | ProcessProvider, what: str, value: Any = None) -> Any:
    """Ask a probe one thing in a session of its own."""
    with ProbeEnv(base_url=url if isinstance(url, str) else url.base_url) as env:
        env.reset()
        return env.step(Ask(what=what, value=value)).observation.value


# ------------------------------------------------------------------ starting


@pytest.mark.anyio
@pytest.mark.parametrize(
    "target",
    ["echo_env", ECHO_DIRECTORY, "echo_env.server.app:app"],
    ids=["package", "directory", "module and attribute"],
)
async def test_an_episode_is_played(target: str | Path) -> None:
    async with EchoEnv.with_provider(ProcessProvider(target)) as env:
        await env.reset()
        result = await env.step(EchoAction(message="hello"))
        assert result.observation.echoed_message == "hello"
        assert (await env.state()).step_count == 1


def test_a_file_with_one_environment_class_is_served(provider: ProcessProvider) -> None:
    assert ask(provider, "where")["pid"] == provider.pid


def test_it_finds_what_this_program_can_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[str], Path]
) -> None:
    """A relative PYTHONPATH or `sys.path` entry is meant from here, not from its directory."""
    target = write("import helper_of_this_test\n")
    helpers = tmp_path / "helpers"
    helpers.mkdir()
    (helpers / "helper_of_this_test.py").write_text("")
    monkeypatch.chdir(REPOSITORY)
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(["src", "envs", os.environ.get("PYTHONPATH", "")])
    )
    monkeypatch.syspath_prepend(str(helpers))
    with ProcessProvider(target) as provider:
        provider.wait_for_ready()


def test_variables_of_the_provider_and_of_start_arrive_the_latter_first() -> None:
    provider = ProcessProvider(PROBE, env_vars={"ONE": "1", "TWO": "1"})
    try:
        url = provider.start(env_vars={"TWO": "2"})
        assert (ask(url, "variable", "ONE"), ask(url, "variable", "TWO")) == ("1", "2")
    finally:
        provider.stop()


def test_it_has_a_session_a_directory_and_a_scratch_directory_of_its_own() -> None:
    with ProcessProvider(PROBE) as provider:
        place = ask(provider, "where")
        assert place["pid"] == place["group"] == place["session"] == provider.pid
        assert place["directory"] not in (os.getcwd(), place["scratch"])
        assert Path(place["scratch"]).is_relative_to(place["directory"])
        assert Path(place["scratch"]).is_dir()
    assert not Path(place["directory"]).exists()


def test_an_option_that_nobody_takes_is_refused() -> None:
    provider = ProcessProvider("echo_env")
    with pytest.raises(TypeError, match="memory"):
        provider.start(memory="4g")
    assert provider.pid is None


def test_what_is_not_running_has_no_address() -> None:
    provider = ProcessProvider("echo_env")
    with pytest.raises(ProviderError, match="not running"):
        _ = provider.base_url
    with pytest.raises(ProviderError, match="not running"):
        provider.wait_for_ready()
    provider.stop()
    assert provider.logs() == ""


def test_a_second_start_is_refused_and_disturbs_nothing(provider: ProcessProvider) -> None:
    with pytest.raises(ProviderError, match="running"):
        provider.start()
    assert ask(provider, "where")["pid"] == provider.pid


def test_two_servers_live_side_by_side(provider: ProcessProvider) -> None:
    with ProcessProvider(PROBE) as other:
        assert other.base_url != provider.base_url
        assert ask(other, "where")["pid"] != ask(provider, "where")["pid"]
    assert ask(provider, "where")["pid"] == provider.pid


def test_it_can_be_started_again_after_a_stop() -> None:
    provider = ProcessProvider("echo_env")
    for _ in range(2):
        provider.start()
        provider.wait_for_ready()
        provider.stop()
    with pytest.raises(ProviderError, match="not running"):
        _ = provider.base_url


def test_a_port_that_is_asked_for_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    provider = ProcessProvider("echo_env")
    try:
        assert provider.start(port=port) == f"http://127.0.0.1:{port}"
    finally:
        provider.stop()


def test_a_port_that_is_busy_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ProviderExited, match=f"port {port}.*in use"):
            ProcessProvider("echo_env").start(port=port)


# ------------------------------------------------------------------ failing to start


def test_a_target_that_raises_shows_its_traceback_at_once(write: Callable[[str], Path]) -> None:
    provider = ProcessProvider(write("def load():\n    return {}['weights']\nload()\n"))
    with pytest.raises(ProviderExited, match="KeyError: 'weights'") as caught:
        began = time.monotonic()
        provider.start()
        provider.wait_for_ready(timeout_s=30)
    assert time.monotonic() - began < 10
    assert caught.value.exit_code == 1
    assert "return {}['weights']" in caught.value.logs
    provider.stop()


def test_a_target_that_does_not_exist_is_named() -> None:
    with (
        pytest.raises(ProviderExited, match=r"no_such_env.*no installed package"),
        ProcessProvider("no_such_env") as provider,
    ):
        provider.wait_for_ready()


@pytest.mark.parametrize("python", ["no-such-python", "/etc/passwd"])
def test_an_interpreter_that_cannot_be_run_is_named(python: str) -> None:
    with pytest.raises(ProviderError, match=python):
        ProcessProvider("echo_env", python=python).start()


def test_an_interpreter_that_never_answers_is_given_up() -> None:
    provider = ProcessProvider("echo_env", python=str(PARENT.with_name("silent.sh")))
    provider.ready_timeout_s = 0.3
    with pytest.raises(ProviderTimeout, match="port"):
        provider.start()
    assert provider.pid is None


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_server_that_never_gets_ready_is_given_up_and_stopped(
    write: Callable[[str], Path],
) -> None:
    target = write("import time\nprint('loading weights', flush=True)\ntime.sleep(1000)\n")
    provider = ProcessProvider(target, ready_timeout_s=1.5)
    with pytest.raises(ProviderTimeout, match=r"within 1\.5 s") as caught:
        await EchoEnv.with_provider(provider).connect()
    assert "loading weights" in caught.value.logs
    assert provider.pid is None
    server = provider._server
    assert isinstance(server, HostServer) and server.process.exit_code is not None


def test_a_start_can_be_broken_off(write: Callable[[str], Path]) -> None:
    provider = ProcessProvider(write("import time\ntime.sleep(1000)\n"))
    provider.start()
    pid = provider.pid
    assert pid is not None
    timer = threading.Timer(0.2, provider.stop)
    timer.start()
    with pytest.raises(ProviderError):
        provider.wait_for_ready()
    timer.join()
    assert not is_alive(pid)


# ------------------------------------------------------------------ limits


@pytest.fixture(scope="module")
def limited() -> Iterator[ProcessProvider]:
    limits = ProcessLimits(
        memory_bytes=2 * 2**30, cpu_seconds=600, open_files=256, file_size_bytes=2**20
    )
    with ProcessProvider(PROBE, limits=limits) as provider:
        provider.wait_for_ready()
        yield provider


def test_limits_are_in_force(limited: ProcessProvider) -> None:
    assert ask(limited, "limits") == {
        "RLIMIT_AS": 2 * 2**30,
        "RLIMIT_CPU": 600,
        "RLIMIT_NOFILE": 256,
        "RLIMIT_FSIZE": 2**20,
        "RLIMIT_CORE": 0,
    }


def test_memory_past_the_limit_is_an_error_and_the_session_goes_on(
    limited: ProcessProvider,
) -> None:
    with ProbeEnv(base_url=limited.base_url) as env:
        env.reset()
        with pytest.raises(ExecutionFailed):
            _ = env.step(Ask(what="allocate", value=4 * 2**30)).observation
        assert env.step(Ask(what="allocate", value=10)).observation.value == 10


def test_a_limit_above_what_the_system_grants_is_named() -> None:
    with pytest.raises(ProviderExited, match="open_files"):
        ProcessProvider("echo_env", limits=ProcessLimits(open_files=2**40)).start()


# ------------------------------------------------------------------ dying and ending


@pytest.mark.anyio
async def test_a_server_that_dies_in_an_episode_loses_the_session() -> None:
    provider = ProcessProvider(PROBE)
    async with ProbeEnv.with_provider(provider) as env:
        await env.reset()
        with pytest.raises(SessionLost):
            await env.step(Ask(what="kill"))
        with pytest.raises(SessionLost):
            await env.step(Ask(what="where"))
        with pytest.raises(ConnectError):
            await env.reset()
    assert provider.pid is None


def test_what_the_environment_started_ends_with_it() -> None:
    with ProcessProvider(PROBE) as provider:
        grandchild = ask(provider, "spawn")
        assert is_alive(grandchild)
    assert not is_alive(grandchild)


def test_what_the_environment_started_ends_even_if_the_server_died_before() -> None:
    with ProcessProvider(PROBE) as provider:
        grandchild = ask(provider, "spawn")
        with pytest.raises(SessionLost):
            ask(provider, "kill")
    assert not is_alive(grandchild)


def test_a_server_that_hangs_is_killed_after_the_grace(
    write: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ignore = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    provider = ProcessProvider(write(f"{ignore}print('deaf', flush=True)\ntime.sleep(1000)\n"))
    provider.start()
    pid, server = provider.pid, provider._server
    assert pid is not None and isinstance(server, HostServer)
    wait_until(lambda: "deaf" in provider.logs())
    server.process.stop(grace_s=0.2)
    assert not is_alive(pid)
    provider.stop()


def test_stop_may_be_repeated_and_the_log_stays() -> None:
    provider = ProcessProvider(PROBE)
    url = provider.start()
    ask(url, "write", 500)
    wait_until(lambda: "line 499" in provider.logs())
    for _ in range(2):
        provider.stop()
        assert provider.pid is None
        assert provider.logs().count("line ") == 500
        assert "Finished server process" in provider.logs(lines=1)


ENDS = ["killed", "killed while a forked child lives", "exit", "raise", "collected"]


def program(end: str, how: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(REPOSITORY / "src"), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, str(PARENT), end, how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


@pytest.mark.slow
@pytest.mark.parametrize("how", mostly_extended(["forked", "started"]))
@pytest.mark.parametrize("end", ENDS)
def test_nothing_outlives_the_program_that_started_it(end: str, how: str) -> None:
    with program(end, how) as parent:
        assert parent.stdout is not None
        started = json.loads(parent.stdout.readline())
        assert (started["parent"] == parent.pid) is (how == "started")
        wait_until(lambda: not is_alive(started["server"]))
        wait_until(lambda: not is_alive(started["grandchild"]))
        wait_until(lambda: not Path(started["directory"]).exists())
        if end == "collected":
            assert parent.poll() is None
        else:
            wait_until(lambda: not is_alive(started["parent"]))
        _, errors = parent.communicate("\n", timeout=10)
        assert "ResourceWarning" not in errors


@pytest.mark.slow
@pytest.mark.parametrize("how", mostly_extended(["forked", "started"]))
def test_a_forked_child_does_not_end_the_server_of_its_parent(how: str) -> None:
    with program("forked child exits", how) as parent:
        out, errors = parent.communicate(timeout=20)
        assert "still there" in out, errors
        assert parent.returncode == 0


# ------------------------------------------------------------------ by the name of an image


def image_users() -> dict[str, Callable[[], Any]]:
    def by_await() -> str:
        async def main() -> str:
            env = await EchoEnv.from_docker_image("echo-env:latest")
            await env.reset()
            message = (await env.step(EchoAction(message="hi"))).observation.echoed_message
            await env.close()
            return message

        return asyncio.run(main())

    def by_async_with() -> str:
        async def main() -> str:
            async with EchoEnv.from_docker_image("registry.example/o/echo-env@sha256:0") as env:
                await env.reset()
                return (await env.step(EchoAction(message="hi"))).observation.echoed_message

        return asyncio.run(main())

    def by_asyncio_run() -> str:
        env: Any = asyncio.run(EchoEnv.from_docker_image("openenv-echo"))  # type: ignore[arg-type]
        env.reset()
        message: str = env.step(EchoAction(message="hi")).observation.echoed_message
        env.close()
        return message

    def by_with() -> str:
        with EchoEnv.from_docker_image("echo_env") as env:
            env.reset()
            return env.step(EchoAction(message="hi")).observation.echoed_message

    def by_sync() -> str:
        with EchoEnv.from_docker_image("echo-env:latest", env_vars={"X": "1"}).sync() as env:
            env.reset()
            return env.step(EchoAction(message="hi")).observation.echoed_message

    def bare() -> str:
        env = EchoEnv.from_docker_image("echo-env:latest")
        try:
            env.reset()
            return env.step(EchoAction(message="hi")).observation.echoed_message
        finally:
            env.close()

    uses = [by_await, by_async_with, by_asyncio_run, by_with, by_sync, bare]
    return {use.__name__: use for use in uses}


@pytest.fixture
def by_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever engines this machine has."""
    monkeypatch.setenv("OPENENV_RUN_IMAGES", "process")


@pytest.mark.usefixtures("by_processes")
@pytest.mark.parametrize("use", image_users().values(), ids=image_users().keys())
def test_an_image_name_is_run_in_a_process(use: Callable[[], str]) -> None:
    assert use() == "hi"


@pytest.mark.usefixtures("by_processes")
def test_an_unknown_image_says_what_to_install() -> None:
    with pytest.raises(ProviderError, match="pip install openenv-no-such-env"):
        EchoEnv.from_docker_image("no-such-env:latest").reset()


@pytest.mark.usefixtures("by_processes")
def test_an_option_that_the_default_provider_does_not_take_is_refused() -> None:
    with pytest.raises(TypeError, match="memory"):
        EchoEnv.from_docker_image("echo-env:latest", memory="4g").reset()
