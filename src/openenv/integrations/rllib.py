"""Environments in Ray RLlib, through Gymnasium; see `openenv.integrations.gymnasium`.

register_env("blackjack", "http://localhost:8000", action_field="action")
config = PPOConfig().environment("blackjack").fault_tolerance(
    restart_failed_sub_environments=True
)
"""

from __future__ import annotations

import atexit
import contextlib
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from openenv._internal.packages import needs
from openenv.integrations.gymnasium import GymnasiumEnv, GymnasiumVectorEnv

with needs("openenv.integrations.rllib", 'pip install "ray[rllib]" gymnasium'):
    from ray import tune  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports]

if TYPE_CHECKING:
    from openenv.integrations._sources import Source

__all__ = ["register_env"]

NUM_ENVS = "num_envs"  # RLlib adds it to the configuration if it wants a vectorized environment


def register_env(name: str, source: Source, **options: Any) -> None:
    """Register an environment in RLlib, in this process and in env runners.

    With ``gym_env_vectorize_mode="vector_entry_point"`` the environments of an env runner are a
    `GymnasiumVectorEnv`, which steps them all with one message; otherwise each is a `GymnasiumEnv`.

    A step that fails, or that the environment has not scored, raises an exception. With
    ``fault_tolerance(restart_failed_sub_environments=True)`` RLlib then recreates the environments
    of that env runner and discards their episodes. Otherwise the env runner fails.

    Args:
        name: Name of the environment for ``config.environment(name)``.
        source: The environment to connect to; see `GymnasiumEnv`. Each environment has a session of
            its own, so the server needs slots for the environments of all env runners together,
            including those of ``evaluation``. A class or function must be importable in the env
            runners, because it is pickled.
        **options: Options of `GymnasiumEnv`, such as `action_space`, and of its client. RLlib's
            ``env_config`` takes precedence over them.
    """
    tune.register_env(name, _Maker(source, options))


class _Maker:
    def __init__(self, source: Source, options: Mapping[str, Any]) -> None:
        self.source = source
        self.options = dict(options)

    def __call__(self, context: Mapping[str, Any]) -> GymnasiumEnv | GymnasiumVectorEnv:
        options = {**self.options, **context}
        env: GymnasiumEnv | GymnasiumVectorEnv
        if NUM_ENVS in options:
            env = GymnasiumVectorEnv(self.source, options.pop(NUM_ENVS), **options)
        else:
            env = GymnasiumEnv(self.source, **options)
        _made.add(env)
        return env


_made: weakref.WeakSet[GymnasiumEnv | GymnasiumVectorEnv] = weakref.WeakSet()


@atexit.register  # registered after the clients' handler, so that it runs before it
def _close() -> None:
    """Close the environments that RLlib leaves to garbage collection."""
    for env in list(_made):
        with contextlib.suppress(Exception):
            env.close()
