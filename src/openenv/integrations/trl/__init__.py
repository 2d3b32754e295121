"""TRL (https://huggingface.co/docs/trl): GRPO on any environment.

    from openenv.integrations.trl import EnvironmentCost, environment_factory, task_dataset
    from trl import GRPOConfig, GRPOTrainer

    blackjack = environment_factory("blackjack")
    GRPOTrainer(
        model="Qwen/Qwen3-0.6B",
        args=GRPOConfig(...),
        train_dataset=task_dataset(1000, prompt="Play a hand of blackjack by the tool."),
        environment_factory=blackjack,
        callbacks=[EnvironmentCost(blackjack)],
    ).train()

TRL is asked for where it is needed only: nothing here imports it before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.integrations.trl.costs import EnvironmentCost
    from openenv.integrations.trl.datasets import task_dataset, task_rows
    from openenv.integrations.trl.environments import (
        EnvironmentsFailing,
        RolloutEnvironment,
        ToolRefused,
        environment_factory,
    )
    from openenv.integrations.trl.rewards import TrainingRefused, env_reward, skip_failures
    from openenv.integrations.trl.rollout_funcs import rollout_func
    from openenv.rollouts.beginnings import UnequalBeginnings

__all__ = [
    "EnvironmentCost",
    "EnvironmentsFailing",
    "RolloutEnvironment",
    "ToolRefused",
    "TrainingRefused",
    "UnequalBeginnings",
    "env_reward",
    "environment_factory",
    "rollout_func",
    "skip_failures",
    "task_dataset",
    "task_rows",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "openenv.integrations.trl.costs": ["EnvironmentCost"],
        "openenv.integrations.trl.datasets": ["task_dataset", "task_rows"],
        "openenv.integrations.trl.environments": [
            "EnvironmentsFailing",
            "RolloutEnvironment",
            "ToolRefused",
            "environment_factory",
        ],
        "openenv.integrations.trl.rewards": ["TrainingRefused", "env_reward", "skip_failures"],
        "openenv.integrations.trl.rollout_funcs": ["rollout_func"],
        "openenv.rollouts.beginnings": ["UnequalBeginnings"],
    },
)
