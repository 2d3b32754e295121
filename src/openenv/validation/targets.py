"""Resolution of targets: a directory, a package's name, or a server's address."""

from __future__ import annotations

import difflib
import importlib.util
from contextlib import suppress
from pathlib import Path

from openenv.errors import OpenEnvError
from openenv.validation.types import SignatureKind

__all__ = ["PackageNotFound", "find_package", "list_packages"]

FOLDER = "envs"


class PackageNotFound(OpenEnvError, ValueError):
    """No package has this name or path; the text says where it was looked for."""


def find_package(target: str) -> Path:
    """Find a package by a directory, by a name in ``envs``, or by the name of an installed package.

    No code of the package is imported.

    Raises:
        PackageNotFound: There is no such package.
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
    close = difflib.get_close_matches(path.name, beside, n=1)
    hint = f"; did you mean {path.with_name(close[0])}?" if close else ""
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
    """List the packages of a directory, by name: itself, or those directly below it."""
    if _is_package(directory):
        return [directory]
    return sorted(entry for entry in directory.iterdir() if entry.is_dir() and _is_package(entry))
