"""Wrapper for environments of dm_env.

dm_env: Muldal et al. 2019, "dm_env: A Python interface for reinforcement learning environments",
http://github.com/deepmind/dm_env.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from pydantic import Field

from openenv._internal.imports import NameNotFound, look_up
from openenv._internal.lazy import lazy_module
from openenv._internal.packages import needs
from openenv.reward import RewardSpec
from openenv.wrappers.classes import (
    ActT,
    AdapterError,
    ObsT,
    WrapperEnvironment,
    assign_to_caller,
    describe,
    make_class,
    reward_metadata,
    source_name,
    to_score,
)
from openenv.wrappers.elements import Elements

with needs("openenv.wrappers.from_dm_env"):
    import dm_env  # type: ignore[import-untyped]
    from dm_env import specs
    from gymnasium import spaces

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy_module("numpy")

__all__ = ["DmEnvironment", "SeededDmEnvironment", "from_dm_env"]

Source = str | Callable[..., Any]
SEED = "seed"


class DmEnvironment(WrapperEnvironment[ActT, ObsT], Generic[ActT, ObsT]):
    """The base class of environments made by `from_dm_env`.

    An action has the field `action`, an observation the fields `observation` and `discount`. The
    last step is a termination if its discount is 0, and otherwise a truncation, which is what a
    discount means in dm_env. Rewards and discounts must be single numbers.

    dm_env has no seeds: see `SeededDmEnvironment`.
    """

    ACTIONS: ClassVar[Elements]
    OBSERVATIONS: ClassVar[Elements]

    def reset(self, episode_id: str | None = None) -> ObsT:  # type: ignore[override]
        """Begin an episode.

        Args:
            episode_id: Value of `state.episode_id`; by default a new id.
        """
        step = self._env.reset()
        self._begin(episode_id)
        return self._observe(step)

    def step(self, action: ActT) -> ObsT:  # type: ignore[override]
        self._refuse_unless_running()
        chosen = self.ACTIONS.read(action.action)  # type: ignore[attr-defined]
        step = self._env.step(chosen)
        self._step_count += 1
        if step.last():
            self._end()
        return self._observe(step)

    def _observe(self, step: dm_env.TimeStep) -> ObsT:
        score = to_score(step.reward)
        is_last = step.last()
        discount = None if step.discount is None else float(step.discount)
        seen: ObsT = self.OBSERVATION.model_construct(
            observation=self.OBSERVATIONS.write(step.observation),
            discount=discount,
            reward=score.value,
            done=is_last,
            truncated=is_last and discount != 0,
            metadata=reward_metadata(score),
        )
        return seen


class SeededDmEnvironment(DmEnvironment[ActT, ObsT], Generic[ActT, ObsT]):
    """The base class for environments of dm_env with a factory that takes a seed.

    An episode with a seed gets a new environment.
    """

    def reset(  # type: ignore[override]
        self, seed: int | None = None, episode_id: str | None = None
    ) -> ObsT:
        """Begin an episode.

        Args:
            seed: Seed for the factory, which makes a new environment; None to keep the current one.
            episode_id: Value of `state.episode_id`; by default a new id.
        """
        if seed is not None:
            made = self.MAKE(seed)
            self._env.close()
            self._env = made
        return super().reset(episode_id)


def from_dm_env(
    source: Source, /, *, seed_argument: str | None = None, **arguments: Any
) -> type[DmEnvironment[Any, Any]]:
    """Make an environment class from an environment of dm_env.

    The environment is instantiated once to read its specs, and again for every session.

    Args:
        source: ``module:factory``; or a class or function that makes an environment.
        seed_argument: The factory's argument for a seed, such as ``task_kwargs.random`` of
            ``dm_control.suite:load`` (a dot leads into a dict). By default ``seed``, if it exists.
        **arguments: Arguments of the factory.

    Raises:
        AdapterError: The factory does not exist, or does not accept the arguments.
        MissingPackage: A required package is not installed.
    """
    make = functools.partial(_make, source, arguments, _seed_argument(source, seed_argument))
    made_by = functools.partial(from_dm_env, source, seed_argument=seed_argument, **arguments)
    with contextlib.closing(make()) as env:
        name = source_name(source).rpartition(":")[2]
        return assign_to_caller(_make_class(env, name, make, made_by))  # type: ignore[no-any-return]


def _make_class(env: Any, name: str, make: Any, made_by: Callable[[], Any]) -> Any:
    for what, spec in (("reward", env.reward_spec()), ("discount", env.discount_spec())):
        if not isinstance(spec, specs.Array) or spec.shape:
            raise AdapterError(f"the {what} of {name} is no single number: {spec}")
    actions = Elements(_space(env.action_spec(), "action"), "action", title="Action")
    observations = Elements(
        _space(env.observation_spec(), "observation"), "observation", title="Seen"
    )
    has_seeds = make.args[2] is not None
    discount = Field(default=None, description="The discount of this step; null after reset.")
    return make_class(
        SeededDmEnvironment if has_seeds else DmEnvironment,
        name,
        made_by,
        action={"action": actions.field},
        observation={
            "observation": observations.field,
            "discount": (float | None, discount),
        },
        metadata=describe(env, name, "dm_env"),
        MAKE=staticmethod(make),
        ACTIONS=actions,
        OBSERVATIONS=observations,
        REWARD=RewardSpec("per_step", _reward_range(env.reward_spec())),
    )


def _reward_range(spec: Any) -> tuple[float, float] | None:
    """Return the bounds of the reward, if the spec has finite bounds."""
    if not isinstance(spec, specs.BoundedArray):
        return None
    low, high = float(spec.minimum), float(spec.maximum)
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


def _space(spec: Any, path: str) -> spaces.Space[Any]:
    """Return the space of a spec or nested specs.

    Raises:
        AdapterError: No space corresponds to a spec.
    """
    if isinstance(spec, Mapping):
        return spaces.Dict([(str(k), _space(one, f"{path}.{k}")) for k, one in spec.items()])
    if isinstance(spec, specs.DiscreteArray):
        return spaces.Discrete(spec.num_values, dtype=spec.dtype)
    if isinstance(spec, specs.StringArray) and not spec.shape:
        from openenv.spaces import AnyText

        return AnyText()
    if isinstance(spec, specs.BoundedArray):
        low, high = np.broadcast_arrays(spec.minimum, spec.maximum, np.empty(spec.shape))[:2]
        return spaces.Box(low.astype(spec.dtype), high.astype(spec.dtype), spec.shape, spec.dtype)
    if isinstance(spec, specs.Array) and spec.dtype.kind in "biuf":
        return spaces.Box(*_widest(spec.dtype), spec.shape, spec.dtype)
    if isinstance(spec, Sequence):
        return spaces.Tuple([_space(one, f"{path}[{i}]") for i, one in enumerate(spec)])
    raise AdapterError(f"{path}: there is no space for {spec!r}")


def _widest(dtype: Any) -> tuple[Any, Any]:
    if dtype.kind == "f":
        return -np.inf, np.inf
    if dtype.kind == "b":
        return False, True
    limits = np.iinfo(dtype)
    return limits.min, limits.max


def _make(
    source: Source, arguments: dict[str, Any], seed_argument: str | None, seed: int | None = None
) -> Any:
    name = source_name(source)
    if seed is not None and seed_argument is not None:
        arguments = _add_argument(arguments, seed_argument.split("."), seed)
    try:
        env = _function(source)(**arguments)
    except TypeError as error:
        raise AdapterError(f"dm_env:{name} cannot be made: {error}") from error
    if not isinstance(env, dm_env.Environment):
        raise AdapterError(
            f"{name} makes {type(env).__name__}; expected an instance of dm_env.Environment"
        )
    return env


def _add_argument(arguments: Mapping[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    """Return a copy of the arguments with a value added at a path into nested dicts."""
    first, *rest = path
    inner = _add_argument(arguments.get(first) or {}, rest, value) if rest else value
    return {**arguments, first: inner}


def _seed_argument(source: Source, given: str | None) -> str | None:
    if given is not None:
        return given
    try:
        parameters = inspect.signature(_function(source)).parameters
    except (TypeError, ValueError):
        return None
    return SEED if SEED in parameters else None


def _function(source: Source) -> Callable[..., Any]:
    if not isinstance(source, str):
        return source
    place, _, attribute = source.partition(":")
    if not attribute:
        raise AdapterError(f"dm_env:{source} names no factory; expected dm_env:module:factory")
    try:
        with needs(f"dm_env:{source}"):
            found: Callable[..., Any] = look_up(importlib.import_module(place), attribute, place)
    except NameNotFound as error:
        raise AdapterError(f"{error}{error.hint}") from error
    return found
