"""The digest of a package's sources, equal on every machine for equal files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["LEFT_OUT", "source_digest"]

LEFT_OUT = frozenset({".git", ".venv", ".worktrees", "__pycache__", "outputs"})
"""Directories that are no sources, wherever they lie."""

CHUNK_BYTES = 2**20


def source_digest(package_root: Path) -> str:
    """Return the SHA-256 of the names and contents of a package's files.

    The public package's digest leaves out symbolic links; this one includes their targets' paths.
    """
    digest = hashlib.sha256()
    for name, path in sorted(_files(package_root, "")):
        digest.update(name.encode("utf-8", "surrogateescape") + b"\0")
        if path.is_symlink():
            digest.update(b"link:" + os.fsencode(os.readlink(path)))
        else:
            with path.open("rb") as file:
                while chunk := file.read(CHUNK_BYTES):
                    digest.update(chunk)
        digest.update(b"\0")
    return digest.hexdigest()


def _files(directory: Path, prefix: str) -> Iterator[tuple[str, Path]]:
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name in LEFT_OUT:
                continue
            path = Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                yield from _files(path, f"{prefix}{entry.name}/")
            elif entry.is_symlink() or entry.is_file():
                yield f"{prefix}{entry.name}", path
