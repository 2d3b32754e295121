"""The values that cross the boundary between an environment and a driver.

An environment takes an `Action` and returns an `Observation`, or a `StepResult` that holds one; a
`State` describes the episode. All except `StepResult` are Pydantic models, validated on both sides
of the wire.

Episode semantics follow Gymnasium (Farama Foundation, `gymnasium.Env.step`): an episode ends by
*termination* (the task itself ended: won, lost, solved) or by *truncation* (something outside the
task ended it: a step or time limit). `done` is true for either; `truncated` tells them apart.
"""

from __future__ import annotations

import builtins
import sys
from collections import ChainMap, deque
from collections.abc import Iterable, Mapping, Set
from dataclasses import Field as DataclassField
from dataclasses import dataclass, is_dataclass
from dataclasses import fields as dataclass_fields
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Protocol,
    TypeVar,
    cast,
    get_args,
    get_origin,
)

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, PrivateAttr
from pydantic_core import CoreSchema, to_jsonable_python
from typing_extensions import TypedDict

from openenv._internal.generics import once_per_class

__all__ = [
    "Action",
    "CodeExecResult",
    "EnvironmentMetadata",
    "Message",
    "ModelTokenizer",
    "Observation",
    "Private",
    "Scalar",
    "State",
    "StepResult",
    "declares_truncated",
    "is_observation",
    "private_fields",
    "private_in",
    "public_schema",
    "public_value",
    "public_view",
    "set_elapsed_time",
]

Scalar = int | float | bool

ObsT = TypeVar("ObsT")

if TYPE_CHECKING:
    derived = property
else:

    class derived(property):
        """A property that the class itself does not show.

        A subclass may then declare a model field of the same name: Pydantic looks a field's
        default up on the class and would otherwise find the property object there.
        """

        def __get__(self, instance, owner=None):
            if instance is None:
                raise AttributeError("derived attributes exist on instances only")
            # Python prefers a property to the instance's attributes; a subclass's field must win.
            fields, name = instance.__dict__, self.fget.__name__
            return fields[name] if name in fields else super().__get__(instance, owner)


def omit_example(schema: dict[str, Any]) -> None:
    """Keep the example of a docstring out of the description in a JSON schema."""
    if text := schema.get("description"):
        schema["description"] = text.partition("\n\nExample:\n    >>>")[0]


class Action(BaseModel):
    """An agent's action in a step; subclasses declare the fields.

    Unknown fields are refused, so that a misspelt one is an error and not a no-op.

    Example:
        >>> from openenv import Action
        >>> class Move(Action):
        ...     direction: str
        >>> Move(direction="north").model_dump()
        {'metadata': {}, 'direction': 'north'}
    """

    model_config = ConfigDict(
        extra="forbid",
        validate_assignment=True,
        arbitrary_types_allowed=True,
        json_schema_extra=omit_example,
    )

    metadata: dict[str, Any] = Field(
        default_factory=dict, description="Free-form annotations; never interpreted."
    )


class Observation(BaseModel):
    """An agent's observation after `reset` or `step`; subclasses declare the fields.

    `done` is true when the episode is over, for whichever reason. `truncated` is true when
    something outside the task ended it (a limit on steps or time), and implies `done`.
    `reward` is a finite number, or None where there is nothing to score.

    Example:
        >>> from openenv import Observation
        >>> class Room(Observation):
        ...     exits: list[str] = []
        >>> Room(exits=["north"], reward=1, done=True).exits
        ['north']
    """

    model_config = ConfigDict(
        extra="forbid",
        validate_assignment=True,
        arbitrary_types_allowed=True,
        json_schema_extra=omit_example,
    )

    done: bool = Field(default=False, description="The episode is over.")
    reward: bool | int | float | None = Field(
        default=None, description="Reward of this step; null where there is none."
    )
    metadata: dict[str, Any] = Field(
        default_factory=dict, description="Free-form annotations, sent along as they are."
    )
    truncated: bool = Field(
        default=False, description="The episode was cut off by a limit outside the task."
    )

    @derived
    def terminated(self) -> bool:
        """Whether the task ended the episode: `done` and not `truncated`, as in Gymnasium."""
        return self.done and not (self.truncated and not declares_truncated(type(self)))


@once_per_class
def is_observation(cls: type) -> bool:
    """Return whether a class is an `Observation`, cached since `isinstance` is slow for models."""
    return issubclass(cls, Observation)


