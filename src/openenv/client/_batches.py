"""Batches of actions, observations and infos: from many environments to arrays, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from openenv._lazy import lazy_module

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy_module("numpy")

__all__ = ["gather_infos", "rows_of", "stack"]

NUMBERS = (bool, int, float)


def stack(values: Sequence[Any]) -> Any:
    """Put the values of one field into one array, if they are numbers or arrays of one shape.

    Anything else (text, lists of different lengths, values of which some are missing) stays a list.
    """
    first = values[0]
    kind = type(first)
    if kind in NUMBERS:
        if all(type(value) is kind for value in values):
            try:
                return np.array(values)
            except OverflowError:  # integers beyond 64 bits
                return list(values)
        if all(type(value) in NUMBERS for value in values):
            return np.array(values, dtype=float)
        return list(values)
    if kind is np.ndarray:
        same = all(type(v) is kind and v.shape == first.shape for v in values)
        return np.stack(values) if same else list(values)
    if kind is list and first and all(type(value) is list for value in values):
        return _stack_lists(values)
    return list(values)


def _stack_lists(values: Sequence[Any]) -> Any:
    try:
        array = np.array(values)
    except ValueError:  # of different lengths
        return list(values)
    return array if array.dtype.kind in "biuf" else list(values)


def stack_observations(observations: Sequence[Any]) -> Any:
    """Put observations that are mappings of the same fields into a mapping of batches."""
    first = observations[0]
    if not isinstance(first, Mapping):
        return stack(observations)
    names = first.keys()
    if any(not isinstance(o, Mapping) or o.keys() != names for o in observations):
        return list(observations)
    return {name: stack([o[name] for o in observations]) for name in names if name != "metadata"}


def rows_of(actions: Any, count: int, wrap: Callable[[Any], Any]) -> list[Any]:
    """Part a batch of actions into one for each environment.

    Args:
        actions: A sequence of actions, a mapping of batches (one a field), or an array whose
            first axis is the environments.
        count: How many environments.
        wrap: Turns a bare value, such as a row of an array, into an action.

    Raises:
        ValueError: There are more or fewer actions than environments.
    """
    if isinstance(actions, Mapping):
        columns = {name: _column(name, batch, count) for name, batch in actions.items()}
        return [{name: column[i] for name, column in columns.items()} for i in range(count)]
    rows = actions.tolist() if hasattr(actions, "tolist") and actions.ndim == 1 else list(actions)
    if len(rows) != count:
        raise ValueError(f"{len(rows)} actions for {count} environments")
    return [wrap(row) for row in rows]


def _column(name: str, batch: Any, count: int) -> list[Any]:
    column = batch.tolist() if hasattr(batch, "tolist") and batch.ndim == 1 else list(batch)
    if len(column) != count:
        raise ValueError(f"{len(column)} values of {name!r} for {count} environments")
    return column


def gather_infos(infos: Iterable[Mapping[str, Any] | None], count: int) -> dict[str, Any]:
    """Put the infos of environments into one dict of arrays, as Gymnasium does: under ``_key``
    stands which environments have said anything under ``key``.
    """
    gathered: dict[str, Any] = {}
    for index, info in enumerate(infos):
        for key, value in (info or {}).items():
            if key not in gathered:
                kind = type(value) if type(value) in NUMBERS else object
                gathered[key] = np.zeros(count, dtype=kind) if kind is not object else _nones(count)
                gathered[f"_{key}"] = np.zeros(count, dtype=bool)
            elif gathered[key].dtype != object and type(value) is not type(gathered[key][0].item()):
                gathered[key] = gathered[key].astype(object)
            gathered[key][index] = value
            gathered[f"_{key}"][index] = True
    return gathered


def _nones(count: int) -> np.ndarray:
    return np.full(count, None, dtype=object)
