"""Classes and functions of Python modules as environments, whichever library they are of."""

from __future__ import annotations

import functools
import inspect
import sys
from typing import Any

from openenv._internal.imports import import_attribute
from openenv.environment import Environment
from openenv.wrappers.made import AdapterError, claimed, preset

__all__ = ["from_python"]

# The class that says of which library something is, and the adapter that takes it.
KINDS = (
    ("gymnasium", "Env", "openenv.wrappers.gymnasium:from_gymnasium"),
    ("pettingzoo", "AECEnv", "openenv.wrappers.pettingzoo:from_pettingzoo"),
    ("pettingzoo", "ParallelEnv", "openenv.wrappers.pettingzoo:from_pettingzoo"),
    ("dm_env", "Environment", "openenv.wrappers.dm_env:from_dm_env"),
    ("verifiers", "Environment", "openenv.wrappers.verifiers:from_verifiers"),
)


def from_python(source: Any, /, **arguments: Any) -> Any:
    """Make an environment class of a class, or of a function that makes environments.

    Args:
        source: A subclass of `Environment`, or a class of Gymnasium, PettingZoo, dm_env or
            verifiers; or a function that makes an instance of one, which is called once to see.
        **arguments: For the class or function.

    Raises:
        AdapterError: It is of none of these kinds, or takes no such arguments.
    """
    if isinstance(source, type) and issubclass(source, Environment):
        made_by = functools.partial(from_python, source, **arguments)
        return preset(source, source.__name__, made_by, arguments) if arguments else source
    if isinstance(source, type):
        return claimed(_adapter_of(source)(source, **arguments))
    if not isinstance(source, functools.partial) and not inspect.isroutine(source):
        raise AdapterError(
            f"expected a class, or a function that makes environments, got "
            f"{type(source).__name__}; an application is served as module:attribute"
        )
    return _of_function(source, arguments)


def _of_function(function: Any, arguments: dict[str, Any]) -> Any:
    name = getattr(function, "__name__", "the function")
    try:
        made = function(**arguments)
    except TypeError as error:
        raise AdapterError(f"{name} cannot be called: {error}") from error
    kind = type(made)
    if hasattr(made, "close"):
        made.close()
    if not isinstance(made, Environment):
        return _adapter_of(kind)(function, **arguments)
    raise AdapterError(
        f"{name} makes {kind.__name__}, an environment of openenv; name the class instead"
    )


def _adapter_of(cls: type) -> Any:
    for package, name, adapter in KINDS:
        # A class of a library that nobody has imported is none of that library.
        kind = getattr(sys.modules.get(package), name, None)
        if kind is not None and issubclass(cls, kind):
            return import_attribute(adapter)
    known = ", ".join(f"{package}.{name}" for package, name, _ in KINDS)
    raise AdapterError(
        f"{cls.__module__}.{cls.__qualname__} is no environment; expected a subclass of "
        f"openenv.Environment, or of one of {known}, or a function that makes an instance"
    )
