"""GRPO for coding: a language model learns to write functions that pass hidden tests.

    python examples/grpo_coding/train.py --seeds 0

This program makes the tasks, such as "Write f(x), which gives x plus 7". The coding environment
runs each answer in a sandbox against hidden tests. The reward is the share of tests that pass. The
evaluation uses pairs of word and number that are never trained on.
"""

from __future__ import annotations

import json
import random
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from grpo import Game, Player, main, messages

OPERATORS = {"plus": "+", "minus": "-", "times": "*"}
TESTED_WITH = (-3, 0, 1, 5)


def tasks() -> list[dict[str, Any]]:
    """Make all tasks, and hold out every fifth pair of word and number."""
    return [
        {
            "id": f"{word}-{number}",
            "prompt": f"Write f(x), which gives x {word} {number}.",
            "split": "test" if (number + place) % 5 == 0 else "train",
            "tests": [
                {"call": f"f({x})", "expected": eval(f"{x} {operator} {number}")}
                for x in TESTED_WITH
            ],
        }
        for place, (word, operator) in enumerate(OPERATORS.items())
        for number in range(2, 32)
    ]


def rows(split: str) -> list[dict[str, Any]]:
    """Make rows with the prompts and the ids of tasks."""
    return [
        {"prompt": messages(one["prompt"]), "task": one["id"]}
        for one in tasks()
        if one["split"] == split
    ]


def player(chance: random.Random) -> Player:
    """Make a player that writes the task as a comment, and a function that is right half the
    time."""

    def reply(seen: str) -> str:
        word, number = re.findall(r"x (\w+) (\d+)", seen)[0]
        right = OPERATORS[word]
        wrong = [one for one in OPERATORS.values() if one != right]
        operator = right if chance.random() < 0.5 else chance.choice(wrong)
        code = f"# x {word} {number}\ndef f(x): return x {operator} {number}"
        return json.dumps({"code": code, "submit": True})

    return reply


def game(folder: Path) -> Game:
    """Make the game, and write its tasks to a folder for the server."""
    path = folder / "tasks.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in tasks()))
    return Game(
        "coding",
        "coding_env",
        "",
        player,
        variables={"CODING_TASKS": str(path)},
        rows=rows("train"),
        held_out=rows("test"),
        demonstrations=512,
        shown=600,
        rate=5e-4,
        turns=1,
        groups=4,
        steps=80,
        episodes=144,
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(game(Path(folder)))
