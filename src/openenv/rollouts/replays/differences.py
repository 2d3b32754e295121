"""The first difference between two JSON values."""

from __future__ import annotations

import base64
import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from openenv.protocol.records import json_value

if TYPE_CHECKING:
    import numpy as np

MISSING = "<missing>"


class ValueDifference(NamedTuple):
    """A difference between two values: the JSON path, and the value on each side."""

    path: str
    expected: Any
    got: Any


def first_difference(
    expected: Any, got: Any, tolerance: float = 0.0, path: str = "$"
) -> ValueDifference | None:
    """Return the first difference from the expected value; None if the values are equal.

    Args:
        tolerance: Allowed difference of numbers, absolute or relative to the larger one.
    """
    if isinstance(expected, dict) and expected.keys() == ARRAY_KEYS:
        return _between_arrays(expected, got, tolerance, path)
    if isinstance(expected, dict) and isinstance(got, dict):
        return _between_objects(expected, got, tolerance, path)
    if isinstance(expected, list) and isinstance(got, list):
        return _between_lists(expected, got, tolerance, path)
    return None if _is_same(expected, got, tolerance) else ValueDifference(path, expected, got)


def _is_same(expected: Any, got: Any, tolerance: float) -> bool:
    if isinstance(expected, bool) or isinstance(got, bool):
        return expected is got
    if isinstance(expected, int | float) and isinstance(got, int | float):
        return expected == got or _is_close(expected, got, tolerance)
    return bool(type(expected) is type(got) and expected == got)


def _is_close(expected: float, got: float, tolerance: float) -> bool:
    if expected != expected:  # NaN, which arrays may hold
        return got != got
    try:
        return math.isclose(expected, got, rel_tol=tolerance, abs_tol=tolerance)
    except OverflowError:  # an integer too large for a float
        return False


def _between_objects(
    expected: dict[str, Any], got: dict[str, Any], tolerance: float, path: str
) -> ValueDifference | None:
    for name in [*expected, *(name for name in got if name not in expected)]:
        here = f"{path}.{name}" if re.fullmatch(r"\w+", name) else f"{path}[{name!r}]"
        if name not in got or name not in expected:
            return ValueDifference(here, expected.get(name, MISSING), got.get(name, MISSING))
        found = first_difference(expected[name], got[name], tolerance, here)
        if found is not None:
            return found
    return None


def _between_lists(
    expected: list[Any], got: list[Any], tolerance: float, path: str
) -> ValueDifference | None:
    for index, (one, other) in enumerate(zip(expected, got, strict=False)):
        found = first_difference(one, other, tolerance, f"{path}[{index}]")
        if found is not None:
            return found
    if len(expected) == len(got):
        return None
    shorter = min(len(expected), len(got))
    ends = [values[shorter] if shorter < len(values) else MISSING for values in (expected, got)]
    return ValueDifference(f"{path}[{shorter}]", *ends)


# ------------------------------------------------------------------ arrays

ARRAY_KEYS = {"dtype", "shape", "data"}


def _between_arrays(
    expected: dict[str, Any], got: Any, tolerance: float, path: str
) -> ValueDifference | None:
    if expected == got:
        return None
    one, other = _array(expected), _array(got)
    if one is not None and isinstance(got, list):  # protocol version 0 sends arrays as lists
        return first_difference(json_value(one.tolist()), got, tolerance, path)
    if one is None or other is None:
        if isinstance(got, dict):
            return _between_objects(expected, got, tolerance, path)
        return ValueDifference(path, expected, got)
    for name in ("dtype", "shape"):
        if expected[name] != got[name]:
            return ValueDifference(f"{path}.{name}", expected[name], got[name])
    return first_difference(one.tolist(), other.tolist(), tolerance, path)


def _array(value: Any) -> np.ndarray | None:
    """Decode an array; None for an object that only looks like an array."""
    if not isinstance(value, dict) or value.keys() != ARRAY_KEYS:
        return None
    import numpy as np

    try:
        data = base64.b64decode(value["data"])
        array: np.ndarray = np.frombuffer(data, value["dtype"]).reshape(value["shape"])
    except (TypeError, ValueError, OverflowError):
        return None
    return array
