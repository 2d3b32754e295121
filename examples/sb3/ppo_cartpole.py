"""PPO of Stable-Baselines3 on CartPole, with the environments on a server.

    python examples/sb3/ppo_cartpole.py [ADDRESS] [--steps N]

Without an address, the program starts a server. The settings are those of RL Baselines3 Zoo for
this environment.
"""

from __future__ import annotations

import argparse
import sys

import torch
from stable_baselines3 import PPO  # type: ignore[import-not-found]
from stable_baselines3.common.evaluation import (  # type: ignore[import-not-found]
    evaluate_policy,
)
from stable_baselines3.common.monitor import Monitor  # type: ignore[import-not-found]
from stable_baselines3.common.vec_env import DummyVecEnv  # type: ignore[import-not-found]

from openenv.integrations.gymnasium import GymnasiumEnv
from openenv.providers import ProcessProvider

POLES = 8


def train(address: str, steps: int, seed: int) -> None:
    """Train, and print the policy's mean return over 20 episodes before and after."""
    torch.set_num_threads(1)
    envs = DummyVecEnv([lambda: Monitor(GymnasiumEnv(address))] * POLES)
    model = PPO(
        "MlpPolicy",
        envs,
        n_steps=32,
        batch_size=256,
        gae_lambda=0.8,
        gamma=0.98,
        n_epochs=20,
        ent_coef=0.0,
        learning_rate=lambda left: 1e-3 * left,
        clip_range=lambda left: 0.2 * left,
        seed=seed,
        device="cpu",
    )
    before, spread_before = evaluate_policy(model, envs, 20)
    model.learn(steps)
    after, spread_after = evaluate_policy(model, envs, 20)
    envs.close()
    sys.stdout.write(
        f"return {before:.1f} ± {spread_before:.1f} before, "
        f"{after:.1f} ± {spread_after:.1f} after {model.num_timesteps:,} steps\n"
    )


def main() -> None:
    """Train on a given server, or on a new one."""
    parser = argparse.ArgumentParser(description="PPO of Stable-Baselines3 on CartPole.")
    parser.add_argument("address", nargs="?")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.address:
        train(given.address, given.steps, given.seed)
        return
    provider = ProcessProvider("gymnasium:CartPole-v1", api_key=None)
    try:
        address = provider.start()
        provider.wait_for_ready()
        train(address, given.steps, given.seed)
    finally:
        provider.stop()


if __name__ == "__main__":
    main()
