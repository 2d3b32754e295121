"""What stands ready is fresh, is used once, and is made by whom it should be."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from support.waiting import wait_until

from openenv.sandbox import Pool, Sandbox


class Thing(contextlib.AbstractContextManager["Thing"]):
    """What a pool makes here; it knows who has made it."""

    def __init__(self) -> None:
        self.thread = threading.current_thread().name
        self.is_closed = False
        self.is_bad = False

    def __exit__(self, *exc_info: object) -> None:
        assert not self.is_closed, "it is closed once"
        self.is_closed = True


class Maker:
    """Makes things, and keeps them all."""

    def __init__(self) -> None:
        self.made: list[Thing] = []
        self.error: Exception | None = None

    def __call__(self) -> Thing:
        if self.error is not None:
            raise self.error
        thing = Thing()
        self.made.append(thing)
        return thing


@pytest.fixture
def make() -> Maker:
    return Maker()


def filled(pool: Pool[Thing]) -> Pool[Thing]:
    pool.fill()
    wait_until(lambda: pool.ready == pool.size and pool._filler is None)
    return pool


def test_nothing_is_made_before_it_is_asked_for(make: Maker) -> None:
    with Pool(make, size=3) as pool:
        assert (make.made, pool.ready) == ([], 0)


def test_an_empty_pool_makes_one_at_once(make: Maker) -> None:
    with Pool(make, size=0) as pool:
        assert pool.take().thread == threading.current_thread().name
        assert len(make.made) == 1


def test_what_stands_ready_is_taken_once_and_another_is_made(make: Maker) -> None:
    with filled(Pool(make, size=2)) as pool:
        taken = []
        for _ in range(5):
            taken.append(pool.take())
            wait_until(lambda: pool.ready == 2)
        assert len(set(map(id, taken))) == 5
        assert {one.thread for one in taken} == {"openenv-sandbox-pool"}
        assert taken == make.made[:5], "the oldest first"
        assert len(make.made) == 7


def test_what_is_no_longer_good_is_closed_and_not_given(make: Maker) -> None:
    with filled(Pool(make, size=3, is_good=lambda one: not one.is_bad)) as pool:
        bad, worse, good = make.made
        bad.is_bad = worse.is_bad = True
        assert pool.take() is good
        assert bad.is_closed and worse.is_closed and not good.is_closed


def test_where_none_is_good_one_is_made(make: Maker) -> None:
    with filled(Pool(make, size=2, is_good=lambda one: not one.is_bad)) as pool:
        stood = list(make.made)
        for one in stood:
            one.is_bad = True
        assert pool.take() not in stood
        assert all(one.is_closed for one in stood)


def test_what_making_raises_is_raised_to_who_takes(make: Maker) -> None:
    with Pool(make, size=1) as pool:
        make.error = OSError("no room")
        for _ in range(2):
            with pytest.raises(OSError, match="no room"):
                pool.take()
        make.error = None
        assert not pool.take().is_closed
        wait_until(lambda: pool.ready == 1, 30)


def test_one_that_cannot_be_made_ahead_does_not_end_the_pool(make: Maker) -> None:
    with filled(Pool(make, size=1)) as pool:
        make.error = OSError("no room")
        assert pool.take() is make.made[0], "it stood ready"
        wait_until(lambda: pool._filler is None)
        assert pool.ready == 0
        make.error = None
        pool.take()
        wait_until(lambda: pool.ready == 1, 30)


def test_closing_closes_what_stands_ready_and_not_what_was_taken(make: Maker) -> None:
    pool = filled(Pool(make, size=2))
    taken = pool.take()
    wait_until(lambda: pool.ready == 2)
    pool.close()
    pool.close()
    assert [one.is_closed for one in make.made] == [one is not taken for one in make.made]
    with pytest.raises(RuntimeError, match="the pool is closed"):
        pool.take()
    pool.fill()
    assert pool.ready == 0


def test_what_is_made_while_the_pool_is_closed_is_closed_too(make: Maker) -> None:
    begun, may_go_on = threading.Event(), threading.Event()

    def slowly() -> Thing:
        begun.set()
        assert may_go_on.wait(10)
        return make()

    pool = Pool(slowly, size=1)
    pool.fill()
    assert begun.wait(10)
    threading.Timer(0.1, may_go_on.set).start()
    pool.close()
    assert [one.is_closed for one in make.made] == [True]


def test_a_size_below_zero_is_refused(make: Maker) -> None:
    with pytest.raises(ValueError, match="size is -1; it must be 0 or more"):
        Pool(make, size=-1)


def test_a_forked_child_takes_nothing_of_its_parent(make: Maker) -> None:
    with filled(Pool(make, size=2)) as pool:
        stood = set(map(id, make.made))
        told = in_a_child(lambda: f"{pool.ready} {id(pool.take()) in stood}")
        assert told == "2 False"
        assert pool.ready == 2
        assert id(pool.take()) in stood


def in_a_child(ask: Callable[[], str]) -> str:
    """What a forked child says."""
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writes, ask().encode())
        finally:
            os._exit(0)
    os.close(writes)
    with open(reads) as file:
        told = file.read()
    os.waitpid(pid, 0)
    return told


def test_many_threads_never_get_the_same(make: Maker) -> None:
    with Pool(make, size=4) as pool, ThreadPoolExecutor(16) as threads:
        taken = list(threads.map(lambda _: pool.take(), range(400)))
        assert len(set(map(id, taken))) == 400
        assert not any(one.is_closed for one in taken)
        wait_until(lambda: pool.ready == 4)
        assert len(make.made) == 404
    assert sum(one.is_closed for one in make.made) == 4


def test_one_that_is_taken_just_as_the_pool_is_full_is_replaced(make: Maker) -> None:
    pool = Pool(make, size=1)
    taken: list[Thing] = []
    lock, full = pool._lock, []

    class Watched:
        """Takes one just after the filler has seen, under the lock, that nothing is missing."""

        def __enter__(self) -> None:
            lock.acquire()

        def __exit__(self, *exc_info: object) -> None:
            lock.release()
            if threading.current_thread().name == "openenv-sandbox-pool" and pool.ready:
                full.append(True)  # when it has put one in, and when it has looked again
                if len(full) == 2:
                    with ThreadPoolExecutor(1) as other:
                        taken.append(other.submit(pool.take).result(30))

    pool._lock = Watched()  # type: ignore[assignment]
    with pool:
        pool.fill()
        wait_until(lambda: len(taken) == 1 and pool.ready == 1)


# ------------------------------------------------------------------ of sandboxes


@pytest.mark.slow
def test_sandboxes_stand_ready_and_are_fresh(kind: str) -> None:
    pool = Pool(
        partial(Sandbox, require="process", kind=kind),
        size=1,
        is_good=lambda one: not one.is_over,
    )
    with pool:
        for _ in range(3):
            with pool.take() as sandbox:
                assert sandbox.run("ls; touch left-behind").stdout == ""
            pool.fill()
            wait_until(lambda: pool.ready == 1, 30)
        standing = pool._ready[0]
        standing.close()
        with pool.take() as sandbox:
            assert sandbox is not standing
            assert sandbox.run("echo here").stdout == "here\n"
        wait_until(lambda: pool.ready == 1, 30)
        last = pool._ready[0]
    assert last.is_over and not last.processes()


@pytest.mark.slow
def test_closing_in_a_forked_child_ends_no_sandbox_of_the_parent() -> None:
    with Pool(partial(Sandbox, kind="bubblewrap"), size=1) as pool:
        pool.fill()
        wait_until(lambda: pool.ready == 1, 30)

        def close() -> str:
            pool.close()
            return "closed"

        assert in_a_child(close) == "closed"
        with pool.take() as sandbox:
            assert sandbox.run("echo here").stdout == "here\n"
