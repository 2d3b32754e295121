"""Solutions of mates in one and two moves, for `openenv validate`. Not part of images."""

from __future__ import annotations

from typing import Any

MATES = {  # by task; the defense always plays the same moves
    "mate_in_1-000": ["f5d4"],
    "mate_in_1-001": ["e1f2"],
    "mate_in_2-000": ["g4c8", "d4c6"],
    "mate_in_2-001": ["b2d4", "d1g1"],
}
EPISODES = [{"task": task} for task in MATES]
CANARIES = [{"reset": {"task": "mate_in_1-000"}, "actions": [{"move": "not a move"}] * 3}]


def oracle(view: Any) -> dict[str, Any]:
    """Make the next move of the solution."""
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
