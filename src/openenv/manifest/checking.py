"""Everything that is wrong with a manifest, each thing with its place."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from openenv.manifest import ManifestError
from openenv.manifest.model import Manifest
from openenv.manifest.problems import Problem, sentence
from openenv.manifest.reading import Document, parse, read_text

__all__ = ["Checked", "check_manifest", "check_text"]

NUMBERS = {"tag:yaml.org,2002:float", "tag:yaml.org,2002:int", "tag:yaml.org,2002:timestamp"}


@dataclass(frozen=True)
class Checked:
    """What came of reading a manifest.

    Attributes:
        manifest: What it says; None where there are errors.
        content: The mapping that it holds; empty where it cannot be read.
        errors: What is wrong.
        warnings: What is most likely not meant so, and does no harm.
    """

    manifest: Manifest | None
    content: dict[str, Any] = field(default_factory=dict)
    errors: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


def check_manifest(path: Path) -> Checked:
    """Check a file.

    Args:
        path: The ``openenv.yaml``.

    Raises:
        ManifestError: There is no such file, or it may not be read.
    """
    try:
        text = read_text(path)
    except ManifestError as error:
        if error.problem is None:
            raise
        return Checked(None, errors=(error.problem,))
    return check_text(text)


def check_text(text: str) -> Checked:
    """Check the text of a manifest."""
    try:
        document = parse(text)
    except ManifestError as error:
        assert error.problem is not None
        return Checked(None, errors=(error.problem,))
    manifest, errors = None, list(document.duplicates())
    try:
        manifest = Manifest.model_validate(document.content)
    except ValidationError as error:
        errors += (_wrong(document, one) for one in error.errors())
    warnings = (*_unknown(document), *_numbers(document))
    return Checked(
        manifest if not errors else None,
        document.content,
        tuple(sorted(errors, key=_place)),
        tuple(sorted(warnings, key=_place)),
    )


def _place(problem: Problem) -> tuple[int, int]:
    return problem.line, problem.column


def _wrong(document: Document, error: Any) -> Problem:
    at_key = error["type"] in ("extra_forbidden", "missing")
    whole = ".".join(str(part) for part in error["loc"])
    return document.problem(error["loc"], sentence(error, Manifest, whole), at_key=at_key)


def _unknown(document: Document) -> Iterator[Problem]:
    """Names of the first level that mean nothing here; they are ignored."""
    known = list(Manifest.model_fields)
    for name in document.content:
        if name not in known:
            close = difflib.get_close_matches(str(name), known, n=1)
            meant = f"did you mean {close[0]}?" if close else "it is ignored"
            yield document.problem((name,), f"{name}: is no field; {meant}", at_key=True)


def _numbers(document: Document) -> Iterator[Problem]:
    """Texts that YAML takes for numbers: 0.10 would be 0.1."""
    for path, node in document.scalars():
        if path[0] in ("version", "variables") and node.tag in NUMBERS:
            name = ".".join(path)
            message = f'{name}: {node.value} is a number to YAML; write "{node.value}"'
            yield document.problem_at(node, name, message)
