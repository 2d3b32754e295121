"""Imports by a text: ``module:attribute`` or ``file.py:attribute``."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from openenv._internal.quoting import did_you_mean


class NameNotFound(LookupError):
    """A module, a file or an attribute does not exist; the message names it.

    Attributes:
        missing: The missing module, file or attribute.
        known: The existing attributes; empty if a module or file is missing.
    """

    def __init__(self, text: str, missing: str, known: list[str] | None = None) -> None:
        self.missing = missing
        self.known = known or []
        super().__init__(text)

    @property
    def hint(self) -> str:
        """The end of an error that suggests the most similar attribute; empty if none is."""
        return did_you_mean(self.missing, self.known)


def import_attribute(name: str, *, files: bool = False) -> Any:
    """Import the attribute that ``module:attribute`` names; the attribute may have dots.

    Args:
        name: The name.
        files: Accept ``file.py:attribute`` too.

    Raises:
        NameNotFound: The module, file or attribute does not exist.
    """
    place, _, attribute = name.rpartition(":")
    return look_up(import_named(place, files=files), attribute, place)


def import_named(place: str, *, files: bool = False) -> ModuleType:
    """Import a module by name, or a Python file by path if `files`.

    Exceptions that the module itself raises are passed on.

    Raises:
        NameNotFound: The module or file does not exist.
    """
    path = Path(place)
    if files and path.suffix == ".py":
        if not path.is_file():
            raise NameNotFound(f"there is no file {path}", str(path))
        return import_file(path.resolve().stem, path.resolve())
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        # The missing module may be another one, which the named module imports.
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise
        raise NameNotFound(f"there is no module {error.name!r}", error.name) from error


def look_up(found: Any, attribute: str, place: str) -> Any:
    """Return an attribute, which may have dots, of a module.

    Raises:
        NameNotFound: The module has no such attribute; the message names `place`.
    """
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise NameNotFound(f"{place} has no {attribute!r}", part, dir(found))
        found = getattr(found, part)
    return found


def import_file(name: str, path: Path) -> ModuleType:
    """Import a file as the module `name`, or as a package if the file is an ``__init__.py``."""
    locations = [str(path.parent)] if path.name == "__init__.py" else None
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=locations)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
