"""JSON objects with fields that can be read as attributes."""

from __future__ import annotations

from typing import Any


class Fields(dict[str, Any]):
    """A JSON object whose fields are attributes too: ``seen["board"]`` is ``seen.board``.

    A scorer that was written for the models of an environment therefore also accepts recorded data.
    A field named like a method of `dict` hides that method, as in a model. Reading an unknown
    attribute raises AttributeError.
    """

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_") and dict.__contains__(self, name):
            return dict.__getitem__(self, name)
        return super().__getattribute__(name)

    def __getattr__(self, name: str) -> Any:
        known = ", ".join(dict.keys(self)) or "none"
        raise AttributeError(f"there is no field {name!r}; there are: {known}")


def with_fields(value: Any) -> Any:
    """Convert every object in a JSON value to `Fields`, recursively."""
    if isinstance(value, dict):
        return Fields({name: with_fields(inner) for name, inner in dict.items(value)})
    return [with_fields(inner) for inner in value] if isinstance(value, list) else value
