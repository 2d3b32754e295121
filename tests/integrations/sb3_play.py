"""Run by the Python of a virtual environment with Stable-Baselines3; see `test_sb3.py`."""

from __future__ import annotations

import json
import sys
import warnings

import torch  # it is in an environment of its own
from stable_baselines3 import PPO  # type: ignore[import-not-found]
from stable_baselines3.common.env_checker import check_env  # type: ignore[import-not-found]
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor  # type: ignore[import-not-found]

from openenv.integrations.gymnasium import GymnasiumEnv


def main(source: str) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    env = GymnasiumEnv(source)
    check_env(env)
    env.close()
    training = VecMonitor(DummyVecEnv([lambda: GymnasiumEnv(source)] * 2))
    model = PPO("MlpPolicy", training, n_steps=128, batch_size=64, n_epochs=4, seed=0, device="cpu")
    before = [parameter.detach().clone() for parameter in model.policy.parameters()]
    model.learn(512)
    after = model.policy.parameters()
    returns = [episode["r"] for episode in model.ep_info_buffer or ()]
    moved = any(not torch.equal(b, a) for b, a in zip(before, after, strict=True))
    said = {"steps": model.num_timesteps, "moved": moved, "episodes": len(returns)}
    training.close()
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    main(sys.argv[1])
