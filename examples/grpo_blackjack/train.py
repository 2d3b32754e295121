"""GRPO for blackjack: a language model learns to play.

    python examples/grpo_blackjack/train.py --seeds 0 1 2

By default the program makes a tiny model and trains it on a CPU within minutes. `--model FOLDER`
trains a real model on a GPU. See README.md.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from grpo import Game, Player, main
from optimum import optimum

PROMPT = 'Play this hand of blackjack. Say {"action": "hit"} or {"action": "stand"}.'


def player(chance: random.Random) -> Player:
    """Make a player that repeats the observation, and moves at random."""

    def reply(seen: str) -> str:
        hand = json.loads(seen)
        move = chance.choice(hand["legal_actions"])
        said = f"I have {hand['player_total']}, the dealer shows {hand['dealer_value']}"
        return f"{said}: {json.dumps({'action': move})}"

    return reply


GAME = Game("blackjack", "blackjack_env", PROMPT, player, steps=120)

BASELINES = {"best play": optimum()}

if __name__ == "__main__":
    main(GAME, BASELINES)
