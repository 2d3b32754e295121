"""Train by RLlib for a moment; run by a Python that has it. Prints what came of it as JSON."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import gymnasium
import numpy as np
import ray  # type: ignore[import-not-found]
from ray.rllib.algorithms.ppo import PPOConfig  # type: ignore[import-not-found]
from ray.rllib.connectors.env_to_module import (  # type: ignore[import-not-found]
    FlattenObservations,
)
from trainers.shaky import Shaky

from openenv.integrations.rllib import register_env
from openenv.providers import ProcessProvider

HAND = gymnasium.spaces.Dict(
    {
        "player_total": gymnasium.spaces.Box(0, 31, (), np.float32),
        "dealer_value": gymnasium.spaces.Box(1, 10, (), np.float32),
    }
)


def trained(name: str, iterations: int, runners: dict[str, Any]) -> dict[str, Any]:
    config = (
        PPOConfig()
        .environment(name)
        .env_runners(**runners)
        .training(train_batch_size_per_learner=256, minibatch_size=64, num_epochs=2)
        .fault_tolerance(restart_failed_sub_environments=True)
        .debugging(seed=0, log_level="ERROR")
    )
    algorithm = config.build_algo()
    try:
        before = weights(algorithm)
        for _ in range(iterations):
            result = algorithm.train()["env_runners"]
        return {
            "steps": float(result["num_env_steps_sampled_lifetime"]),
            "failures": float(result.get("num_env_step_failures", 0)),
            "lowest": float(result["episode_return_min"]),
            "highest": float(result["episode_return_max"]),
            "moved": not np.array_equal(before, weights(algorithm)),
        }
    finally:
        algorithm.stop()


def weights(algorithm: Any) -> Any:
    state = algorithm.get_module().get_state()
    return np.concatenate([np.ravel(value) for value in state.values()])


def main() -> dict[str, Any]:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    provider = ProcessProvider("gymnasium:CartPole-v1", api_key=None)
    url = provider.start()
    try:
        provider.wait_for_ready()
        register_env("cartpole", url)
        register_env("blackjack", "blackjack_env", observation_space=HAND)
        register_env("shaky", Shaky)
        remote = {"num_env_runners": 1, "num_envs_per_env_runner": 4}
        here = {"num_env_runners": 0, "num_envs_per_env_runner": 2}
        flat = {
            "env_to_module_connector": lambda env, spaces=None, device=None: FlattenObservations()
        }
        # Else RLlib counts the rest of an episode, of which it has the beginning, as one.
        whole = {"batch_mode": "complete_episodes"}
        at_once = {"gym_env_vectorize_mode": "vector_entry_point"}
        return {
            "cartpole": trained("cartpole", 2, {**remote, **at_once}),
            "blackjack": trained("blackjack", 2, {**here, **flat}),
            "shaky": trained("shaky", 3, {**here, **flat, **whole}),
        }
    finally:
        provider.stop()
        ray.shutdown()


if __name__ == "__main__":
    outcome = main()
    sys.stdout.write("\n" + json.dumps(outcome) + "\n")
