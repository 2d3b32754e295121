"""Imports of what a text names: ``module:attribute`` or ``file.py:attribute``."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from openenv._internal.quoting import did_you_mean


class NameNotFound(LookupError):
    """There is no such module, file or attribute; the text says which.

    Attributes:
        missing: The module, the file or the attribute that is missing.
        known: The attributes that there are; empty if it is no attribute that is missing.
    """

    def __init__(self, text: str, missing: str, known: list[str] | None = None) -> None:
        self.missing = missing
        self.known = known or []
        super().__init__(text)

    @property
    def hint(self) -> str:
        """The end of a sentence that names the most similar attribute; empty if none is."""
        return did_you_mean(self.missing, self.known)


def import_attribute(name: str, *, files: bool = False) -> Any:
    """Import what ``module:attribute`` names; the attribute may have dots.

    Args:
        name: The name.
        files: Take ``file.py:attribute`` too.

    Raises:
        NameNotFound: There is no such module, file or attribute.
    """
    place, _, attribute = name.rpartition(":")
    return look_up(import_named(place, files=files), attribute, place)


def import_named(place: str, *, files: bool = False) -> ModuleType:
    """Import a module by name, or a Python file by path if `files`.

    An import that fails within the module raises what it raises there.

    Raises:
        NameNotFound: There is no such module or file.
    """
    path = Path(place)
    if files and path.suffix == ".py":
        if not path.is_file():
            raise NameNotFound(f"there is no file {path}", str(path))
        return import_file(path.resolve().stem, path.resolve())
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        # Another module, which this one imports, may be missing: that is not the name's fault.
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise
        raise NameNotFound(f"there is no module {error.name!r}", error.name) from error


def look_up(found: Any, attribute: str, place: str) -> Any:
    """Return an attribute, which may have dots, of a module.

    Raises:
        NameNotFound: There is none; the text names `place`.
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
