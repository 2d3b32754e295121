"""Tasks at the beginning of an episode: choosing a task and passing it to the environment."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from pydantic import BaseModel, ValidationError

from openenv._internal.generics import once_per_class
from openenv._internal.quoting import did_you_mean
from openenv.errors import NotSupported, Refused
from openenv.execution.commands import CallMethod, Reset
from openenv.tasks.columns import describe_validation_error
from openenv.tasks.served import merge_reset_arguments
from openenv.tasks.task import Task
from openenv.tools.functions import is_tool

if TYPE_CHECKING:
    from openenv.execution.spec import EnvironmentSpec, Method


class ResolvedReset(Reset):
    """A `Reset` whose task is resolved: its arguments are those for the environment.

    Attributes:
        task: The task of the episode, for its scorer; None if there is none.
        loads: Whether the task is passed to `load_task` first.
    """

    task: Any = None
    loads: bool = False


def names_task(spec: EnvironmentSpec, arguments: Mapping[str, Any]) -> bool:
    """Return whether the arguments of a `Reset` may name a task, which must then be resolved."""
    return spec.tasks is not None or "task" in arguments or "index" in arguments


@dataclass(frozen=True)
class TaskSupport:
    """The ways in which an environment class takes tasks.

    Attributes:
        name: The name of the class, for messages.
        reset: The class's `reset`.
        takes_task: Whether `reset` has an argument `task`.
        takes_model: Whether that argument may be a `Task`.
        loads: Whether the class has `load_task`.
        lists: Whether the class has its own tasks, and no `index` argument of `reset` for them.
    """

    name: str
    reset: Method
    takes_task: bool
    takes_model: bool
    loads: bool
    lists: bool

    @classmethod
    def of(cls, environment: Any, reset: Method) -> TaskSupport:
        """Determine the ways of an environment."""
        takes_task = "task" in reset.accepted
        takes_index = "index" in reset.accepted or reset.takes_any
        return cls(
            type(environment).__name__,
            reset,
            takes_task,
            takes_task and _takes_model(type(environment)),
            _has_method(environment, "load_task"),
            takes_task and not takes_index and _has_method(environment, "get_task"),
        )

    def takes(self, name: str) -> bool:
        """Return whether `reset` takes an argument."""
        return self.reset.takes_any or name in self.reset.accepted

    def names_own_task(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether the arguments of a `Reset` name one of the environment's own tasks."""
        is_named = all(arguments.get(name) is not None for name in ("split", "index"))
        return self.lists and is_named and arguments.get("task") is None


def _has_method(environment: Any, name: str) -> bool:
    method = getattr(environment, name, None)
    return callable(method) and not is_tool(method)


@once_per_class
def _takes_model(cls: type) -> bool:
    """Return whether the argument `task` of the class's `reset` may be a `Task`."""
    hints = (_task_hint(getattr(cls, name, None)) for name in ("reset_async", "reset"))
    return any(hint is Task or Task in get_args(hint) for hint in hints)


def _task_hint(reset: Any) -> Any:
    try:
        return get_type_hints(reset).get("task")
    except Exception:  # an annotation may be any string
        return None


def resolve_reset(arguments: Mapping[str, Any], support: TaskSupport) -> ResolvedReset:
    """Resolve the arguments of a `Reset` on a server without tasks.

    A task that the client sends is passed to an environment that takes tasks.

    Raises:
        Refused: The task is not valid, or `reset_to_task` refuses it.
    """
    given = arguments.get("task")
    takes = support.takes_model or (support.loads and not support.takes_task)
    if not (takes and isinstance(given, Mapping)):
        return ResolvedReset(dict(arguments))
    try:
        task = Task.model_validate(given)
    except ValidationError as error:
        raise Refused(f"task: is none: {describe_validation_error(error)}") from None
    others = {name: value for name, value in arguments.items() if name != "task"}
    return reset_to_task(task, others, support)


def reset_to_task(
    task: Task | None, others: Mapping[str, Any], support: TaskSupport
) -> ResolvedReset:
    """Return the `Reset` that passes a chosen task and the other arguments to the environment.

    Raises:
        Refused: The arguments contradict the task, or the task holds something that the environment
            does not take.
    """
    if task is None:
        return ResolvedReset(dict(others), None, support.loads and not support.takes_task)
    whose = f"task {task.id!r}"
    arguments = merge_reset_arguments(task.reset, others, whose)
    if support.takes_task:
        # Values for which `reset` has no argument are in the task.
        known = {n: v for n, v in arguments.items() if n not in task.reset or support.takes(n)}
        return ResolvedReset({**known, "task": task}, task)
    for name in task.reset:
        if not support.takes(name):
            hint = did_you_mean(name, support.reset.accepted)
            why = f"{name}: {whose} fixes it, and {support.name}.reset does not take it{hint}"
            raise Refused(why)
    if not support.loads:
        lost = [name for name in ("files", "state", "criteria") if getattr(task, name)]
        if lost:
            why = f"task: {whose} has {' and '.join(lost)}, and {support.name} takes none"
            raise Refused(f"{why}: give its reset an argument `task`, or write `load_task`")
    return ResolvedReset(arguments, task, support.loads)


def reset_to_own_task(arguments: Mapping[str, Any], task: Any) -> ResolvedReset:
    """Return the `Reset` that passes one of the environment's own tasks back to it."""
    others = {name: value for name, value in arguments.items() if name not in ("split", "index")}
    named = task
    if isinstance(task, BaseModel):
        named = getattr(task, "id", None) or task.model_dump()
    elif isinstance(task, Mapping):
        named = task.get("id") or dict(task)
    return ResolvedReset({**others, "task": named}, task)


# ------------------------------------------------------------------ methods about tasks


class NoSuchTask(Refused, IndexError):
    """The environment has no task for this index."""


@dataclass(slots=True)
class CallTaskMethod(CallMethod):
    """Call an optional method of a `TaskProvider`."""


def call_task_method(method: Callable[..., Any] | None, command: CallTaskMethod) -> Any:
    """Call a task method of the environment; return its result, or an awaitable.

    Raises:
        NotSupported: The method does not exist, or it raised NotImplementedError.
        NoSuchTask: The method raised IndexError.
        Exception: Any other error that the environment raised.
    """
    with _translate_errors(command):
        if method is None:
            raise NotImplementedError(command.method)
        result = method(*command.arguments)
    return _await_task_method(result, command) if hasattr(result, "__await__") else result


async def _await_task_method(result: Awaitable[Any], command: CallTaskMethod) -> Any:
    with _translate_errors(command):
        return await result


@contextlib.contextmanager
def _translate_errors(command: CallTaskMethod) -> Iterator[None]:
    try:
        yield
    except IndexError as error:
        raise NoSuchTask(f"index: {error}") from error
    except NotImplementedError as error:
        why = f"{command.method} is not supported for this environment"
        raise NotSupported(why, feature=command.method) from error
