"""Targets that name an environment of another library: ``gymnasium:CartPole-v1``.

    scheme:name?argument=value&argument=value

A value is parsed as JSON if possible, and is text otherwise: ``render_mode=rgb_array`` is a text,
``max_episode_steps=200`` a number, and ``version="1"`` a text. Characters with a meaning (``&``,
``#``, ``%``) are percent-encoded as in URLs, such as ``%26``. A ``+`` is a plus.
"""

from __future__ import annotations

import functools
import inspect
import json
import sys
from typing import Any, NamedTuple
from urllib.parse import unquote

from openenv._internal.imports import import_attribute
from openenv.environment import Environment
from openenv.wrappers.classes import AdapterError, assign_to_caller, make_preset, suggest_name

__all__ = ["PYTHON", "SCHEMES", "LibraryTarget", "make_environment_class", "parse_library_target"]

PYTHON = "python"
SCHEMES = {
    "gymnasium": "openenv.wrappers.gymnasium:from_gymnasium",
    "pettingzoo": "openenv.wrappers.pettingzoo:from_pettingzoo",
    "dm_env": "openenv.wrappers.dm_env:from_dm_env",
    "reasoning_gym": "openenv.wrappers.presets:from_reasoning_gym",
    "textarena": "openenv.wrappers.presets:from_textarena",
    "openspiel": "openenv.wrappers.presets:from_openspiel",
    "verifiers": "openenv.wrappers.verifiers:from_verifiers",
    "ors": "openenv.wrappers.ors:from_ors",
    PYTHON: "openenv.wrappers.targets:from_python",
}
"""The function that makes an environment class, by the scheme of the targets it takes."""


class LibraryTarget(NamedTuple):
    """A parsed target."""

    scheme: str  # a key of `SCHEMES`
    name: str  # the part after the scheme: an id, a module, a URL
    arguments: dict[str, Any]  # arguments of the function that makes the class


def parse_library_target(target: str) -> LibraryTarget | None:
    """Parse a target with a scheme of `SCHEMES`; return None for any other text.

    Raises:
        AdapterError: The target is malformed.
    """
    scheme, colon, rest = target.partition(":")
    if not colon or scheme not in SCHEMES:
        return None
    name, _, query = rest.partition("?")
    if not name:
        raise AdapterError(f"{target!r} names nothing; expected {scheme}:NAME")
    return LibraryTarget(scheme, name, _arguments(target, query))


def _arguments(target: str, query: str) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for part in filter(None, query.split("&")):
        name, equals, text = part.partition("=")
        if not equals or not unquote(name).isidentifier():
            raise AdapterError(f"{part!r} of {target!r} is no argument; expected name=value")
        if name in arguments:
            raise AdapterError(f"{target!r} gives {name} twice")
        arguments[unquote(name)] = _value(unquote(text))
    return arguments


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def make_environment_class(named: LibraryTarget, source: Any = None) -> type[Any]:
    """Make the environment class that a target names.

    Args:
        named: The target.
        source: The object that the name means, if already known.

    Raises:
        AdapterError: The name is unknown, or does not accept the arguments.
        MissingPackage: The library is not installed.
    """
    make = import_attribute(SCHEMES[named.scheme])
    options = list(inspect.signature(make).parameters)
    try:
        inspect.signature(make).bind(source, **named.arguments)
    except TypeError as error:
        wrong = next((one for one in named.arguments if one not in options), "")
        hint = suggest_name(wrong, options[1:])
        raise AdapterError(f"{named.scheme}:{named.name}: {error}{hint}") from error
    made: type[Any] = make(named.name if source is None else source, **named.arguments)
    return made


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
        source: A subclass of `Environment`; an environment class of Gymnasium, PettingZoo, dm_env
            or verifiers; or a function that makes an instance of such a library's class, which is
            called once to identify the library.
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
