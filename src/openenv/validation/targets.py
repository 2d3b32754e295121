"""Finding what is to be validated: a directory, the name of a package, or a server's address."""

from __future__ import annotations

import difflib
import importlib.util
import re
from contextlib import suppress
from pathlib import Path

from openenv.errors import OpenEnvError
from openenv.validation.types import SignatureKind

__all__ = ["NoPackage", "find_package", "is_url", "packages_in"]

URL = re.compile("(https?|wss?)://[^/?#]", re.IGNORECASE)
FOLDER = "envs"


class NoPackage(OpenEnvError, ValueError):
    """There is no such package; the text says where it was looked for."""


def is_url(target: str) -> bool:
    """Whether a target is the address of a server."""
    return URL.match(target) is not None


def find_package(target: str) -> Path:
    """Find the directory of a package.

    Args:
        target: A directory; the name of one in ``envs``; or the name of an installed package.
            Nothing of it is imported.

    Raises:
        NoPackage: There is none.
    """
    path = Path(target)
    if path.is_dir():
        return path
    if path.exists():
        raise NoPackage(f"{target} is a file; name its directory")
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
    raise NoPackage(f"{target} is no directory, and no installed package{hint}")


def _installed(name: str) -> Path | None:
    with suppress(ImportError, ValueError):
        found = importlib.util.find_spec(name)
        if found is not None and found.submodule_search_locations:
            directory = Path(next(iter(found.submodule_search_locations)))
            return directory if _is_package(directory) else None
    return None


def _is_package(directory: Path) -> bool:
    return any((directory / kind.value).is_file() for kind in SignatureKind)


def packages_in(directory: Path) -> list[Path]:
    """The packages that a directory is, or holds: itself, or those directly below it, by name."""
    if _is_package(directory):
        return [directory]
    return sorted(entry for entry in directory.iterdir() if entry.is_dir() and _is_package(entry))
