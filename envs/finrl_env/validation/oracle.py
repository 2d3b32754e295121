"""Eleven days in which the price rises, for `openenv validate`. Not part of images."""

from __future__ import annotations

from typing import Any

EVERYTHING = 1000.0  # a multiple of `hmax`, more than the cash can buy
EPISODES = [{"market": "sine", "start": start, "days": 12} for start in (19, 44, 69)]
CANARIES = [
    {
        "reset": {"market": "sine", "start": 19, "days": 2},
        "actions": [{"actions": [-1.0]}, {"actions": [0.0]}],
    }
]


def oracle(view: Any) -> dict[str, Any]:
    """Buy as much as possible on the first day, and hold it."""
    return {"actions": [EVERYTHING if view.step == 0 else 0.0]}


def do_nothing(view: Any) -> dict[str, Any]:
    """Trade nothing."""
    return {"actions": [0.0]}
