"""Environments from Python classes and functions, of any supported library."""

from __future__ import annotations

import functools
import inspect
import sys
from typing import Any

from openenv._internal.imports import import_attribute
from openenv.environment import Environment
from openenv.wrappers.classes import AdapterError, assign_to_caller, make_preset

__all__ = ["from_python"]

# The base class that identifies a library, and the function that wraps it.
KINDS = (
    ("gymnasium", "Env", "openenv.wrappers.gymnasium:from_gymnasium"),
    ("pettingzoo", "AECEnv", "openenv.wrappers.pettingzoo:from_pettingzoo"),
    ("pettingzoo", "ParallelEnv", "openenv.wrappers.pettingzoo:from_pettingzoo"),
    ("dm_env", "Environment", "openenv.wrappers.dm_env:from_dm_env"),
    ("verifiers", "Environment", "openenv.wrappers.verifiers:from_verifiers"),
)


def from_python(source: Any, /, **arguments: Any) -> Any:
    """Make an environment class from a class, or from a function that makes environments.

    Args:
        source: A subclass of `Environment`, or a class of Gymnasium, PettingZoo, dm_env or
            verifiers; or a function that makes an instance of one, which is called once to find
            out.
        **arguments: Arguments of the class or function.

    Raises:
        AdapterError: The source is of another kind, or does not accept the arguments.
    """
    if isinstance(source, type) and issubclass(source, Environment):
        made_by = functools.partial(from_python, source, **arguments)
        return make_preset(source, source.__name__, made_by, arguments) if arguments else source
    if isinstance(source, type):
        return assign_to_caller(_find_wrapper(source)(source, **arguments))
    if not isinstance(source, functools.partial) and not inspect.isroutine(source):
        raise AdapterError(
            f"expected a class, or a function that makes environments, got "
            f"{type(source).__name__}; an application is served as module:attribute"
        )
    return _wrap_function(source, arguments)


def _wrap_function(function: Any, arguments: dict[str, Any]) -> Any:
    name = getattr(function, "__name__", "the function")
    try:
        made = function(**arguments)
    except TypeError as error:
        raise AdapterError(f"{name} cannot be called: {error}") from error
    kind = type(made)
    if hasattr(made, "close"):
        made.close()
    if not isinstance(made, Environment):
        return _find_wrapper(kind)(function, **arguments)
    raise AdapterError(
        f"{name} makes {kind.__name__}, an environment of openenv; name the class instead"
    )


def _find_wrapper(cls: type) -> Any:
    for package, name, adapter in KINDS:
        # If the library has not been imported, the class cannot be from it.
        kind = getattr(sys.modules.get(package), name, None)
        if kind is not None and issubclass(cls, kind):
            return import_attribute(adapter)
    known = ", ".join(f"{package}.{name}" for package, name, _ in KINDS)
    raise AdapterError(
        f"{cls.__module__}.{cls.__qualname__} is no environment; expected a subclass of "
        f"openenv.Environment, or of one of {known}, or a function that makes an instance"
    )
