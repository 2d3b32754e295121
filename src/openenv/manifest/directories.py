"""Import of an environment from a directory, for every style of imports between modules.

Directories are written in two styles, and in mixtures of them:

* As a package: ``from ..models import A`` in ``server/app.py``, or ``from my_env.models import A``.
  The directory is imported as a package under the name in its manifest.
* Flat: ``from models import A``, ``from server.game import Game``, as ``uvicorn server.app:app``
  runs it in the directory. The directory is put in front of `sys.path`.

The style is read from the source before anything is imported, since trying one style after the
other would run module code twice. An import inside ``try: ... except ImportError`` is optional, so
a directory from the official template, which tries both, is imported as a package.

Modules of a flat directory have names such as ``models`` in `sys.modules`. Modules of the same
names from another directory, or from the program itself, are set aside during the import.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from openenv._internal.imports import import_file
from openenv._internal.shadowing import INSTALLED
from openenv.manifest import MANIFEST, package_name, read_manifest

__all__ = ["EnvironmentDirectory", "absolute_target", "environment_modules", "is_environment"]

IMPORT_FAILURES = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}
TYPE_CHECKING = {"TYPE_CHECKING", "typing.TYPE_CHECKING"}

_flat: set[str] = set()
"""Top-level names of modules imported from flat directories."""

_set_aside: dict[Path, dict[str, ModuleType]] = {}
"""Modules of flat directories, by directory, which the next import restores."""


@dataclass
class ImportNeeds:
    """The requirements of some modules' imports."""

    flat: bool = False  # the directory must be on the path
    package: bool = False  # the directory must be a package
    library: bool = False  # the modules import another package that has the directory's name
    # The package name by which the directory's modules import each other, if they do.
    name: str = ""
    seen: set[Path] = field(default_factory=set)


@dataclass(frozen=True)
class EnvironmentDirectory:
    """A directory that holds an environment."""

    path: Path

    @cached_property
    def name(self) -> str:
        """Return the package's name: the manifest's, or else the directory's."""
        manifest = read_manifest(self.path) or {}
        return package_name(manifest) or re.sub(r"\W", "_", self.path.name) or "environment"

    def has(self, module: str) -> bool:
        """Return whether the directory holds a module, named relative to the directory."""
        return self._file(module.split(".")) is not None

    def load(self, module: str, *, stays_in_front: bool = True) -> ModuleType:
        """Import a module of the directory, named relative to the directory: ``server.app``.

        With `stays_in_front`, as a server needs, a flat directory stays at the front of `sys.path`.
        Otherwise it moves to the end, where it hides no module of the program.
        """
        file = self._file(module.split("."))
        assert file is not None
        needs = self._needs(file)
        init = self.path / "__init__.py"
        is_flat = not needs.package and (needs.flat or not init.is_file())
        if not needs.package and not is_flat:
            of_init = self._needs(init)
            is_flat = of_init.flat or of_init.library
        if is_flat:
            with self._on_path(stays_in_front):
                return importlib.import_module(module)
        name = needs.name or (f"{self.name}_directory" if needs.library else self.name)
        with self._on_path(stays_in_front) if needs.flat else contextlib.nullcontext():
            self._import_package(name)
            return importlib.import_module(f"{name}.{module}")

    # -------------------------------------------------------------- the two styles

    @contextlib.contextmanager
    def _on_path(self, stays_in_front: bool) -> Iterator[None]:
        """Put the directory in front of the path, and set modules of the same names aside."""
        entry, names = str(self.path), self._top_level()
        foreign = {
            name: module
            for name, module in list(sys.modules.items())
            if name.partition(".")[0] in names and not self._holds(module)
            if name.partition(".")[0] in _flat or not _is_installed(module)
        }
        for name in foreign:
            del sys.modules[name]
        sys.modules.update(_set_aside.pop(self.path, {}))
        if entry in sys.path:
            sys.path.remove(entry)
        sys.path.insert(0, entry)
        importlib.invalidate_caches()
        try:
            yield
        finally:
            own = {
                name: module
                for name, module in sys.modules.items()
                if name.partition(".")[0] in names and self._holds(module)
            }
            _flat.update({name.partition(".")[0] for name in own})
            if not stays_in_front:
                sys.path.remove(entry)
                sys.path.append(entry)
                _set_aside[self.path] = own
                sys.modules.update(foreign)

    def _import_package(self, name: str) -> None:
        """Import the directory as the package `name`, unless it is imported already."""
        loaded = sys.modules.get(name)
        if loaded is not None:
            if self.path in _places(loaded):
                return
            where = getattr(loaded, "__file__", None) or "elsewhere"
            raise ImportError(
                f"{self.path} is the package {name}, which is imported from {where} already; "
                "give it another name in its openenv.yaml, or load it in a process of its own"
            )
        init = self.path / "__init__.py"
        if init.is_file():
            import_file(name, init)
            return
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [str(self.path)]
        sys.modules[name] = importlib.util.module_from_spec(spec)

    def _holds(self, module: ModuleType) -> bool:
        file = getattr(module, "__file__", None)
        places = [Path(file).resolve()] if file else _places(module)
        return any(place.is_relative_to(self.path) for place in places)

    # -------------------------------------------------------------- reading the source

    def _top_level(self) -> set[str]:
        """Return the names under which a flat directory's modules are imported."""
        names = set()
        for entry in self.path.iterdir():
            name = entry.stem if entry.suffix == ".py" else entry.name
            if name.isidentifier() and (entry.suffix == ".py" or entry.is_dir()):
                names.add(name)
        return names - {"__init__", "__pycache__", "openenv"} - set(sys.stdlib_module_names)

    def _file(self, parts: Sequence[str]) -> Path | None:
        """Return the file of a module, or the directory of a package without ``__init__.py``."""
        place = self.path.joinpath(*parts)
        for file in (place / "__init__.py", place.parent / f"{place.name}.py"):
            if parts and file.is_file():
                return file
        return place if place.is_dir() and any(place.glob("*.py")) else None

    def _needs(self, file: Path) -> ImportNeeds:
        needs = ImportNeeds()
        self._read(file, needs)
        return needs

    def _read(self, file: Path, needs: ImportNeeds) -> None:
        if file in needs.seen or file.is_dir():
            return
        needs.seen.add(file)
        for node, is_offer in _imports(_parse(file), False):
            for parts, level in _named(node):
                self._note(file, parts, level, is_offer, needs)

    def _note(
        self, file: Path, parts: list[str], level: int, is_offer: bool, needs: ImportNeeds
    ) -> None:
        within = list(file.parent.relative_to(self.path).parts)
        if level:
            if level > len(within):
                needs.package |= not is_offer
            base = within[: max(0, len(within) - level + 1)]
            self._follow([*base, *parts], needs)
        elif parts[0] in sys.stdlib_module_names or parts[0] == "openenv":
            return
        elif parts[0] in (self.name, self.path.name) and self._file(parts[:1]) is None:
            is_inside = len(parts) > 1 and self._file(parts[1:2]) is not None
            if not is_inside and _is_elsewhere(parts[0], self.path):
                needs.library = True
                return
            if not is_offer:
                needs.package, needs.name = True, parts[0]
            self._follow(parts[1:] if is_inside else ["__init__"], needs)
        elif self._file(parts[:1]) is not None:
            needs.flat |= not is_offer
            self._follow(parts, needs)

    def _follow(self, parts: list[str], needs: ImportNeeds) -> None:
        """Read the modules that an import runs: each package on the way, and the last module."""
        for count in range(1, len(parts) + 1):
            found = self._file(parts[:count])
            if found is not None:
                self._read(found, needs)


