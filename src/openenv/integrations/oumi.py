"""Rollout functions for Oumi (0.9), which trains with TRL's GRPO.

    # rollouts.py, which a file names that OUMI_EXTRA_DEPS_FILE is the path of
    from openenv.integrations.oumi import register

    register("blackjack", environment="http://localhost:8000")

with ``rollout_function: blackjack`` and ``reward_functions: [openenv]`` in Oumi's configuration.
"""

from __future__ import annotations

import threading
from typing import Any

from openenv._internal.packages import needs
from openenv.integrations.trl.rewards import env_reward
from openenv.integrations.trl.rollout_funcs import RolloutFunc, rollout_func

with needs("openenv.integrations.oumi", "pip install oumi"):
    from oumi.core.registry import (  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports]
        REGISTRY,
        RegistryType,
    )

__all__ = ["REWARD", "register"]

REWARD = "openenv"
"""Name of the reward function, which returns the environment's reward."""


def register(name: str, environment: Any, **options: Any) -> None:
    """Register a rollout function in Oumi under a name, and the reward function `REWARD`.

    The rollout function connects to the environment when it is first called.

    Args:
        name: Name of the rollout function for ``training.grpo.rollout_function``.
        environment: The environment, as `openenv.rollout` takes it.
        **options: Options of `openenv.integrations.trl.rollout_func`.

    Raises:
        ValueError: The name is already registered.
    """
    REGISTRY.register(name, RegistryType.ROLLOUT_FUNCTION, _Rollouts(environment, options))
    if not REGISTRY.contains(REWARD, RegistryType.REWARD_FUNCTION):
        REGISTRY.register(REWARD, RegistryType.REWARD_FUNCTION, env_reward)


class _Rollouts:
    """A rollout function that connects to the environment at the first call."""

    def __init__(self, environment: Any, options: dict[str, Any]) -> None:
        self._environment = environment
        self._options = options
        self._made: RolloutFunc | None = None
        self._making = threading.Lock()

    def __call__(self, prompts: list[Any], trainer: Any, *others: Any) -> dict[str, Any]:
        """Play a rollout for each prompt. Raises the same errors as `RolloutFunc`."""
        if others:
            raise TypeError(
                f"the rollout function was called with {len(others) + 2} arguments, as an old TRL "
                "does; expected the prompts and the trainer: pip install 'trl>=1.6'"
            )
        with self._making:
            if self._made is None:
                self._made = rollout_func(self._environment, **self._options)
        return self._made(prompts, trainer)
