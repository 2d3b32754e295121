"""An entry point of SkyRL that registers blackjack."""

from __future__ import annotations

import os

import hydra  # type: ignore[import-not-found]
import ray  # type: ignore[import-not-found]
from skyrl_train.entrypoints.main_base import (  # type: ignore[import-not-found]
    BasePPOExp,
    config_dir,
    validate_cfg,
)
from skyrl_train.utils import initialize_ray  # type: ignore[import-not-found]

from openenv.integrations.skyrl import register

ADDRESS = os.environ.get("OPENENV_ADDRESS", "http://localhost:8000")


@ray.remote(num_cpus=1)  # type: ignore[untyped-decorator]
def train(config: object, address: str) -> None:
    """Register the environment and train, in Ray's process."""
    register("blackjack", environment=address)
    BasePPOExp(config).run()


@hydra.main(config_path=config_dir, config_name="ppo_base_config", version_base=None)  # type: ignore[untyped-decorator]
def main(config: object) -> None:
    """Start the training on Ray with the configuration."""
    validate_cfg(config)
    initialize_ray(config)
    ray.get(train.remote(config, ADDRESS))


if __name__ == "__main__":
    main()
