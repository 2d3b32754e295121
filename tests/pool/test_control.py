"""How many servers, and how much of each: without clock, server or loop."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openenv.pool.control import LONGEST_RETRY_S, Load, Scaler, Starts, Window


def load(
    leased: int = 0, waiting: int = 0, servers: int = 0, each: int = 4, starting: int = 0
) -> Load:
    return Load(leased, waiting, servers, servers * each, starting)


def scaler(lowest: int = 1, highest: int = 10, spare: int = 0, idle_s: float = 60.0) -> Scaler:
    return Scaler(lowest, highest, spare=spare, sessions_per_server=4, idle_s=idle_s)


# ------------------------------------------------------------------ windows


def test_a_window_widens_by_one_and_narrows_by_a_factor() -> None:
    window = Window(8, highest=10)
    for _ in range(5):
        window.widen()
    assert window.size == 10
    window.narrow(now=0.0)
    assert window.size == 5


def test_a_burst_of_bad_news_counts_once() -> None:
    window = Window(64, rest_s=1.0)
    for _ in range(20):
        window.narrow(now=5.0)
    assert window.size == 32
    window.narrow(now=6.0)
    assert window.size == 16


@given(st.lists(st.booleans()), st.integers(1, 64), st.integers(64, 100))
def test_a_window_stays_within_its_bounds(news: list[bool], start: int, highest: int) -> None:
    window = Window(start, highest=highest)
    for now, is_good in enumerate(news):
        window.widen() if is_good else window.narrow(float(10 * now))
        assert 1 <= window.size <= highest


# ------------------------------------------------------------------ starts


def test_as_many_are_started_at_once_as_the_engine_bears() -> None:
    starts = Starts(at_once=4, most=6)
    assert [starts.allowed(n, 0.0) for n in (0, 3, 4, 9)] == [4, 1, 0, 0]
    for now in range(5):
        starts.succeeded(1.0, float(now))
    assert starts.allowed(0, 5.0) == 6
    starts.succeeded(4.1, 6.0)  # more than four times as long as the quickest
    assert starts.allowed(0, 6.0) == 3


def test_what_fails_is_tried_again_after_twice_as_long() -> None:
    starts, now, pauses = Starts(), 0.0, []
    for _ in range(9):
        for _ in range(5):
            starts.failed(now)  # a burst counts once
        until = now
        while not starts.allowed(0, until):
            until += 0.125
        pauses.append(until - now)
        now = until
    assert pauses == [
        0.5,
        1.0,
        2.0,
        4.0,
        8.0,
        16.0,
        LONGEST_RETRY_S,
        LONGEST_RETRY_S,
        LONGEST_RETRY_S,
    ]
    assert starts.failures == 9
    starts.succeeded(1.0, now)
    assert starts.failures == 0


# ------------------------------------------------------------------ servers


@pytest.mark.parametrize(
    ("now", "wanted"),
    [
        (load(), 1),  # always one
        (load(leased=4, servers=1), 1),
        (load(leased=4, waiting=1, servers=1), 2),
        (load(waiting=17), 5),  # before any has said what it takes
        (load(waiting=17, starting=5), 5),
        (load(leased=10, waiting=1000, servers=3), 10),  # no more than there may be
        (load(leased=3, waiting=3, servers=3, each=1), 6),  # they take less than was thought
    ],
)
def test_there_are_at_once_as_many_as_are_wanted(now: Load, wanted: int) -> None:
    assert scaler().wanted(now, 0.0) == wanted


def test_some_are_kept_free_for_whoever_comes_next() -> None:
    assert scaler(spare=4).wanted(load(leased=4, servers=1), 0.0) == 2


def test_what_nobody_needs_is_given_up_by_halves() -> None:
    chooser, servers, seen = scaler(idle_s=10.0), 9, []
    for now in range(60):
        wanted = chooser.wanted(load(leased=2, servers=servers), float(now))
        if wanted != servers:
            seen.append((now, wanted))
            servers = wanted
    assert seen == [(10, 5), (20, 3), (30, 2), (40, 1)]


def test_what_was_needed_a_moment_ago_is_kept() -> None:
    chooser = scaler(idle_s=10.0)
    for now in range(100):
        leased = 32 if now % 7 == 0 else 1  # a burst every seven seconds
        assert chooser.wanted(load(leased=leased, servers=8), float(now)) == 8


def test_one_that_comes_back_in_time_begins_the_wait_anew() -> None:
    chooser = scaler(idle_s=10.0)
    assert chooser.wanted(load(leased=1, servers=4), 0.0) == 4
    assert chooser.wanted(load(leased=16, servers=4), 9.0) == 4
    assert chooser.wanted(load(leased=1, servers=4), 11.0) == 4
    assert chooser.wanted(load(leased=1, servers=4), 20.0) == 4
    assert chooser.wanted(load(leased=1, servers=4), 21.0) < 4


@given(
    st.lists(
        st.tuples(st.integers(0, 500), st.integers(0, 500), st.integers(0, 20), st.integers(0, 20)),
        max_size=60,
    ),
    st.integers(0, 5),
    st.integers(5, 20),
)
def test_the_bounds_hold_whatever_happens(
    loads: list[tuple[int, int, int, int]], lowest: int, highest: int
) -> None:
    chooser = Scaler(lowest, highest, sessions_per_server=4, idle_s=3.0)
    for now, (leased, waiting, servers, starting) in enumerate(loads):
        there = min(servers, highest), min(starting, highest - min(servers, highest))
        wanted = chooser.wanted(load(leased, waiting, there[0], 4, there[1]), float(now))
        assert lowest <= wanted or wanted >= sum(there)
        assert wanted <= highest
