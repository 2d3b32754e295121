"""Writing a manifest anew in the newest form, with its comments and its order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from openenv.manifest import SPEC_VERSION
from openenv.manifest.checking import NUMBERS
from openenv.manifest.reading import Document, parse

__all__ = ["migrated"]


class _Edit(NamedTuple):
    """One change of a text.

    Attributes:
        start: The first character that is replaced.
        end: The one behind the last.
        text: What comes there.
        words: What is changed, for people.
    """

    start: int
    end: int
    text: str
    words: str


def migrated(text: str) -> tuple[str, list[str]]:
    """Bring a manifest into the newest form. What needs no change stays as it is written.

    Args:
        text: The manifest.

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


def _version(document: Document) -> Iterator[_Edit]:
    """`spec_version`, as a whole number; before everything else where it is missing."""
    nodes = [value for key, value in document.root.value if key.value == "spec_version"]
    wanted = str(SPEC_VERSION)
    if not nodes:
        start = document.root.start_mark.index
        words = f"added spec_version: {wanted}"
        flow = document.root.flow_style
        yield _Edit(
            start + flow, start + flow, f"spec_version: {wanted}{', ' if flow else chr(10)}", words
        )
    elif (node := nodes[-1]).id == "scalar" and _written(document, node) != wanted:
        words = f"spec_version: {_written(document, node)} is now {wanted}"
        yield _Edit(node.start_mark.index, node.end_mark.index, wanted, words)


def _quoted(document: Document) -> Iterator[_Edit]:
    """Texts that YAML takes for numbers."""
    for path, node in document.scalars():
        if path[0] in ("version", "variables") and node.tag in NUMBERS:
            start, end = node.start_mark.index, node.end_mark.index
            yield _Edit(start, end, f'"{node.value}"', f'{".".join(path)}: is now "{node.value}"')


def _written(document: Document, node: Any) -> str:
    return document.text[node.start_mark.index : node.end_mark.index]
