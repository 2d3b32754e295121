"""Questions with their datasets' own answers, for `openenv validate`. Not part of images."""

from __future__ import annotations

from typing import Any

DATASETS = ("leg_counting", "chain_sum", "basic_arithmetic")
EPISODES = [{"dataset_name": name, "seed": 1, "size": 10} for name in DATASETS]
CANARIES = [{"reset": EPISODES[0], "actions": [{"answer": "all of them"}]}]


def oracle(view: Any) -> dict[str, Any]:
    """Give the dataset's own answer."""
    return {"answer": view.state["correct_answer"]}


def do_nothing(view: Any) -> dict[str, Any]:
    """Give an empty answer."""
    return {"answer": ""}
