"""Harnesses as old programs have them: the same comes of them, but for what was wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.compat, pytest.mark.slow, pytest.mark.timeout(300)]

# What the public package does, and what this one does instead, by the names in the program.
MENDED = {
    # Calls beyond a limit, or after the end, stayed unanswered; the count of turns was lost.
    "unanswered": (
        [
            [1, 1, ["tool_calls", "turns"]],
            [1, 1, ["truncated"]],
            [3, 3, ["tool_calls", "turns"]],
        ],
        [
            [2, 1, ["tool_calls", "turns"]],
            [2, 1, ["tool_calls", "truncated", "turns"]],
            [4, 3, ["tool_calls", "turns"]],
        ],
    ),
    # The model did not see that a tool had failed, and a tool it made up ended the rollout.
    "an error": ("", "Error: E"),
    "a mistake": ("KeyError", True),
    # All prompts were strung together: the model had never seen such a one.
    "tokens": (
        [[1, 1, 2, 7], [2, 3], [-0.1, -0.1]],
        [[1], [2, 7, 3], [-0.1, 0.0, -0.1]],
    ),
}


@pytest.fixture(scope="module")
def told(play: Callable[..., Any]) -> dict[str, dict[str, Any]]:
    return {whose: play(whose, "harness_program.py") for whose in ("peer", "ours")}


PARTS = (
    "bridging",
    "cli",
    "kinds",
    "looping",
    "rollouts",
    "stepping",
    "training",
    "two rewards",
    "unscored",
    "verified",
)


@pytest.mark.parametrize("part", PARTS)
def test_old_harness_code_comes_to_the_same(told: dict[str, dict[str, Any]], part: str) -> None:
    assert told["ours"][part] == told["peer"][part]


def test_the_program_has_no_other_parts(told: dict[str, dict[str, Any]]) -> None:
    assert sorted(told["peer"]) == sorted([*PARTS, "faults"])


@pytest.mark.parametrize("fault", sorted(MENDED))
def test_what_was_wrong_is_mended(told: dict[str, dict[str, Any]], fault: str) -> None:
    assert (told["peer"]["faults"][fault], told["ours"]["faults"][fault]) == MENDED[fault]
