"""Conversion between batches of arrays and the values of many environments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from openenv._internal.lazy import lazy_module
from openenv.protocol.messages import IGNORED_ARGUMENTS, INFO, TRUNCATED
from openenv.reward import REWARD_INFO
from openenv.types import StepResult

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy_module("numpy")

NUMBERS = {bool, int, float}
FINAL_OBS = "final_obs"  # stays an array of objects, as in Gymnasium


def stack(values: Sequence[Any]) -> Any:
    """Stack the values of a field into an array, if all are numbers or arrays of equal shape.

    Anything else stays a list: text, lists of different lengths, batches with missing values.
    """
    first = values[0]
    kind = type(first)
    kinds = set(map(type, values))
    if kinds <= NUMBERS:
        try:
            return np.array(values, dtype=None if len(kinds) == 1 else float)
        except OverflowError:  # integers too large for NumPy
            return list(values)
    if len(kinds) > 1:
        return list(values)
    if kind is np.ndarray:
        same = all(value.shape == first.shape for value in values)
        return np.stack(values) if same else list(values)
    if kind is list and first:
        return _stack_lists(values)
    return list(values)


def _stack_lists(values: Sequence[Any]) -> Any:
    try:
        array = np.array(values)
    except ValueError:  # the lists have different lengths
        return list(values)
    return array if array.dtype.kind in "biuf" else list(values)


def stack_observations(observations: Sequence[Any]) -> Any:
    """Stack observations that are mappings of the same fields into a mapping of batches."""
    first = observations[0]
    if not all(issubclass(kind, Mapping) for kind in set(map(type, observations))):
        return stack(observations)
    names = first.keys()
    if any(o.keys() != names for o in observations):
        return list(observations)
    return {name: stack([o[name] for o in observations]) for name in names if name != "metadata"}


def rows_of(actions: Any, count: int, wrap: Callable[[Any], Any]) -> list[Any]:
    """Split a batch of actions into an action for each environment.

    Args:
        actions: A sequence of actions, a mapping of batches (one per field), or an array whose
            first axis is the environment.
        count: Number of environments.
        wrap: Turns an action or a bare value, such as a row of an array, into a dict of fields.

    Raises:
        ValueError: The number of actions differs from the number of environments.
    """
    if isinstance(actions, Mapping):
        columns = {name: _column(name, batch, count) for name, batch in actions.items()}
        return [wrap({name: column[i] for name, column in columns.items()}) for i in range(count)]
    rows = list(plain_value(actions))
    if len(rows) != count:
        raise ValueError(f"{len(rows)} actions for {count} environments")
    return list(map(wrap, rows))


def _column(name: str, batch: Any, count: int) -> list[Any]:
    column = list(map(plain_value, plain_value(batch)))
    if len(column) != count:
        raise ValueError(f"{len(column)} values of {name!r} for {count} environments")
    return column


def plain_value(value: Any) -> Any:
    """Convert a NumPy array or number to plain Python, which every action model accepts."""
    return value.tolist() if hasattr(value, "tolist") else value


SAID_OTHERWISE = frozenset({TRUNCATED, INFO, IGNORED_ARGUMENTS, REWARD_INFO})


def info_of(result: StepResult[Any]) -> dict[str, Any] | None:
    """Return what Gymnasium calls info: diagnostics, annotations and the details of the reward.

    Returns:
        The info; None if it would be empty.
    """
    metadata = result.metadata or {}
    info = {name: value for name, value in metadata.items() if name not in SAID_OTHERWISE}
    reward = {name: v for name, v in (result.reward_info or {}).items() if name != "spec"}
    if reward:
        info[REWARD_INFO] = reward
    return {**info, **(result.info or {})} or None


def gather_infos(infos: Iterable[Mapping[str, Any] | None], count: int) -> dict[str, Any]:
    """Gather the infos of environments into a dict of arrays, as Gymnasium does.

    The entry ``_key`` is a mask of the environments that have a value under ``key``.
    """
    gathered: dict[str, Any] = {}
    for index, info in enumerate(infos):
        if info:
            _add_info(gathered, info, index, count)
    return gathered


def _add_info(gathered: dict[str, Any], info: Mapping[str, Any], index: int, count: int) -> None:
    for key, value in info.items():
        known = gathered.get(key)
        if isinstance(value, Mapping) and key != FINAL_OBS and isinstance(known, dict | None):
            known = {} if known is None else known
            _add_info(known, value, index, count)
        else:
            known = _with_room_for(value, known, count, is_object=key == FINAL_OBS)
            known[index] = value
        gathered[key] = known
        gathered.setdefault(f"_{key}", np.zeros(count, dtype=bool))[index] = True


def _with_room_for(value: Any, known: Any, count: int, *, is_object: bool) -> Any:
    """Return an array with room for `value`: of the same type if possible, else of objects."""
    kind = type(value)
    is_number = kind in NUMBERS and not is_object
    is_array = kind is np.ndarray and not is_object
    if known is None:
        if is_number and _fits(value):
            return np.zeros(count, dtype=kind)
        if is_array:
            return np.zeros((count, *value.shape), dtype=value.dtype)
        return np.full(count, None, dtype=object)
    if isinstance(known, dict):  # other environments have a mapping here
        return np.array([_row(known, i) for i in range(count)], dtype=object)
    if known.dtype == object:
        return known
    if is_number and known.ndim == 1 and _fits(value) and known.dtype == np.dtype(kind):
        return known
    if is_array and known.shape[1:] == value.shape and known.dtype == value.dtype:
        return known
    wider = np.full(count, None, dtype=object)
    for i, row in enumerate(known):
        wider[i] = row.item() if known.ndim == 1 else row
    return wider


def _fits(value: Any) -> bool:
    return type(value) is not int or -(2**63) <= value < 2**63


def _row(gathered: dict[str, Any], index: int) -> dict[str, Any]:
    return {
        key: _row(values, index) if isinstance(values, dict) else values[index]
        for key, values in gathered.items()
        if f"_{key}" in gathered and gathered[f"_{key}"][index]
    }
