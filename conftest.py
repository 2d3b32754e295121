"""What is no core test: whatever plays whole games, starts engines, or takes its time otherwise."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
CORE = {"echo_env", "openspiel_env"}
SLOW = {ROOT / "tests" / name for name in ("adapters", "integrations", "sandbox")} | {
    ROOT / "tests" / "mcp" / "test_clients.py",
    *(path for path in (ROOT / "envs").iterdir() if path.name not in CORE),
}
# What a module says of all of its tests.
MARKS = re.compile(r"^pytestmark = (?:\[[^\]]*\]|.*)", re.MULTILINE)
MARK = re.compile(r"\bpytest\.mark\.(\w+)")


def _is_slow(path: Path) -> bool:
    return not SLOW.isdisjoint((path, *path.parents))


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
    is_unwanted = not unasked.isdisjoint(_marks(collection_path))
    is_unwanted |= "slow" in unasked and _is_slow(collection_path)
    return True if is_unwanted else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the larger environments, and of what starts engines, as slow."""
    for item in items:
        if _is_slow(item.path):
            item.add_marker(pytest.mark.slow)
