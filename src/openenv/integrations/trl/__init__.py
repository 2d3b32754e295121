"""GRPO on any environment with TRL (https://huggingface.co/docs/trl).

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

Importing this package does not import TRL, which is imported where it is first needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.integrations.trl.costs import EnvironmentCost as EnvironmentCost
    from openenv.integrations.trl.datasets import task_dataset as task_dataset
    from openenv.integrations.trl.datasets import task_rows as task_rows
    from openenv.integrations.trl.environments import RolloutEnvironment as RolloutEnvironment
    from openenv.integrations.trl.environments import ToolRefused as ToolRefused
    from openenv.integrations.trl.environments import environment_factory as environment_factory
    from openenv.integrations.trl.rewards import TrainingRefused as TrainingRefused
    from openenv.integrations.trl.rewards import env_reward as env_reward
    from openenv.integrations.trl.rewards import skip_failures as skip_failures
    from openenv.integrations.trl.rollout_funcs import rollout_func as rollout_func
    from openenv.rollouts.beginnings import UnequalBeginnings as UnequalBeginnings
    from openenv.rollouts.failures import EnvironmentsFailing as EnvironmentsFailing
else:
    __getattr__, __dir__, __all__ = lazy(__name__)
