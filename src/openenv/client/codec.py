"""Conversion between a client's models and JSON, worked out once for each client class.

The models come from the class attributes `action_types`, `observation_type` and `state_type`,
or else from the type parameters of ``EnvClient[Action, Observation, State]``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Union, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError

from openenv._internal.generics import once_per_class, type_arguments
from openenv._internal.models import (
    ACTION_TYPE,
    ValueReader,
    like_fields,
    misread_as,
    models_in,
    named_kinds,
    reader_of,
    writer_of,
)
from openenv.arrays import holds_arrays, number_of
from openenv.errors import EncodingError, IgnoredArgumentWarning, ProtocolError
from openenv.protocol.messages import (
    ACTION_TYPES,
    IGNORED_ARGUMENTS,
    INFO,
    OBSERVATION_TYPE,
    TRUNCATED,
)
from openenv.protocol.values import WireFields, describe_unwritable, to_wire_value
from openenv.reward import REWARD_INFO, RewardSpec
from openenv.types import Observation, State, StepResult, declares_truncated

if TYPE_CHECKING:
    from openenv.client.client import EnvClient

    Client = type[EnvClient[Any, Any, Any]]

# A caller may pass these to every environment: the client handles them itself.
COURTESY_ARGUMENTS = frozenset({"timeout_s"})


class Models(NamedTuple):
    """The models of a client class. None or an empty tuple means that the class declares none."""

    actions: tuple[type, ...]
    observation: Any
    state: Any
    observation_reader: Callable[[Any], Any] | None
    readers: dict[str, Callable[[Any], Any]]
    has_metadata: bool


@once_per_class
def _models(cls: Client) -> Models:
    from openenv.client.client import EnvClient

    action, observation, state = type_arguments(cls, EnvClient) or (None, None, None)
    actions = tuple(cls.action_types) if cls.action_types else models_in(action)
    observation = cls.observation_type or observation
    state = cls.state_type or state
    is_model = bool(models_in(observation))
    return Models(
        actions,
        observation if is_model else None,
        state if isinstance(state, type) and issubclass(state, BaseModel) else None,
        ValueReader(cast(Any, observation)).read if is_model else None,
        {name: ValueReader(model).read for model, name in named_kinds(observation).items()},
        all("metadata" in getattr(m, "model_fields", ()) for m in models_in(observation)),
    )


def models(cls: Client) -> tuple[Any, Any, Any]:
    """Return the action, observation and state models of a client class; None for each missing."""
    known = _models(cls)
    action = Union[known.actions] if known.actions else None  # noqa: UP007 - a runtime tuple
    return action, known.observation, known.state


def shows_arrays(cls: Client) -> bool:
    """Return whether a client's observation model holds arrays."""
    return any(holds_arrays(model) for model in models_in(_models(cls).observation))


def action_payload(
    action: Any, cls: Client, *, binary: bool = False, capabilities: Collection[str] = ()
) -> dict[str, Any]:
    """Write an action as the JSON object that is sent.

    Args:
        action: The action.
        cls: The client class, which knows the models.
        binary: Keep arrays as arrays; otherwise write them as JSON.
        capabilities: Capabilities that the server has announced.

    Raises:
        TypeError: The action is neither one of the client's action models nor a mapping of fields.
        EncodingError: The action cannot be written, or the server would read another model.
    """
    quick, write, is_model, kind = _action_writer(type(action), cls, binary)
    fields: dict[str, Any]
    try:
        if quick is not None:
            try:
                fields = quick(action, mode="json")
            except PydanticSerializationError:
                fields = write(action)  # succeeds after all, or raises the reason
        else:
            fields = write(action)
    except (PydanticSerializationError, UnicodeError) as error:
        why = describe_unwritable(
            action, lambda name: action.model_dump_json(include={name}), error
        )
        raise EncodingError(why) from error
    if is_model and not fields.get("metadata", True):
        del fields["metadata"]
    if kind is None:
        return fields
    if ACTION_TYPES in capabilities:
        return type(fields)({ACTION_TYPE: kind, **fields})
    _check_is_told(action, fields, cls)
    return fields


def names_kinds(cls: Client) -> bool:
    """Return whether a client's actions may have to name the model; see `named_kinds`."""
    return bool(_named_kinds(cls))


@once_per_class
def _named_kinds(cls: Client) -> dict[type[BaseModel], str]:
    return named_kinds(models(cls)[0])


def _check_is_told(action: Any, fields: dict[str, Any], cls: Client) -> None:
    """Check that a server that does not learn the model of an action would pick the right one."""
    other = misread_as(models(cls)[0], action, fields)
    if other is not None:
        name = type(action).__name__
        kind = repr(name.lower())
        raise EncodingError(
            f"the server would take this {name} for a {other}, which has the same fields: it is "
            "too old to be told which is meant, or speaks protocol version 0. Give each model a "
            f"field that tells them apart, such as kind: Literal[{kind}] = {kind}"
        )


def _check_reads_as_itself(action: BaseModel, fields: dict[str, Any]) -> None:
    """Check that the server reads the models inside an action as the same models."""
    try:
        is_same = reader_of(type(action)).read(dict(fields)) == action
    except (ValidationError, ValueError):  # invalid: the server reports it; or it holds arrays
        return
    if not is_same:
        named = "; ".join(like_fields(type(action)))
        raise EncodingError(
            f"the server would read another model out of {named}: they take the same fields. Give "
            "each a field that tells them apart, such as kind: Literal['a'] = 'a'"
        )


