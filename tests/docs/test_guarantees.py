"""Each promise and each limit of the documentation is shown by tests that are there."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from openenv import Limits
from openenv.execution.principal import KeyLimits
from openenv.sandbox import SandboxPolicy

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/concepts/guarantees.md"
LIMITS = ROOT / "docs/concepts/security.md"


def named_tests(page: Path) -> list[tuple[str, str, Path]]:
    """The file, the name and the target of each test that the page links."""
    found = re.findall(r"\[`([\w.]+)::(\w+)`\]\(([^)]+)\)", page.read_text("utf-8"))
    return [(file, name, (page.parent / target).resolve()) for file, name, target in found]


@pytest.mark.parametrize("page", [PAGE, LIMITS], ids=lambda page: page.stem)
def test_the_tests_that_show_a_promise_are_there(page: Path) -> None:
    missing = [
        f"{file}::{name}"
        for file, name, path in named_tests(page)
        if path.name != file or f"def {name}(" not in path.read_text("utf-8")
    ]
    assert missing == []


def test_every_promise_is_shown_by_a_test() -> None:
    promises, _, _ = PAGE.read_text("utf-8").partition("## Against the public package")
    each = promises.split("\n\n**")[1:]
    assert len(each) > 15
    assert [part.partition("**")[0] for part in each if "::test_" not in part] == []


def test_every_limit_has_a_test_that_goes_over_it_and_one_with_a_neighbour() -> None:
    _, _, section = LIMITS.read_text("utf-8").partition("## Each limit")
    rows = [
        [cell.strip() for cell in line.strip("| ").split(" | ")]
        for line in section.partition("\n## ")[0].splitlines()
        if line.startswith("| ") and not line.startswith(("| limit", "| ---"))
    ]
    assert len(rows) > 40
    assert [row[0] for row in rows if "::" not in row[-2]] == []
    assert [
        row[0] for row in rows if "::" not in row[-1] and not row[-1].startswith("none: ")
    ] == []
    no_limits = {"network", "strict_memory", "readable", "environment"}
    classes: tuple[Any, ...] = (Limits, KeyLimits, SandboxPolicy)
    names = {field.name for one in classes for field in fields(one)} - no_limits
    assert [name for name in sorted(names) if not any(f"`{name}`" in row[0] for row in rows)] == []
