"""Distributes the tests over the workers of xdist so that none of them ends late.

Tests that share a server, or fixtures of their module, form a group, which one worker runs: as a
rule a module, but also a page of the documentation, or a transport of the behavior suite. The
groups that took longest in ``tests/durations.json`` are handed out first (longest processing time
first, Graham 1969), so that the last ones are short. ``--dist loadfile`` of xdist knows no
durations and splits no module.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

__all__ = ["GroupScheduling", "group_of", "longest_first"]

RECORD = Path(__file__).resolve().parents[1] / "durations.json"
# What a test is assumed to take that is not in the record.
UNKNOWN_S = 0.05
# Modules of several groups: which part of a test's name tells the group.
SPLIT = {
    # a page
    "tests/docs/test_docs.py": re.compile(r"\[(.*)\]$"),
    "tests/docs/test_notebooks.py": re.compile(r"\[(.*)\]$"),
    # a transport
    "tests/behaviour/test_behaviour.py": re.compile(r"\[(\w+(?: \w+)?)"),
    "tests/behaviour/test_rewards.py": re.compile(r"\[(\w+(?: \w+)?)"),
}


@cache
def recorded() -> tuple[dict[str, float], dict[str, float]]:
    """Return the recorded seconds of long tests, and the mean of the other tests of each module."""
    try:
        record = json.loads(RECORD.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}, {}
    long: dict[str, float] = record["tests"]
    means = {}
    for name, module in record["modules"].items():
        of_long = [s for node_id, s in long.items() if node_id.partition("::")[0] == name]
        others = module["tests"] - len(of_long)
        means[name] = max(module["seconds"] - sum(of_long), 0.0) / others if others else 0.0
    return long, means


@cache
def group_of(node_id: str) -> str:
    """Return the name of the group that a test is in."""
    module, _, name = node_id.partition("::")
    part = SPLIT[module].search(name) if module in SPLIT else None
    return f"{module}[{part[1]}]" if part else module


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist's base is untyped
    """Hands groups to workers in the order in which they were collected."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        # A scope that is complete is forgotten: the base class counts all that is assigned, after
        # each of ten thousand tests.
        group = group_of(self.registered_collections[node][item_index])
        super().mark_test_complete(node, item_index, duration)
        if all(self.assigned_work[node].get(group, {"": False}).values()):
            del self.assigned_work[node][group]


def longest_first(items: list[pytest.Item]) -> None:
    """Order the tests by what their groups take; within a group the order stays."""
    long, means = recorded()
    totals: dict[str, float] = defaultdict(float)
    for item in items:
        module = item.nodeid.partition("::")[0]
        totals[group_of(item.nodeid)] += long.get(item.nodeid, means.get(module, UNKNOWN_S))
    items.sort(key=lambda item: (-totals[group_of(item.nodeid)], group_of(item.nodeid)))
