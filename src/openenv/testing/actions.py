"""Construction of a minimal action from an action model."""

from __future__ import annotations

import enum
import math
from typing import Any, Literal, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from openenv._internal.generics import members

__all__ = ["minimal_action"]


def minimal_action(model: Any) -> Any:
    """Make the simplest action that `model` (or the first member of a union) accepts.

    Raises:
        ValueError: No simple value fits a required field; pass actions to the check instead.
    """
    model = members(model)[0]
    required = {name: f for name, f in model.model_fields.items() if f.is_required()}
    fields = {name: _minimal(f.annotation, f) for name, f in required.items()}
    return model.model_validate(fields, by_alias=True, by_name=True)


def _minimal(annotation: Any, field: FieldInfo | None = None) -> Any:
    origin = get_origin(annotation)
    if origin is Literal:
        return get_args(annotation)[0]
    choices = members(annotation)
    if len(choices) > 1:
        return None if type(None) in choices else _minimal(choices[0], field)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return next(iter(annotation))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return minimal_action(annotation)
    simple = origin or annotation
    if simple in (int, float):
        return simple(_nearest_to_zero(field, is_whole=simple is int))
    if simple is str:
        return "a" * max(1, _shortest(field))
    if simple in (bool, dict, bytes, set):
        return simple()
    if simple is tuple and Ellipsis not in get_args(annotation):
        return tuple(map(_minimal, get_args(annotation)))
    if simple in (list, tuple):
        inner = (get_args(annotation) or (int,))[0]
        return simple(_minimal(inner) for _ in range(_shortest(field)))
    if simple is Any:
        return None
    raise ValueError(f"no action can be made from a field of type {annotation}; pass actions=[...]")


def _nearest_to_zero(field: FieldInfo | None, *, is_whole: bool) -> float:
    """Return the number nearest to 0 that the bounds of a field allow, from above if possible."""
    low, high = -math.inf, math.inf
    excluded = set[float]()
    for bound in field.metadata if field is not None else ():
        for name in ("ge", "gt", "le", "lt"):
            value: Any = getattr(bound, name, None)
            if value is None:
                continue
            if name in ("ge", "gt"):
                low = max(low, value)
            else:
                high = min(high, value)
            if name in ("gt", "lt"):
                excluded.add(value)
    if is_whole:
        if math.isfinite(low):
            low = math.floor(low) + 1 if low in excluded else math.ceil(low)
        if math.isfinite(high):
            high = math.ceil(high) - 1 if high in excluded else math.floor(high)
        return min(max(0, low), high)
    nearest = min(max(0.0, low), high)
    if nearest not in excluded:
        return nearest
    if math.isfinite(low) and math.isfinite(high):
        return (low + high) / 2
    if nearest == low:
        return max(low + 1.0, math.nextafter(low, math.inf))
    return min(high - 1.0, math.nextafter(high, -math.inf))


def _shortest(field: FieldInfo | None) -> int:
    for bound in field.metadata if field is not None else ():
        if isinstance(bound, annotated_types.MinLen):
            return bound.min_length
    return 0
