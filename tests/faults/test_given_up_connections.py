"""Connections that are given up while they are made, or break before they have carried anything."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import os
import socket
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.environments import Counter, CounterEnv, Do, Hold
from support.giving_up import interrupted
from support.raw import reset_connection
from support.relay import Relay
from support.servers import serving
from support.waiting import eventually, wait_until
from websockets.sync.client import connect

from openenv import ConnectError, create_app
from openenv.client import _resuming
from openenv.client.vector import VectorEnv
from openenv.execution.connections.v1 import connection as connection_v1
from openenv.execution.limits import Limits

# Of a call that an interrupt kept from being begun: Python says so of its coroutine.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


@pytest.fixture
def url() -> Iterator[str]:
    with serving(create_app(Counter)) as url:
        yield url


def taken() -> int:
    """How many steps the environments have taken."""
    return Counter.log.count("step")


# ------------------------------------------------------------------ before the first request


class CutAfterHello:
    """Drops the connections of a relay whose client has had the hello, before it can ask."""

    def __init__(self, relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
        self._relay, self.cuts = relay, 0
        self._greeted = _resuming.greeted
        monkeypatch.setattr("openenv.client.connection.greeted", self.greeted)

    async def greeted(self, transport: Any) -> Any:
        hello = await self._greeted(transport)
        self._relay.hold(upwards=True)
        threading.Timer(0.1, self._cut).start()
        return hello

    def _cut(self) -> None:
        self.cuts += 1
        self._relay.cut_and_release()


@pytest.fixture
def relay(url: str) -> Iterator[Relay]:
    relay = Relay(url)
    yield relay
    relay.close()


def test_a_connection_that_breaks_before_the_first_request_is_gone_on_with(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = CutAfterHello(relay, monkeypatch)
    with CounterEnv(base_url=relay.url) as env:
        assert env.reset().observation.text == "ready"
        assert env.step(Do()).observation.text == "step 1"
    assert cut.cuts == 1
    assert Counter.log.count("reset") == Counter.log.count("init") == 1


def test_so_is_that_of_many_environments(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = CutAfterHello(relay, monkeypatch)
    with VectorEnv(relay.url, 8, client=CounterEnv) as envs:
        envs.reset()
        assert envs.step([Do()] * 8)[1].tolist() == [1.0] * 8
    assert cut.cuts == 1
    assert Counter.log.count("reset") == Counter.log.count("init") == 8


def test_connections_that_never_asked_are_waited_for_in_small_number_and_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_v1, "MOST_UNHEARD", 5)
    app = create_app(Counter, limits=Limits(resume_grace_s=1.0))
    (manager,) = app.state.openenv_managers
    with serving(app) as url:
        names: Any = ["openenv.v1.json"]
        for _ in range(20):
            with connect(f"ws{url[4:]}/ws", subprotocols=names, proxy=None) as connection:
                connection.recv()
                reset_connection(connection.socket)
        wait_until(lambda: len(manager.connections) == 5)
        assert len(manager.unheard) == 5
        with CounterEnv(base_url=url) as env:
            assert env.reset().observation.text == "ready", "others are in nobody's way"
        wait_until(lambda: not manager.connections and not manager.unheard)


# ------------------------------------------------------------------ while it is made


class Stalling(Relay):
    """A relay that passes on only so many bytes of what comes from the server.

    Attributes:
        said: What the server has said on the first connection.
    """

    def __init__(self, url: str) -> None:
        self.passes: int | None = None
        self.said = b""
        super().__init__(url)

    def _copy(self, pair: Any, source: Any, sink: Any, flows: threading.Event) -> None:
        if sink is pair.near:
            sink = _Short(self, sink)
        super()._copy(pair, source, sink, flows)


class _Short:
    """The near end of a stalling connection."""

    def __init__(self, relay: Stalling, end: socket.socket) -> None:
        self._relay, self._end = relay, end
        self._left = relay.passes

    def sendall(self, data: bytes) -> None:
        if self._left is None:
            self._relay.said += data
        else:
            data, self._left = data[: self._left], max(0, self._left - len(data))
        self._end.sendall(data)

    def shutdown(self, how: int) -> None:
        self._end.shutdown(how)


def sockets() -> int:
    """How many sockets this process has: those of clients, of the relay and of the server."""
    found = 0
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found += os.readlink(one).startswith("socket:")
    return found


needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="there is no /proc here")

STAGES = ["nothing", "half a handshake", "the handshake", "half a hello"]


@pytest.fixture
def stalling(url: str) -> Iterator[Stalling]:
    relay = Stalling(url)
    yield relay
    relay.close()


def stall(relay: Stalling, stage: str) -> None:
    """Have connections come as far as that."""
    with CounterEnv(base_url=relay.url) as env:
        env.connect()
    head = relay.said.index(b"\r\n\r\n") + 4
    relay.passes = {
        "nothing": 0,
        "half a handshake": head // 2,
        "the handshake": head,
        "half a hello": head + 20,
    }[stage]


async def give_up_connecting(url: str, home: str) -> None:
    client = CounterEnv(base_url=url)

    async def begin() -> None:
        if home == "own":
            async with client:
                pytest.fail("it is connected")
        await client.reset()

    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(begin(), 0.05)
    await client.close()


@needs_proc
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("home", ["shared", "own"])
def test_a_connect_that_is_cancelled_leaves_no_socket(
    stalling: Stalling, stage: str, home: str
) -> None:
    stall(stalling, stage)

    async def give_up() -> None:
        for _ in range(5):
            await give_up_connecting(stalling.url, home)

    async def warm() -> None:  # what the first loop of a process opens for good
        await asyncio.sleep(0)

    asyncio.run(warm())
    wait_until(lambda: not stalling._pairs)
    before = sockets()
    asyncio.run(give_up())
    wait_until(lambda: sockets() == before, shown=lambda: (before, sockets()))
    stalling.passes = None
    with CounterEnv(base_url=stalling.url) as env:
        assert env.reset().observation.text == "ready"
    assert Counter.log.count("init") == 1


@needs_proc
@pytest.mark.parametrize("stage", STAGES)
def test_nor_does_one_of_many_environments_that_is_interrupted(
    stalling: Stalling, stage: str
) -> None:
    stall(stalling, stage)
    wait_until(lambda: not stalling._pairs)
    before = sockets()
    envs = VectorEnv(stalling.url, 4, client=CounterEnv)
    for number in range(3):
        seen = stalling.connections
        assert interrupted(envs.reset, lambda s=seen: stalling.connections > s) is None, number  # type: ignore[misc]
    wait_until(lambda: sockets() == before, shown=lambda: (before, sockets()))
    stalling.passes = None
    envs.reset()
    assert envs.step([Do()] * 4)[1].tolist() == [1.0] * 4
    envs.close()
    wait_until(lambda: sockets() == before, shown=lambda: (before, sockets()))


@pytest.mark.parametrize("loop_ends", [False, True])
def test_a_connect_that_is_cancelled_twice_closes_its_socket_itself(
    url: str, loop_ends: bool
) -> None:
    """The second comes while what the first has given up is being cut."""

    async def connect() -> None:
        async with CounterEnv(base_url=url):
            pass

    async def give_up(first: int, second: int) -> None:
        connecting = asyncio.ensure_future(connect())
        for turns in (first, second):
            for _ in range(turns):
                await asyncio.sleep(0)
            connecting.cancel()
        if not loop_ends:
            await asyncio.gather(connecting, return_exceptions=True)

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for turns in itertools.product(range(10), range(6)):
            asyncio.run(give_up(*turns))
            gc.collect()
            unclosed = [str(one.message) for one in found if one.category is ResourceWarning]
            assert not unclosed, turns


@needs_proc
@pytest.mark.anyio
async def test_a_connect_to_a_machine_that_does_not_answer_leaves_no_socket() -> None:
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as silent,
        contextlib.ExitStack() as full,
    ):
        for _ in range(4):  # until the system takes no more for it
            waiting = full.enter_context(socket.socket())
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(silent.getsockname())
        before = sockets()
        for home in ("own", "shared"):
            for _ in range(3):
                await give_up_connecting(f"http://127.0.0.1:{silent.getsockname()[1]}", home)
        await eventually(lambda: sockets() <= before)


@needs_proc
def test_a_connect_that_takes_too_long_leaves_no_socket(stalling: Stalling) -> None:
    stall(stalling, "half a handshake")
    wait_until(lambda: not stalling._pairs)
    before = sockets()
    for _ in range(3):
        env = CounterEnv(base_url=stalling.url, connect_timeout_s=0.1)
        with pytest.raises(ConnectError):
            env.reset()
        env.close()
    wait_until(lambda: sockets() == before, shown=lambda: (before, sockets()))


# ------------------------------------------------------------------ while it is resumed


@needs_proc
@pytest.mark.parametrize("home", ["shared", "own"])
def test_a_call_that_is_cancelled_while_its_connection_is_resumed_is_had_by_asking_again(
    relay: Relay, home: str, tmp_path: Path
) -> None:
    hold = Hold(tmp_path)

    async def main() -> None:
        env = CounterEnv(base_url=relay.url)
        async with env if home == "own" else contextlib.nullcontext():
            await env.reset()
            waiting = asyncio.ensure_future(env.step(hold.action))
            await hold.begun()
            relay.hold()  # a connection is made, and not answered
            relay.cut()
            seen = relay.connections
            for _ in range(3):
                await eventually(lambda before=seen: relay.connections > before)  # type: ignore[misc]
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                seen = relay.connections
                waiting = asyncio.ensure_future(env.step(hold.action))
            relay.release()
            hold.release()
            assert (await waiting).observation.text == "step 1"
            assert (await env.step(Do())).observation.text == "step 2"
            await env.close()

    asyncio.run(main())
    assert taken() == 2
    wait_until(lambda: not relay._pairs)
