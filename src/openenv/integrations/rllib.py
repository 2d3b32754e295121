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

NUM_ENVS = "num_envs"  # beside the configuration, where RLlib wants them all at once


def register_env(name: str, source: Source, **options: Any) -> None:
    """Register an environment in RLlib, in this process and in env runners.

    With ``gym_env_vectorize_mode="vector_entry_point"`` the environments of an env runner are a
    `GymnasiumVectorEnv`, which steps them all with one message; otherwise each is a `GymnasiumEnv`.

    A step that fails, or that the environment has not scored, raises and counts as no step: with
    ``fault_tolerance(restart_failed_sub_environments=True)`` RLlib makes the environments of that
    env runner anew and throws away the episodes that they were in; without, the env runner fails.

    Args:
        name: For ``config.environment(name)``.
        source: As `GymnasiumEnv` takes it. Each environment has a session of its own, so that a
            server must have as many places as all env runners together have environments, and as
            many more as `evaluation` has. What is to be pickled has to be importable there.
        **options: Of `GymnasiumEnv`, such as `action_space`, and of its client. The ``env_config``
            of RLlib comes before them.
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


@atexit.register  # after that of clients, so that it comes before it
def _close() -> None:
    """Close the environments that RLlib leaves to garbage collection."""
    for env in list(_made):
        with contextlib.suppress(Exception):
            env.close()
