"""JSON objects with fields that can be read as attributes."""

from __future__ import annotations

from typing import Any


class Fields(dict[str, Any]):
    """A JSON object with fields as attributes too: ``seen["board"]`` is ``seen.board``.

    So a scorer that was written for the models of an environment also accepts recorded data. A
    field with the name of a method of `dict` hides that method, as it does in a model. Reading an
    attribute that is no field raises AttributeError.
    """

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_") and dict.__contains__(self, name):
            return dict.__getitem__(self, name)
        return super().__getattribute__(name)

    def __getattr__(self, name: str) -> Any:
        known = ", ".join(dict.keys(self)) or "none"
        raise AttributeError(f"there is no field {name!r}; there are: {known}")


def with_fields(value: Any) -> Any:
    """Convert every object within a JSON value to `Fields`."""
    if isinstance(value, dict):
        return Fields({name: with_fields(inner) for name, inner in dict.items(value)})
    return [with_fields(inner) for inner in value] if isinstance(value, list) else value
