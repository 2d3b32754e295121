"""Bounded quotes of a peer's data, for errors, logs and terminals.

Quotes contain only data that the peer itself wrote. For an object that this process made, such as
an array, they name its kind, never its content or `repr`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol, cast

from openenv._internal.lazy import json

if TYPE_CHECKING:
    from pydantic import ValidationError

MAX_QUOTED = 2000  # characters of JSON
MAX_DEPTH = 20
MAX_BITS = 4096  # of an integer
MAX_ERRORS = 100  # of one message

# Characters that a terminal or a log may interpret: the control characters of ISO 6429 except tab
# and line feed, and those that change the writing direction (Unicode, UAX 9).
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def shortened(text: str, limit: int = MAX_QUOTED) -> str:
    """Return the text, or the first `limit` characters and the length."""
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


def printable(text: str) -> str:
    r"""Return the text with control characters as escapes: ``\x1b`` stands for ESC."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def closest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the closest known name; None if no name is closer than `cutoff`, from 0 to 1."""
    import difflib

    return next(iter(difflib.get_close_matches(name, list(known), 1, cutoff)), None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of an error that suggests the closest known name, or ""."""
    close = closest(name, known)
    return f"; did you mean {close!r}?" if close is not None else ""


def first_problem(error: ValidationError, where: str = "") -> str:
    """Return the first error of a failed validation: its place, or `where`, and the message."""
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"])) or where
    return f"{place}: {first['msg']}" if place else str(first["msg"])


def quoted(value: Any, limit: int = MAX_QUOTED) -> Any:
    """Return a JSON value unchanged, or as a cut text if it is longer than `limit` characters."""
    copy = _Copy(limit)
    made = copy.of(value, 0)
    if copy.left >= 0:
        return made
    from pydantic_core import to_json

    return to_json(made).decode()[:limit] + "..."


class _Copy:
    """A copier of values that stops after `left` characters."""

    def __init__(self, limit: int) -> None:
        self.left = limit

    def of(self, value: Any, depth: int) -> Any:
        """Return a copy, cut where no characters are left."""
        kind = type(value)
        if value is None or kind is bool:
            self.left -= 5
            return value
        if kind is str:
            cut = value[: max(self.left, 0) + 1]
            self.left -= len(value) + 2
            return cut.encode(errors="replace").decode()  # UTF-8 cannot carry a lone surrogate
        if kind is bytes and len(value) <= self.left:
            with contextlib.suppress(UnicodeDecodeError):
                return self.of(value.decode(), depth)
        if kind is int and value.bit_length() <= MAX_BITS:
            self.left -= len(str(value)) + 1
            return value
        if kind is float:
            self.left -= 20
            return value if value - value == 0 else None  # infinities and NaN, which JSON lacks
        if depth < MAX_DEPTH and kind in (list, tuple):
            return self._items(value, depth)
        if depth < MAX_DEPTH and kind is dict:
            return self._fields(value, depth)
        return self.of(_kind_of(value), depth)

    def _items(self, values: list[Any] | tuple[Any, ...], depth: int) -> list[Any]:
        copied = []
        self.left -= 2
        for value in values:
            if self.left < 0:
                break
            copied.append(self.of(value, depth + 1))
        return copied

    def _fields(self, fields: dict[Any, Any], depth: int) -> dict[str, Any]:
        copied = {}
        self.left -= 2
        for key, value in fields.items():
            if self.left < 0:
                break
            name = self.of(key if isinstance(key, str) else _kind_of(key), depth)
            copied[name] = self.of(value, depth + 1)
        return copied


def _kind_of(value: Any) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    if type(value).__module__ == "numpy" and hasattr(value, "shape"):
        return f"<array of {value.dtype}, shape {value.shape}>"
    if isinstance(value, int):
        return f"<integer of {value.bit_length()} bits>"
    return f"<{type(value).__name__}>"


def problem(kind: str, message: str, value: Any) -> dict[str, Any]:
    """Return an error about a whole value, in the form of Pydantic's errors."""
    return {"type": kind, "loc": [], "msg": message, "input": quoted(value)}


class _HasErrors(Protocol):
    """Pydantic's `ValidationError`, or FastAPI's."""

    def errors(self) -> Any: ...


def error_list(error: _HasErrors) -> list[dict[str, Any]]:
    """Return Pydantic's errors as JSON: ``type``, ``loc``, ``msg``, ``input``, ``ctx``, ``url``.

    If there are more than `MAX_ERRORS`, only the first are returned, and the count of the others.
    """
    count, errors = _first_errors(error)
    shown = [_told(one) for one in errors]
    if count > MAX_ERRORS:
        shown.append(problem("too_many_errors", f"and {count - MAX_ERRORS} more", None))
    return shown


def _first_errors(error: _HasErrors) -> tuple[int, list[dict[str, Any]]]:
    """Return the number of errors, and the first errors.

    Pydantic makes all errors at once. If there are many, JSON takes less memory, and only the
    beginning is parsed; those errors have no `input`.
    """
    from pydantic_core import ValidationError  # imported late, to keep commands fast

    if not isinstance(error, ValidationError) or error.error_count() <= MAX_ERRORS:
        errors = cast("list[dict[str, Any]]", error.errors())
        return len(errors), errors[:MAX_ERRORS]
    text = error.json(include_input=False, include_context=False)
    read = json.JSONDecoder().raw_decode
    errors, place = [], 0
    for _ in range(MAX_ERRORS):
        one, place = read(text, place + 1)  # after the bracket, or a comma
        errors.append(one)
    return error.error_count(), errors


def _told(error: dict[str, Any]) -> dict[str, Any]:
    told = {
        **error,
        "loc": [shortened(part) if isinstance(part, str) else part for part in error["loc"]],
        "msg": shortened(error["msg"]),
    }
    if "input" in error:
        told["input"] = quoted(error["input"])
    if "ctx" in told:  # may hold the exception that a validator raised
        told["ctx"] = {
            name: shortened(str(value)) if isinstance(value, Exception) else quoted(value)
            for name, value in told["ctx"].items()
        }
    return told
