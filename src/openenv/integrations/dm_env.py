"""Environments as `dm_env.Environment`.

dm_env: Muldal et al. 2019, "dm_env: A Python interface for reinforcement learning environments",
http://github.com/deepmind/dm_env.

    env = DmEnv("http://localhost:8000", seed=0)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import Unpack

from openenv._internal.packages import needs
from openenv.integrations.gymnasium import GymnasiumEnv, GymnasiumOptions
from openenv.spaces import Choice

with needs("openenv.integrations.dm_env"):
    import dm_env  # type: ignore[import-untyped]
    import numpy as np
    from dm_env import specs
    from gymnasium import Space, spaces

if TYPE_CHECKING:
    from openenv.integrations._sources import Source

__all__ = ["DmEnv", "spec_of"]

SEEDS = 2**31


class DmEnv(dm_env.Environment):  # type: ignore[misc]  # dm_env has no types
    """An environment as a `dm_env.Environment`.

    Actions and observations are elements of the Gymnasium spaces, except that dm_env counts a
    `Discrete` from 0. The discount of the last step is 0 after a termination, 1 after a truncation.

    As dm_env requires, a step before the first reset, or after the last step of an episode, begins
    a new episode.

    Args:
        source: The environment to connect to; see `openenv.integrations.gymnasium.GymnasiumEnv`.
        seed: Seed of the generator from which each episode's seed is drawn. Default: the
            environment chooses.
        **options: Options of `GymnasiumEnv`.

    Raises:
        ValueError: No space, or no spec, fits the models.
    """

    def __init__(
        self, source: Source, *, seed: int | None = None, **options: Unpack[GymnasiumOptions]
    ) -> None:
        self._env = GymnasiumEnv(source, **options)
        self._seeds = None if seed is None else np.random.default_rng(seed)
        self._needs_reset = True
        try:
            self._action_spec = spec_of(self._env.action_space, "action")
            self._observation_spec = spec_of(self._env.observation_space, "observation")
        except BaseException:
            self._env.close()
            raise

    def reset(self) -> dm_env.TimeStep:
        seed = None if self._seeds is None else int(self._seeds.integers(SEEDS))
        observation, _ = self._env.reset(seed=seed)
        self._needs_reset = False
        return dm_env.restart(_counted(self._env.observation_space, observation))

    def step(self, action: Any) -> dm_env.TimeStep:
        """Carry out an action; begin an episode if none is running.

        Raises:
            UnscoredStep: The step was not scored, and there is no `unscored_reward`.
            ValueError: The action does not fit the spec.
        """
        if self._needs_reset:
            return self.reset()
        space = self._env.observation_space
        element = _element(self._env.action_space, action)
        seen, reward, terminated, truncated, _ = self._env.step(element)
        observation = _counted(space, seen)
        self._needs_reset = terminated or truncated
        if terminated:
            return dm_env.termination(reward, observation)
        if truncated:
            return dm_env.truncation(reward, observation, discount=1.0)
        return dm_env.transition(reward, observation)

    def action_spec(self) -> Any:
        """Return the spec of actions."""
        return self._action_spec

    def observation_spec(self) -> Any:
        """Return the spec of observations."""
        return self._observation_spec

    def close(self) -> None:
        self._env.close()


def spec_of(space: Space[Any], name: str) -> Any:
    """Return the spec of a space, or a nest of specs.

    Args:
        space: The space.
        name: The name of the spec.

    Raises:
        ValueError: dm_env has no spec for this space.
    """
    if isinstance(space, spaces.Dict):
        return {key: spec_of(inner, key) for key, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(spec_of(inner, f"{name}_{i}") for i, inner in enumerate(space.spaces))
    if isinstance(space, spaces.Discrete):
        if isinstance(space, Choice):
            name = f"{name} ({', '.join(space.names)})"
        return specs.DiscreteArray(int(space.n), space.dtype, name)  # pyright: ignore[reportArgumentType]
    if isinstance(space, spaces.Box):
        return specs.BoundedArray(space.shape, space.dtype, space.low, space.high, name)
    if isinstance(space, spaces.MultiDiscrete):
        highest = space.start + space.nvec - 1
        return specs.BoundedArray(space.shape, space.dtype, space.start, highest, name)
    if isinstance(space, spaces.MultiBinary):
        return specs.BoundedArray(space.shape, space.dtype, 0, 1, name)
    if isinstance(space, spaces.Text):
        return specs.StringArray((), name=name)
    raise ValueError(f"{name}: dm_env has no spec for {space}")


def _counted(space: Space[Any], element: Any) -> Any:
    """Convert an element for the specs: discrete values count from 0."""
    if isinstance(space, spaces.Dict):
        return {key: _counted(inner, element[key]) for key, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_counted(inner, one) for inner, one in zip(space, element, strict=True))
    if isinstance(space, spaces.Discrete):
        return np.asarray(element - space.start, space.dtype)
    return np.asarray(element, object) if isinstance(space, spaces.Text) else element


def _element(space: Space[Any], counted: Any) -> Any:
    """Convert an element from the specs to the space; the inverse of `_counted`."""
    if isinstance(space, spaces.Dict):
        return {key: _element(inner, counted[key]) for key, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_element(inner, one) for inner, one in zip(space, counted, strict=True))
    if isinstance(space, spaces.Discrete):
        return space.dtype.type(int(counted) + int(space.start))
    return str(counted) if isinstance(space, spaces.Text) else counted
