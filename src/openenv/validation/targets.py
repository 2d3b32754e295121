"""Lookup of the packages that targets name, and digests of their sources."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from openenv._internal.quoting import closest
from openenv.errors import OpenEnvError
from openenv.validation.types import SignatureKind

FOLDER = "envs"


class PackageNotFound(OpenEnvError, ValueError):
    """An error for a name or path without a package."""


def find_package(target: str) -> Path:
    """Find a package by a directory, by a name in ``envs``, or by the name of an installed package.

    The package's code is not imported.

    Raises:
        PackageNotFound: The package does not exist.
    """
    path = Path(target)
    if path.is_dir():
        return path
    if path.exists():
        raise PackageNotFound(f"{target} is a file; expected a directory")
    name = target.replace("-", "_")
    if name.isidentifier():
        for candidate in (name, f"{name}_env"):
            if (Path(FOLDER) / candidate).is_dir():
                return Path(FOLDER) / candidate
            if (found := _installed(candidate)) is not None:
                return found
    beside = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    close = closest(path.name, beside)
    hint = f"; did you mean {path.with_name(close)}?" if close else ""
    raise PackageNotFound(f"{target} is neither a directory nor an installed package{hint}")


def _installed(name: str) -> Path | None:
    with suppress(ImportError, ValueError):
        found = importlib.util.find_spec(name)
        if found is not None and found.submodule_search_locations:
            directory = Path(next(iter(found.submodule_search_locations)))
            return directory if _is_package(directory) else None
    return None


def _is_package(directory: Path) -> bool:
    return any((directory / kind.value).is_file() for kind in SignatureKind)


def list_packages(directory: Path) -> list[Path]:
    """Return the directory if it is a package, or else the packages directly below, by name."""
    if _is_package(directory):
        return [directory]
    return sorted(entry for entry in directory.iterdir() if entry.is_dir() and _is_package(entry))


LEFT_OUT = frozenset({".git", ".venv", ".worktrees", "__pycache__", "outputs"})
"""Names of files and directories that are not sources, at any depth."""

CHUNK_BYTES = 2**20


def source_digest(package_root: Path) -> str:
    """Return the SHA-256 of the names and contents of a package's files.

    For symbolic links the target's path is hashed; the public package's digest leaves out links.
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
