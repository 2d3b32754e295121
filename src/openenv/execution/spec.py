"""Facts about an environment class that are determined once.

Authors write `reset`, `step`, `state` and `close` in many forms: plain or ``async def``, in an
overridden ``*_async`` method, with or without arguments, returning an Observation or a
StepResult. Only this module knows all the forms; the session sees a single one.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ValidationError

from openenv._internal.generics import members, once_per_class, type_arguments
from openenv._internal.models import (
    check_distinct,
    kinds_to_name,
    named_kinds,
    reader_of,
    wire_schema,
)
from openenv._internal.quoting import error_list
from openenv.environment import Environment
from openenv.errors import (
    InvalidActionError,
    InvalidArgumentError,
    InvalidReturnError,
    MissingArgumentError,
)
from openenv.protocol.messages import Transition
from openenv.reward import REWARD_INFO, RewardSpec
from openenv.settings import ServerMode
from openenv.tasks.served import ServedTasks
from openenv.tools.types import (
    TOOL_ACTIONS,
    CallToolAction,
    CallToolObservation,
    select_action_model,
)
from openenv.types import (
    Action,
    Observation,
    State,
    StepResult,
    declares_truncated,
    is_observation,
)

# Methods that list an environment's tools, call a tool, and query its MCP server.
LIST_TOOLS, CALL_TOOL, ASK = "mcp_list_tools", "mcp_call_tool", "mcp_ask"
# Attributes of an environment with an agent inside: the first makes the action of a turn.
HARNESS_TURN, HARNESS_NAME = "harness_turn", "harness_name"

# A class attribute with the name of the `reset` argument that receives, as a dictionary, all
# arguments without their own parameter.
RESET_REST = "RESET_REST"

# Callers pass these to any environment, so an environment need not accept them.
COURTESY_ARGUMENTS = frozenset({"seed", "episode_id", "timeout_s"})
# Arguments about tasks, the same for all environments.
TASK_ARGUMENTS = frozenset({"task", "split", "index"})


class ToolSupport(Enum):
    """The ways in which environments offer tools."""

    TOOLS = auto()  # an `MCPEnvironment`, whose tools are called directly
    TOOL_ACTIONS = auto()  # `step` takes `ListToolsAction` and `CallToolAction`
    ACTIONS = auto()  # each action model is a tool whose arguments are the model's fields


@dataclass(frozen=True)
class Method:
    """A method of an environment class, and how to call it.

    Attributes:
        name: The attribute to call, such as ``step`` or ``step_async``.
        is_async: Whether the method is a coroutine function, awaited on the event loop.
        accepted: Names of the arguments that the method takes.
        takes_any: Whether the method has ``**kwargs``.
        rest: The argument that receives, as a dictionary, all arguments without their own
            parameter; None if there is none.
        required: The names in `accepted` that have no default.
    """

    name: str
    is_async: bool
    accepted: tuple[str, ...]
    takes_any: bool
    rest: str | None = None
    required: tuple[str, ...] = ()

    def split(
        self, arguments: Mapping[str, Any], *, strict: bool
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Split `arguments` into those to pass and the names of those that are ignored.

        Raises:
            InvalidArgumentError: With `strict`: the method does not take an argument.
        """
        if self.takes_any:
            return dict(arguments), ()
        if self.rest is not None:  # this argument takes the unknown ones
            own = {*self.accepted, *COURTESY_ARGUMENTS, *TASK_ARGUMENTS}
            unknown = {name: value for name, value in arguments.items() if name not in own}
            if unknown:
                kept = {name: value for name, value in arguments.items() if name in own}
                rest = {**unknown, **(arguments.get(self.rest) or {})}
                arguments = {**kept, self.rest: rest}
        passed = {name: value for name, value in arguments.items() if name in self.accepted}
        ignored = tuple(
            name
            for name, value in arguments.items()
            if name not in passed
            and not (name in COURTESY_ARGUMENTS and value is None)
            and not (name == "timeout_s" and self.name.startswith("step"))  # the session has it
        )
        wrong = [name for name in ignored if name not in COURTESY_ARGUMENTS]
        if strict and wrong:
            raise InvalidArgumentError(self.name.removesuffix("_async"), wrong, self.accepted)
        return passed, ignored

    def check_nothing_is_missing(self, error: TypeError, passed: Mapping[str, Any]) -> None:
        """Raise `MissingArgumentError` if a missing argument explains a TypeError of the method.

        Arguments are not checked before the call, since decorators may supply them.

        Raises:
            MissingArgumentError: A required argument is missing.
        """
        missing = [name for name in self.required if name not in passed]
        if " missing " in str(error) and any(f"'{name}'" in str(error) for name in missing):
            method = self.name.removesuffix("_async")
            raise MissingArgumentError(method, missing, self.accepted) from error


