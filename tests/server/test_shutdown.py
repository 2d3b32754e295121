"""However a server or a client ends, environments are closed, slots come free, logs stay clean."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest
import uvicorn
from support.commands import environ
from support.environments import Counter, CounterEnv, Do, Hold, Log, Seen
from support.logs import tracebacks
from support.noted import DIRECTORY, notes
from support.raw import reset_connection
from support.servers import serving
from support.waiting import wait_until
from support.zygote import PythonProcess
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import ConnectionClosedOK
from websockets.sync.client import connect

from openenv import CapacityError, Limits, SessionLost, create_app
from openenv.errors import FactoryFailed
from openenv.execution import manager as sessions_manager
from openenv.execution.commands import Step
from openenv.execution.connections import base
from openenv.execution.manager import SessionManager
from openenv.execution.spec import EnvironmentSpec
from openenv.protocol.http import SESSION_HEADER
from openenv.server import run

TESTS = Path(__file__).parents[1]
RESET, SLEEP = '{"type":"reset"}', '{"type":"step","data":{"what":"sleep","value":0.3}}'
CLOSE_FRAME = 0x88  # RFC 6455, section 5.2: final, opcode 8

Serve = Callable[[Any], str]

# ------------------------------------------------------------------ processes

LAUNCHERS = {
    "openenv": ("openenv.server.run", "--port-file", "port"),
    "workers": ("openenv.server.run", "--port-file", "port", "--workers", "2"),
    "uvicorn": ("uvicorn",),
}


@dataclass
class Launched:
    """A server in a process of its own."""

    process: subprocess.Popen[bytes]
    directory: Path

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()

    @property
    def notes(self) -> list[str]:
        return notes(self.directory / "notes")

    @property
    def url(self) -> str:
        wait_until(lambda: self._port is not None, 20)
        return f"http://127.0.0.1:{self._port}"

    @property
    def _port(self) -> str | None:
        file = self.directory / "port"
        if file.exists():
            return file.read_text()
        found = re.search(r"running on http://127\.0\.0\.1:(\d+)", self.log)
        return found and found[1]

    def end(self, by: signal.Signals, within_s: float) -> int:
        self.process.send_signal(by)
        return self.process.wait(within_s)


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[[str, str], Launched]]:
    """Start an application of `support.noted`; the process does not outlive the test."""
    (tmp_path / "notes").mkdir()
    with contextlib.ExitStack() as stack:

        def launch(launcher: str, target: str) -> Launched:
            module, *more = LAUNCHERS[launcher]
            log = stack.enter_context((tmp_path / "log").open("wb"))
            process = PythonProcess(
                [sys.executable, "-m", module, f"support.noted:{target}", "--port", "0", *more],
                cwd=tmp_path,
                env={**environ(TESTS), DIRECTORY: str(tmp_path / "notes")},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            stack.callback(process.wait, 10)
            stack.callback(process.kill)
            return Launched(process, tmp_path)

        yield launch


def open_over_http(url: str) -> None:
    """Open a session that is kept, since it is used."""
    with httpx.Client(timeout=30) as http:  # workers may take long to start on a busy machine
        session = http.post(f"{url}/reset").headers[SESSION_HEADER]
        http.post(f"{url}/step", json={"action": {}}, headers={SESSION_HEADER: session})


def stepping(env: CounterEnv, action: Do) -> tuple[threading.Thread, list[BaseException]]:
    """Take a step from a thread; gives what it raised."""
    raised: list[BaseException] = []

    def step() -> None:
        try:
            env.step(action)
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=step)
    thread.start()
    return thread, raised


# uvicorn ends by the signal that stopped it, so that a parent can tell; Ctrl-C it takes for a
# normal end, and shells for 130.
ENDS = [
    ("openenv", "app", "", signal.SIGTERM, -signal.SIGTERM),
    ("openenv", "app", "", signal.SIGINT, 130),
    ("workers", "app", "", signal.SIGTERM, -signal.SIGTERM),
    ("workers", "mounting", "/env", signal.SIGINT, 130),
    ("uvicorn", "with_lifespan", "", signal.SIGTERM, -signal.SIGTERM),
    ("uvicorn", "mounting", "/env", signal.SIGINT, 0),
]


@pytest.mark.slow
@pytest.mark.parametrize(("launcher", "target", "path", "by", "code"), ENDS)
def test_a_signal_closes_every_environment(
    launch: Callable[[str, str], Launched],
    launcher: str,
    target: str,
    path: str,
    by: signal.Signals,
    code: int,
) -> None:
    server = launch(launcher, target)
    open_over_http(server.url + path)
    with CounterEnv(base_url=server.url + path) as idle, CounterEnv(base_url=idle.base_url) as busy:
        idle.reset()
        busy.reset()
        thread, raised = stepping(busy, Do(what="sleep", value=0.3))
        wait_until(lambda: server.notes.count("begun") == 2)
        assert server.end(by, 10) == code
        thread.join(5)
        if (launcher, target) == ("uvicorn", "mounting"):  # which ends its sockets by itself
            assert isinstance(raised[0], SessionLost), "the client is not left waiting"
        else:
            assert raised == [], "a step that is under way is finished, and answered"
        with pytest.raises(SessionLost):
            idle.step(Do())
    lifespan = ["down", "up"] if target == "with_lifespan" else []
    assert server.notes == sorted(["begun", "closed", "stepped"] * 2 + ["closed", *lifespan])
    assert not re.search(r"Traceback|ERROR", server.log), server.log


@pytest.mark.slow("waits until the time to close is over")
def test_environments_that_hang_do_not_keep_uvicorn_from_ending(
    launch: Callable[[str, str], Launched],
) -> None:
    server = launch("uvicorn", "app")
    open_over_http(server.url)
    first, second = CounterEnv(base_url=server.url), CounterEnv(base_url=server.url)
    with first, second:
        first.reset()
        first.step(Do(what="hang at close"))
        second.reset()
        thread, _ = stepping(second, Do(what="hang"))
        wait_until(lambda: server.notes.count("begun") == 3)
        assert server.end(signal.SIGTERM, 25) == -signal.SIGTERM
        thread.join(5)
    assert server.notes.count("closed") == 2, "all but the one that is still in its step"
    assert "2 sessions did not close within 10 s" in server.log
    assert "Traceback" not in server.log, server.log


def test_a_step_that_ends_in_time_is_answered_while_another_hangs_beyond_drain_s(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Who hangs is cut off after `drain_s`, and holds up nobody else."""
    monkeypatch.setattr(Counter, "log", Log())
    hold, stack = Hold(tmp_path), contextlib.ExitStack()
    url = stack.enter_context(serving(create_app(Counter, limits=Limits(drain_s=0.6))))
    ending = threading.Thread(target=stack.close)
    with CounterEnv(base_url=url) as hung, CounterEnv(base_url=url) as neighbour:
        hung.reset()
        neighbour.reset()
        hanging, lost = stepping(hung, hold.action)
        playing, raised = stepping(neighbour, Do(what="sleep", value=0.3))
        wait_until(lambda: Counter.log.count("step") == 2)
        began = time.monotonic()
        ending.start()
        playing.join(5)
        assert raised == [], "its step is answered"
        hanging.join(5)
        assert isinstance(lost[0], SessionLost) and 0.5 < time.monotonic() - began < 4
    hold.release()
    ending.join(20)
    assert not ending.is_alive()
    assert Counter.log.count("close") == 2


