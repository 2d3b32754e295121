"""Elements of spaces as fields of actions and observations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel

from openenv._internal.packages import needs
from openenv._internal.quoting import did_you_mean
from openenv.spaces import Choice, from_plain, space_of, to_plain
from openenv.types import Action, Observation

with needs("openenv.integrations"):
    import numpy as np
    from gymnasium import Space, spaces
    from gymnasium.vector import utils

NUMBERS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


def elements_of_actions(
    schema: Mapping[str, Any] | None, space: Space[Any] | None, field: str | None
) -> SpaceElements:
    """Map elements of a space to actions; see `SpaceElements.of`."""
    return SpaceElements.of("action", schema, space, field, Action.model_fields)


def elements_of_observations(
    schema: Mapping[str, Any] | None, space: Space[Any] | None, field: str | None
) -> SpaceElements:
    """Map observations to elements of a space; see `SpaceElements.of`."""
    return SpaceElements.of("observation", schema, space, field, Observation.model_fields)


class SpaceElements(NamedTuple):
    """A space, and how its elements map to the fields of a model.

    Attributes:
        what: The kind of model, ``action`` or ``observation``, for messages.
        field: The field that holds an element; None if the space is a `Dict` of the fields.
    """

    what: str
    space: Space[Any]
    field: str | None

    @classmethod
    def of(
        cls,
        what: str,
        schema: Mapping[str, Any] | None,
        space: Space[Any] | None,
        field: str | None,
        without: Iterable[str],
    ) -> SpaceElements:
        """Match a model with a space.

        If the model has a single field, that field holds the element. If it has several, the
        element is a `Dict` of them.

        Args:
            schema: The model's JSON schema; None if unknown.
            space: The space, if given by the caller; a `Dict` may name some of the fields only.
            field: The field that holds the element, if given by the caller.
            without: Fields to ignore, which every model has.

        Raises:
            ValueError: The model and the space do not match, or no space fits the model.
        """
        if schema is None:
            if space is None:
                raise ValueError(
                    f"nobody tells the schema of the {what} here: give {what}_space=..., and "
                    f"{what}_field=... where one field holds its elements"
                )
            return cls(what, space, field)
        properties = schema.get("properties", {}).items()
        # A computed field is not part of the element: it follows from the others.
        without = {*without, *(name for name, one in properties if one.get("readOnly") is True)}
        fields = {name: one for name, one in properties if name not in without}
        if field is not None and field not in fields:
            hint = did_you_mean(field, fields) or f"; it has {', '.join(fields)}"
            raise ValueError(f"the {what} has no field {field!r}{hint}")
        names_fields = isinstance(space, spaces.Dict) and space.spaces.keys() <= fields.keys()
        if field is None and not names_fields:
            field = _only(what, schema, fields, space)
        if space is not None:
            return cls(what, space, field)
        if field is None:
            return cls(what, space_of(schema, path=what, without=without), None)
        definitions = {"$defs": schema.get("$defs", {})}
        path = f"{what}.{field}"
        return cls(what, space_of({**fields[field], **definitions}, path=path), field)

    def to_fields(self, element: Any) -> dict[str, Any]:
        """Convert an element to the fields of an action, with lists for arrays."""
        plain = self.to_plain(element)
        return {self.field: plain} if self.field is not None else plain

    def to_plain(self, element: Any) -> Any:
        """Convert an element to JSON types."""
        return _listed(to_plain(self.space, element, path=self.what))

    def from_plain(self, value: Any) -> Any:
        """Convert a value to an element."""
        return from_plain(self.space, value, path=self.what, strict=False)

    def from_fields(self, model: Mapping[str, Any] | BaseModel) -> Any:
        """Convert an observation to an element."""
        fields: Mapping[str, Any] = dict(model) if isinstance(model, BaseModel) else model
        if self.field is None:
            return from_plain(self.space, fields, path=self.what, strict=False)
        if self.field not in fields:
            raise ValueError(f"the {self.what} came without its field {self.field!r}")
        path = f"{self.what}.{self.field}"
        return from_plain(self.space, fields[self.field], path=path, strict=False)

    def to_batch(self, elements: Any, batched: Space[Any]) -> Any:
        """Split a batch of elements into the actions of many environments."""
        if self.field is not None and _is_of_numbers(self.space):
            return {self.field: np.asarray(elements)}
        return [self.to_fields(element) for element in utils.iterate(batched, elements)]

    def from_batch(self, batch: Any) -> Any:
        """Combine the observations of many environments into a batch of elements.

        Args:
            batch: A mapping from fields to columns, or a list of observations.
        """
        if not isinstance(batch, Mapping):
            return _concatenated(self.space, [self.from_fields(one) for one in batch])
        if self.field is not None:
            return _stacked(self.space, batch[self.field], f"{self.what}.{self.field}")
        if not isinstance(self.space, spaces.Dict):
            parted = zip(*batch.values(), strict=True)
            return self.from_batch([dict(zip(batch, values, strict=True)) for values in parted])
        return {
            name: _stacked(inner, batch[name], f"{self.what}.{name}")
            for name, inner in self.space.spaces.items()
        }


def _only(
    what: str, schema: Mapping[str, Any], fields: Mapping[str, Any], space: Space[Any] | None
) -> str | None:
    """Return the field that holds the elements; None if all fields do."""
    if len(fields) == 1:
        return next(iter(fields))
    if space is None:
        return None
    needed = [name for name in fields if name in schema.get("required", ())]
    if what == "action" and len(needed) == 1:
        return needed[0]
    raise ValueError(
        f"the {what} has the fields {', '.join(fields)}: {what}_field=... says which of them holds "
        f"an element of {space}"
    )


def _listed(plain: Any) -> Any:
    if isinstance(plain, np.ndarray):
        return plain.tolist()
    if isinstance(plain, dict):
        return {name: _listed(value) for name, value in plain.items()}
    if isinstance(plain, list | tuple):
        return [_listed(value) for value in plain]
    return plain


def _is_of_numbers(space: Space[Any]) -> bool:
    return isinstance(space, NUMBERS) and not isinstance(space, Choice)


def _stacked(space: Space[Any], column: Any, path: str) -> Any:
    """Return the values of a field as a batch; return an array that already is one unchanged."""
    if (
        type(column) is np.ndarray
        and column.dtype == space.dtype
        and column.shape[1:] == space.shape
        and _is_of_numbers(space)
    ):
        return column
    rows = [from_plain(space, value, path=path, strict=False) for value in column]
    return _concatenated(space, rows)


def _concatenated(space: Space[Any], elements: Sequence[Any]) -> Any:
    room: Any = utils.create_empty_array(space, len(elements))
    return utils.concatenate(space, elements, room)
