"""Which tests there are for whom: marks by place, what is not even imported, and who runs what.

``docs/guides/running-the-tests.md`` explains the selections; the Makefile has their expressions.
"""

from __future__ import annotations

import re
import signal
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent
# Environments whose own tests are part of `make test`: the simplest, and one of the core tests.
CORE = {"echo_env", "openspiel_env"}
OTHERS = [path for path in (ROOT / "envs").iterdir() if path.name not in CORE]
SLOW = {
    *(ROOT / "tests" / name for name in ("adapters", "integrations", "sandbox")),
    ROOT / "tests" / "tools" / "test_clients.py",
    ROOT / "tests" / "test_import_cost.py",
    *OTHERS,
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
EXTENDED = {*OTHERS}
BY_PLACE = {"slow": SLOW, "upper": UPPER, "extended": EXTENDED}
# What a module says of all of its tests.
MARKS = re.compile(r"^pytestmark = (?:\[[^\]]*\]|.*)", re.MULTILINE)
MARK = re.compile(r"\bpytest\.mark\.(\w+)")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("openenv")
    group.addoption(
        "--durations-file",
        type=Path,
        metavar="FILE",
        help="Record there what each test, fixture and module costs; see scripts/durations.py.",
    )
    group.addoption(
        "--changed",
        metavar="COMMIT",
        help="Run only the tests of what has changed since then; see tests/support/changes.py.",
    )


def pytest_configure(config: pytest.Config) -> None:
    # A shell has what it starts in the background ignore Ctrl-C, and children inherit that: the
    # tests of Ctrl-C would wait in vain.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    file = config.getoption("--durations-file")
    if file is not None:
        from support.durations import Durations

        config.pluginmanager.register(Durations(config, file))


# ------------------------------------------------------------------ selecting


def _marked_by_place(path: Path) -> list[str]:
    places = (path, *path.parents)
    return [mark for mark, marked in BY_PLACE.items() if not marked.isdisjoint(places)]


# Why a mark by place leaves tests to `make test-all`.
BY_PLACE_WHY = {"extended": ("an environment's own tests; make test-changed runs them",)}


@cache
def _marks(path: Path) -> frozenset[str]:
    """The marks that each test of a module has, as far as its text tells."""
    if path.suffix != ".py" or not path.is_file():
        return frozenset()
    stated = MARKS.search(path.read_text(encoding="utf-8"))
    return frozenset(MARK.findall(stated[0]) if stated is not None else ())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import modules none of whose tests are selected."""
    asked: str = config.option.markexpr
    unasked = set(re.findall(r"\bnot (\w+)", asked)) if " or " not in asked else set()
    marks = {*_marks(collection_path), *_marked_by_place(collection_path)}
    return None if unasked.isdisjoint(marks) else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for mark in _marked_by_place(item.path):
            item.add_marker(getattr(pytest.mark, mark)(*BY_PLACE_WHY.get(mark, ())))
        if any(not mark.args for mark in item.iter_markers("extended")):
            raise pytest.UsageError(f"{item.nodeid}: pytest.mark.extended(REASON) wants a reason")
    if (commit := config.getoption("--changed")) is not None:
        from support.changes import changed_since, keep_affected

        keep_affected(config, items, changed_since(commit))
    if config.getoption("dist", "no") == "loadscope":
        from support.scheduling import longest_first

        longest_first(items)


# ------------------------------------------------------------------ running


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute the tests by our own groups."""
    if config.getoption("dist") != "loadscope":
        return None
    from support.scheduling import GroupScheduling

    return GroupScheduling(config, log)


# ------------------------------------------------------------------ slow tests


def slow_reason(item: pytest.Item) -> str:
    """Return why a test may take long: the argument of its mark `slow`."""
    given = [mark.args[0] for mark in item.iter_markers("slow") if mark.args]
    return given[0] if given else ""


@pytest.hookimpl(trylast=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.user_properties.append(("slow", slow_reason(item)))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """List the tests that took long, with the reasons that they give."""
    from support.durations import SLOW_FROM_S

    seconds: dict[str, float] = defaultdict(float)
    reasons: dict[str, str] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if hasattr(report, "duration") and hasattr(report, "nodeid"):
                seconds[report.nodeid] += report.duration
                reasons[report.nodeid] = dict(report.user_properties).get("slow", "")
    slow = {name: took for name, took in seconds.items() if took > SLOW_FROM_S}
    if slow:
        terminalreporter.section(f"tests over {SLOW_FROM_S:g} s")
    for name in sorted(slow, key=lambda name: -slow[name]):
        why = reasons.get(name) or "gives no reason: pytest.mark.slow(REASON)"
        terminalreporter.write_line(f"{slow[name]:6.1f} s  {name}: {why}")