def _places(package: ModuleType) -> list[Path]:
    return [Path(one).resolve() for one in getattr(package, "__path__", [])]


def _is_installed(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None) or ""
    return any(part in INSTALLED for part in Path(file).parts)


def _is_elsewhere(name: str, directory: Path) -> bool:
    """Return whether another importable package has this name."""
    loaded = sys.modules.get(name)
    try:
        spec = loaded.__spec__ if loaded is not None else importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    if spec is None:
        return False
    places = [Path(one).resolve() for one in spec.submodule_search_locations or ()]
    return directory not in places and (bool(places) or spec.origin is not None)


def _parse(file: Path) -> ast.Module:
    """Parse a file; an empty module if the file cannot be parsed: importing it says why."""
    try:
        return ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ast.Module([], [])


def _imports(node: ast.AST, is_offer: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Yield the imports below a node, and whether the program handles a failure of each."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield node, is_offer
        return
    if isinstance(node, ast.If) and ast.unparse(node.test) in TYPE_CHECKING:
        for one in node.orelse:
            yield from _imports(one, is_offer)
        return
    if isinstance(node, ast.Try) and any(_catches_imports(one) for one in node.handlers):
        for tried in (*node.body, *node.handlers):
            yield from _imports(tried, True)
        for one in (*node.orelse, *node.finalbody):
            yield from _imports(one, is_offer)
        return
    for child in ast.iter_child_nodes(node):
        yield from _imports(child, is_offer)


def _catches_imports(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(ast.unparse(one).rpartition(".")[2] in IMPORT_FAILURES for one in kinds)


def _named(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[list[str], int]]:
    """Yield the modules that an import may run: ``from a import b`` may mean ``a.b``."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name.split("."), 0
        return
    base = node.module.split(".") if node.module else []
    for alias in node.names:
        yield ([*base, alias.name] if alias.name != "*" else base), node.level


# ------------------------------------------------------------------ environments without an app


def environment_modules(directory: Path) -> list[str]:
    """Return the modules that define an environment class: those of ``server/`` if there are any.

    The files are parsed, not imported: a class counts if the name of a base ends in
    ``Environment``.
    """
    folders = [directory / "server"]
    if (directory / MANIFEST).is_file():  # otherwise it may be any directory with Python files
        folders.append(directory)
    modules = (
        [
            ".".join(file.relative_to(directory).with_suffix("").parts)
            for file in sorted(folder.glob("*.py"))
            if not file.name.startswith(("test_", "conftest", "__")) and _defines_environment(file)
        ]
        for folder in folders
    )
    return next(filter(None, modules), [])


def is_environment(directory: Path) -> bool:
    """Return whether `openenv serve` would find something to serve in a directory."""
    apps = (directory / MANIFEST, directory / "server" / "app.py")
    return any(file.is_file() for file in apps) or (
        directory.is_dir() and bool(environment_modules(directory))
    )


def _defines_environment(file: Path) -> bool:
    return any(
        ast.unparse(base).partition("[")[0].endswith("Environment")
        for node in _parse(file).body
        if isinstance(node, ast.ClassDef)
        for base in node.bases
    )


def absolute_target(target: str) -> str:
    """Rewrite a target so that it does not depend on the current directory."""
    name, colon, attribute = target.partition(":")
    path = Path(name)
    # Other directories may have the name of a scheme, as in gymnasium:CartPole-v1.
    is_place = path.is_file() or (path / MANIFEST).exists() or (path.exists() and not colon)
    return f"{path.resolve()}{colon}{attribute}" if is_place else target