@dataclass(frozen=True)
class CallPlan:
    """The methods of an environment class, and how to call each."""

    reset: Method
    step: Method
    close: Method

    @property
    def is_async(self) -> bool:
        """Whether the environment lives on the event loop, since `step` or `reset` awaits."""
        return self.step.is_async or self.reset.is_async


@once_per_class
def plan_for(cls: type) -> CallPlan:
    """Determine how to call the methods of `cls`."""
    for name in ("reset", "step"):
        if not callable(getattr(cls, name, None)):
            raise InvalidReturnError(
                f"{cls.__name__} is no environment: it has no method {name!r}. Subclass "
                "openenv.Environment and write reset, step and state."
            )
    return CallPlan(_method(cls, "reset"), _method(cls, "step", skip=1), _method(cls, "close"))


def _method(cls: type, name: str, skip: int = 0) -> Method:
    own_async = getattr(cls, f"{name}_async", None)
    if own_async is not None and own_async is not getattr(Environment, f"{name}_async"):
        chosen, function = f"{name}_async", own_async
    else:
        chosen, function = name, getattr(cls, name, None)
    if function is None:  # `close` of a class that is no subclass of Environment
        return Method(name, False, (), False)
    parameters = inspect.signature(function).parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    taken = positional[_binds(cls, chosen) + skip :]
    taken += [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    return Method(
        chosen,
        inspect.iscoroutinefunction(function),
        tuple(p.name for p in taken if p.kind is not p.POSITIONAL_ONLY),
        any(p.kind is p.VAR_KEYWORD for p in parameters),
        getattr(cls, RESET_REST, None) if name == "reset" else None,
        tuple(p.name for p in taken if p.kind is not p.POSITIONAL_ONLY and p.default is p.empty),
    )


def _binds(cls: type, name: str) -> bool:
    """Return whether the first parameter is the instance: not for a static method or a partial."""
    attribute = inspect.getattr_static(cls, name)
    is_descriptor = hasattr(type(attribute), "__get__")
    return is_descriptor and not isinstance(attribute, (staticmethod, classmethod))


def normalise(value: Any, method: str, ignored: tuple[str, ...] = ()) -> Transition:
    """Convert the return value of `reset` or `step` to a `Transition`.

    Raises:
        InvalidReturnError: The value is neither an Observation nor a StepResult.
    """
    if is_observation(type(value)):
        reward = value.reward
        if reward is not None and type(reward) is not float:
            reward = _number(reward)
        truncated = value.truncated and not declares_truncated(type(value))
        metadata, info = value.metadata, None
        if metadata and isinstance(metadata.get(REWARD_INFO), dict):  # else it has another meaning
            info = metadata[REWARD_INFO]
            metadata = {name: one for name, one in metadata.items() if name != REWARD_INFO}
        return Transition(
            value, reward, value.done or truncated, truncated, metadata, None, ignored, info
        )
    if isinstance(value, StepResult):
        return _from_result(value, ignored)
    hint = "" if value is not None else f" (is a `return` missing at the end of {method}?)"
    raise InvalidReturnError(
        f"{method} returned {type(value).__name__}; it must return an Observation or a "
        f"StepResult{hint}"
    )


def _from_result(result: StepResult[Any], ignored: tuple[str, ...]) -> Transition:
    inner = result.observation
    transition = normalise(inner, "step") if isinstance(inner, Observation) else Transition(inner)
    if result.reward is not None:
        transition.reward = _number(result.reward)
    transition.truncated = transition.truncated or bool(result.truncated)
    transition.done = transition.done or bool(result.done) or transition.truncated
    transition.metadata = {**transition.metadata, **(result.metadata or {})}
    transition.info = result.info
    transition.ignored = ignored
    if result.reward_info is not None:
        transition.reward_info = result.reward_info
    return transition


def _number(value: Any) -> bool | int | float:
    if type(value) in (bool, int, float):
        return value  # type: ignore[no-any-return]
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InvalidReturnError(
            f"reward is {type(value).__name__} {value!r:.80}; it must be a number or None"
        ) from None


@dataclass
class EnvironmentSpec:
    """An environment to serve: its factory and its models.

    Attributes:
        factory: Makes one instance; a class, or any callable without arguments.
        action_cls: The action model, or a union of several.
        observation_cls: The observation model of `step`.
        state_cls: The state model.
        reset_observation_cls: The observation model of `reset`, if it differs.
        name: The environment's name in routes and messages.
        mode: The server's mode, which may determine what an agent can do.
        tasks: The server's tasks, for any environment; None if it has none.
    """

    factory: Callable[[], Any]
    action_cls: Any = Action
    observation_cls: Any = Observation
    state_cls: type[BaseModel] = State
    reset_observation_cls: Any = None
    name: str = ""
    mode: ServerMode = ServerMode.SIMULATION
    tasks: ServedTasks | None = None
    environment_class: type | None = field(default=None, init=False)
    _validate_action: Callable[[Any], Any] = field(init=False, repr=False)
    _chooses_action: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not callable(self.factory):
            raise TypeError(
                f"an environment class or factory is needed, not {type(self.factory).__name__}: "
                "each session gets an instance of its own, so pass the class, not an instance"
            )
        self.name = self.name or factory_name(self.factory)
        self.environment_class = class_made_by(self.factory)
        check_distinct(self.action_cls)
        self._validate_action = reader_of(self.action_cls).read
        self._chooses_action = self.action_cls in (Action, *TOOL_ACTIONS.values())

    @classmethod
    def of(
        cls,
        factory: Callable[[], Any],
        action_cls: Any = None,
        observation_cls: Any = None,
        *,
        state_cls: Any = None,
        reset_observation_cls: Any = None,
        name: str | None = None,
    ) -> EnvironmentSpec:
        """Build a spec; models left out are read from the environment class.

        Raises:
            TypeError: `factory` is not callable, or its models are not declared.
        """
        made = class_made_by(factory) if callable(factory) else None
        known = models_of(made) if made is not None else (None, None, None)
        action_cls = action_cls or known[0]
        observation_cls = observation_cls or known[1]
        if callable(factory) and (action_cls is None or observation_cls is None):
            raise TypeError(
                f"which models does {factory_name(factory)} speak? Subclass "
                "Environment[MyAction, MyObservation, State], or pass action_cls and "
                "observation_cls"
            )
        return cls(
            factory,
            action_cls,
            observation_cls,
            state_cls or known[2] or State,
            reset_observation_cls,
            name or "",
        )

    def adopt(self, environment: Any) -> CallPlan:
        """Record the class of a new instance, and return its call plan."""
        plan = plan_for(type(environment))
        self.environment_class = type(environment)
        return plan

    def learn(self, class_name: str, supports_concurrency: bool, has_tools: bool) -> None:
        """Record what another process has learned about the class of its instances."""
        if self.environment_class is None:
            declared: dict[str, Any] = {"SUPPORTS_CONCURRENT_SESSIONS": supports_concurrency}
            if has_tools:
                declared[CALL_TOOL] = None
            self.environment_class = type(class_name, (), declared)

    @property
    def plan(self) -> CallPlan | None:
        """The call plan of the class; None until the class is known."""
        return None if self.environment_class is None else plan_for(self.environment_class)

    @property
    def class_name(self) -> str:
        """The name of the class; the environment's name until the class is known."""
        cls = self.environment_class
        return self.name if cls is None else cls.__name__

    @property
    def supports_concurrency(self) -> bool | None:
        """The class's SUPPORTS_CONCURRENT_SESSIONS; None until the class is known."""
        if self.environment_class is None:
            return None
        return bool(getattr(self.environment_class, "SUPPORTS_CONCURRENT_SESSIONS", False))

    @property
    def reward(self) -> RewardSpec | None:
        """The class's declaration of rewards; None without a declaration."""
        declared = getattr(self.environment_class, "REWARD", None)
        return declared if isinstance(declared, RewardSpec) else None

    @property
    def has_tools(self) -> bool:
        """Whether the class is an `MCPEnvironment` or has the same methods."""
        return hasattr(self.environment_class, CALL_TOOL)

    @property
    def takes_tool_actions(self) -> bool:
        """Whether `step` takes `ListToolsAction` and `CallToolAction`."""
        return self._chooses_action or CallToolAction in members(self.action_cls)

    @property
    def tool_support(self) -> ToolSupport:
        """The way in which an environment of a known class offers tools."""
        if self.has_tools:
            return ToolSupport.TOOLS
        return ToolSupport.TOOL_ACTIONS if self.takes_tool_actions else ToolSupport.ACTIONS

    @property
    def never_blocks(self) -> bool:
        """Whether calls may run on the event loop."""
        return bool(getattr(self.environment_class, "NEVER_BLOCKS", False))

    @property
    def supports_any_thread(self) -> bool:
        """Whether the calls of an instance may come from any thread."""
        return bool(getattr(self.environment_class, "SUPPORTS_ANY_THREAD", False))

    @property
    def needs_one_thread(self) -> bool:
        """Whether all instances must share one thread."""
        return bool(getattr(self.environment_class, "REQUIRES_SINGLE_THREAD_EXECUTOR", False))

    @property
    def action_reader(self) -> Callable[[Any], Any] | None:
        """The validator of the fields of every action; None if the action model varies."""
        return None if self._chooses_action else self._validate_action

    def decode_action(self, data: Any) -> Any:
        """Validate the data of an action.

        Raises:
            InvalidActionError: The action model rejects the data; `errors` lists the reasons.
        """
        try:
            if type(data) is dict and not self._chooses_action:
                return self._validate_action(data)
            if isinstance(data, Action):
                return data
            chosen = select_action_model(self.action_cls, data)
            if chosen is not self.action_cls:
                return reader_of(chosen).read(data)
            return self._validate_action(data)
        except ValidationError as error:
            raise InvalidActionError(error_list(error)) from None

    def action_schema(self) -> dict[str, Any]:
        """Return the JSON schema of the action."""
        return wire_schema(self.action_cls, "validation")

    @property
    def observation_kinds(self) -> dict[type[BaseModel], str]:
        """The names of the observation models that have the same fields as another one."""
        first = self.reset_observation_cls or self.observation_cls
        return named_kinds(Union[self.observation_cls, first])  # noqa: UP007 - known only now

    @property
    def named_kinds(self) -> list[str]:
        """The action models that clients must name, since another model takes the same fields."""
        return kinds_to_name(self.action_cls)


def factory_name(factory: Any) -> str:
    """Return the name of a factory for messages: the name of the class or function."""
    while isinstance(factory, functools.partial):
        factory = factory.func
    return str(getattr(factory, "__name__", type(factory).__name__))


def class_made_by(factory: Any) -> type | None:
    """Return the class of a factory's instances, without calling the factory; None if unknown."""
    while isinstance(factory, functools.partial):
        factory = factory.func
    if isinstance(factory, type):
        return factory
    try:
        returned = get_type_hints(factory).get("return")
    except Exception:  # an annotation may be any string
        return None
    if not isinstance(returned, type) or inspect.isabstract(returned):
        return None
    return returned if issubclass(returned, Environment) else None


def models_of(cls: type) -> tuple[Any, Any, Any]:
    """Read the action, observation and state models from an environment class.

    They are the parameters of ``Environment[...]``, or else the annotations of `step`, and of
    `reset` if `step` returns a bare `StepResult`.
    """
    parameters = type_arguments(cls, Environment)
    if parameters is None:
        return _annotated_models(cls)
    action, observation, state = parameters
    is_unsaid = action in (Any, Action) and observation in (Any, Observation)
    if hasattr(cls, CALL_TOOL) and is_unsaid:
        return CallToolAction, CallToolObservation, state
    return action, observation, state


def _annotated_models(cls: type) -> tuple[Any, Any, Any]:
    plan = plan_for(cls)
    try:
        hints = get_type_hints(getattr(cls, plan.step.name), include_extras=True)
        reset_hints = get_type_hints(getattr(cls, plan.reset.name), include_extras=True)
    except Exception:  # an annotation may be any string
        return None, None, None
    names = list(inspect.signature(getattr(cls, plan.step.name)).parameters)
    action = hints.get(names[1]) if len(names) > 1 else None
    observation = hints.get("return")
    if get_origin(observation) is StepResult:
        (observation,) = get_args(observation)
    if observation is StepResult:
        observation = reset_hints.get("return")
    return (
        action if _is_model(action, Action) else None,
        observation if _is_model(observation, Observation) else None,
        None,
    )


def _is_model(annotation: Any, base: type) -> bool:
    return all(isinstance(m, type) and issubclass(m, base) for m in members(annotation))
