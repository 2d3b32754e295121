"""Environment classes that are made while a program runs, and how other processes make them again.

A worker process gets its environments as a pickle, and pickle knows a class by the module that
defines it. One that was made is known by the call that made it, and its models as attributes of
it.
"""

from __future__ import annotations

import copyreg
import difflib
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

from openenv.environment import Environment
from openenv.errors import OpenEnvError, Refused
from openenv.reward import REWARD_INFO, Score
from openenv.types import Action, EnvironmentMetadata, Observation, State

__all__ = [
    "ActT",
    "AdapterError",
    "MadeEnvironment",
    "ObsT",
    "claimed",
    "did_you_mean",
    "made_class",
    "preset",
    "score_of",
    "told_of",
]

ActT = TypeVar("ActT", bound=Action)
ObsT = TypeVar("ObsT", bound=Observation)


class AdapterError(OpenEnvError, ValueError):
    """What was named cannot be made an environment of; the text says why."""


class Made(ABCMeta):
    """The class of environment classes that another process makes anew."""


class MadeModel(type(BaseModel)):  # type: ignore[misc]  # Pydantic gives its metaclass no other name
    """The class of their models."""


def _reduced_class(cls: Made) -> str | tuple[Any, ...]:
    made_by = vars(cls).get("MADE_BY")
    return cls.__qualname__ if made_by is None else (made_by, ())


def _reduced_model(cls: Any) -> str | tuple[Any, ...]:
    made_for = vars(cls).get("MADE_FOR")
    return cls.__qualname__ if made_for is None else (getattr, made_for)


copyreg.pickle(Made, _reduced_class)
copyreg.pickle(MadeModel, _reduced_model)


class MadeAction(Action, metaclass=MadeModel):
    """An action whose fields are those of a foreign environment."""


class MadeObservation(Observation, metaclass=MadeModel):
    """An observation whose fields are those of a foreign environment."""


class MadeEnvironment(Environment[ActT, ObsT, State], metaclass=Made):
    """What all environments that are made have."""

    ACTION: ClassVar[Any] = Action
    OBSERVATION: ClassVar[Any] = Observation
    METADATA: ClassVar[EnvironmentMetadata]
    # The argument of `reset` that takes what is no other argument: wrapped as an environment of
    # Gymnasium again, its options come one by one.
    RESET_REST: ClassVar[str | None] = None

    def __init__(self) -> None:
        super().__init__()
        self._why_not: str | None = "step() was called before reset(): there is no episode"
        self._episode_id: str | None = None
        self._step_count = 0

    def _begin(self, episode_id: str | None) -> None:
        """Note that an episode has begun."""
        self._why_not = None
        self._episode_id = episode_id or uuid.uuid4().hex
        self._step_count = 0

    def _end(self) -> None:
        """Note that the episode is over."""
        self._why_not = "step() was called after done: the episode is over, call reset()"

    def _refuse_unless_running(self) -> None:
        if self._why_not is not None:
            raise Refused(self._why_not)

    @property
    def state(self) -> State:
        return State(episode_id=self._episode_id, step_count=self._step_count)

    def get_metadata(self) -> EnvironmentMetadata:
        return self.METADATA


def made_class(
    base: Any,
    name: str,
    made_by: Callable[[], Any],
    *,
    action: Mapping[str, Any],
    observation: Mapping[str, Any],
    metadata: EnvironmentMetadata,
    **attributes: Any,
) -> Any:
    """Make a subclass of `base` that speaks models of its own.

    Args:
        base: A subclass of `MadeEnvironment`, generic in the models of action and observation.
        name: The name of what it adapts.
        made_by: What makes the same class in another process; it can be pickled.
        action: The fields of its action, as `pydantic.create_model` takes them.
        observation: Those of its observation.
        metadata: How it describes itself.
        **attributes: Of the class.
    """
    stem = class_name(name)
    action_cls: Any = create_model(f"{stem}Action", __base__=MadeAction, **dict(action))
    observation_cls: Any = create_model(
        f"{stem}Observation", __base__=MadeObservation, **dict(observation)
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


def preset(
    cls: type[Environment[Any, Any, Any]],
    name: str,
    made_by: Callable[[], Any],
    arguments: Mapping[str, Any],
    **attributes: Any,
) -> Any:
    """Make a subclass whose constructor passes `arguments`, and takes none.

    Args:
        cls: The class.
        name: The name of what it is made for.
        made_by: What makes the same class in another process; it can be pickled.
        arguments: For the constructor.
        **attributes: Of the class.

    Raises:
        AdapterError: The class takes no such arguments.
    """
    passed = dict(arguments)
    try:
        inspect.signature(cls).bind(**passed)
    except TypeError as error:
        known = list(inspect.signature(cls).parameters)
        wrong = next((one for one in passed if one not in known), "")
        raise AdapterError(
            f"{cls.__name__} takes no such arguments: {error}{did_you_mean(wrong, known)}"
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
    return types.new_class(class_name(name), (cls,), keywords, lambda space: space.update(members))


@functools.cache
def _metaclass_below(metaclass: type) -> type:
    if issubclass(Made, metaclass):
        return Made
    joined = type(f"Made{metaclass.__name__}", (Made, metaclass), {})
    copyreg.pickle(joined, _reduced_class)
    return joined


def score_of(reward: Any) -> Score:
    """A foreign reward; unscored where it is no finite number."""
    if reward is None:
        return Score()
    number = float(reward)
    if math.isfinite(number):
        return Score(number)
    return Score(unscored=f"the environment's reward was {number}")


def told_of(score: Score) -> dict[str, Any]:
    """What the metadata of an observation say of its reward."""
    info = score.as_info()
    return {REWARD_INFO: info} if info else {}


def class_name(name: str) -> str:
    """The name of a class, made of the name of anything: ``CartPole_v1`` of ``CartPole-v1``."""
    stem = re.sub(r"\W+", "_", name).strip("_")
    return stem if stem.isidentifier() else f"_{stem}"


def claimed(made: Any, depth: int = 2) -> Any:
    """Have a class that a public function made belong to the module that called the function.

    `openenv serve FILE` then finds it there, as if it were defined in it.

    Args:
        made: The class.
        depth: How many calls away that module is.
    """
    made.__module__ = sys._getframe(depth).f_globals.get("__name__", made.__module__)
    return made


def did_you_mean(wrong: str, known: list[str]) -> str:
    """The end of a sentence about a name that is none: the nearest that is one, or some of them."""
    close = difflib.get_close_matches(wrong, known, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    shown = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
    return f"; known are {shown}" if known else ""
