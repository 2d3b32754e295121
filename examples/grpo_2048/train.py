"""GRPO trains a language model to play 2048: the first six moves, for as many points.

    python examples/grpo_2048/train.py --seeds 0

On a CPU a tiny model is made and trained within minutes; with `--model FOLDER` and a GPU, a real
one is.
"""

from __future__ import annotations

import json
import random
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from grpo import Game, Player, main

PROMPT = 'Play 2048. Say a move, such as {"move": "left"}, again and again.'

VERTICAL = {"up", "down"}
KEEPS = 0.5  # the share of moves after which one goes on along the same lines anyway


def player(chance: random.Random) -> Player:
    """Says its last move, and makes one that is possible, at random; often it goes on along rows,
    or columns, where what could be merged is merged already.
    """
    last = ""

    def reply(seen: str) -> str:
        nonlocal last
        (found,) = re.findall(r"Possible moves: (.+)\.", seen)
        possible = found.split(", ")
        along = [one for one in possible if (one in VERTICAL) == (last in VERTICAL)]
        keeps = last and along and chance.random() < KEEPS
        said = f"after {last}" if last else "first"
        last = chance.choice(along if keeps else possible)
        return f"{said}: {json.dumps({'move': last})}"

    return reply


GAME = Game(
    "2048",
    "game_2048_env",
    PROMPT,
    player,
    shows=("text",),
    turns=6,
    tokens=500,
    hidden=64,
    spread=0.125,
    shown=150,
    steps=42,
    rate=3e-4,
    demonstrations=512,
    episodes=256,
)

if __name__ == "__main__":
    main(GAME)