@once_per_class
def declares_truncated(cls: type[BaseModel]) -> bool:
    """Return whether a model declares a field `truncated`, which may mean anything."""
    field = cls.model_fields.get("truncated")
    inherited = Observation.model_fields["truncated"].description
    return field is not None and field.description != inherited


class _ElapsedTime:
    """A number of seconds that compares equal to any other, so that `State.__eq__` ignores it."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float | None = None) -> None:
        self.seconds = seconds

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ElapsedTime)

    def __hash__(self) -> int:
        return hash(_ElapsedTime)


class State(BaseModel):
    """Where an episode stands. Subclasses add fields, and undeclared fields are kept.

    Example:
        >>> from openenv import State
        >>> class Position(State):
        ...     x: int = 0
        >>> Position(episode_id="a", x=3).model_dump()
        {'episode_id': 'a', 'step_count': 0, 'x': 3}
    """

    model_config = ConfigDict(
        extra="allow",
        validate_assignment=True,
        arbitrary_types_allowed=True,
        json_schema_extra=omit_example,
    )

    episode_id: str | None = Field(default=None, description="Identifies the running episode.")
    step_count: int = Field(default=0, ge=0, description="Steps taken since the last reset.")
    _measured: _ElapsedTime = PrivateAttr(default_factory=_ElapsedTime)

    @derived
    def elapsed_time(self) -> float | None:
        """Seconds from the start of the episode to the arrival of this state.

        `EnvClient.state` measures the time on the client, with a monotonic clock, from the answer
        to `reset`. So it works with a server of any version; no payload, schema, recording or
        snapshot contains it; and states that differ in nothing else are equal. The time is None if
        no client received this state, if this client's session has not been reset, and after
        `restore`. An environment can supply its own value: a field or an extra value
        ``elapsed_time`` of the state takes precedence.
        """
        extra: dict[str, Any] = self.__pydantic_extra__ or {}
        told: float | None = extra.get("elapsed_time", self._measured.seconds)
        return told


def set_elapsed_time(state: State, seconds: float | None) -> None:
    """Set the `elapsed_time` of a state whose environment does not supply its own."""
    state._measured = _ElapsedTime(seconds)


class Private:
    """A mark for a field that the driver of an environment sees, and the agent never sees.

    class SpyState(State):
        secret_word: Annotated[str, Private]

    Schemas mark the field with ``"x-openenv-private": true``. Schemas for agents omit the field.

    Example:
        >>> from typing import Annotated
        >>> from openenv import Private, State, public_view
        >>> class SpyState(State):
        ...     secret_word: Annotated[str, Private] = "banana"
        >>> public_view(SpyState(episode_id="a"))
        {'episode_id': 'a', 'step_count': 0}
    """

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), PRIVATE_MARK: True}


PRIVATE_MARK = "x-openenv-private"


def public_value(value: Any) -> Any:
    """Convert any value to JSON for an agent: without the private fields of models and dataclasses
    in it, and with NaN as text, since null would be another value. All data for agents passes
    through this function or `public_view`.

    Raises:
        TypeError: Private fields cannot be found; see `public_view`.
        PydanticSerializationError: JSON cannot express the value.
    """
    if isinstance(value, BaseModel):
        return public_view(value)
    return to_jsonable_python(value, exclude=private_in(value), inf_nan_mode="strings")


def public_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON schema without private fields, without definitions that only they use, and
    without examples and defaults that may contain them.
    """
    if not _has_private(schema):
        return schema
    shown: dict[str, Any] = _without_private(schema)
    if "$defs" in shown:
        shown["$defs"] = _referred_to(shown)
        if not shown["$defs"]:
            del shown["$defs"]
    return shown


def _has_private(schema: Any) -> bool:
    if isinstance(schema, dict):
        return schema.get(PRIVATE_MARK) is True or any(map(_has_private, schema.values()))
    return isinstance(schema, list) and any(map(_has_private, schema))


