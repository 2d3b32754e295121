"""Migration of a manifest to the newest form, with comments and order kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from openenv.manifest import SPEC_VERSION
from openenv.manifest.reading import ManifestDocument, parse

__all__ = ["migrate_manifest"]


class _TextEdit(NamedTuple):
    """A replacement within a text."""

    start: int  # index of the first character to replace
    end: int  # index after the last one
    text: str
    words: str  # a description of the change for people


def migrate_manifest(text: str) -> tuple[str, list[str]]:
    """Bring the text of a manifest into the newest form; what needs no change stays as written.

    Returns:
        The new text, and what was changed, in words: nothing where it is the newest already.

    Raises:
        ManifestError: It cannot be read, or is newer than this package.
    """
    document = parse(text)
    edits = sorted([*_version(document), *_quoted(document)], reverse=True)
    for edit in edits:
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text, [edit.words for edit in reversed(edits)]


def _version(document: ManifestDocument) -> Iterator[_TextEdit]:
    """Yield the edit that updates `spec_version`, or inserts a missing `spec_version` first."""
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
    """Yield edits that quote values which YAML reads as numbers."""
    for path, node in document.numbers():
        start, end, quoted = node.start_mark.index, node.end_mark.index, f'"{node.value}"'
        yield _TextEdit(start, end, quoted, f"{path}: is now {quoted}")
