"""Targets that name an environment of another library: ``gymnasium:CartPole-v1``.

    scheme:name?argument=value&argument=value

A value is parsed as JSON if possible, and is text otherwise: ``render_mode=rgb_array`` and
``max_episode_steps=200`` mean what they look like; ``version="1"`` is text. Characters with a
meaning (``&``, ``#``, ``%``) are percent-encoded as in URLs, ``%26``. A ``+`` is a plus.
"""

from __future__ import annotations

import inspect
import json
from typing import Any, NamedTuple
from urllib.parse import unquote

from openenv._internal.imports import import_attribute
from openenv.wrappers.classes import AdapterError, suggest_name

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
    PYTHON: "openenv.wrappers.python:from_python",
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