def _without_private(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_private(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    shown: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("properties", "$defs") and isinstance(value, dict):  # the keys are names
            shown[key] = {name: _without_private(one) for name, one in value.items()}
        elif key not in ("default", "examples") or not isinstance(value, dict | list):
            shown[key] = _without_private(value)
    properties = shown.get("properties")
    if isinstance(properties, dict):
        hidden = {
            name
            for name, one in properties.items()
            if isinstance(one, dict) and one.get(PRIVATE_MARK) is True
        }
        shown["properties"] = {n: one for n, one in properties.items() if n not in hidden}
        if isinstance(shown.get("required"), list):
            shown["required"] = [name for name in shown["required"] if name not in hidden]
    return shown


_REFERENCE = "#/$defs/"


def _referred_to(schema: dict[str, Any]) -> dict[str, Any]:
    definitions, needed = schema["$defs"], dict[str, Any]()
    looking: list[Any] = [{key: one for key, one in schema.items() if key != "$defs"}]
    while looking:
        one = looking.pop()
        if isinstance(one, list):
            looking += one
        elif isinstance(one, dict):
            looking += one.values()
            name = str(one.get("$ref", "")).removeprefix(_REFERENCE)
            if name in definitions and name not in needed:
                needed[name] = definitions[name]
                looking.append(definitions[name])
    return {name: one for name, one in definitions.items() if name in needed}


def public_view(model: BaseModel, without: Iterable[str] = ()) -> dict[str, Any]:
    """Convert a model to JSON without its private fields and those of the models and dataclasses in
    it.

    Args:
        model: The model.
        without: Further fields of the model to leave out.

    Raises:
        TypeError: A model with private fields has a `model_serializer`, or is in a set: the private
            fields cannot be found in the output.

    Example:
        >>> from typing import Annotated
        >>> from openenv import Observation, Private, public_view
        >>> class Card(Observation):
        ...     shown: str
        ...     hidden: Annotated[str, Private]
        >>> public_view(Card(shown="ace", hidden="king"), without=["metadata"])
        {'done': False, 'reward': None, 'truncated': False, 'shown': 'ace'}
    """
    hidden = {**(private_in(model) or {}), **dict.fromkeys(without, True)}
    return model.model_dump(mode="json", exclude=hidden or None)


def private_in(value: Any) -> Any:
    """Return the private parts of a value, as Pydantic's `exclude`; None if there are none."""
    if isinstance(value, BaseModel) or (is_dataclass(value) and not isinstance(value, type)):
        hidden, writes_itself = _private_fields(type(value))
        inner = _private_among((n, v) for n, v in _fields_of(value) if n not in hidden)
        if writes_itself and (hidden or inner):
            raise TypeError(
                f"{type(value).__name__} has private fields and writes itself by a "
                "model_serializer; leave one of the two out"
            )
        return {**inner, **dict.fromkeys(hidden, True)} or None
    if isinstance(value, Mapping):
        return _private_among(value.items()) or None
    if isinstance(value, list | tuple | deque):
        return _private_among(enumerate(value)) or None
    if isinstance(value, Set) and _private_among(enumerate(value)):
        raise TypeError("what is in a set cannot have private fields; use a list")
    return None


def _private_among(items: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    found = ((key, private_in(value)) for key, value in items)
    return {key: hidden for key, hidden in found if hidden is not None}


def _fields_of(value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, BaseModel):
        return value  # iterating over a model yields its fields and extra values
    return [(field.name, getattr(value, field.name)) for field in dataclass_fields(value)]


def private_fields(cls: type) -> frozenset[str]:
    """Return the names of the private fields of a model or a dataclass."""
    return _private_fields(cls)[0]


@once_per_class
def _private_fields(cls: type) -> tuple[frozenset[str], bool]:
    if not issubclass(cls, BaseModel):
        listed = dataclass_fields(cast(Any, cls))
        return frozenset(one.name for one in listed if _is_marked(cls, one)), False
    hidden = {name for name, field in cls.model_fields.items() if Private in field.metadata}
    computed = cls.model_computed_fields.items()
    hidden |= {name for name, field in computed if _is_private(field.return_type)}
    return frozenset(hidden), bool(cls.__pydantic_decorators__.model_serializers)


def _is_private(hint: Any) -> bool:
    return get_origin(hint) is Annotated and Private in get_args(hint)


def _is_marked(cls: type, field: DataclassField[Any]) -> bool:
    """Return whether the annotation of a dataclass's field is marked as private.

    An annotation may use names that are imported for type checkers only. If it cannot be evaluated,
    the field is private if the annotation contains the word `Private`.
    """
    if not isinstance(field.type, str):
        return _is_private(field.type)
    fields = "__dataclass_fields__"
    owner = next(
        one for one in reversed(cls.__mro__) if vars(one).get(fields, {}).get(field.name) is field
    )
    names = _Names(dict(vars(owner)), dict(vars(sys.modules[owner.__module__])))
    try:
        # Evaluates the annotation in the class's source, as `typing.get_type_hints` does.
        return _is_private(eval(field.type, {}, names))  # nosec B307
    except Exception:  # an annotation may be any text
        return Private.__name__ in field.type


class _Names(ChainMap[str, Any]):
    """The names for an annotation; a name that only type checkers import is Any."""

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, _Unknown())


class _Unknown:
    """A stand-in for a name that only type checkers import, in any expression."""

    def __getattr__(self, name: str) -> _Unknown:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, key: Any) -> _Unknown:
        return self

    def __or__(self, other: Any) -> _Unknown:
        return self

    __ror__ = __or__

    def __call__(self) -> None:
        """Do nothing; `typing` requires types to be callable."""


class EnvironmentMetadata(BaseModel):
    """How an environment describes itself to people.

    Example:
        >>> from echo_env.server.echo_environment import EchoEnvironment
        >>> from openenv import EnvironmentMetadata
        >>> class NamedEcho(EchoEnvironment):
        ...     def get_metadata(self) -> EnvironmentMetadata:
        ...         return EnvironmentMetadata(name="Echo", description="Repeats messages.")
        >>> NamedEcho().get_metadata().name
        'Echo'
    """

    model_config = ConfigDict(
        extra="forbid", arbitrary_types_allowed=True, json_schema_extra=omit_example
    )

    name: str
    description: str
    readme_content: str | None = None
    version: str | None = None
    author: str | None = None
    documentation_url: str | None = None


class CodeExecResult(BaseModel):
    """The output of a piece of code, and the exit code: 0 is success."""

    model_config = ConfigDict(extra="forbid")

    stdout: str
    stderr: str
    exit_code: int


@dataclass
class StepResult(Generic[ObsT]):
    """A transition, as the driver of an environment sees a step.

    The order of the first four fields is fixed by existing code.

    Attributes:
        observation: The observation.
        reward: Reward of the step; None after `reset` and for an unscored step.
        done: Whether the episode is over, by termination or truncation.
        metadata: The observation's annotations, or None.
        truncated: Whether a limit outside the task ended the episode.
        info: Diagnostics that are not part of the observation, or None.
        reward_info: Details of the reward (see `openenv.reward`), or None.

    Example:
        >>> from echo_env import EchoAction, EchoEnv
        >>> from echo_env.server.echo_environment import EchoEnvironment
        >>> from openenv import StepResult
        >>> with EchoEnv.local(EchoEnvironment).sync() as env:
        ...     result = env.reset()
        ...     result: StepResult = env.step(EchoAction(message="hi"))
        >>> result.observation.echoed_message, result.reward, result.done
        ('hi', 0.2, False)
    """

    observation: ObsT
    reward: float | None = None
    done: bool = False
    metadata: dict[str, Any] | None = None
    truncated: bool = False
    info: dict[str, Any] | None = None
    reward_info: dict[str, Any] | None = None

    @property
    def components(self) -> dict[str, float]:
        """The components of the reward by name, which add up to the reward; may be empty."""
        return dict((self.reward_info or {}).get("components") or {})

    @property
    def unscored(self) -> str | None:
        """The reason why the step could not be scored, or None."""
        return (self.reward_info or {}).get("unscored")

    @property
    def step_rewards(self) -> list[float] | None:
        """The reward of each step if the episode was scored as a whole at the end, or None."""
        return (self.reward_info or {}).get("step_rewards")

    @property
    def terminated(self) -> bool:
        """Whether the task ended the episode: `done` and not `truncated`."""
        return self.done and not self.truncated


class Message(TypedDict):
    """A turn of a conversation, in the form that chat templates take."""

    role: str
    content: str


class ModelTokenizer(Protocol):
    """The part of a Hugging Face tokenizer that a chat environment calls."""

    def apply_chat_template(
        self,
        conversation: list[Message],
        tokenize: bool = True,
        return_tensors: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Render a conversation: as token ids, or as text with ``tokenize=False``."""
        ...

    def decode(self, token_ids: Any, skip_special_tokens: bool = False, **kwargs: Any) -> str:
        """Turn token ids into text."""
        ...
