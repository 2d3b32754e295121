"""Wrapper for environments of Gymnasium.

Gymnasium: Towers et al. 2024, "Gymnasium: A Standard Interface for Reinforcement Learning
Environments", arXiv:2407.17032.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, ClassVar, Generic

from openenv._internal.packages import MissingPackage, needs
from openenv.wrappers.classes import (
    ActT,
    AdapterError,
    ObsT,
    assign_to_caller,
    describe,
    make_class,
    reward_metadata,
    source_name,
    to_score,
)
from openenv.wrappers.elements import Elements, SpacesEnvironment, to_json_part

with needs("openenv.wrappers.from_gymnasium"):
    import gymnasium
    from gymnasium import error as errors

__all__ = ["GymnasiumEnvironment", "from_gymnasium"]

Source = str | Callable[..., "gymnasium.Env[Any, Any]"]

# Gymnasium's own environments that take microseconds per step and keep no thread-bound state,
# unless they render.
QUICK = ("gymnasium.envs.classic_control", "gymnasium.envs.toy_text")


class GymnasiumEnvironment(SpacesEnvironment[ActT, ObsT], Generic[ActT, ObsT]):
    """The base class of environments made by `from_gymnasium`.

    An action has the field `action`, and an observation the field `observation`, with every space:
    the keys of a `Dict` stay within that field, since they may be any text, including ``done``.
    `info` becomes the `metadata`, as far as JSON can express it. A step that Gymnasium reports as
    both terminated and truncated is terminated.

    Without a seed an episode continues the random generator of the previous one, as in Gymnasium.
    """

    ACTIONS: ClassVar[Elements]
    OBSERVATIONS: ClassVar[Elements]

    def _observe_reset(self, begun: Any) -> ObsT:
        return self._observe(*begun)

    def step(  # type: ignore[override]
        self, action: ActT
    ) -> ObsT:
        self._refuse_unless_running()
        chosen = self.ACTIONS.read(action.action)  # type: ignore[attr-defined]
        element, reward, terminated, truncated, info = self._env.step(chosen)
        self._step_count += 1
        if terminated or truncated:
            self._end()
        return self._observe(element, info, reward, bool(terminated), bool(truncated))

    def _observe(
        self,
        element: Any,
        info: Any,
        reward: Any = None,
        terminated: bool = False,
        truncated: bool = False,
    ) -> ObsT:
        score = to_score(reward)
        metadata = {**(to_json_part(info) if info else {}), **reward_metadata(score)}
        # The fields have been checked; validation by Pydantic would only take time.
        seen: ObsT = self.OBSERVATION.model_construct(
            observation=self.OBSERVATIONS.write(element),
            reward=score.value,
            done=terminated or truncated,
            truncated=truncated and not terminated,
            metadata=metadata,
        )
        return seen


def from_gymnasium(source: Source, /, **arguments: Any) -> type[GymnasiumEnvironment[Any, Any]]:
    """Make an environment class from an environment of Gymnasium.

    The environment is instantiated once to read its spaces, and again for every session.

    Args:
        source: An id, as accepted by `gymnasium.make` (``my_module:MyEnv-v0`` imports the module
            first); or a subclass of `gymnasium.Env`, or a function that makes an instance.
        **arguments: Arguments of `gymnasium.make`, or of that class or function.

    Raises:
        AdapterError: The environment does not exist, or does not accept the arguments.
        MissingPackage: A required package is not installed.
    """
    make = functools.partial(_make, source, arguments)
    made_by = functools.partial(from_gymnasium, source, **arguments)
    with contextlib.closing(make()) as env:
        name = source_name(source).rpartition(":")[2]
        return assign_to_caller(_make_class(env, name, make, made_by))  # type: ignore[no-any-return]


def _make_class(
    env: gymnasium.Env[Any, Any], name: str, make: Callable[[], Any], made_by: Callable[[], Any]
) -> Any:
    names = _action_names(env)
    actions = Elements(env.action_space, "action", names=names, title="Action")
    observations = Elements(env.observation_space, "observation", title="Seen")
    version = None if env.spec is None or env.spec.version is None else str(env.spec.version)
    is_quick = type(env.unwrapped).__module__.startswith(QUICK) and env.render_mode is None
    return make_class(
        GymnasiumEnvironment,
        name,
        made_by,
        action={"action": actions.field},
        observation={"observation": observations.field},
        metadata=describe(env.unwrapped, name, "Gymnasium", version),
        MAKE=staticmethod(make),
        ACTIONS=actions,
        OBSERVATIONS=observations,
        SUPPORTS_ANY_THREAD=is_quick,
        NEVER_BLOCKS=is_quick,
    )


def _make(source: Source, arguments: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    name = source_name(source).rpartition(":")[2]
    try:
        env = (
            gymnasium.make(source, **arguments) if isinstance(source, str) else source(**arguments)
        )
    except errors.DependencyNotInstalled as error:
        raise MissingPackage(f"gymnasium:{name}: {error}") from error
    except errors.UnregisteredEnv as error:
        is_foreign = isinstance(error, errors.NamespaceNotFound)
        hint = " Name the module that registers it: gymnasium:MODULE:NAME" if is_foreign else ""
        raise AdapterError(f"gymnasium:{name}: {error}{hint}") from error
    except (errors.Error, TypeError) as error:
        raise AdapterError(f"gymnasium:{name} cannot be made: {error}") from error
    except ModuleNotFoundError as error:
        if error.name is not None:
            raise
        raise AdapterError(f"gymnasium:{name}: {error}") from error  # a message of Gymnasium's own
    if not isinstance(env, gymnasium.Env):
        raise AdapterError(
            f"{name} makes {type(env).__name__}; expected an instance of gymnasium.Env"
        )
    return env


def _action_names(env: gymnasium.Env[Any, Any]) -> list[str] | None:
    """Return the names of the actions, for environments with ALE's `get_action_meanings`."""
    space, tell = env.action_space, getattr(env.unwrapped, "get_action_meanings", None)
    if tell is None or not isinstance(space, gymnasium.spaces.Discrete):
        return None
    names = [str(name) for name in tell()]
    return names if len(names) == int(space.n) else None
