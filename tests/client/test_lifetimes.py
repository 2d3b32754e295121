"""Processes, event loops, servers and clients end in any order; nobody else is harmed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.environments import Counter, CounterEnv, Do, Hold
from support.waiting import eventually

from openenv import ConnectError, SessionLost, create_app
from openenv.client import connection
from openenv.client.transports.base import Receiver
from openenv.errors import ProviderExited, ServerError
from openenv.providers import RuntimeProvider
from openenv.providers.process import ServerProcess

Serve = Callable[[Any], str]


@pytest.fixture
def url(serve: Serve) -> str:
    return serve(create_app(Counter))


# ------------------------------------------------------------------ processes


def in_a_fork(check: Callable[[], None]) -> None:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            check()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("carrier", ["websocket", "memory"])
def test_a_forked_child_leaves_its_parents_connection_alone(url: str, carrier: str) -> None:
    client = CounterEnv(base_url=url) if carrier == "websocket" else CounterEnv.local(Counter)
    with client:
        client.reset()

        def child() -> None:
            for _ in range(2):
                with pytest.raises(SessionLost, match="forked"):
                    client.step(Do())
            assert client.reset().observation.text == "ready"
            assert client.step(Do()).reward == 1.0
            client.close()

        in_a_fork(child)
        in_a_fork(client.sync().close)
        for i in range(3):
            assert client.step(Do(what="echo", value=i)).observation.value == i
        assert client.state().step_count == 3


@pytest.mark.slow
def test_a_script_that_closes_nothing_ends_quietly() -> None:
    code = "from support.environments import *\nc = CounterEnv.local(Counter)\n"
    code += "import atexit; d = CounterEnv.local(Counter); atexit.register(d.close)\n"
    code += "c.reset(); d.reset()"
    tests = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tests, capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# ------------------------------------------------------------------ event loops


def test_a_client_outlives_the_loop_that_it_was_entered_on(url: str) -> None:
    def check(client: CounterEnv) -> None:
        with pytest.raises(SessionLost, match="has stopped"):
            client.step(Do())
        assert client.reset().observation.text == "ready"
        assert client.step(Do()).reward == 1.0
        client.close()

    async def enter(client: CounterEnv) -> None:
        await client.__aenter__()
        await client.reset()

    async def again(client: CounterEnv) -> None:
        with pytest.raises(SessionLost, match="stopped"):
            await client.step(Do())
        assert (await client.reset()).observation.text == "ready"

    loop = asyncio.new_event_loop()
    stopped, closed = CounterEnv(base_url=url), CounterEnv.local(Counter)
    loop.run_until_complete(enter(stopped))
    check(stopped)
    loop.close()
    asyncio.run(enter(closed))
    asyncio.run(again(closed))
    closed.close()


def test_the_thread_that_environments_share_ends_with_the_last_client() -> None:
    class Picky(Counter):
        REQUIRES_SINGLE_THREAD_EXECUTOR = True

    for _ in range(3):
        with CounterEnv.local(Picky) as client:
            client.reset()
            other: Any = client.new_session()
            other.reset()
            other.close()
            assert client.step(Do()).reward == 1.0
        client.reset()  # a later use opens it again
        client.close()
    give_up = time.monotonic() + 5
    while "openenv-shared" in (names := [t.name for t in threading.enumerate()]):
        assert time.monotonic() < give_up, names


# ------------------------------------------------------------------ servers


class Serving(RuntimeProvider):
    """Stands for a provider; the server is there already."""

    def __init__(self, url: str) -> None:
        self.url, self.events = url, list[str]()

    @property
    def base_url(self) -> str:
        return self.url

    def start(self, *args: Any, **kwargs: Any) -> str:
        self.events.append("start")
        return self.url

    def wait_for_ready(self, timeout_s: float | None = None) -> None: ...

    def stop(self) -> None:
        self.events.append("stop")


@pytest.mark.anyio
async def test_only_who_started_a_server_stops_it_when_connecting_fails(
    url: str, tmp_path: Path
) -> None:
    provider = Serving(url)
    async with CounterEnv.with_provider(provider) as client:
        await client.reset()
        hold = Hold(tmp_path)
        step = asyncio.ensure_future(client.step(hold.action))
        await hold.begun()
        sibling = await client.new_session()  # does not wait for the step
        assert not step.done()
        await sibling.close()
        cancelled = asyncio.ensure_future(client.connect())
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        client._open_transport = lambda: Stuck(fails=True)
        with pytest.raises(ConnectError):
            await client.new_session()
        hold.release()
        assert (await step).reward == 1.0
        assert provider.events == ["start"]
    assert provider.events == ["start", "stop"]
    alone = CounterEnv.with_provider(provider)
    alone._open_transport = lambda: Stuck(fails=True)
    with pytest.raises(ConnectError):
        await alone.connect()
    assert provider.events == ["start", "stop"] * 2


@pytest.mark.anyio
async def test_an_error_of_the_environment_is_no_reason_to_stop_its_server(url: str) -> None:
    provider = Serving(url)
    client = CounterEnv.with_provider(provider)
    with pytest.raises(ServerError):
        await client.reset(size="none")
    assert provider.events == ["start"]
    await client.close()


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_server_that_has_died_says_how() -> None:
    class Dying(Serving):
        server = ServerProcess(["sh", "-c", "echo no memory; exit 3"])

        def check_running(self) -> None:
            self.server.check_running()

        def stop(self) -> None:
            self.server.stop()

    client = CounterEnv.with_provider(Dying("http://127.0.0.1:9"))
    await asyncio.to_thread(Dying.server._process.wait)
    with pytest.raises(ConnectError, match=r"exit code 3(.|\n)*no memory") as caught:
        await client.reset()
    assert isinstance(caught.value.__cause__, ProviderExited)
    assert Dying.server.is_stopped
    await client.close()


# ------------------------------------------------------------------ closing


class Stuck:
    """A connection that never says goodbye, to a server that never answers."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails, self.aborted = fails, False
        self.subprotocol: str | None = None
        self.ends: list[str] | None = None
        self.route: str | None = None
        self.spread: int | None = None

    async def connect(self, route: str | None = None) -> None:
        if self.fails:
            raise ConnectError("it fails")

    def send(self, frame: bytes) -> None:
        """Nobody reads it."""

    async def receive(self, timeout_s: float | None = None) -> str | bytes:
        return await asyncio.sleep(60, "")

    async def close(self) -> None:
        await asyncio.sleep(60)

    def attach(self, receiver: Receiver) -> None:
        """No frame comes."""

    def abort(self) -> None:
        self.aborted = True


