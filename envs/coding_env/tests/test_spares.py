"""Tests of the pool of spare sandboxes: its size, its limits, and that each is used once."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.waiting import wait_until

from coding_env import CodeAction
from coding_env.server import spares as module
from coding_env.server.engines import find_pool
from coding_env.server.python_codeact_env import PythonCodeActEnv
from coding_env.server.spares import MAX_RETIRED, MIN_BYTES, MIN_READY, Spares, private_bytes
from openenv.sandbox import SandboxPolicy

AMPLE = 2**40


class Thing:
    """An object that these pools make."""

    def __init__(self) -> None:
        self.thread = threading.current_thread().name
        self.is_good = True
        self.is_closed = False

    def processes(self) -> list[int]:
        return []

    def close(self) -> None:
        assert not self.is_closed, "it is ended once"
        self.is_closed = True


class Maker:
    """A factory that remembers its objects."""

    def __init__(self) -> None:
        self.made: list[Thing] = []
        self.error: Exception | None = None
        self.go_on = threading.Event()
        self.go_on.set()

    def __call__(self) -> Thing:
        self.go_on.wait(20)
        if self.error is not None:
            raise self.error
        self.made.append(Thing())
        return self.made[-1]


@pytest.fixture
def make() -> Maker:
    return Maker()


@pytest.fixture(autouse=True)
def ample_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_available_bytes", lambda: AMPLE)


@pytest.fixture
def closing() -> Iterator[list[Spares[Thing]]]:
    opened: list[Spares[Thing]] = []
    yield opened
    for one in opened:
        one.close()


def test_as_many_stand_ready_as_were_in_use_at_once(
    make: Maker, closing: list[Spares[Thing]]
) -> None:
    spares = Spares(make, 64, AMPLE)
    closing.append(spares)
    for batch in range(3):
        taken = [spares.take() for _ in range(12)]
        by_callers = [one for one in taken if one.thread != "coding-spares"]
        assert len(by_callers) == (12 if batch == 0 else 0), "later batches find them ready"
        wait_until(lambda: spares.ready == 12)
        for one in taken:
            spares.retire(one)
        wait_until(lambda: all(one.is_closed for one in taken))  # noqa: B023
    assert len(make.made) == 48, "each was given once"


def test_one_episode_after_the_other_keeps_a_few_ready(
    make: Maker, closing: list[Spares[Thing]]
) -> None:
    spares = Spares(make, 64, AMPLE)
    closing.append(spares)
    for _ in range(5):
        with spares.borrow():
            wait_until(lambda: spares.ready == MIN_READY)
    assert spares.wanted == MIN_READY


def test_no_more_stand_ready_than_are_allowed(make: Maker, closing: list[Spares[Thing]]) -> None:
    few, narrow = Spares(make, 5, AMPLE), Spares(make, 64, 6 * MIN_BYTES)
    none = Spares(make, 0, AMPLE)
    for spares, most in ((few, 5), (narrow, 6), (none, 0)):
        closing.append(spares)
        taken = [spares.take() for _ in range(12)]
        wait_until(lambda: spares.ready == most)  # noqa: B023
        assert spares.wanted == most
        for one in taken:
            spares.end(one)
        assert spares.ready == most


def test_a_machine_that_is_short_of_memory_keeps_few_ready(
    make: Maker, closing: list[Spares[Thing]], monkeypatch: pytest.MonkeyPatch
) -> None:
    spares = Spares(make, 64, AMPLE)
    closing.append(spares)
    taken = [spares.take() for _ in range(8)]
    wait_until(lambda: spares.ready == 8)
    monkeypatch.setattr(module, "_available_bytes", lambda: 0)
    wait_until(lambda: spares.ready == MIN_READY)
    assert spares.wanted == MIN_READY
    for one in taken:
        spares.end(one)


def test_what_is_not_used_any_more_is_ended(
    make: Maker, closing: list[Spares[Thing]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEEP_S", 0.5)
    spares = Spares(make, 64, AMPLE)
    closing.append(spares)
    for one in [spares.take() for _ in range(10)]:
        spares.end(one)
    wait_until(
        lambda: spares.ready == MIN_READY and sum(not one.is_closed for one in make.made) == 2
    )


def test_none_is_made_ahead_while_somebody_waits_for_one(
    make: Maker, closing: list[Spares[Thing]]
) -> None:
    spares = Spares(make, 64, AMPLE)
    closing.append(spares)
    make.go_on.clear()
    with ThreadPoolExecutor(4) as callers:
        asked = [callers.submit(spares.take) for _ in range(4)]
        wait_until(lambda: spares._waiting == 4)
        spares._call_makers()
        assert not threading.Event().wait(4 * module.QUIET_S)
        assert spares._being_made == 0
        make.go_on.set()
        for one in asked:
            assert one.result(20).thread != "coding-spares"


def test_what_has_ended_meanwhile_is_not_given(make: Maker, closing: list[Spares[Thing]]) -> None:
    spares = Spares(make, 2, AMPLE)
    closing.append(spares)
    with spares.borrow():
        wait_until(lambda: spares.ready == 2)
    bad = list(spares._ready)
    for one in bad:
        one.is_good = False
    with spares.borrow() as given:
        assert given not in bad
        wait_until(lambda: all(one.is_closed for one in bad))
    assert spares._used == 0


def test_what_making_raises_is_raised_to_who_takes(
    make: Maker, closing: list[Spares[Thing]]
) -> None:
    spares = Spares(make, 4, AMPLE)
    closing.append(spares)
    make.error = OSError("no room")
    for _ in range(2):
        with pytest.raises(OSError, match="no room"):
            spares.take()
    assert spares._used == 0
    make.error = None
    with spares.borrow():
        wait_until(lambda: spares.ready == MIN_READY)


def test_many_threads_get_one_each_and_all_are_ended_once(
    make: Maker, closing: list[Spares[Thing]]
) -> None:
    spares = Spares(make, 8, AMPLE)
    closing.append(spares)

    def play(number: int) -> list[Thing]:
        chance, held = random.Random(number), []
        for _ in range(60):
            held.append(spares.take())
            (spares.retire if chance.random() < 0.7 else spares.end)(held[-1])
            time.sleep(chance.random() / 500)
        return held

    with ThreadPoolExecutor(16) as players:
        given = [one for held in players.map(play, range(16)) for one in held]
    assert len(set(map(id, given))) == len(given) == 16 * 60
    wait_until(lambda: all(one.is_closed for one in given) and spares._used == 0)
    assert spares.ready <= 8
    assert not any(one.is_closed for one in spares._ready)


def test_memory_of_processes_is_read() -> None:
    held = bytearray(b"x" * 2**22)
    assert private_bytes([threading.get_native_id()]) > len(held)
    assert private_bytes([2**30]) == 0, "of one that has ended"


@pytest.mark.parametrize("variable", ["CODING_WARM_SANDBOXES", "CODING_WARM_MEMORY_MB"])
def test_a_wrong_number_is_refused(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "many")
    with pytest.raises(ValueError, match=f"{variable} is 'many'; expected an integer from 0"):
        find_pool(SandboxPolicy(wall_s=4.25), "process", "landlock")


@pytest.mark.slow
def test_a_batch_of_resets_finds_fresh_sandboxes_ready() -> None:
    policy = SandboxPolicy(wall_s=7.5)  # a pool that no other test has filled
    envs = [PythonCodeActEnv("sandbox", sandbox="bubblewrap", policy=policy) for _ in range(4)]
    ready = find_pool(policy, envs[0]._require, "bubblewrap")
    try:
        for batch in range(3):
            if batch:
                wait_until(lambda: ready.ready >= 4, 60)
            before = {id(one) for one in ready._ready}
            for env in envs:
                env.reset(seed=batch)
                assert batch == 0 or id(env._engine._warm) in before  # type: ignore[attr-defined]
                code = "import os\nprint('x' in dir(), os.listdir())\nx = 1\nopen('f', 'w').close()"
                assert env.step(CodeAction(code=code)).stdout == "False []\n"
    finally:
        for env in envs:
            env.close()
        ready.close()
    wait_until(lambda: ready._used == 0)


def test_of_many_that_are_retired_at_once_their_callers_end_some(
    make: Maker, closing: list[Spares[Thing]]
) -> None:
    """The number of retired objects that await their end is limited."""
    spares = Spares(make, 64, AMPLE)
    closing.append(spares)
    taken = [spares.take() for _ in range(MAX_RETIRED + 10)]
    make.go_on.clear()  # the makers also end retired objects, and now wait
    wait_until(lambda: spares._makers > 0)
    for one in taken:
        spares.retire(one)
        assert len(spares._retired) <= MAX_RETIRED
    ended = [one.is_closed for one in taken]
    make.go_on.set()
    wait_until(lambda: all(one.is_closed for one in taken))
    assert any(ended), "at once, by who retired it"
    with spares.borrow() as next_one:
        assert not next_one.is_closed
