"""Environments of Gymnasium as environments of this package.

Gymnasium: Towers et al. 2024, "Gymnasium: A Standard Interface for Reinforcement Learning
Environments", arXiv:2407.17032.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ClassVar, Generic

from pydantic import Field

from openenv._internal.packages import MissingPackage, needs
from openenv.errors import Refused
from openenv.reward import RewardSpec
from openenv.types import EnvironmentMetadata
from openenv.wrappers.elements import Elements, drawn_by, json_part
from openenv.wrappers.made import (
    ActT,
    AdapterError,
    MadeEnvironment,
    ObsT,
    claimed,
    made_class,
    score_of,
    told_of,
)

with needs("openenv.wrappers.from_gymnasium"):
    import gymnasium
    from gymnasium import error as errors

__all__ = ["GymnasiumEnvironment", "from_gymnasium"]

Source = str | Callable[..., "gymnasium.Env[Any, Any]"]

# Gymnasium's own that compute for microseconds and keep nothing that belongs to a thread, unless
# they draw.
QUICK = ("gymnasium.envs.classic_control", "gymnasium.envs.toy_text")


class GymnasiumEnvironment(MadeEnvironment[ActT, ObsT], Generic[ActT, ObsT]):
    """An environment of Gymnasium; `from_gymnasium` makes subclasses.

    An action has the field `action`, an observation the field `observation`, whatever the spaces
    are: the keys of a `Dict` stay within that field, since they may be any text, and `done` as
    well. `info` is the `metadata`, as far as JSON can carry it. A step that Gymnasium calls
    terminated and truncated at once is terminated.

    Without a seed an episode goes on with the generator of the one before it, as in Gymnasium.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True
    REWARD = RewardSpec("per_step")
    MAKE: ClassVar[Any]
    ACTIONS: ClassVar[Elements]
    OBSERVATIONS: ClassVar[Elements]
    RESET_REST = "options"

    def __init__(self) -> None:
        super().__init__()
        self._env: gymnasium.Env[Any, Any] = self.MAKE()

    def reset(  # type: ignore[override]
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        options: dict[str, Any] | None = None,
    ) -> ObsT:
        """Begin an episode.

        Args:
            seed: Not negative.
            episode_id: Becomes `state.episode_id`; None makes one up.
            options: Those of Gymnasium's `reset`; which there are depends on the environment. They
                may also be given by themselves: ``reset(low=0.1)``.
        """
        if seed is not None and seed < 0:
            raise Refused(f"seed is {seed}; Gymnasium takes those from 0")
        element, info = self._env.reset(seed=seed, options=options)
        self._begin(episode_id)
        return self._seen(element, info)

    def step(  # type: ignore[override]
        self, action: ActT
    ) -> ObsT:
        self._refuse_unless_running()
        chosen = self.ACTIONS.read(action.action)  # type: ignore[attr-defined]
        element, reward, terminated, truncated, info = self._env.step(chosen)
        self._step_count += 1
        if terminated or truncated:
            self._end()
        return self._seen(element, info, reward, bool(terminated), bool(truncated))

    def _seen(
        self,
        element: Any,
        info: Any,
        reward: Any = None,
        terminated: bool = False,
        truncated: bool = False,
    ) -> ObsT:
        score = score_of(reward)
        metadata = {**(json_part(info) if info else {}), **told_of(score)}
        # What it holds has been checked, and Pydantic would take its time over it.
        seen: ObsT = self.OBSERVATION.model_construct(
            observation=self.OBSERVATIONS.write(element),
            reward=score.value,
            done=terminated or truncated,
            truncated=truncated and not terminated,
            metadata=metadata,
        )
        return seen

    def render(self) -> Any:
        """Draw the episode: an array of shape (height, width, 3), or text.

        Raises:
            NotSupported: It was made without a render mode, or with one that draws elsewhere.
            Refused: There is no episode yet.
        """
        return drawn_by(self._env, self._episode_id is not None)

    def close(self) -> None:
        self._env.close()


