"""GRPO trains a language model to play 2048: the first moves of a game, for as many points.

    python examples/grpo_2048/train.py --seeds 0

On a CPU a tiny model is made and trained within minutes; with `--model FOLDER` and a GPU, a real
one is.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from grpo import Game, main

PROMPT = 'Play 2048. Say a move, such as {"move": "left"}, again and again.'


def merged(lines: list[list[int]]) -> int:
    """Points of a move along lines."""
    points = 0
    for line in lines:
        tiles = [tile for tile in line if tile]
        at = 0
        while at + 1 < len(tiles):
            is_pair = tiles[at] == tiles[at + 1]
            points += 2 * tiles[at] if is_pair else 0
            at += 2 if is_pair else 1
    return points


def shown_reply(seen: str, chance: random.Random) -> str:
    """Says which points there are in rows and in columns, and moves at random."""
    game = json.loads(seen)
    columns = merged([list(one) for one in zip(*game["board"], strict=True)])
    move = json.dumps({"move": chance.choice(game["legal_actions"])})
    return f"rows {merged(game['board'])}, columns {columns}: {move}"


GAME = Game(
    "2048",
    "game_2048_env",
    PROMPT,
    shown_reply,
    turns=4,
    tokens=1000,
    groups=4,
    demonstrations=512,
    shown=300,
    episodes=256,
)

if __name__ == "__main__":
    main(GAME)