# ------------------------------------------------------------------ several servers


class SaysWhenAClientLeaves(WebSocketsSansIOProtocol):
    """Lets the server stop in the same tick in which a client says goodbye."""

    goodbye: ClassVar[Callable[[], None]]

    def data_received(self, data: bytes) -> None:
        if data[0] == CLOSE_FRAME:
            type(self).goodbye()
        super().data_received(data)


def test_a_goodbye_in_the_moment_of_the_end_is_no_obstacle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Counter, "log", Log())
    stopping, up = asyncio.Event(), threading.Event()

    class Server(run._OpenEnvServer):
        async def main_loop(self) -> None:
            up.set()
            await stopping.wait()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        open_scopes.append(scope["type"])
        await inner(scope, receive, send)
        open_scopes.remove(scope["type"])

    open_scopes: list[str] = []
    inner = create_app(Counter)
    SaysWhenAClientLeaves.goodbye = stopping.set
    with run.bind("127.0.0.1", 0) as bound:
        config = uvicorn.Config(app, ws=SaysWhenAClientLeaves, log_level="warning")
        thread = threading.Thread(target=Server(config).run, kwargs={"sockets": [bound]})
        thread.start()
        assert up.wait(10)
        with connect(f"ws://127.0.0.1:{bound.getsockname()[1]}/ws", proxy=None) as client:
            client.send(RESET)
            client.recv()
        thread.join(10)
    assert not thread.is_alive() and open_scopes == []
    assert Counter.log.count("close") == 1


