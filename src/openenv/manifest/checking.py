"""Checks that report every problem of a manifest with its place; migration to the newest form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from openenv._internal.quoting import closest
from openenv.manifest import SPEC_VERSION, ManifestError
from openenv.manifest.model import Manifest
from openenv.manifest.reading import (
    ManifestDocument,
    ManifestProblem,
    describe_error,
    parse,
    read_text,
)

__all__ = ["ManifestCheck", "check_manifest", "check_text", "migrate_manifest"]


@dataclass(frozen=True)
class ManifestCheck:
    """The result of checking a manifest.

    Attributes:
        manifest: The parsed manifest; None if there are errors.
        content: The mapping in the file; empty if it cannot be read.
        errors: Problems that make the manifest unusable.
        warnings: Harmless problems that the author probably did not intend.
    """

    manifest: Manifest | None
    content: dict[str, Any] = field(default_factory=dict)
    errors: tuple[ManifestProblem, ...] = ()
    warnings: tuple[ManifestProblem, ...] = ()


def check_manifest(path: Path) -> ManifestCheck:
    """Check a manifest file.

    Raises:
        ManifestError: The file does not exist or cannot be read.
    """
    try:
        text = read_text(path)
    except ManifestError as error:
        if error.problem is None:
            raise
        return ManifestCheck(None, errors=(error.problem,))
    return check_text(text)


def check_text(text: str) -> ManifestCheck:
    """Check the text of a manifest."""
    try:
        document = parse(text)
    except ManifestError as error:
        assert error.problem is not None
        return ManifestCheck(None, errors=(error.problem,))
    manifest, errors = None, list(document.duplicates())
    try:
        manifest = Manifest.model_validate(document.content)
    except ValidationError as error:
        for one in error.errors():
            path = ".".join(str(part) for part in one["loc"])
            at_key = one["type"] in ("extra_forbidden", "missing")
            message = describe_error(one, Manifest, path)
            errors.append(document.problem(one["loc"], message, at_key=at_key))
    warnings = [*_unknown(document), *_numbers(document)]
    for problems in (errors, warnings):
        problems.sort(key=lambda one: (one.line, one.column))
    whole = None if errors else manifest
    return ManifestCheck(whole, document.content, tuple(errors), tuple(warnings))


def _unknown(document: ManifestDocument) -> Iterator[ManifestProblem]:
    """Report unknown top-level names, which are ignored."""
    known = list(Manifest.model_fields)
    for name in document.content:
        if name not in known:
            close = closest(str(name), known)
            meant = f"did you mean {close}?" if close else "it is ignored"
            yield document.problem((name,), f"{name}: is not a field; {meant}", at_key=True)


def _numbers(document: ManifestDocument) -> Iterator[ManifestProblem]:
    for path, node in document.numbers():
        message = f'{path}: {node.value} is a number to YAML; write "{node.value}"'
        yield document.problem_at(node, path, message)


class _TextEdit(NamedTuple):
    start: int  # index of the first character to replace
    end: int  # index after the last one
    text: str
    words: str  # a description of the change for people


def migrate_manifest(text: str) -> tuple[str, list[str]]:
    """Convert the text of a manifest to the newest form; parts that need no change stay as written.

    Returns:
        The new text, and a description of each change; empty if the text is in the newest form.

    Raises:
        ManifestError: The text cannot be read, or is newer than this package.
    """
    document = parse(text)
    edits = sorted([*_version(document), *_quoted(document)], reverse=True)
    for edit in edits:
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text, [edit.words for edit in reversed(edits)]


def _version(document: ManifestDocument) -> Iterator[_TextEdit]:
    """Yield the edit that updates `spec_version`, or inserts it at the top if missing."""
    nodes = [value for key, value in document.root.value if key.value == "spec_version"]
    wanted = str(SPEC_VERSION)
    if not nodes:
        flow = document.root.flow_style
        start = document.root.start_mark.index + flow
        field = f"spec_version: {wanted}"
        yield _TextEdit(start, start, field + (", " if flow else "\n"), f"added {field}")
    elif (node := nodes[-1]).id == "scalar":
        start, end = node.start_mark.index, node.end_mark.index
        if (written := document.text[start:end]) != wanted:
            yield _TextEdit(start, end, wanted, f"spec_version: {written} is now {wanted}")


def _quoted(document: ManifestDocument) -> Iterator[_TextEdit]:
    for path, node in document.numbers():
        start, end, quoted = node.start_mark.index, node.end_mark.index, f'"{node.value}"'
        yield _TextEdit(start, end, quoted, f"{path}: is now {quoted}")
