"""The random fault schedules of `tests/faults`, played with the public package at both ends."""

from __future__ import annotations

import pytest
from support.chaos import run_schedules

pytestmark = [
    pytest.mark.extended("hundreds of schedules"),
    pytest.mark.slow,
    pytest.mark.timeout(600),
]


def test_the_schedules_find_what_goes_wrong_in_silence(peer_python: str) -> None:
    """So the check that ours passes can fail."""
    report = run_schedules(peer_python, 200, 20261122)
    assert report["silent"] > 0
    assert report["right"] + report["loud"] + report["silent"] == 200
