"""The suite itself: who may take long, and that the rest of it is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
# A machine may be slower than the one that recorded them, so a test is asked for its reason early.
REASON_FROM_S = 5.0


def test_every_test_that_took_long_says_why(request: pytest.FixtureRequest) -> None:
    """`make durations` records what each takes; `make test` lists them with their reasons."""
    recorded: dict[str, float] = json.loads((TESTS / "durations.json").read_text())["tests"]
    long = {node_id for node_id, seconds in recorded.items() if seconds > REASON_FROM_S}
    unexplained = [
        item.nodeid
        for item in request.session.items
        if item.nodeid in long
        and not any(mark.args for name in ("slow", "extended") for mark in item.iter_markers(name))
        and not item.path.is_relative_to(TESTS.parent / "envs")
    ]
    assert unexplained == []


def test_every_mark_that_leaves_a_test_to_test_all_says_why(request: pytest.FixtureRequest) -> None:
    marks = [
        (item, mark) for item in request.session.items for mark in item.iter_markers("extended")
    ]
    by_place = TESTS.parent / "envs"
    assert [
        item.nodeid for item, mark in marks if not mark.args and by_place not in item.path.parents
    ] == []
