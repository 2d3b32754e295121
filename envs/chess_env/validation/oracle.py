"""Mates in one move and in two, for `openenv validate`. It goes into no image."""

from __future__ import annotations

from typing import Any

MATES = {  # by task; the defence always plays the same
    "mate_in_1-000": ["f5d4"],
    "mate_in_1-001": ["e1f2"],
    "mate_in_2-000": ["g4c8", "d4c6"],
    "mate_in_2-001": ["b2d4", "d1g1"],
}
EPISODES = [{"task": task} for task in MATES]
CANARIES = [{"reset": {"task": "mate_in_1-000"}, "actions": [{"move": "not a move"}] * 3}]


def oracle(view: Any) -> dict[str, Any]:
    """Mate."""
    return {"move": MATES[view.reset["task"]][view.step]}


def do_nothing(view: Any) -> dict[str, Any]:
    """Make a move that does not mate in time."""
    solution = MATES[view.reset["task"]]
    return {"move": next(one for one in view.observation["legal_moves"] if one not in solution)}


LEARNING = {
    "tasks": [f"mate_in_1-{number:03d}" for number in range(4)],
    "iterations": 16,
    "evaluation": 64,
    "entropy": 0.2,
}
