"""The suite itself: which of its tests may take long."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.durations import SLOW_FROM_S

TESTS = Path(__file__).parent


def test_every_test_that_took_long_says_why(request: pytest.FixtureRequest) -> None:
    """`make durations` records what each takes; `make test` lists them with their reasons."""
    recorded: dict[str, float] = json.loads((TESTS / "durations.json").read_text())["tests"]
    long = {node_id for node_id, seconds in recorded.items() if seconds > SLOW_FROM_S}
    unexplained = [
        item.nodeid
        for item in request.session.items
        if item.nodeid in long
        and not any(mark.args for name in ("slow", "extended") for mark in item.iter_markers(name))
        and not item.path.is_relative_to(TESTS.parent / "envs")
    ]
    assert unexplained == []
