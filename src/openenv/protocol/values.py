"""Values as both protocol versions write them: the JSON form, with arrays and bytes kept apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_jsonable_python

from openenv._internal.generics import once_per_class
from openenv.arrays import Kept, holds_arrays
from openenv.types import declares_truncated


class WireFields(dict[str, Any]):
    """Fields that `to_wire_value` wrote; a second pass would turn their bytes into text."""

    __slots__ = ()


def to_wire_value(
    value: Any, exclude: set[str] | None = None, options: dict[str, Any] | None = None
) -> Any:
    """Write a value as JSON would, but keep arrays and declared bytes as they are.

    A client must get the same values whatever version it speaks. `options` are further options of
    `model_dump`, for a model.

    Raises:
        PydanticSerializationError: The value cannot be written as JSON.
    """
    write = quick_writer(type(value)) if options is None else None
    if write is not None:
        try:
            return write(value, mode="json", exclude=exclude)
        except PydanticSerializationError:
            pass  # it may still hold arrays
    kept = Kept()
    if not isinstance(value, BaseModel):
        return kept.put_back(to_jsonable_python(value, context=kept, fallback=kept.fallback))
    write = type(value).__pydantic_serializer__.to_python
    context: dict[str, Any] = {"context": kept, "fallback": kept.fallback, **(options or {})}
    return kept.put_back(write(value, mode="json", exclude=exclude, **context))


@once_per_class
def quick_writer(cls: type) -> Callable[..., Any] | None:
    """Return the compiled writer of a model without arrays; None for any other class."""
    if not issubclass(cls, BaseModel) or holds_arrays(cls):
        return None
    return cls.__pydantic_serializer__.to_python


@once_per_class
def outer_fields(cls: type[BaseModel]) -> set[str]:
    """Return the names of the fields of a model that travel beside the observation.

    If a class declares `truncated` itself, the field stays in the observation, as it always did.
    """
    return {"reward", "done"} if declares_truncated(cls) else {"reward", "done", "truncated"}


def describe_unwritable(value: Any, write: Callable[[str], object], error: Exception) -> str:
    """Return a message about the field of a model that cannot be written, trying each of them."""
    cls = type(value)
    fields = getattr(cls, "model_fields", ())
    name = next((name for name in fields if not _is_writable(name, write)), None)
    if name is None:
        return f"{cls.__name__} cannot be sent: {error}"
    held = getattr(value, name)
    cure = (
        "Convert it in the environment (array.tolist(), base64, str), or declare the field as "
        "openenv.NDArray where it is an array."
    )
    if isinstance(held, bytes | bytearray):
        cure = "Declare the field as Annotated[bytes, openenv.Blob()], which is sent as base64."
    kind = type(held).__name__
    return f"{cls.__name__}.{name} holds {kind}, which cannot be sent: {error}. {cure}"


def _is_writable(name: str, write: Callable[[str], object]) -> bool:
    try:
        write(name)
    except (ValueError, TypeError):
        return False
    return True
