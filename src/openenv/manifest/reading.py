"""Reads a manifest together with the place of every node.

A manifest is untrusted text: one larger than 128 KiB is not read, and `openenv._internal.yaml`
refuses YAML that expands without bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from openenv._internal.quoting import closest
from openenv._internal.yaml import UnreadableYAML, pairs_of, read_yaml
from openenv.manifest import MANIFEST, SPEC_VERSION, ManifestError

__all__ = ["ManifestDocument", "ManifestProblem", "describe_error", "read_document", "read_text"]

MAX_BYTES = 128 * 1024
MERGE = "<<"
NUMBERS = {"tag:yaml.org,2002:float", "tag:yaml.org,2002:int", "tag:yaml.org,2002:timestamp"}
SHOWN = 100
_OURS = {"signature", "manifest_schema_version"}


@dataclass(frozen=True)
class ManifestProblem:
    """A problem in a manifest, and its place.

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


@dataclass(frozen=True)
class ManifestDocument:
    """The text and the content of a manifest, with the places of the nodes."""

    text: str
    content: dict[str, Any]  # the mapping in the file
    root: Any  # the mapping as YAML nodes, which know their places
    _named: dict[int, dict[str, tuple[Any, Any]]] = field(default_factory=dict, repr=False)

    def problem(
        self, path: tuple[Any, ...], message: str, *, at_key: bool = False
    ) -> ManifestProblem:
        """Return a problem at the field that a path of keys and indices leads to, if it exists.

        The value is marked, or the field's name if `at_key`.
        """
        key, value, is_there = self._find(path)
        spans_lines = value.start_mark.line != value.end_mark.line
        marked = key if at_key or not is_there or spans_lines else value
        return self.problem_at(marked, ".".join(str(part) for part in path), message)

    def problem_at(self, node: Any, path: str, message: str) -> ManifestProblem:
        """Return a problem at a node, or at the beginning of the file if the node is None."""
        if node is None:
            return _problem(self._lines, path, message, 0, 0)
        start, end = node.start_mark, node.end_mark
        width = end.column - start.column if end.line == start.line else 0
        return _problem(self._lines, path, message, start.line, start.column, width)

    @cached_property
    def _lines(self) -> list[str]:
        return self.text.split("\n")

    def _find(self, path: tuple[Any, ...]) -> tuple[Any, Any, bool]:
        """Return the nodes of a field's name and value, and whether the whole path exists."""
        key, value = None, self.root
        for part in path:
            inner = self._entries(value).get(str(part))
            if inner is None:
                return key, value, False
            key, value = inner
        return key, value, True

    def _entries(self, node: Any) -> dict[str, tuple[Any, Any]]:
        """Return the entries of a node by name or index, each as the nodes of name and value."""
        if id(node) not in self._named:
            if node.id == "sequence":
                found = {str(number): (inner, inner) for number, inner in enumerate(node.value)}
            else:
                found = {str(key.value): (key, value) for key, value in pairs_of(node)}
            self._named[id(node)] = found
        return self._named[id(node)]

    def numbers(self) -> Iterator[tuple[str, Any]]:
        """Yield versions and variables that YAML reads as numbers: 0.10 would become 0.1."""
        for key, value in self.root.value:
            if key.value in ("version", "variables"):
                inside = [(f"{key.value}.{name.value}", node) for name, node in pairs_of(value)]
                for path, node in inside or [(key.value, value)]:
                    if node.id == "scalar" and node.tag in NUMBERS:
                        yield path, node

    def duplicates(self, node: Any = None, path: tuple[str, ...] = ()) -> Iterator[ManifestProblem]:
        """Yield a problem for each name that occurs twice in one mapping, at a node and below."""
        lines: dict[str, int] = {}
        for key, value in pairs_of(self.root if node is None else node):
            here = (*path, str(key.value))
            if here[-1] in lines and here[-1] != MERGE:
                name = ".".join(here)
                message = f"{name}: stands here and in line {lines[here[-1]]}; keep one of them"
                yield self.problem_at(key, name, message)
            lines.setdefault(here[-1], key.start_mark.line + 1)
            yield from self.duplicates(value, here)


def read_document(path: Path) -> ManifestDocument:
    """Read a manifest.

    Raises:
        ManifestError: The file cannot be read, holds no mapping, or is newer than this package.
    """
    return parse(read_text(path), path)


def read_text(path: Path) -> str:
    """Return the text of a manifest.

    Raises:
        ManifestError: The file cannot be read, is too large, or is not UTF-8.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ManifestError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise _unreadable(path, "", f"it is larger than {MAX_BYTES // 1024} KiB")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace")
        why = f"it is not UTF-8: byte {error.start} is {data[error.start]:#04x}"
        line = before.count("\n")
        raise _unreadable(path, before, why, line, len(before.rpartition("\n")[2])) from error


def parse(text: str, path: Path | str = MANIFEST) -> ManifestDocument:
    """Parse a manifest's text; errors name the path.

    Raises:
        ManifestError: The text is not valid YAML, holds no mapping, expands without bound, or is
            newer than this package.
    """
    try:
        content, root = read_yaml(text)
    except UnreadableYAML as error:
        raise _unreadable(path, text, error.why, error.line, error.column) from error
    if not isinstance(content, dict):
        found = "and is empty" if content is None else f"not {type(content).__name__}"
        message = f"must hold a mapping, {found}"
        raise ManifestError(
            f"{path} {message}", _problem(text.split("\n"), "", f"it {message}", 0, 0)
        )
    document = ManifestDocument(text, content, root)
    version: Any = content.get("spec_version")
    is_number = isinstance(version, int | float) and not isinstance(version, bool)
    if is_number and version > SPEC_VERSION:
        message = (
            f"spec_version: {version} is newer than {SPEC_VERSION}, the newest that this version "
            "of openenv knows: pip install -U openenv"
        )
        problem = document.problem(("spec_version",), message)
        raise ManifestError(f"{path} cannot be read: {message}", problem)
    return document


def _unreadable(
    path: Path | str, text: str, why: str, line: int = 0, column: int = 0
) -> ManifestError:
    where = f"line {line + 1}, column {column + 1}: " if line or column else ""
    problem = _problem(text.split("\n"), "", f"it cannot be read: {why}", line, column)
    return ManifestError(f"{path} cannot be read: {where}{why}", problem)


def _problem(
    lines: list[str], path: str, message: str, line: int, column: int, width: int = 1
) -> ManifestProblem:
    source = lines[line] if line < len(lines) else ""
    return ManifestProblem(
        path, message, line + 1, column + 1, width or len(source) - column, source
    )


def describe_error(error: Any, model: type[BaseModel], whole: str = MANIFEST) -> str:
    """Describe an error of pydantic in one sentence: the field, the given value, the expectation.

    `whole` stands for the field if the error concerns the whole document.
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
