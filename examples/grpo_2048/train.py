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


def random_reply(seen: str, chance: random.Random) -> str:
    """Moves at random."""
    return json.dumps({"move": chance.choice(json.loads(seen)["legal_actions"])})


GAME = Game(
    "2048",
    "game_2048_env",
    PROMPT,
    random_reply,
    turns=4,
    tokens=800,
    groups=4,
    demonstrations=128,
    shown=150,
    episodes=256,
)

if __name__ == "__main__":
    main(GAME)
