"""Environment classes that are made at run time, and can be pickled.

A worker process receives environments as a pickle, and pickle stores classes by module and name. A
class made here is pickled as the call that made it, and its models as attributes of the class.
"""

from __future__ import annotations

import copyreg
import functools
import inspect
import math
import re
import sys
import types
import uuid
from abc import ABCMeta
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar, cast

from pydantic import BaseModel, create_model

from openenv._internal.quoting import did_you_mean
from openenv.environment import Environment
from openenv.errors import OpenEnvError, Refused
from openenv.reward import REWARD_INFO, RewardSpec, Score
from openenv.types import Action, EnvironmentMetadata, Observation, State

ActT = TypeVar("ActT", bound=Action)
ObsT = TypeVar("ObsT", bound=Observation)


class AdapterError(OpenEnvError, ValueError):
    """A target or object cannot be made into an environment; the message says why."""


class RuntimeClassMeta(ABCMeta):
    """The metaclass of environment classes that pickle as the call that made the class."""


class RuntimeModelMeta(type(BaseModel)):  # type: ignore[misc]  # Pydantic gives its metaclass no other name
    """The metaclass of models that belong to a class made at run time."""


def _reduce_class(cls: RuntimeClassMeta) -> str | tuple[Any, ...]:
    made_by = vars(cls).get("MADE_BY")
    return cls.__qualname__ if made_by is None else (made_by, ())


def _reduce_model(cls: Any) -> str | tuple[Any, ...]:
    made_for = vars(cls).get("MADE_FOR")
    return cls.__qualname__ if made_for is None else (getattr, made_for)


copyreg.pickle(RuntimeClassMeta, _reduce_class)
copyreg.pickle(RuntimeModelMeta, _reduce_model)


class WrapperAction(Action, metaclass=RuntimeModelMeta):
    """An action with the fields of a foreign environment."""


class WrapperObservation(Observation, metaclass=RuntimeModelMeta):
    """An observation with the fields of a foreign environment."""


class WrapperEnvironment(Environment[ActT, ObsT, State], metaclass=RuntimeClassMeta):
    """The base class of wrappers of other libraries' environments, with models made at run time."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    REWARD = RewardSpec("per_step")
    MAKE: ClassVar[Any]  # makes the wrapped environment
    ACTION: ClassVar[Any] = Action
    OBSERVATION: ClassVar[Any] = Observation
    METADATA: ClassVar[EnvironmentMetadata]
    # The argument of `reset` that collects unknown keyword arguments: through a Gymnasium client,
    # options arrive one by one.
    RESET_REST: ClassVar[str | None] = None

    def __init__(self) -> None:
        super().__init__()
        self._env: Any = self.MAKE()
        self._why_not: str | None = "step() was called before reset(): there is no episode"
        self._episode_id: str | None = None
        self._step_count = 0

    def _begin(self, episode_id: str | None) -> None:
        self._why_not = None
        self._episode_id = episode_id or uuid.uuid4().hex
        self._step_count = 0

    def _end(self) -> None:
        self._why_not = "step() was called after done: the episode is over, call reset()"

    def _refuse_unless_running(self) -> None:
        if self._why_not is not None:
            raise Refused(self._why_not)

    @property
    def state(self) -> State:
        return State(episode_id=self._episode_id, step_count=self._step_count)

    def get_metadata(self) -> EnvironmentMetadata:
        return self.METADATA

    def close(self) -> None:
        self._env.close()


def describe(env: Any, name: str, library: str, version: str | None = None) -> EnvironmentMetadata:
    """Return the metadata of a library's environment, read from the docstring of its class."""
    text = inspect.cleandoc(type(env).__doc__ or "")
    paragraphs = (one.strip() for one in text.split("\n\n"))
    first = next((one for one in paragraphs if one and not one.startswith("#")), "")
    return EnvironmentMetadata(
        name=name,
        description=first or f"{name}, an environment of {library}",
        readme_content=text or None,
        version=version,
    )


