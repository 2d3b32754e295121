"""GRPO with TRL's GRPOTrainer; see `grpo.py`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import torch
from datasets import Dataset
from grpo import Game, Trained
from trl import GRPOConfig, GRPOTrainer

from openenv import EnvPool
from openenv.integrations.trl import EnvironmentCost, env_reward, rollout_func, task_rows

__all__ = ["train"]


def train(
    game: Game, pool: EnvPool[Any], model: Any, tokenizer: Any, seed: int, out: Path
) -> Trained:
    """Train a model in place."""
    rollouts = rollout_func(
        pool,
        rows=game.rows or None,
        max_turns=game.turns,
        told="text",
        seed=seed,
        shows=game.shows,
    )
    cost = EnvironmentCost(rollouts, every=10)
    size = game.groups * game.generations
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        args=_config(game, out, seed),
        train_dataset=Dataset.from_list(game.rows or _rows_without_seeds(size * 4, game.prompt)),
        reward_funcs=env_reward,
        rollout_func=rollouts,
        callbacks=[cost],
    )
    trainer.train()
    rollouts.close()
    logs = [one for one in trainer.state.log_history if "reward" in one]
    return Trained([one["reward"] for one in logs], cost.steps)


def _rows_without_seeds(count: int, prompt: str) -> list[dict[str, Any]]:
    """Make rows that hold only the prompt, so that each group of each step gets a new seed."""
    return [{"prompt": row["prompt"]} for row in task_rows(count, prompt=prompt)]


def _config(game: Game, out: Path, seed: int) -> GRPOConfig:
    on_gpu = torch.cuda.is_available()
    settings: dict[str, Any] = {
        "output_dir": str(out),
        "per_device_train_batch_size": game.groups * game.generations,
        "num_generations": game.generations,
        "max_completion_length": game.tokens,
        "max_steps": game.steps,
        "learning_rate": game.rate,
        "lr_scheduler_type": "constant_with_warmup",
        "warmup_steps": 5,
        "temperature": 1.0,
        "beta": 0.0,
        "max_grad_norm": 1.0,
        "logging_steps": 1,
        "report_to": [],
        "save_strategy": "no",
        "seed": seed,
        "bf16": on_gpu,
        "use_cpu": not on_gpu,
        "gradient_checkpointing": False,
        "disable_tqdm": not sys.stderr.isatty(),
    }
    return GRPOConfig(**{**settings, **game.settings})
