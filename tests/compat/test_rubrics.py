"""Rubrics, and clients of language models, as old programs have them: the same comes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.llm_server import Asked, Reply, llm_server

pytestmark = [pytest.mark.compat, pytest.mark.slow, pytest.mark.timeout(300)]

Play = Callable[..., Any]

# What the public package does, and what this one does instead, by the names in the program. Not a
# number, and no score, are a ValueError: `Unscored` is one.
MENDED = {
    # A Sequential on a running loop gives a coroutine, or not, as it comes to 0 or not.
    "on a loop": ([False, True, False], [True, True, True]),
    "kept after a reset": (1, 0),
    "a name": ("TypeError", None),
    "not a number": (["nan", 1.0], ["ValueError", "ValueError"]),
    "replaced": (["right", "style", "games"], ["style", "games"]),
    # A scale that is mentioned, a sign, a fraction, no digit before the point, no score, a brace.
    "judges": (
        [1.0, 0.5, 1.0, 1.0, 0.0, "KeyError"],
        ["ValueError", 0.0, 0.7, 0.5, "ValueError", 1],
    ),
}


@pytest.fixture(scope="module")
def told(play: Play) -> dict[str, dict[str, Any]]:
    return {whose: play(whose, "rubrics_program.py") for whose in ("peer", "ours")}


PARTS = {
    "asynchronous",
    "containers",
    "environment",
    "hooks",
    "judged",
    "nested",
    "same",
    "trajectories",
}


@pytest.mark.parametrize("part", sorted(PARTS))
def test_old_rubrics_come_to_the_same(told: dict[str, dict[str, Any]], part: str) -> None:
    assert told["ours"][part] == told["peer"][part]


@pytest.mark.parametrize("fault", MENDED)
def test_a_fault_is_mended(told: dict[str, dict[str, Any]], fault: str) -> None:
    peer, ours = (told[whose]["faults"][fault] for whose in ("peer", "ours"))
    before, now = MENDED[fault]
    assert str(peer).replace("nan", "'nan'") == str(before)
    assert ours == now


def test_every_part_of_the_program_is_compared(told: dict[str, dict[str, Any]]) -> None:
    assert told["ours"].keys() == told["peer"].keys() == PARTS | {"faults"}
    assert told["ours"]["faults"].keys() == MENDED.keys()


def test_an_old_client_asks_and_gets_the_same(play: Play) -> None:
    def answer(asked: Asked) -> Any:
        wants_tools = asked.body.get("tools") and asked.last == "add"
        return Reply("let me", calls=[("add", {"a": 1})]) if wants_tools else asked.last.upper()

    told, bodies = {}, {}
    for whose in ("peer", "ours"):
        with llm_server(answer) as server:
            told[whose] = play(whose, "llm_program.py", *server.url.rsplit(":", 1))
        bodies[whose] = [asked.body for asked in server.asked]
    assert bodies["ours"] == bodies["peer"] and len(bodies["ours"]) == 5
    assert told["ours"] == told["peer"]
