"""Workers of `openenv serve` that are killed, stopped, or do not start, and their fork server."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.commands import COMMAND, SOURCES, environ
from support.environments import CounterEnv, Do
from support.otherwise import LIKE_MACOS, conditions
from support.probe import Ask, ProbeEnv
from support.processes import commands, is_alive
from support.stuck import Pid
from support.waiting import wait_until
from support.workers import pid_once_it_may

from openenv import SessionLost, StepTimeout, create_app
from openenv.errors import SessionFailed
from openenv.execution import process
from openenv.execution.process import Workers

TESTS = Path(__file__).parents[1]
PROBE = TESTS / "support" / "probe.py"
WITHIN_S = 30.0

pytestmark = [
    pytest.mark.slow("starts servers and worker processes"),
    pytest.mark.skipif(sys.platform != "linux", reason="finds processes as Linux does"),
]


def children_of(pid: int) -> list[int]:
    """The processes that a process has started, and that still run."""
    found = Path(f"/proc/{pid}/task").glob("*/children")
    pids = [int(child) for path in found for child in path.read_text().split()]
    return [child for child in pids if is_alive(child)]


@dataclass
class Server:
    """A server in a process of its own."""

    process: subprocess.Popen[bytes]
    log: Path
    url: str = ""

    @property
    def fork_server(self) -> int | None:
        """The process of its fork server, if there is one."""
        return self._child("openenv._internal.forkserver")

    def _child(self, module: str) -> int | None:
        words = commands()
        mine = children_of(self.process.pid)
        return next((pid for pid in mine if module in words.get(pid, "")), None)

    @property
    def words(self) -> str:
        return self.log.read_text(errors="replace")

    def health(self) -> dict[str, str]:
        health: dict[str, str] = httpx.get(f"{self.url}/health").json()
        return health

    def metric(self, name: str) -> float:
        lines = httpx.get(f"{self.url}/metrics").text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name}{{"))

    def is_healthy(self) -> bool:
        return self.health() == {"status": "healthy"}


@contextlib.contextmanager
def serve(
    directory: Path, target: str, *options: str, env: Mapping[str, str] | None = None
) -> Iterator[Server]:
    log = directory / "server.log"
    with log.open("wb") as words:
        started = subprocess.Popen(
            [*COMMAND, "serve", target, "--port=0", "--json", "--workers=2", *options],
            env=environ(TESTS) if env is None else env,
            cwd=directory,
            stdout=subprocess.PIPE,
            stderr=words,
        )
        server = Server(started, log)
        try:
            yield server
        finally:
            started.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                started.wait(20)
            started.kill()
            assert started.stdout is not None
            started.stdout.close()


def find(server: Server) -> Server:
    """Wait until a server says where it is."""
    assert server.process.stdout is not None
    server.url = json.loads(server.process.stdout.readline())["url"]
    wait_until(lambda: _answers(server.url), WITHIN_S)
    return server


def _answers(url: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{url}/health").status_code == 200
    return False


def play(url: str) -> int:
    """Play an episode; return the process that it was played in."""
    with ProbeEnv(base_url=url, message_timeout_s=WITHIN_S) as env:
        env.reset()
        for _ in range(3):
            assert env.step(Ask(what="length", value="abc")).observation.value == 3
        return int(env.step(Ask(what="where")).observation.value["pid"])


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid))


def both(server: Server) -> set[int]:
    """The worker processes of a server with two, each of which has played."""
    with ProbeEnv(base_url=server.url) as one, ProbeEnv(base_url=server.url) as other:
        pids = set()
        for env in (one, other):
            env.reset()
            pids.add(int(env.step(Ask(what="where")).observation.value["pid"]))
    return pids


def test_a_fork_server_that_dies_while_it_starts_leaves_the_server_its_workers(
    tmp_path: Path,
) -> None:
    slow = tmp_path / "slow"
    slow.mkdir()
    (slow / "sitecustomize.py").write_text(
        "import sys, time\n"
        "if any('forkserver' in word for word in sys.orig_argv):\n"
        "    time.sleep(1.0)  # time to kill it before it has started\n"
    )
    env = environ(TESTS)
    env["PYTHONPATH"] = os.pathsep.join([str(slow), env["PYTHONPATH"]])
    with serve(tmp_path, str(PROBE), env=env) as server:
        found: list[int] = []
        wait_until(lambda: found.extend(_forking(server)) or found)  # type: ignore[func-returns-value]
        os.kill(found[0], signal.SIGKILL)
        find(server)
        assert play(server.url) != server.process.pid
        assert "no fork server: it did not start (exit code -9)" in server.words
        pids = both(server)
        assert len(pids) == 2
        time.sleep(1.1)  # after which a fork server is tried again
        for pid in pids:
            kill(pid)
        assert not pids & both(server)
        assert server.fork_server is not None
        wait_until(server.is_healthy)


def _forking(server: Server) -> list[int]:
    return [pid for pid in (server.fork_server,) if pid is not None]


EPISODES = """
import sys
from openenv import VectorEnv
from support.probe import Ask, ProbeEnv

