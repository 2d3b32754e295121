"""Tasks at the beginning of an episode: choosing a task, and passing it on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
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

__all__ = [
    "Ask",
    "NoSuchTask",
    "Ready",
    "Taker",
    "asked",
    "asks_for",
    "begun",
    "named_by",
    "names_task",
    "ready",
    "taker_of",
]

LOAD_TASK = "load_task"


class Ready(Reset):
    """A `Reset` whose task is resolved: the arguments are those for the environment.

    Attributes:
        task: The task of the episode, for who scores it; None where there is none.
        loads: `load_task` is to be given it before.
    """

    task: Any = None
    loads: bool = False


def names_task(spec: EnvironmentSpec, arguments: Mapping[str, Any]) -> bool:
    """Say whether the arguments of a `Reset` may name a task, which must be resolved."""
    return spec.tasks is not None or "task" in arguments or "index" in arguments


@dataclass(frozen=True)
class Taker:
    """The forms in which an environment class takes tasks.

    Attributes:
        name: Its class, for messages.
        reset: Its `reset`.
        takes_task: That has an argument `task`.
        takes_model: Which may be a `Task`.
        loads: It has `load_task`.
        lists: It has tasks by itself, and `reset` has no argument `index` for them.
    """

    name: str
    reset: Method
    takes_task: bool
    takes_model: bool
    loads: bool
    lists: bool


def taker_of(environment: Any, reset: Method) -> Taker:
    """Return the forms in which an environment class takes tasks."""
    cls = type(environment)
    takes_task = "task" in reset.accepted
    takes_index = "index" in reset.accepted or reset.takes_any
    return Taker(
        cls.__name__,
        reset,
        takes_task,
        takes_task and _takes_model(cls),
        _has(environment, LOAD_TASK),
        takes_task and not takes_index and _has(environment, "get_task"),
    )


def _has(environment: Any, name: str) -> bool:
    method = getattr(environment, name, None)
    return callable(method) and not is_tool(method)


@once_per_class
def _takes_model(cls: type) -> bool:
    """Say whether the argument `task` of the class's `reset` may be a `Task`."""
    for name in ("reset_async", "reset"):
        hint = _hint_of_task(getattr(cls, name, None))
        if hint is Task or Task in get_args(hint):
            return True
    return False


def _hint_of_task(reset: Any) -> Any:
    try:
        return get_type_hints(reset).get("task")
    except Exception:  # an annotation may be any text
        return None


def ready(arguments: Mapping[str, Any], taker: Taker) -> Ready:
    """Resolve the arguments of a `Reset` on a server without tasks.

    A task that the client sends is passed to an environment that takes tasks.

    Raises:
        Refused: The task is none, or as of `begun`.
    """
    given = arguments.get("task")
    if isinstance(given, Mapping) and (taker.takes_model or (taker.loads and not taker.takes_task)):
        others = {name: value for name, value in arguments.items() if name != "task"}
        return begun(_task_of(given), others, taker)
    return Ready(dict(arguments))


def _task_of(given: Mapping[str, Any]) -> Task:
    try:
        return Task.model_validate(given)
    except ValidationError as error:
        raise Refused(f"task: is none: {describe_validation_error(error)}") from None


def begun(task: Task | None, others: Mapping[str, Any], taker: Taker) -> Ready:
    """Return the `Reset` that passes a chosen task to the environment, beside the other arguments.

    Raises:
        Refused: The arguments contradict the task, or there is something in it that the environment
            does not take.
    """
    if task is None:
        return Ready(dict(others), None, taker.loads and not taker.takes_task)
    whose = f"task {task.id!r}"
    arguments = merge_reset_arguments(task.reset, others, whose)
    if taker.takes_task:
        # What `reset` has no argument for is in the task.
        known = {n: v for n, v in arguments.items() if n not in task.reset or _takes(taker, n)}
        return Ready({**known, "task": task}, task)
    for name in task.reset:
        if not _takes(taker, name):
            hint = did_you_mean(name, taker.reset.accepted)
            why = f"{name}: {whose} fixes it, and {taker.name}.reset does not take it{hint}"
            raise Refused(why)
    if not taker.loads:
        lost = [name for name in ("files", "state", "criteria") if getattr(task, name)]
        if lost:
            why = f"task: {whose} has {' and '.join(lost)}, and {taker.name} takes none"
            raise Refused(f"{why}: give its reset an argument `task`, or write `load_task`")
    return Ready(arguments, task, taker.loads)


def _takes(taker: Taker, name: str) -> bool:
    return taker.reset.takes_any or name in taker.reset.accepted


def asks_for(arguments: Mapping[str, Any], taker: Taker) -> bool:
    """Say whether a `Reset` names a task of the environment's own by index."""
    is_named = all(arguments.get(name) is not None for name in ("split", "index"))
    return taker.lists and is_named and arguments.get("task") is None


def named_by(arguments: Mapping[str, Any], said: Any) -> Ready:
    """Return the `Reset` that passes a task of the environment's own back to the environment."""
    others = {name: value for name, value in arguments.items() if name not in ("split", "index")}
    named = said
    if isinstance(said, BaseModel):
        named = getattr(said, "id", None) or said.model_dump()
    elif isinstance(said, Mapping):
        named = said.get("id") or dict(said)
    return Ready({**others, "task": named}, said)


# ------------------------------------------------------------------ asking an environment


class NoSuchTask(Refused, IndexError):
    """An index for which the environment has no task."""


@dataclass(slots=True)
class Ask(CallMethod):
    """CallMethod a method of a `TaskProvider`, which the environment may leave out."""


def asked(method: Callable[..., Any] | None, command: Ask) -> Any:
    """Call a task method of the environment; return the result, or an awaitable of the result.

    Raises:
        NotSupported: There is no such method, or it says that it is not supported.
        NoSuchTask: There is no such task.
        Exception: Whatever else the environment raised.
    """
    try:
        if method is None:
            raise NotImplementedError(command.method)
        found = method(*command.arguments)
    except (NotImplementedError, IndexError) as error:
        raise _told(error, command) from error
    return _asked_later(found, command) if hasattr(found, "__await__") else found


async def _asked_later(answer: Awaitable[Any], command: Ask) -> Any:
    try:
        return await answer
    except (NotImplementedError, IndexError) as error:
        raise _told(error, command) from error


def _told(error: Exception, command: Ask) -> Exception:
    if isinstance(error, IndexError):
        return NoSuchTask(f"index: {error}")
    why = f"{command.method} is not supported for this environment"
    return NotSupported(why, feature=command.method)