def from_gymnasium(source: Source, /, **arguments: Any) -> type[GymnasiumEnvironment[Any, Any]]:
    """Make an environment class of an environment of Gymnasium.

    It is made once, for its spaces, and again for every session.

    Args:
        source: An id, as `gymnasium.make` takes it (``my_module:MyEnv-v0`` imports the module
            first); or a subclass of `gymnasium.Env`, or a function that makes one.
        **arguments: For `gymnasium.make`, or for that function.

    Raises:
        AdapterError: There is no such environment, or it takes no such arguments.
        MissingPackage: What it needs is not installed.
    """
    make = functools.partial(_made, source, arguments)
    env = make()
    try:
        return claimed(_class_of(env, _name_of(source), make, source, arguments))  # type: ignore[no-any-return]
    finally:
        env.close()


def _class_of(
    env: gymnasium.Env[Any, Any],
    name: str,
    make: Callable[[], Any],
    source: Source,
    arguments: dict[str, Any],
) -> Any:
    names = _action_names(env)
    actions = Elements(env.action_space, "action", names=names, title="Action")
    observations = Elements(env.observation_space, "observation", title="Seen")
    described = inspect.cleandoc(type(env.unwrapped).__doc__ or "")
    is_quick = _is_quick(env)
    return made_class(
        GymnasiumEnvironment,
        name,
        functools.partial(from_gymnasium, source, **arguments),
        action={
            "action": (
                actions.annotation,
                Field(description=_description("An element", env.action_space, names)),
            )
        },
        observation={
            "observation": (
                observations.annotation,
                Field(description=_description("An element", env.observation_space)),
            )
        },
        metadata=EnvironmentMetadata(
            name=name,
            description=_first_paragraph(described) or f"{name}, an environment of Gymnasium",
            readme_content=described or None,
            version=str(env.spec.version) if env.spec and env.spec.version is not None else None,
        ),
        MAKE=staticmethod(make),
        ACTIONS=actions,
        OBSERVATIONS=observations,
        SUPPORTS_ANY_THREAD=is_quick,
        NEVER_BLOCKS=is_quick,
    )


def _made(source: Source, arguments: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    name = _name_of(source)
    try:
        env = (
            gymnasium.make(source, **arguments) if isinstance(source, str) else source(**arguments)
        )
    except errors.DependencyNotInstalled as error:
        raise MissingPackage(f"gymnasium:{name}: {error}") from error
    except errors.UnregisteredEnv as error:
        raise AdapterError(f"gymnasium:{name}: {error}{_unknown_hint(error)}") from error
    except (errors.Error, TypeError) as error:
        raise AdapterError(f"gymnasium:{name} cannot be made: {error}") from error
    except ModuleNotFoundError as error:
        if error.name is not None:
            raise
        raise AdapterError(f"gymnasium:{name}: {error}") from error  # in Gymnasium's own words
    if not isinstance(env, gymnasium.Env):
        raise AdapterError(
            f"{name} makes {type(env).__name__}; expected an instance of gymnasium.Env"
        )
    return env


def _name_of(source: Source) -> str:
    if isinstance(source, str):
        return source.rpartition(":")[2]
    return getattr(source, "__name__", type(source).__name__)


def _unknown_hint(error: Exception) -> str:
    """What Gymnasium does not say by itself: which package registers a namespace."""
    if not isinstance(error, errors.NamespaceNotFound):
        return ""
    return " Name the module that registers it: gymnasium:MODULE:NAME"


def _is_quick(env: gymnasium.Env[Any, Any]) -> bool:
    return type(env.unwrapped).__module__.startswith(QUICK) and env.render_mode is None


def _action_names(env: gymnasium.Env[Any, Any]) -> list[str] | None:
    """What the actions are called, where the environment tells (that is ALE's method)."""
    space, tell = env.action_space, getattr(env.unwrapped, "get_action_meanings", None)
    if tell is None or not isinstance(space, gymnasium.spaces.Discrete):
        return None
    names = [str(name) for name in tell()]
    return names if len(names) == int(space.n) else None


def _first_paragraph(text: str) -> str:
    paragraphs = (one.strip() for one in text.split("\n\n"))
    return next((one for one in paragraphs if one and not one.startswith("#")), "")


def _description(what: str, space: Any, names: list[str] | None = None) -> str:
    if names is None:
        return f"{what} of {space}."
    listed = ", ".join(f"{number} {name}" for number, name in enumerate(names, int(space.start)))
    return f"{what} of {space}: {listed}."