with ProbeEnv(base_url=sys.argv[1]) as env:
    for _ in range(10):
        env.reset()
        for number in range(5):
            assert env.step(Ask(what="length", value="x" * number)).observation.value == number
with VectorEnv(sys.argv[1], num_envs=4) as envs:
    envs.reset()
    for number in range(5):
        results = envs.step([Ask(what="length", value="x" * number)] * 4)
        assert list(results.rewards) is not None
print("played")
"""


def test_workers_are_served_come_back_and_are_played_with_where_linux_is_not(
    tmp_path: Path,
) -> None:
    """There is no pidfd, so no fork server, no /proc, no processor affinity, no abstract socket."""
    path = os.pathsep.join([str(SOURCES), str(TESTS)])
    env = conditions(tmp_path / "site", LIKE_MACOS, path)
    probe = subprocess.run(
        [sys.executable, "-c", "import os; print(hasattr(os, 'pidfd_open'))"],
        env=env,
        capture_output=True,
        text=True,
    )
    assert probe.stdout == "False\n", "the conditions hold"
    with serve(tmp_path, str(PROBE), env=env) as server:
        find(server)
        pids = both(server)
        assert len(pids) == 2 and pids <= set(children_of(server.process.pid))
        assert server.fork_server is None
        with ProbeEnv(base_url=server.url) as env_of_victim:
            env_of_victim.reset()
            with pytest.raises(SessionFailed, match="SIGKILL"):
                env_of_victim.step(Ask(what="kill"))
            env_of_victim.reset()
            assert env_of_victim.step(Ask(what="length", value="ab")).observation.value == 2
        now = both(server)
        assert len(now) == 2 and now != pids
        played = subprocess.run(
            [sys.executable, "-c", EPISODES, server.url],
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert played.stdout == "played\n", played.stderr
        wait_until(server.is_healthy)
        assert server.metric("openenv_worker_deaths_total") == 1
        wait_until(lambda: server.metric("openenv_slots_taken") == 0)
    assert not any(map(is_alive, now)), "they end with their server"


def test_a_fork_server_that_is_killed_again_and_again_costs_no_session(tmp_path: Path) -> None:
    with serve(tmp_path, str(PROBE)) as server, contextlib.ExitStack() as stack:
        find(server)
        envs = [stack.enter_context(ProbeEnv(base_url=server.url)) for _ in range(4)]
        places = []
        for env in envs:
            env.reset()
            places.append(int(env.step(Ask(what="where")).observation.value["pid"]))
        for _ in range(2):
            killed = server.fork_server
            assert killed is not None
            kill(killed)
            for env in envs:
                assert env.step(Ask(what="length", value="abc")).observation.value == 3
            victim = places[0]
            kill(victim)
            for number, env in enumerate(envs):
                if places[number] == victim:
                    with pytest.raises((SessionFailed, SessionLost)):
                        env.step(Ask(what="length", value="abc"))
                    env.reset()
                place = int(env.step(Ask(what="where")).observation.value["pid"])
                assert (place == places[number]) is (places[number] != victim)
                places[number] = place
            wait_until(lambda: server.fork_server not in (None, killed))  # noqa: B023
        wait_until(server.is_healthy)


def test_a_worker_dies_while_its_fork_server_is_stopped(tmp_path: Path) -> None:
    """Nobody reports its end then; it is noticed, and another one takes its place."""
    with serve(tmp_path, str(PROBE)) as server:
        find(server)
        with ProbeEnv(base_url=server.url, message_timeout_s=WITHIN_S) as env:
            env.reset()
            pid = int(env.step(Ask(what="where")).observation.value["pid"])
            stopped = server.fork_server
            assert stopped is not None
            os.kill(stopped, signal.SIGSTOP)
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(SessionFailed):
                env.step(Ask(what="length", value=""))
        pids: set[int] = set()
        wait_until(lambda: pids.update(_places(server)) or len(pids - {pid}) == 2, 60)  # type: ignore[func-returns-value]
        assert not is_alive(stopped), "it is of no use any more"
        wait_until(server.is_healthy)


def _places(server: Server) -> set[int]:
    with contextlib.suppress(Exception):
        return both(server)
    return set()


def test_a_server_whose_workers_cannot_start_says_why_and_ends(tmp_path: Path) -> None:
    module = tmp_path / "once.py"
    module.write_text(
        textwrap.dedent(
            f"""
            import os
            from pathlib import Path

            loaded = Path({str(tmp_path / "loaded")!r})
            if loaded.exists() and loaded.read_text() != str(os.getpid()):
                raise RuntimeError("the weights are on another machine")
            loaded.write_text(str(os.getpid()))
            """
        )
        + PROBE.read_text().replace("from __future__ import annotations", "")
    )
    with serve(tmp_path, f"{module}:ProbeEnvironment") as server:
        assert server.process.wait(60) == 1
        assert "the server ends:" in server.words
        assert "the weights are on another machine" in server.words.rpartition("the server ends")[2]


# ------------------------------------------------------------------ workers that do not answer

Serve = Callable[[Any], str]


@pytest.fixture
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence is noticed soon."""
    monkeypatch.setattr(process, "CHECK_S", 0.1)
    monkeypatch.setattr(process, "SILENT_S", 2.0)


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def message(url: str) -> str:
    return str(httpx.get(f"{url}/health").json().get("message", ""))


