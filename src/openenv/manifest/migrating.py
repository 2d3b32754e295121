"""Migration of a manifest to the newest form, with comments and order kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from openenv.manifest import SPEC_VERSION
from openenv.manifest.checking import NUMBERS
from openenv.manifest.reading import ManifestDocument, parse

__all__ = ["migrate_manifest"]


class _TextEdit(NamedTuple):
    """A replacement within a text.

    Attributes:
        start: Index of the first character to replace.
        end: Index after the last one.
        text: The replacement.
        words: A description of the change for people.
    """

    start: int
    end: int
    text: str
    words: str


def migrate_manifest(text: str) -> tuple[str, list[str]]:
    """Bring a manifest into the newest form; text that needs no change stays as written.

    Args:
        text: The text of the manifest.

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
        start = document.root.start_mark.index
        words = f"added spec_version: {wanted}"
        flow = document.root.flow_style
        yield _TextEdit(
            start + flow, start + flow, f"spec_version: {wanted}{', ' if flow else chr(10)}", words
        )
    elif (node := nodes[-1]).id == "scalar" and _written(document, node) != wanted:
        words = f"spec_version: {_written(document, node)} is now {wanted}"
        yield _TextEdit(node.start_mark.index, node.end_mark.index, wanted, words)


def _quoted(document: ManifestDocument) -> Iterator[_TextEdit]:
    """Yield edits that quote values which YAML reads as numbers."""
    for path, node in document.scalars():
        if path[0] in ("version", "variables") and node.tag in NUMBERS:
            start, end = node.start_mark.index, node.end_mark.index
            yield _TextEdit(
                start, end, f'"{node.value}"', f'{".".join(path)}: is now "{node.value}"'
            )


def _written(document: ManifestDocument, node: Any) -> str:
    return document.text[node.start_mark.index : node.end_mark.index]
