"""How a client's models become JSON and back, worked out once a class.

The models come from the class attributes `action_types`, `observation_type` and `state_type`,
or else from the type parameters of ``EnvClient[Action, Observation, State]``.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Union, cast

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import to_json

from openenv._generics import members, once_per_class, type_arguments
from openenv.arrays import holds_arrays
from openenv.errors import IgnoredArgumentWarning, ProtocolError
from openenv.protocol.messages import IGNORED_ARGUMENTS, INFO, TRUNCATED
from openenv.protocol.v1 import plain
from openenv.reward import REWARD_INFO, RewardSpec
from openenv.types import Observation, State, StepResult, declares_truncated

if TYPE_CHECKING:
    from openenv.client.client import EnvClient

    Client = type[EnvClient[Any, Any, Any]]

# Every caller may pass this one to every environment; the client acts on it itself.
COURTESY_ARGUMENTS = frozenset({"timeout_s"})

__all__ = [
    "action_payload",
    "complete",
    "models",
    "parse_result",
    "parse_state",
    "reward_spec",
    "shows_arrays",
    "told_what_was_not_sent",
]


class Models(NamedTuple):
    """What a client class speaks. None, or an empty tuple, where it does not say."""

    actions: tuple[type, ...]
    observation: Any
    state: Any
    observation_adapter: TypeAdapter[Any] | None
    has_metadata: bool


@once_per_class
def _models(cls: Client) -> Models:
    from openenv.client.client import EnvClient

    action, observation, state = type_arguments(cls, EnvClient) or (None, None, None)
    actions = tuple(cls.action_types) if cls.action_types else _members(action)
    observation = cls.observation_type or observation
    state = cls.state_type or state
    is_model = bool(_members(observation))
    return Models(
        actions,
        observation if is_model else None,
        state if isinstance(state, type) and issubclass(state, BaseModel) else None,
        TypeAdapter(cast(Any, observation)) if is_model else None,
        all("metadata" in getattr(m, "model_fields", ()) for m in _members(observation)),
    )


def _members(annotation: Any) -> tuple[type, ...]:
    """The models of an annotation: its own, or those of a union."""
    return tuple(m for m in members(annotation) if isinstance(m, type) and issubclass(m, BaseModel))


def models(cls: Client) -> tuple[Any, Any, Any]:
    """The action, observation and state models of a client class; None where it has none."""
    known = _models(cls)
    action = Union[known.actions] if known.actions else None  # noqa: UP007 - a runtime tuple
    return action, known.observation, known.state


def shows_arrays(cls: Client) -> bool:
    """Observations of a client's model hold arrays."""
    return any(holds_arrays(model) for model in _members(_models(cls).observation))


def action_payload(action: Any, cls: Client, *, binary: bool = False) -> dict[str, Any]:
    """Write an action as the JSON object that is sent; `binary` keeps its arrays as they are.

    Raises:
        TypeError: It is none of the client's action models, nor a mapping of fields.
    """
    write, is_model = _action_writer(type(action), cls, binary)
    fields = write(action)
    if is_model and not fields.get("metadata", True):
        del fields["metadata"]
    return fields


@once_per_class
def _action_writer(
    kind: type, cls: Client, binary: bool
) -> tuple[Callable[[Any], dict[str, Any]], bool]:
    """What writes the actions of a type, and whether these are models."""
    if issubclass(kind, Mapping):
        return dict, False
    expected = _models(cls).actions
    if expected and not issubclass(kind, expected):
        names = " or ".join(model.__name__ for model in expected)
        raise TypeError(f"{cls.__name__}.step takes {names}, not {kind.__name__}")
    if not issubclass(kind, BaseModel):
        return _attributes, False
    return (plain if binary else functools.partial(kind.model_dump, mode="json")), True


def _attributes(action: Any) -> dict[str, Any]:
    return dict(vars(action))


def parse_result(payload: dict[str, Any], cls: Client) -> StepResult[Any]:
    """Read a result, with the client's observation model where it has one.

    Raises:
        ProtocolError: The observation does not fit the model.
    """
    known = _models(cls)
    observation = payload.get("observation")
    reward, done = payload.get("reward"), bool(payload.get("done", False))
    metadata = payload.get("metadata")
    if known.observation_adapter is not None and isinstance(observation, dict):
        fields = {**observation, "reward": reward, "done": done}
        if metadata and known.has_metadata:
            fields["metadata"] = metadata
            if done and metadata.get(TRUNCATED) is True and _inherits_truncated(known.observation):
                fields[TRUNCATED] = True
        observation = _validated(known.observation_adapter, fields, cls)
    return StepResult(observation, reward, done, metadata)


@once_per_class
def _inherits_truncated(observation: Any) -> bool:
    return all(
        issubclass(member, Observation) and not declares_truncated(member)
        for member in _members(observation)
    )


def _validated(adapter: TypeAdapter[Any], fields: dict[str, Any], cls: Client) -> Any:
    try:
        return adapter.validate_python(fields)
    except ValidationError as error:
        # A strict model takes some values as JSON only (which has no form for every array).
        with contextlib.suppress(ValueError):
            return adapter.validate_json(to_json(fields))
        raise ProtocolError(
            f"the server's observation does not fit the model of {cls.__name__}; are client "
            "and server of the same version? (NaN and infinity arrive as null.) "
            f"{error}"
        ) from error


def told_what_was_not_sent(payload: dict[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Say in a payload of version 0, which carries no arguments of `step`, which were left out."""
    names = [name for name in arguments if name not in COURTESY_ARGUMENTS]
    if not names:
        return payload
    metadata = {**(payload.get("metadata") or {})}
    metadata[IGNORED_ARGUMENTS] = [*metadata.get(IGNORED_ARGUMENTS, ()), *names]
    return {**payload, "metadata": metadata}


def complete(result: StepResult[Any], payload: dict[str, Any], method: str) -> StepResult[Any]:
    """Fill in what a `_parse_result` of old does not know: metadata, truncated, info, reward_info.

    One that returns anything but a `StepResult`, such as the bare observation, is left to it.
    """
    metadata = payload.get("metadata")
    if not metadata:
        return result
    ignored = metadata.get(IGNORED_ARGUMENTS, ())
    if isinstance(result, StepResult):
        if ignored or result.metadata is None:
            result.metadata = metadata
        if result.done and metadata.get(TRUNCATED) is True:  # otherwise it means something else
            result.truncated = True
        info = metadata.get(INFO)
        if result.info is None and isinstance(info, dict):
            result.info = info
        told = metadata.get(REWARD_INFO)
        if result.reward_info is None and isinstance(told, dict):
            result.reward_info = told
    for name in ignored:
        warnings.warn(
            f"{method} was given {name!r}, which the environment does not take; it was ignored",
            IgnoredArgumentWarning,
            stacklevel=2,
        )
    return result


def reward_spec(result: StepResult[Any]) -> RewardSpec | None:
    """What the first result of an episode says that rewards mean; None where it does not say."""
    info = getattr(result, "reward_info", None)  # a `_parse_result` of old gives anything
    told = info.get("spec") if info else None
    if not isinstance(told, dict):
        return None
    try:
        return RewardSpec.from_data(told)
    except ValueError as error:
        raise ProtocolError(f"the server's reward_info cannot be read: {error}") from error


def parse_state(payload: dict[str, Any], cls: Client) -> Any:
    """Read a state, with the client's state model where it has one."""
    model = _models(cls).state or State
    try:
        return model.model_validate(payload)
    except ValidationError as error:
        raise ProtocolError(
            f"the server's state does not fit the model of {cls.__name__}: {error}"
        ) from error