@once_per_class
def _action_writer(
    kind: type, cls: Client, binary: bool
) -> tuple[Callable[..., Any] | None, Callable[[Any], dict[str, Any]], bool, str | None]:
    """Choose how to write the actions of a type.

    Returns:
        A compiled writer that can write most actions, or None; a writer for all actions; whether
        the actions are models; and the name that tells the model from others with the same fields.
    """
    if issubclass(kind, Mapping):
        return None, dict, False, None
    expected = _models(cls).actions
    if expected and not issubclass(kind, expected):
        names = " or ".join(model.__name__ for model in expected)
        raise TypeError(f"{cls.__name__}.step takes {names}, not {kind.__name__}")
    if not issubclass(kind, BaseModel):
        return None, lambda action: dict(vars(action)), False, None
    write = _model_writer(kind, binary)
    quick = kind.__pydantic_serializer__.to_python if write is to_wire_value else None
    return quick, write, True, _named_kinds(cls).get(kind)


def _model_writer(kind: type[BaseModel], binary: bool) -> Callable[[Any], dict[str, Any]]:
    options, change = writer_of(kind)
    is_misread = bool(like_fields(kind))
    dump: Callable[..., dict[str, Any]] = (
        (partial(to_wire_value, options=options) if options else to_wire_value)
        if binary
        else partial(kind.model_dump, mode="json", fallback=number_of, **options)
    )
    is_marked = binary and holds_arrays(kind)  # it may hold bytes too
    if change is None and not is_misread and not is_marked:
        return dump

    def write(action: Any) -> dict[str, Any]:
        fields = dump(action)
        if change is not None:
            fields = change(fields)
        if is_misread:
            _check_reads_as_itself(action, fields)
        return WireFields(fields) if is_marked else fields

    return write


def parse_result(payload: dict[str, Any], cls: Client) -> StepResult[Any]:
    """Read a result, with the client's observation model, if any.

    Raises:
        ProtocolError: The observation does not fit the model.
    """
    known = _models(cls)
    observation = payload.get("observation")
    reward, done = payload.get("reward"), bool(payload.get("done", False))
    metadata = payload.get("metadata")
    if known.observation_reader is not None and isinstance(observation, dict):
        fields = {**observation, "reward": reward, "done": done}
        if metadata and known.has_metadata:
            fields["metadata"] = metadata
            if done and metadata.get(TRUNCATED) is True and _inherits_truncated(known.observation):
                fields[TRUNCATED] = True
        read = known.observation_reader
        if OBSERVATION_TYPE in payload:
            read = known.readers.get(payload[OBSERVATION_TYPE], read)
        try:
            observation = read(fields)
        except ValidationError as error:
            raise ProtocolError(
                f"the server's observation does not fit the model of {cls.__name__}; are client "
                "and server of the same version? (NaN and infinity arrive as null.) "
                f"{error}"
            ) from error
    return StepResult(observation, reward, done, metadata)


@once_per_class
def _inherits_truncated(observation: Any) -> bool:
    return all(
        issubclass(member, Observation) and not declares_truncated(member)
        for member in models_in(observation)
    )


def told_what_was_not_sent(payload: dict[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Note the arguments of `step` that version 0 could not carry in the result's metadata."""
    names = [name for name in arguments if name not in COURTESY_ARGUMENTS]
    if not names:
        return payload
    metadata = {**(payload.get("metadata") or {})}
    metadata[IGNORED_ARGUMENTS] = [*metadata.get(IGNORED_ARGUMENTS, ()), *names]
    return {**payload, "metadata": metadata}


def complete(result: StepResult[Any], payload: dict[str, Any], method: str) -> StepResult[Any]:
    """Add metadata, truncated, info and reward_info if an older `_parse_result` left them out.

    A value other than a `StepResult`, such as a bare observation, is returned unchanged.
    """
    metadata = payload.get("metadata")
    if not metadata:
        return result
    ignored = metadata.get(IGNORED_ARGUMENTS, ())
    if isinstance(result, StepResult):
        if ignored or result.metadata is None:
            result.metadata = metadata
        if result.done and metadata.get(TRUNCATED) is True:  # otherwise the key means another thing
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
    """Return the meaning of rewards from the first result of an episode; None if unknown."""
    info = getattr(result, "reward_info", None)  # an older `_parse_result` may return any type
    told = info.get("spec") if info else None
    if not isinstance(told, dict):
        return None
    try:
        return RewardSpec.from_data(told)
    except ValueError as error:
        raise ProtocolError(f"the server's reward_info cannot be read: {error}") from error


def parse_state(payload: dict[str, Any], cls: Client) -> Any:
    """Read a state, with the client's state model, if any."""
    model = _models(cls).state or State
    if payload is None:
        raise ProtocolError(
            "the server's state is null: the environment's `state` returned None, where it is to "
            "return a State (is a `return` missing?)"
        )
    try:
        return reader_of(model).read(payload)
    except ValidationError as error:
        raise ProtocolError(
            f"the server's state does not fit the model of {cls.__name__}: {error}"
        ) from error
