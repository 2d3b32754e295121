"""Protection of required libraries against files of the same name in an environment's directory.

The directory of a served environment comes first on `sys.path`, so that its own modules are found.
A `rich.py` or a `websockets/` in it would then be imported instead of the library of that name, by
this package and by its dependencies. So the required libraries of this package are searched only
where packages are installed. All other names are found as usual.

Only names that such a directory contains are examined further, so that an import costs just a few
more file look-ups.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Sequence
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

INSTALLED = ("site-packages", "dist-packages")


def keep_libraries() -> None:
    """Make imports find this package's libraries before other modules of the same name."""
    if not any(isinstance(finder, _LibraryFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _LibraryFinder())


class _LibraryFinder:
    """An import finder for the libraries of this package, if a directory has the same names."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is not None or not _is_in_front(name):
            return None
        found = PathFinder.find_spec(name, [one for one in sys.path if _is_installed(one)])
        return found if found is not None and name in _libraries() else None


def _is_in_front(name: str) -> bool:
    """Return whether a directory without installed packages has a module of this name."""
    for entry in sys.path:
        if not _is_installed(entry):
            place = os.path.join(entry, name)
            if os.path.isdir(place) or os.path.isfile(f"{place}.py"):
                return True
    return False


@cache
def _is_installed(entry: str) -> bool:
    places = {sysconfig.get_path(one) for one in ("stdlib", "platstdlib", "purelib", "platlib")}
    return entry in places or os.path.basename(os.path.normpath(entry)) in INSTALLED


@cache
def _libraries() -> frozenset[str]:
    """Return the import names of required packages.

    Packages of extras are excluded: a `datasets/` in an environment belongs to the environment.
    """
    import re
    from importlib.metadata import Distribution, PackageNotFoundError, distribution

    names: set[str] = set()
    seen: set[str] = set()
    left = ["openenv"]
    while left:
        wanted = re.sub(r"[-_.]+", "-", left.pop()).lower()
        if wanted in seen:
            continue
        seen.add(wanted)
        try:
            found: Distribution = distribution(wanted)
        except PackageNotFoundError:  # required on another platform only
            continue
        needed = [one for one in found.requires or () if not re.search(r"\bextra\s*==", one)]
        left += [re.split(r"[^\w.-]", one, maxsplit=1)[0] for one in needed]
        for file in found.files or ():
            names.add(file.parts[0].partition(".")[0])
    return frozenset(name for name in names if name.isidentifier())