def test_a_server_that_stops_closes_its_own_sessions_only(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(Counter):
        log: ClassVar[Log] = Log()

    monkeypatch.setattr(Counter, "log", Log())
    app, other = create_app(Counter), create_app(Other)
    with serving(other) as other_url, CounterEnv(base_url=other_url) as env:
        env.reset()
        for starts in (1, 2):
            with serving(app) as url, tracebacks() as logged:
                httpx.post(f"{url}/reset")
                with CounterEnv(base_url=url) as mine:
                    mine.reset()
                assert httpx.get(f"{url}/health").json() == {"status": "healthy"}
            assert Counter.log.count("close") == Counter.log.count("init") == 2 * starts
            assert env.step(Do()).reward == starts
        assert (Other.log.count("close"), logged) == (0, [])


# ------------------------------------------------------------------ clients that vanish


class Single(Counter):
    """One session at a time; tests say what happens in its constructor and its `close`."""

    SUPPORTS_CONCURRENT_SESSIONS = False
    log: ClassVar[Log] = Log()
    opens: ClassVar[Callable[[], object]]
    closes: ClassVar[Callable[[], object]]

    def __init__(self) -> None:
        super().__init__()
        type(self).opens()

    def close(self) -> None:
        super().close()
        type(self).closes()


@pytest.fixture(autouse=True)
def single(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Single, "log", Log())
    for name in ("opens", "closes"):
        monkeypatch.setattr(Single, name, staticmethod(lambda: None), raising=False)


def hanging(monkeypatch: pytest.MonkeyPatch, where: str) -> threading.Event:
    """Have every `Single` hang there until the event is set."""
    event = threading.Event()
    monkeypatch.setattr(Single, where, staticmethod(lambda: event.wait(20)))
    return event


def gets_in(url: str) -> bool:
    with CounterEnv(base_url=url, queue_timeout_s=0) as env:
        try:
            return env.reset().observation.text == "ready"
        except CapacityError:
            return False


class Slow(Single):
    """It takes a moment to close."""

    def close(self) -> None:
        time.sleep(0.02)
        super().close()


@pytest.mark.slow
@pytest.mark.parametrize("where", ["socket", "application", "memory"])
def test_one_after_the_other_they_get_the_one_slot(serve: Serve, where: str) -> None:
    app = create_app(Slow)
    url = serve(app) if where == "socket" else None
    for turn in range(1, 11):
        local = Slow if where == "memory" else app
        with CounterEnv.local(local) if url is None else CounterEnv(base_url=url) as env:
            assert env.reset().observation.text == "ready"
        assert url or Slow.log.count("close") == turn, "whoever closes it waits for it"
    wait_until(lambda: Slow.log.count("close") == 10)


def test_a_goodbye_is_answered_once_the_environment_is_closed(serve: Serve) -> None:
    url = serve(create_app(Slow))
    with connect(f"ws{url[4:]}/ws", proxy=None) as socket:
        socket.send('{"type":"close"}')
        with pytest.raises(ConnectionClosedOK):
            socket.recv(5)
        assert Slow.log.count("close") == 1


def test_a_client_whose_loop_is_blocked_for_minutes_keeps_its_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configs: list[uvicorn.Config] = []

    def run_server(self: uvicorn.Server, sockets: Any = None) -> None:
        configs.append(self.config)
        self.started = True

    monkeypatch.setattr(uvicorn.Server, "run", run_server)
    run.serve(create_app(Single))
    interval, timeout = configs[0].ws_ping_interval, configs[0].ws_ping_timeout
    assert interval == 20, "which proxies and routers need"
    assert timeout is not None and timeout >= 300


@pytest.mark.slow
@pytest.mark.parametrize(
    "sent",
    [[], [RESET], [RESET, SLEEP], [RESET, *[SLEEP] * 50]],
    ids=["at once", "after a reset", "in a step", "with steps waiting"],
)
def test_a_connection_that_breaks_off_frees_its_slot(serve: Serve, sent: list[str]) -> None:
    url = serve(create_app(Single))
    with tracebacks() as logged, connect(f"ws{url[4:]}/ws", proxy=None) as socket:
        wait_until(lambda: Single.log.count("init") == 1)
        for frame in sent:
            socket.send(frame)
        wait_until(lambda: Single.log.count("step") == (SLEEP in sent))
        reset_connection(socket.socket)
        wait_until(lambda: Single.log.count("close") == 1)
        assert Single.log.count("step") == (SLEEP in sent), "no step is taken for nobody"
        wait_until(lambda: gets_in(url))
    assert logged == []


def test_leaving_while_the_environment_is_made_frees_the_slot_once_it_is(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions_manager, "CLOSING_WAIT_S", 0.05)
    made = hanging(monkeypatch, "opens")
    url = serve(create_app(Single))
    with tracebacks() as logged:
        with connect(f"ws{url[4:]}/ws", proxy=None) as socket:
            wait_until(lambda: Single.log.count("init") == 1)
            reset_connection(socket.socket)
        assert not gets_in(url), "there must not be two of them"
        assert httpx.get(f"{url}/health").status_code == 200
        made.set()
        wait_until(lambda: Single.log.count("close") == 1)
        wait_until(lambda: gets_in(url))
    assert logged == []


# ------------------------------------------------------------------ environments that misbehave


def test_factories_that_raise_take_no_slot(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    url = serve(create_app(Single))

    def fail() -> None:
        raise OSError("no display")

    monkeypatch.setattr(Single, "opens", staticmethod(fail))
    for _ in range(3):
        with CounterEnv(base_url=url) as env, pytest.raises(FactoryFailed):
            env.reset()
        assert httpx.post(f"{url}/reset").status_code == 500
    monkeypatch.setattr(Single, "opens", staticmethod(lambda: None))
    assert gets_in(url)


def test_a_close_that_raises_is_logged_and_frees_the_slot(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = serve(create_app(Single))

    def fail() -> None:
        raise OSError("it is stuck")

    monkeypatch.setattr(Single, "closes", staticmethod(fail))
    with tracebacks() as logged:
        assert gets_in(url)
        wait_until(lambda: gets_in(url))
        wait_until(lambda: len(logged) == 2)
    assert all("OSError: it is stuck" in text for text in logged)


def test_a_close_that_hangs_holds_up_nobody_else(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "LINGER_S", 0.05)
    monkeypatch.setattr(sessions_manager, "CLOSING_WAIT_S", 0.05)
    closed = hanging(monkeypatch, "closes")
    monkeypatch.setattr(Single, "SUPPORTS_CONCURRENT_SESSIONS", True)
    url = serve(create_app(Single, max_concurrent_envs=2))
    with tracebacks() as logged:
        assert gets_in(url)
        wait_until(lambda: Single.log.count("close") == 1)
        with CounterEnv(base_url=url) as env:
            env.reset()
            assert not gets_in(url), "its slot stays taken: the environment is still there"
            assert env.step(Do()).observation.text == "step 1"
            closed.set()
        wait_until(lambda: Single.log.count("close") == 2)
    assert logged == []


@pytest.mark.anyio
@pytest.mark.parametrize("where", ["opens", "closes"])
async def test_shutting_down_waits_for_what_hangs_no_longer_than_it_was_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    caplog.set_level(logging.ERROR)
    manager = SessionManager(EnvironmentSpec(Single, Do, Seen))
    released = hanging(monkeypatch, where)
    opening = asyncio.ensure_future(manager.create())
    await asyncio.to_thread(wait_until, lambda: Single.log.count("init") == 1)
    if where == "closes":
        await opening
    await asyncio.wait_for(manager.aclose(grace_s=0.05), 2)
    assert re.search(
        r"1 sessions did not close within 0.05 s and were left: [\da-f-]{36}", caplog.text
    )
    released.set()
    await asyncio.gather(opening, return_exceptions=True)
    await asyncio.wait_for(manager.aclose(), 2)


@pytest.mark.anyio
async def test_closing_waits_for_the_step_that_runs() -> None:
    manager = SessionManager(EnvironmentSpec(Single, Do, Seen))
    session = await manager.create()
    running = asyncio.ensure_future(session.handle(Step({"what": "sleep", "value": 0.1})))
    await asyncio.to_thread(wait_until, lambda: Single.log.count("step") == 1)
    await manager.aclose()
    assert [name for name, _ in Single.log.events] == ["init", "step", "close"]
    assert (await running).observation.text == "step 1"
