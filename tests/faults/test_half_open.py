"""Packets that are dropped without a word: the other end is neither there nor gone."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen
from typing import Any

import anyio
import pytest
from support.amounts import mostly_extended
from support.cable import Cable, cable, can_be_laid
from support.commands import environ
from support.environments import Counter, CounterEnv, Do, Log
from support.servers import NotAdopted, serving

from openenv import Limits, create_app

TESTS = Path(__file__).parents[1]
PLAYER = str(TESTS / "faults/player.py")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not can_be_laid(), reason="network namespaces need root and iproute2"),
]


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a program that imports this tree, which the other host's inherits."""
    for name, value in environ(TESTS).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def line() -> Iterator[Cable]:
    with cable() as line:
        yield line


def close_output(player: Popen[str]) -> None:
    assert player.stdout is not None
    player.stdout.close()


async def neighbour(url: str, until: Callable[[], bool]) -> None:
    """Play on this thread, which alone is where the cable is; and then in the slot that is free."""
    with anyio.fail_after(20):
        async with CounterEnv(base_url=url) as env:
            await env.reset()
            steps = 0
            while not until():
                steps += 1
                assert (await env.step(Do())).observation.text == f"step {steps}"
            assert steps > 100
            async with CounterEnv(base_url=url) as another:
                await another.reset()


@pytest.mark.slow("waits until the silence of a pulled cable is noticed")
@pytest.mark.parametrize("version", ["0", "1"])
@pytest.mark.parametrize("way", mostly_extended(["socket", "asgi"]))
def test_the_slot_of_a_client_that_is_cut_off_comes_free(
    line: Cable, log: Log, monkeypatch: pytest.MonkeyPatch, version: str, way: str
) -> None:
    monkeypatch.setenv("OPENENV_PROTOCOL", version)
    """Another session, whose cable nobody has pulled, plays on all the while."""
    limits = Limits(dead_peer_s=3, resume_grace_s=1)
    app: Any = create_app(Counter, max_concurrent_envs=2, limits=limits)
    monkeypatch.setenv("OPENENV_DEAD_PEER_S", "3")
    with serving(app if way == "socket" else NotAdopted(app), host=line.here) as url:
        player = line.start_there([sys.executable, PLAYER, url, "1000", "100"])
        try:
            assert player.stdout is not None
            assert player.stdout.readline() == "ready\n"
            assert player.stdout.readline() == "step 1\n"
            line.pull()
            asyncio.run(neighbour(url, until=lambda: log.count("close") == 1))
        finally:
            player.kill()
            player.wait(10)
            close_output(player)


@pytest.mark.slow("waits until the silence of a pulled cable is noticed")
def test_an_outage_in_mid_episode_costs_nothing(line: Cable, log: Log) -> None:
    """Longer than either side takes the other for alive."""
    with serving(create_app(Counter, limits=Limits(dead_peer_s=2)), host=line.here) as url:
        player = line.start_there([sys.executable, PLAYER, url, "40", "0.05"])
        try:
            assert player.stdout is not None
            assert player.stdout.readline() == "ready\n"
            threading.Timer(0.5, line.pull).start()
            threading.Timer(6, line.plug_in).start()
            assert player.stdout.read().split("\n")[:-1] == [f"step {n}" for n in range(1, 41)]
        finally:
            player.kill()
            player.wait(10)
            close_output(player)
    assert log.count("step") == 40 and log.count("init") == 1
