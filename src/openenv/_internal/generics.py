"""Type arguments of classes, members of unions, overridden methods, and caches keyed by class."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, Any, ForwardRef, ParamSpec, TypeVar, Union, cast, get_args, get_origin

P = ParamSpec("P")
T = TypeVar("T")


def once_per_class(function: Callable[P, T]) -> Callable[P, T]:
    """Cache the results of a function of a class, for the 1,024 most recently used arguments."""
    return cast("Callable[P, T]", functools.lru_cache(maxsize=1024)(function))


def overrides_method(method: Callable[..., Any], base_method: Callable[..., Any]) -> bool:
    """Return whether `method`, bound or not, differs from `base_method`."""
    return getattr(method, "__func__", method) is not getattr(base_method, "__func__", base_method)


def type_arguments(cls: type, base: type) -> tuple[Any, ...] | None:
    """Return the type arguments that `cls`, or a class in between, gives for `base`.

    ``class Echo(Environment[A, O, S])`` gives ``(A, O, S)``. A type variable with a default
    (PEP 696) counts as that default. Returns None if an argument is missing, a type variable
    without a default, or a forward reference.
    """
    arguments = tuple(map(_or_default, _arguments(cls, base)))
    if not arguments or any(isinstance(a, (TypeVar, ForwardRef, str)) for a in arguments):
        return None
    return arguments


def _or_default(argument: Any) -> Any:
    has_default = isinstance(argument, TypeVar) and getattr(argument, "has_default", bool)()
    return cast(Any, argument).__default__ if has_default else argument


def _arguments(cls: type, base: type) -> tuple[Any, ...]:
    for parent in vars(cls).get("__orig_bases__", cls.__bases__):
        origin, given = get_origin(parent) or parent, get_args(parent)
        if origin is base:
            return given
        if isinstance(origin, type) and issubclass(origin, base):
            put = dict(zip(getattr(origin, "__parameters__", ()), given, strict=False))
            return tuple(_substituted(a, put) for a in _arguments(origin, base))
    return ()


def _substituted(argument: Any, put: dict[Any, Any]) -> Any:
    if isinstance(argument, TypeVar):
        return put.get(argument, argument)
    if get_origin(argument) is None or not argument.__parameters__:
        return argument
    return argument[tuple(put.get(p, p) for p in argument.__parameters__)]  # for example list[T]


def members(annotation: Any) -> tuple[Any, ...]:
    """Return the types of a union, ``Annotated`` or not; of another type, a tuple of that type."""
    if get_origin(annotation) is Annotated:
        return members(get_args(annotation)[0])
    if get_origin(annotation) in (Union, type(int | str)):
        return tuple(m for part in get_args(annotation) for m in members(part))
    return (annotation,)
