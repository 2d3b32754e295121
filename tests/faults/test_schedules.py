"""A thousand episodes over a network in which things go wrong at random, from a seed.

What can go wrong, and when an episode has gone right, is said in `chaos/play.py`. To run one of
them again: ``python tests/faults/chaos/play.py --url URL --count 1 --seed SEED``.
"""

from __future__ import annotations

import sys

import pytest
from support.amounts import amount
from support.chaos import run_schedules
from support.commands import environ

SEED = 20261122


def ours(count: int, **variables: str) -> dict[str, object]:
    path = environ()["PYTHONPATH"]
    return run_schedules(sys.executable, count, SEED, PYTHONPATH=path, **variables)


@pytest.mark.slow("plays a hundred schedules of faults")
@pytest.mark.timeout(900)
def test_of_many_schedules_none_loses_a_step_or_takes_one_twice() -> None:
    count = amount(1000, 100)
    report = ours(count)
    assert report["right"] == count, report["examples"]
    faults = report["faults"]
    assert isinstance(faults, dict)
    assert len(faults) == 9 and min(faults.values()) > count / 10, "each has really happened"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_version_0_loses_episodes_but_never_in_silence() -> None:
    report = ours(amount(300, 60), OPENENV_PROTOCOL="0")
    assert report["silent"] == 0, report["examples"]
    assert report["loud"] != 0, "it has no way to find a session again"