@pytest.mark.usefixtures("impatience")
def test_a_worker_that_is_stopped_gets_no_new_sessions_and_the_operator_is_told(
    serve: Serve,
) -> None:
    app = create_app(Pid, workers=2)
    (manager,) = app.state.openenv_managers
    url = serve(app)
    wait_until(lambda: manager.executors.workers[1] == 2)
    with CounterEnv(base_url=url) as env, contextlib.ExitStack() as stack:
        first = env.reset().observation.value
        with stopped(first):
            wait_until(lambda: "1 of 2 worker processes do not answer" in message(url))
            assert "hold 1 sessions" in message(url)
            assert manager.executors.workers[:2] == (2, 1)
            for _ in range(4):
                other = stack.enter_context(CounterEnv(base_url=url))
                assert other.reset().observation.value != first
            with pytest.raises(StepTimeout):
                env.step(Do(), timeout_s=0.2)
            assert env.reset().observation.value != first, "it was given up"
            wait_until(lambda: not is_alive(first))
            wait_until(lambda: not message(url))
    wait_until(lambda: manager.active_sessions == 0)


@pytest.mark.usefixtures("impatience")
def test_a_worker_that_goes_on_in_time_has_lost_nothing(serve: Serve) -> None:
    url = serve(create_app(Pid, workers=2))
    with CounterEnv(base_url=url) as env:
        first = env.reset().observation.value
        assert env.step(Do()).observation.text == "step 1"
        with stopped(first):
            wait_until(lambda: "do not answer" in message(url))
        assert env.step(Do()).observation.text == "step 2"
        wait_until(lambda: not message(url))
        assert is_alive(first)


@pytest.mark.usefixtures("impatience")
def test_a_worker_that_is_stopped_without_sessions_is_replaced(serve: Serve) -> None:
    app = create_app(Pid, workers=1)
    (manager,) = app.state.openenv_managers
    url = serve(app)
    with CounterEnv(base_url=url) as env:
        first = env.reset().observation.value
    wait_until(lambda: manager.active_sessions == 0)
    with stopped(first):
        wait_until(lambda: not is_alive(first))
        with CounterEnv(base_url=url) as env:
            assert env.reset().observation.value != first


@pytest.mark.usefixtures("impatience")
def test_sessions_that_wait_for_a_worker_that_hangs_while_it_starts_go_elsewhere(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = tmp_path / "held"
    monkeypatch.setenv("TEST_HELD", str(held))
    app = create_app(Pid, max_concurrent_envs=8)
    (manager,) = app.state.openenv_managers
    manager.run_on(Workers(manager.spec, 2, pid_once_it_may))
    url = serve(app)
    wait_until(lambda: manager.executors.workers[1] == 2)
    with CounterEnv(base_url=url) as one, CounterEnv(base_url=url) as other:
        victim, mate = one.reset().observation.value, other.reset().observation.value
        assert victim != mate
        held.touch()
        kill(victim)
        with pytest.raises((SessionFailed, SessionLost)):
            one.step(Do())
        assert one.reset().observation.value == mate
        assert "1 of 2 worker processes have not started" in message(url)
        assert manager.executors.workers[:2] == (2, 1)
        assert other.step(Do()).observation.text == "step 1"
        held.unlink()
        wait_until(lambda: manager.executors.workers[1] == 2)
        wait_until(lambda: not message(url))
        with CounterEnv(base_url=url) as new:
            assert new.reset().observation.value not in (victim, mate)
    wait_until(lambda: manager.active_sessions == 0)
