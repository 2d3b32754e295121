"""Blackjack for verifiers and prime-rl: the model calls the environment's tool.

uv run eval blackjack_taskset --env.taskset.num-tasks 16 -m MODEL
"""

from openenv.integrations.verifiers import OpenEnvEnv, OpenEnvTaskset

__all__ = ["Blackjack", "OpenEnvEnv"]


class Blackjack(OpenEnvTaskset):
    """Hands of blackjack, dealt by the seed; `--env.taskset.split train` has situations instead."""

    environment = "blackjack"
