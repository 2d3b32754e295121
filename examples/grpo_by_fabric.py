"""GRPO with a loop of Lightning Fabric; see `grpo.py`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from grpo import Game, Trained
from lightning.fabric import Fabric

from openenv import EnvPool
from openenv.integrations.lightning import GRPO, GRPOSettings

__all__ = ["train"]


def train(
    game: Game, pool: EnvPool[Any], model: Any, tokenizer: Any, seed: int, out: Path
) -> Trained:
    """Train a model in place."""
    on_gpu = torch.cuda.is_available()
    fabric = Fabric(
        accelerator="gpu" if on_gpu else "cpu",
        devices=1,
        precision="bf16-mixed" if on_gpu else "32-true",
    )
    fabric.seed_everything(seed, verbose=False)
    wrapped, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), lr=game.rate))
    settings = GRPOSettings(
        **{
            "groups": game.groups,
            "generations": game.generations,
            "max_turns": game.turns,
            "max_tokens": game.tokens,
            "reply_tokens": game.tokens,
            **game.settings,
        }
    )
    taught = {"rows": game.rows} if game.rows else {"prompt": game.prompt}
    learnt = Trained([], [])
    with GRPO(
        fabric,
        wrapped,
        optimizer,
        tokenizer,
        pool,
        settings,
        told="text",
        seed=seed,
        shows=game.shows,
        **taught,
    ) as grpo:
        for step in grpo.steps(game.steps):
            learnt.rewards.append(float("nan") if step.reward is None else step.reward)
            learnt.costs.append(step.cost)
            if step.number % 10 == 0:
                sys.stderr.write(f"{step}\n")
    return learnt
