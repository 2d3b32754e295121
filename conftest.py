"""What is no core test: whatever plays whole games, starts engines, or takes its time otherwise;
and what is of a layer beside or above the contract, the wire, servers and clients.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
CORE = {"echo_env", "openspiel_env"}
SLOW = {ROOT / "tests" / name for name in ("adapters", "integrations", "sandbox")} | {
    ROOT / "tests" / "mcp" / "test_clients.py",
    ROOT / "tests" / "test_import_cost.py",
    *(path for path in (ROOT / "envs").iterdir() if path.name not in CORE),
}
COMMANDS = ("blackjack", "collect", "eval", "replay", "rollout", "score", "validate")
UPPER = {
    ROOT / "tests" / name
    for name in (
        *("catalog", "evals", "gateway", "harness", "hub", "images", "llm", "rollouts"),
        *("testing", "validation", "web", "rewards/external", "rewards/test_judge.py"),
        *(f"cli/test_{command}.py" for command in COMMANDS),
    )
}
# What a module says of all of its tests.
MARKS = re.compile(r"^pytestmark = (?:\[[^\]]*\]|.*)", re.MULTILINE)
MARK = re.compile(r"\bpytest\.mark\.(\w+)")


def _marked_by_place(path: Path) -> list[str]:
    places = (path, *path.parents)
    by_place = {"slow": SLOW, "upper": UPPER}
    return [mark for mark, marked in by_place.items() if not marked.isdisjoint(places)]


@cache
def _marks(path: Path) -> frozenset[str]:
    """The marks that each test of a module has, as far as its text tells."""
    if path.suffix != ".py" or not path.is_file():
        return frozenset()
    stated = MARKS.search(path.read_text(encoding="utf-8"))
    return frozenset(MARK.findall(stated[0]) if stated is not None else ())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even read those that are not asked for."""
    asked: str = config.option.markexpr
    unasked = set(re.findall(r"\bnot (\w+)", asked)) if " or " not in asked else set()
    marks = {*_marks(collection_path), *_marked_by_place(collection_path)}
    return None if unasked.isdisjoint(marks) else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by where they are."""
    for item in items:
        for mark in _marked_by_place(item.path):
            item.add_marker(mark)
