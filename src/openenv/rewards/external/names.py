"""Lookup of scorers and credit assignments by the names that commands take."""

from __future__ import annotations

import shlex
from typing import Any, cast

from openenv._internal.imports import NameNotFound, import_attribute
from openenv._internal.quoting import closest
from openenv.errors import OpenEnvError
from openenv.rewards.credit import TokenCredit, last_token, spread_over_tokens
from openenv.rewards.delayed import TrajectoryScorer
from openenv.rewards.rubric import Rubric

SCHEMES = ("command", "http", "https", "reasoning_gym")


class ScorerNameError(OpenEnvError, ValueError):
    """An error for a text that names no scorer. The message says what was expected."""


def resolve_scorer(name: str) -> TrajectoryScorer:
    """Return the scorer that a text names.

    Args:
        name: One of

            - ``module:name`` or ``file.py:name``: a scorer, a rubric, a class of rubrics, or a
              class that can be created without arguments and whose instances are scorers;
            - ``http://...`` or ``https://...``: see `openenv.rewards.external.http_scorer`;
            - ``command:PROGRAM ARGUMENTS``: see `openenv.rewards.external.command_scorer`;
            - ``reasoning_gym:DATASET``: see `openenv.rewards.external.from_reasoning_gym`.

    Raises:
        ScorerNameError: The text names no scorer.
        MissingPackage: The scorer needs a library that is not installed.
    """
    from openenv.rewards import external

    scheme, _, rest = name.partition(":")
    try:
        if scheme in ("http", "https") and rest.startswith("//"):
            return external.http_scorer(name)
        if scheme == "command":
            return external.command_scorer(shlex.split(rest))
        if scheme == "reasoning_gym":
            return external.from_reasoning_gym(rest)
    except ValueError as error:
        raise ScorerNameError(f"{name!r}: {error}") from error
    return _as_scorer(name, import_named(name))


def _as_scorer(name: str, found: Any) -> TrajectoryScorer:
    from openenv.rewards.external import from_rubric

    if isinstance(found, Rubric) or (isinstance(found, type) and issubclass(found, Rubric)):
        return from_rubric(found, name=name)
    if isinstance(found, type):
        try:
            found = found()
        except TypeError as error:
            raise ScorerNameError(f"{name!r} cannot be made without arguments: {error}") from error
    if not callable(found):
        raise ScorerNameError(
            f"{name!r} is {type(found).__name__}; expected a function or a rubric"
        )
    return cast("TrajectoryScorer", found)


def resolve_token_credit(name: str) -> TokenCredit:
    """Return the token credit assignment that ``last``, ``spread`` or ``module:function`` names.

    Raises:
        ScorerNameError: The name is unknown or names an object that cannot be called.
    """
    known: dict[str, TokenCredit] = {"last": last_token, "spread": spread_over_tokens}
    if name in known:
        return known[name]
    if ":" not in name:
        raise ScorerNameError(
            f"there is no credit assignment to tokens {name!r}, but {', '.join(known)} and "
            "module:function"
        )
    found = import_named(name)
    if not callable(found):
        raise ScorerNameError(f"{name!r} is {type(found).__name__}; expected a function")
    return cast("TokenCredit", found)


def import_named(name: str) -> Any:
    """Import the object that ``module:attribute`` or ``file.py:attribute`` names.

    Raises:
        ScorerNameError: The module, file or attribute does not exist.
    """
    place, _, attribute = name.rpartition(":")
    if not place or not attribute:
        raise ScorerNameError(
            f"{name!r} names no scorer; expected module:function, or file.py:function"
        )
    try:
        return import_attribute(name, files=True)
    except NameNotFound as error:
        close = closest(place, SCHEMES)
        hint = f"; did you mean {close}:{attribute}?" if close else error.hint
        raise ScorerNameError(f"{error}, of {name!r}{hint}") from error