def make_class(
    base: Any,
    name: str,
    made_by: Callable[[], Any],
    *,
    action: Mapping[str, Any],
    observation: Mapping[str, Any],
    metadata: EnvironmentMetadata,
    **attributes: Any,
) -> Any:
    """Make a subclass of `base` with new action and observation models.

    Args:
        base: A subclass of `WrapperEnvironment`, generic in the models of action and observation.
        name: Name of the wrapped environment.
        made_by: Makes the same class in another process; must be picklable.
        action: The fields of the action, in the form of `pydantic.create_model`.
        observation: The fields of the observation, in the same form.
        metadata: The environment's metadata.
        **attributes: Further class attributes.
    """
    stem = to_class_name(name)
    action_cls: Any = create_model(f"{stem}Action", __base__=WrapperAction, **dict(action))
    observation_cls: Any = create_model(
        f"{stem}Observation", __base__=WrapperObservation, **dict(observation)
    )
    members = {
        "__doc__": metadata.description,
        "__module__": base.__module__,
        "MADE_BY": made_by,
        "ACTION": action_cls,
        "OBSERVATION": observation_cls,
        "METADATA": metadata,
        **attributes,
    }
    made = types.new_class(
        stem, (base[action_cls, observation_cls],), {}, lambda space: space.update(members)
    )
    for attribute, model in (("ACTION", action_cls), ("OBSERVATION", observation_cls)):
        type.__setattr__(model, "MADE_FOR", (made, attribute))
    return made


def make_preset(
    cls: type[Environment[Any, Any, Any]],
    name: str,
    made_by: Callable[[], Any],
    arguments: Mapping[str, Any],
    **attributes: Any,
) -> Any:
    """Make a subclass whose constructor takes no arguments and calls `cls` with `arguments`.

    `made_by` makes the same class in another process, and must be picklable.

    Raises:
        AdapterError: The class does not accept the arguments.
    """
    passed = dict(arguments)
    try:
        inspect.signature(cls).bind(**passed)
    except TypeError as error:
        known = list(inspect.signature(cls).parameters)
        wrong = next((one for one in passed if one not in known), "")
        raise AdapterError(
            f"{cls.__name__} takes no such arguments: {error}{suggest_name(wrong, known)}"
        ) from error

    def __init__(self: Any) -> None:
        cls.__init__(self, **passed)

    members = {
        "__doc__": cls.__doc__,
        "__module__": cls.__module__,
        "__init__": __init__,
        "MADE_BY": made_by,
        **attributes,
    }
    keywords = {"metaclass": _metaclass_below(cast(Any, type(cls)))}
    return types.new_class(
        to_class_name(name), (cls,), keywords, lambda space: space.update(members)
    )


@functools.cache
def _metaclass_below(metaclass: type) -> type:
    if issubclass(RuntimeClassMeta, metaclass):
        return RuntimeClassMeta
    joined = type(f"Made{metaclass.__name__}", (RuntimeClassMeta, metaclass), {})
    copyreg.pickle(joined, _reduce_class)
    return joined


def to_score(reward: Any) -> Score:
    """Convert a foreign reward to a `Score`; unscored for NaN and infinities."""
    if reward is None:
        return Score()
    number = float(reward)
    if math.isfinite(number):
        return Score(number)
    return Score(unscored=f"the environment's reward was {number}")


def reward_metadata(score: Score) -> dict[str, Any]:
    """Return the entry about a reward for an observation's metadata."""
    info = score.as_info()
    return {REWARD_INFO: info} if info else {}


def to_class_name(name: str) -> str:
    """Convert any name to a class name: ``CartPole-v1`` to ``CartPole_v1``."""
    stem = re.sub(r"\W+", "_", name).strip("_")
    return stem if stem.isidentifier() else f"_{stem}"


def assign_to_caller(made: Any, depth: int = 2) -> Any:
    """Set the module of a made class to the module that called the public function.

    `openenv serve FILE` then finds the class there, as if it were defined in that file.

    Args:
        made: The class.
        depth: Number of frames between this function and the caller's module.
    """
    made.__module__ = sys._getframe(depth).f_globals.get("__name__", made.__module__)
    return made


def suggest_name(wrong: str, known: list[str]) -> str:
    """Return the end of an error about an unknown name: the closest known name, or some names."""
    if hint := did_you_mean(wrong, known):
        return hint
    shown = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
    return f"; known are {shown}" if known else ""


def source_name(source: Any) -> str:
    """Return the name of a source: the text itself, or the name of a class or function."""
    if isinstance(source, str):
        return source
    return getattr(source, "__name__", type(source).__name__)
