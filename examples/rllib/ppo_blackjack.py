"""PPO of RLlib on blackjack, with the environments on a server.

    python ppo_blackjack.py [ADDRESS] [--iterations N]

Without an address, the program starts a server.
"""

from __future__ import annotations

import argparse
import sys

import gymnasium
import numpy as np
from ray.rllib.algorithms.ppo import PPOConfig  # type: ignore[import-not-found]
from ray.rllib.connectors.env_to_module import (  # type: ignore[import-not-found]
    FlattenObservations,
)

from openenv.integrations.rllib import register_env
from openenv.providers import ProcessProvider

HAND = gymnasium.spaces.Dict(
    {
        "player_total": gymnasium.spaces.Box(0, 31, (), np.float32),
        "dealer_value": gymnasium.spaces.Box(1, 10, (), np.float32),
    }
)


def train(address: str, iterations: int) -> None:
    """Train, and print the mean reward of each iteration's hands."""
    register_env("blackjack", address, observation_space=HAND)
    config = (
        PPOConfig()
        .environment("blackjack")
        .env_runners(
            num_env_runners=1,
            num_envs_per_env_runner=16,
            gym_env_vectorize_mode="vector_entry_point",
            env_to_module_connector=lambda env, spaces=None, device=None: FlattenObservations(),
        )
        .training(train_batch_size_per_learner=1024, minibatch_size=256, num_epochs=4)
        .fault_tolerance(restart_failed_sub_environments=True)
    )
    algorithm = config.build_algo()
    for iteration in range(iterations):
        found = algorithm.train()["env_runners"]
        sys.stdout.write(f"{iteration}: {found['episode_return_mean']:.3f}\n")
    algorithm.stop()


def main() -> None:
    """Train on a given server, or on a new one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address", nargs="?")
    parser.add_argument("--iterations", type=int, default=10)
    given = parser.parse_args()
    if given.address:
        train(given.address, given.iterations)
        return
    provider = ProcessProvider("blackjack_env", api_key=None)
    try:
        address = provider.start()
        provider.wait_for_ready()
        train(address, given.iterations)
    finally:
        provider.stop()


if __name__ == "__main__":
    main()
