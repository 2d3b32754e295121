"""Hands with one winning line of play, for `openenv validate`. Not part of images.

Standing at once loses each of them, and so does never standing. The seed determines all cards.
"""

from __future__ import annotations

from typing import Any

HITS = {1: 1, 4: 1, 6: 2, 8: 2, 12: 3}  # by seed
EPISODES = [{"seed": seed} for seed in HITS]
CANARIES = [
    {"reset": {"seed": 6}, "actions": [{"action": "stand"}]},
    {"reset": {"seed": 6}, "actions": [{"action": "hit"}] * 6},
]


def oracle(view: Any) -> dict[str, Any]:
    """Take the cards that win, and stand."""
    return {"action": "hit" if view.step < HITS[view.reset["seed"]] else "stand"}


def do_nothing(view: Any) -> dict[str, Any]:
    """Stand at once."""
    return {"action": "stand"}


LEARNING = {"iterations": 30, "groups": 16, "evaluation": 256, "entropy": 0.6}
