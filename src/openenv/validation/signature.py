"""Detection of a package's format by its identifying file, without guessing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from openenv.errors import OpenEnvError
from openenv.validation.types import SignatureKind

WELL_KNOWN_FILES = {kind: kind.value for kind in SignatureKind}
"""The file that identifies each format that has a parser."""

UNSUPPORTED_CATEGORIES = {
    "hosted-verifier": "its verifier asks a service elsewhere, so that no run is self-contained",
    "multi-agent": "several agents act in it, and nothing here plays several",
    "simulated-user": "it needs somebody who plays the user, and there is no reference for that",
    "parser-not-implemented": "the form of the package is known, and nothing here reads it",
}
"""Categories of packages that are recognized but not validated, and the reasons."""


class SignatureError(OpenEnvError, ValueError):
    """A directory that is not a package or matches several formats."""


class UnsupportedPackageError(OpenEnvError, ValueError):
    """A package of a category that cannot be validated here.

    Attributes:
        category: One of `UNSUPPORTED_CATEGORIES`.
        reason: What puts the package in the category.
    """

    def __init__(self, category: str, reason: str) -> None:
        self.category = category
        self.reason = reason
        super().__init__(f"unsupported package ({category}): {reason}")


def detect_signature(package_root: Path) -> SignatureKind:
    """Detect the format of a package.

    Raises:
        SignatureError: The package has no well-known file, or several.
    """
    found = [kind for kind in SignatureKind if _carries(package_root, kind)]
    if len(found) == 1:
        return found[0]
    if not found:
        known = ", ".join(kind.value for kind in SignatureKind)
        raise SignatureError(
            f"{package_root} is not a package: expected one of {known} (a task.md that begins "
            "with front matter)"
        )
    names = ", ".join(sorted(kind.value for kind in found))
    raise SignatureError(f"{package_root} is ambiguous: it has {names}; keep exactly one of them")


def _carries(root: Path, kind: SignatureKind) -> bool:
    file = root / WELL_KNOWN_FILES[kind]
    if not file.is_file():
        return False
    return kind is not SignatureKind.POSTTRAIN_TASK or read_front_matter(file) is not None


def read_front_matter(file: Path) -> str | None:
    """Return the YAML between the ``---`` lines at the top of a Markdown file, or None."""
    lines = file.read_text(encoding="utf-8", errors="replace").lstrip("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != "---":
        return None
    for number, line in enumerate(lines[1:], start=1):
        if line.rstrip() == "---":
            return "\n".join(lines[1:number]) + "\n"
    return None


def refuse_unsupported(tags: Iterable[str]) -> None:
    """Refuse a package with a tag that names an unsupported category.

    Raises:
        UnsupportedPackageError: A tag names an unsupported category.
    """
    for tag in tags:
        if tag in UNSUPPORTED_CATEGORIES:
            raise UnsupportedPackageError(tag, UNSUPPORTED_CATEGORIES[tag])
