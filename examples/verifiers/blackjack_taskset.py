"""Blackjack for verifiers and prime-rl: the model calls the environment's tool.

vf-eval blackjack_taskset --env.taskset.num-tasks 16 --no-push -m MODEL
"""

from openenv.integrations.verifiers import OpenEnvEnv, OpenEnvTaskset

__all__ = ["Blackjack", "OpenEnvEnv"]


class Blackjack(OpenEnvTaskset):
    """Hands of blackjack by seed, or the environment's tasks with `--env.taskset.split train`."""

    environment = "blackjack"
