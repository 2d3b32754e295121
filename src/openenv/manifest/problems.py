"""A problem in a manifest and the place: line, column, the source line and a caret."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pydantic import BaseModel

from openenv._internal.quoting import closest
from openenv.manifest import MANIFEST

__all__ = ["ManifestProblem", "describe_error"]

SHOWN = 100
_OURS = {"signature", "manifest_schema_version"}


@dataclass(frozen=True)
class ManifestProblem:
    """A problem in a manifest, and the place.

    Attributes:
        path: The field, such as ``validation.reward.range``; empty for the whole file.
        message: One sentence that begins with the field.
        line: Line in the file, from 1.
        column: Column in the line, in characters, from 1.
        width: Number of characters to mark.
        source: The source line.
    """

    path: str
    message: str
    line: int
    column: int
    width: int = 1
    source: str = ""

    def __str__(self) -> str:
        return f"{MANIFEST}:{self.line}:{self.column}: {self.message}"

    def excerpt(self) -> list[str]:
        """Return the source line and a line of carets under the marked characters."""
        line = "".join(char if char.isprintable() else " " for char in self.source)
        first = max(0, self.column - 1 - SHOWN // 2) if len(line) > SHOWN else 0
        shown = line[first : first + SHOWN]
        start = min(self.column - 1 - first, len(shown))
        number = f"{self.line} | "
        carets = "^" * max(1, min(self.width, len(shown) - start))
        return [number + shown, f"{' ' * (len(number) - 2)}| {' ' * start}{carets}"]

    def as_data(self) -> dict[str, Any]:
        """Return the problem as JSON data."""
        return asdict(self)


def describe_error(error: Any, model: type[BaseModel], whole: str = MANIFEST) -> str:
    """Describe a pydantic error in one sentence: the field, the given value, the expectation.

    Args:
        error: An item of `ValidationError.errors()`.
        model: The model that was validated.
        whole: The text that stands for the field if the error concerns the whole document.
    """
    path = ".".join(str(part) for part in error["loc"])
    kind, given = error["type"], error.get("input")
    beside = _model_at(error["loc"][:-1], model)
    fields = beside.model_fields if beside else {}
    if kind == "missing":
        return f"{path}: is missing"
    if kind == "extra_forbidden":
        known = [name for name in fields if name not in _OURS]
        close = closest(str(error["loc"][-1]), known)
        hint = f"; did you mean {close}?" if close else f"; there are {', '.join(known)}"
        return f"{path}: is not a field{hint if known else ''}"
    if kind == "value_error":
        return f"{path or whole}: {error['ctx']['error']}"
    field = fields.get(str(error["loc"][-1])) if error["loc"] else None
    if kind == "string_pattern_mismatch" and field is not None and field.description:
        wanted = _lowered(field.description.rstrip("."))
        return f"{path}: {given!r:.100} does not fit; expected: {wanted}"
    return f"{path}: {_lowered(error['msg'])}, not {given!r:.100}"


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]


def _model_at(path: tuple[Any, ...], model: type[BaseModel]) -> type[BaseModel] | None:
    for part in path:
        field = model.model_fields.get(str(part))
        annotation = None if field is None else field.annotation
        for one in (annotation, *getattr(annotation, "__args__", ())):
            if isinstance(one, type) and issubclass(one, BaseModel):
                model = one
                break
        else:
            return None
    return model
