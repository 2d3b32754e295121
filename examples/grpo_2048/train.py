"""GRPO for 2048: a language model learns to score many points in the first six moves.

    python examples/grpo_2048/train.py --seeds 0

By default the program makes a tiny model and trains it on a CPU within minutes. `--model FOLDER`
trains a real model on a GPU. The tiny model first sees games of three plans, and has to learn which
plan is good.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args

from game_2048_env.models import Game2048Action, Move
from game_2048_env.server.game_2048_environment import Game2048Environment

sys.path.insert(0, str(Path(__file__).parents[1]))

from grpo import Game, Player, main

PROMPT = 'Play 2048. Say a move, such as {"move": "left"}, again and again.'

CLOCKWISE: list[str] = list(get_args(Move))


def around(possible: list[str], last: str) -> list[str]:
    """Choose the next move clockwise."""
    at = CLOCKWISE.index(last) + 1 if last else 0
    return [one for one in CLOCKWISE[at:] + CLOCKWISE[:at] if one in possible][:1]


def rows(possible: list[str], last: str) -> list[str]:
    """Move to the left or right while that is possible, until everything is merged."""
    return [one for one in possible if one in ("left", "right")] or possible


def anyhow(possible: list[str], last: str) -> list[str]:
    """Choose any legal move."""
    return possible


Plan = Callable[[list[str], str], list[str]]
"""Returns a plan's possible moves, given the legal moves and the last move ("" at first)."""

PLANS: dict[str, Plan] = {plan.__name__: plan for plan in (around, rows, anyhow)}


def player(chance: random.Random) -> Player:
    """Make a player that follows a random plan, and names the plan and its last move."""
    plan, last = chance.choice(list(PLANS)), ""

    def reply(seen: str) -> str:
        nonlocal last
        (possible,) = re.findall(r"Possible moves: (.+)\.", seen)
        said = f"{plan} after {last or 'nothing'}"
        last = chance.choice(PLANS[plan](possible.split(", "), last))
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
    shown=300,
    steps=60,
    rate=3e-4,
    demonstrations=512,
    episodes=256,
)


def worth(plan: Plan, games: int = 2000) -> float:
    """Return the mean points of a plan over many games of the example's length."""
    chance, table, points = random.Random(0), Game2048Environment(), 0
    for seed in range(games):
        seen, last = table.reset(seed=seed), ""
        for _ in range(GAME.turns):
            last = chance.choice(plan(list(seen.legal_actions), last))
            seen = table.step(Game2048Action.model_validate({"move": last}))
        points += seen.score
    return points / games


if __name__ == "__main__":
    main(GAME, {f"always {name}": worth(plan) for name, plan in PLANS.items()})