@pytest.mark.anyio
async def test_all_sessions_are_closed_at_once_and_none_for_long(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setattr(connection, "CLOSE_LIMIT_S", 0.5)
    provider, made = Serving(url), list[Stuck]()

    def opened() -> Stuck:
        made.append(Stuck())
        return made[-1]

    client = CounterEnv.with_provider(provider)
    client._open_transport = opened
    await client.connect()
    siblings = [await client.new_session() for _ in range(4)]
    began = time.perf_counter()
    await client.close()
    assert time.perf_counter() - began < 2  # one after the other they would take 2.5 s
    assert len(made) == 1 + len(siblings) and all(each.aborted for each in made)
    assert provider.events == ["start", "stop"]


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_call_under_way_ends_with_the_close(tmp_path: Path) -> None:
    asked, free = threading.Event(), threading.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        asked.set()
        await eventually(free.is_set)
        await app(scope, receive, send)

    app = create_app(Counter)
    client = CounterEnv.local(slow)
    connecting, waiting = client.reset(), client.reset()
    await eventually(asked.is_set)
    await client.close()
    free.set()
    for call in (connecting, waiting):
        with pytest.raises(SessionLost, match="the client was closed"):
            await call
    assert not client._session.is_connected
    await client.reset()
    hold = Hold(tmp_path)
    step = client.step(hold.action)
    await hold.begun()
    closing = asyncio.ensure_future(client.close())
    await eventually(lambda: not client._session.is_connected)
    hold.release()
    await closing
    with pytest.raises(SessionLost, match="the client was closed"):
        await step
    async with client:
        late = client.reset()
    with pytest.raises(SessionLost, match="the client was closed"):
        await late
