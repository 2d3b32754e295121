"""How worker processes find the environments of an application."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Iterator
from typing import Any

from openenv.execution.manager import SessionManager
from openenv.execution.process import Workers
from openenv.execution.spec import EnvironmentSpec
from openenv.execution.worker import Source
from openenv.manifest.directories import absolute_target
from openenv.server.loading import TargetError, load_target
from openenv.tasks.served import ServedTasks


def note_manager(app: Any, manager: SessionManager) -> None:
    """Record on an application that it serves `manager`'s environments."""
    managers: list[SessionManager] = getattr(app.state, "openenv_managers", [])
    app.state.openenv_managers = [*managers, manager]


def managers_of(app: Any) -> list[SessionManager]:
    """Return the managers of an application and of the applications inside or wrapped by it."""
    return list(dict.fromkeys(_walk(app, set())))


def _walk(app: Any, seen: set[int]) -> Iterator[SessionManager]:
    if app is None or id(app) in seen:
        return
    seen.add(id(app))
    yield from getattr(getattr(app, "state", None), "openenv_managers", ())
    for route in getattr(app, "routes", None) or ():
        yield from _walk(getattr(route, "app", None), seen)
    for wrapped in ("app", "_app"):
        yield from _walk(getattr(app, wrapped, None), seen)


def serve_from_workers(app: Any, target: str, count: int) -> None:
    """Make worker processes hold the environments of `app`, which `target` names.

    Raises:
        TargetError: `app` serves no environment made by `create_app` or `HTTPEnvServer`.
    """
    managers = managers_of(app)
    if not managers:
        raise TargetError(
            f"{target} serves no environment that worker processes could hold; expected an "
            "application made by create_app, or one in which such a one is mounted"
        )
    for number, manager in enumerate(managers):
        tasks = manager.spec.tasks
        source = functools.partial(_spec_of_target, absolute_target(target), number, tasks)
        manager.run_on(Workers(manager.spec, count, source))


def _spec_of_target(target: str, number: int, tasks: ServedTasks | None) -> EnvironmentSpec:
    spec = managers_of(load_target(target))[number].spec
    spec.tasks = tasks
    return spec


def spec_source(spec: EnvironmentSpec) -> Source:
    """Return a function with which another process makes the same spec.

    Raises:
        TypeError: Another process cannot import the environment, its models or its tasks.
    """
    source = functools.partial(
        EnvironmentSpec,
        spec.factory,
        spec.action_cls,
        spec.observation_cls,
        spec.state_cls,
        spec.reset_observation_cls,
        spec.name,
        spec.mode,
    )
    try:
        pickled = pickle.dumps(source)
    except Exception as error:
        raise TypeError(_UNREACHABLE.format(spec.name, error)) from error
    if b"__main__" in pickled:
        raise TypeError(_UNREACHABLE.format(spec.name, "it is in the program itself, __main__"))
    if spec.tasks is None:
        return source
    try:
        pickle.dumps(spec.tasks)
    except Exception as error:
        raise TypeError(_TASKLESS.format(spec.name, error)) from error
    return functools.partial(source, spec.tasks)


_TASKLESS = (
    "worker processes cannot be given the tasks of {}: {}. Pass what they are loaded from, and "
    "write functions that make or change them as functions of a module."
)
_UNREACHABLE = (
    "worker processes cannot import {}: {}. Write the environment and its models as classes of a "
    "module, or the factory as a function there, and pass that."
)
