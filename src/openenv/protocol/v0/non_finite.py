"""NaN and infinity in frames of version 0, which JSON writes as null.

Servers and clients of openenv 0.10 write and read null, and that stays. A client that sends
`openenv.protocol.messages.NON_FINITE_HEADER` in the handshake gets an additional member in each
frame that holds such a number, beside ``type`` and ``data``:

    {"type": "observation", "data": {"observation": {"price": null}, "done": false, ...},
     "non_finite": {"/observation/price": "NaN"}}

Its keys are JSON Pointers (RFC 6901) into ``data``. The numbers are those that version 1 carries
directly, so that values do not depend on the version.
"""

from __future__ import annotations

import contextlib
import functools
import math
import operator
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from typing import Any

from pydantic import BaseModel

from openenv._internal.generics import once_per_class

Path = tuple[str | int, ...]

_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


# ------------------------------------------------------------------ on the server


def has_non_finite(value: Any) -> bool:
    """Return whether a value may hold NaN or infinity.

    The check must be fast: it is made for every answer that holds a null. For a model with
    computed fields or custom serializers the result is always True.
    """
    if isinstance(value, float):
        return not math.isfinite(value)
    if value is None or isinstance(value, str | int | bytes):
        return False
    if isinstance(value, BaseModel):
        extra = value.__pydantic_extra__
        return _computes(type(value)) or has_non_finite(vars(value)) or has_non_finite(extra)
    if isinstance(value, Mapping):
        return any(map(has_non_finite, value.values()))
    if isinstance(value, list | tuple | set | frozenset | deque):
        try:
            return not all(map(math.isfinite, value))
        except (TypeError, ValueError, OverflowError):  # not all of them are floats
            return any(map(has_non_finite, value))
    if getattr(getattr(value, "dtype", None), "kind", None) == "f":
        return not bool(((value == value) & (abs(value) != math.inf)).all())
    if is_dataclass(value):
        return any(has_non_finite(getattr(value, one.name)) for one in dataclass_fields(value))
    return False


@once_per_class
def _computes(cls: type[BaseModel]) -> bool:
    found = cls.__pydantic_decorators__
    return bool(found.computed_fields or found.field_serializers or found.model_serializers)


def pointers_to_non_finite(value: Any, written: Any) -> dict[str, str]:
    """Return NaN and infinity in a value by their JSON Pointers into the value's JSON.

    Args:
        value: Objects, lists, arrays and numbers, in the form of version 1.
        written: The value as read back from its JSON. Places that are not null there are left out.
    """
    pointers = {}
    for path, name in _find(value, ()):
        with contextlib.suppress(LookupError, TypeError):
            if functools.reduce(operator.getitem, path, written) is not None:
                continue
            parts = (str(part).replace("~", "~0").replace("/", "~1") for part in path)
            pointers["/" + "/".join(parts)] = name
    return pointers


def _find(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, float):
        if not math.isfinite(value):
            yield path, "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _find(item, (*path, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            if isinstance(item, float | Mapping | list | tuple):
                yield from _find(item, (*path, index))
    elif getattr(getattr(value, "dtype", None), "kind", None) == "f" and has_non_finite(value):
        yield from _find(value.tolist(), path)


# ------------------------------------------------------------------ on the client


def restore_non_finite(data: Any, pointers: Any) -> None:
    """Put the numbers that a frame names into its data.

    Raises:
        ValueError: A pointer does not lead to a null, or its value names no such number.
    """
    if not isinstance(pointers, dict):
        raise ValueError(f"non_finite is {pointers!r:.100}; expected an object")
    for pointer, name in pointers.items():
        number = _NUMBERS.get(name) if isinstance(name, str) else None
        try:
            holder, key = _place(data, pointer)
            if number is None or holder[key] is not None:
                raise LookupError
        except (LookupError, TypeError, ValueError):
            raise ValueError(
                f"non_finite names {pointer!r:.100} as {name!r:.20}; expected the place of a null, "
                f"as one of {', '.join(_NUMBERS)}"
            ) from None
        holder[key] = number


def _place(data: Any, pointer: str) -> tuple[Any, str | int]:
    """Return the object or list that a pointer leads into, and the key or index in it."""
    _, *parts = pointer.split("/")
    holder: Any = {"": data}
    key: str | int = ""
    for part in parts:
        holder = holder[key]
        is_list = isinstance(holder, list)
        key = int(part) if is_list else part.replace("~1", "/").replace("~0", "~")
    return holder, key
