"""The right word for every sign, which the state knows."""

from __future__ import annotations

from typing import Any

EPISODES = [{"task": "test-0", "seed": 5}]

WORDS = ("halt", "drive", "brake", "turn")  # as each is right as often, none is better than others


def oracle(view: Any) -> dict[str, str] | None:
    """Say the right word."""
    return {"say": view.state["word"]} if view.state.get("word") else None


def secrets(view: Any) -> list[str]:
    """What the sign must not say."""
    return [view.state["word"]] if view.state.get("word") else []


def candidates(view: Any) -> list[dict[str, str]]:
    """What a learner may try."""
    return [{"say": word} for word in WORDS]


LEARNING = {"iterations": 8, "groups": 4, "seeds": 4, "evaluation": 48}
