"""Facts about classes: what they put for a generic base's parameters, and caching by class."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ForwardRef, TypeVar, get_args, get_origin

__all__ = ["once_per_class", "type_arguments"]

T = TypeVar("T")


def once_per_class(function: Callable[[Any], T]) -> Callable[[Any], T]:
    """Remember what `function` answers for a class; the least recently used is forgotten."""
    return functools.lru_cache(maxsize=1024)(function)


def type_arguments(cls: type, base: type) -> tuple[Any, ...] | None:
    """Find what `cls` (or the nearest class above it) put for the parameters of `base`.

    ``class Echo(Environment[A, O, S])`` gives ``(A, O, S)``. Returns None where nothing, a type
    variable or a forward reference stands.
    """
    for klass in cls.__mro__:
        for parent in vars(klass).get("__orig_bases__", ()):
            origin = get_origin(parent)
            if isinstance(origin, type) and issubclass(origin, base):
                arguments = get_args(parent)
                if not any(isinstance(a, (TypeVar, ForwardRef, str)) for a in arguments):
                    return arguments
    return None
