"""Each promise of the documentation is shown by a test that is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/concepts/guarantees.md"


def named_tests() -> list[tuple[str, str, Path]]:
    """The file, the name and the target of each test that the page links."""
    found = re.findall(r"\[`([\w.]+)::(\w+)`\]\(([^)]+)\)", PAGE.read_text("utf-8"))
    return [(file, name, (PAGE.parent / target).resolve()) for file, name, target in found]


def test_the_tests_that_show_a_promise_are_there() -> None:
    missing = [
        f"{file}::{name}"
        for file, name, path in named_tests()
        if path.name != file or f"def {name}(" not in path.read_text("utf-8")
    ]
    assert missing == []


def test_every_promise_is_shown_by_a_test() -> None:
    promises, _, _ = PAGE.read_text("utf-8").partition("## Against the public package")
    each = promises.split("\n\n**")[1:]
    assert len(each) > 15
    assert [part.partition("**")[0] for part in each if "::test_" not in part] == []
