"""Write the modules at old import paths from tests/compat/paths.toml.

`python scripts/mirrors.py` writes them. ``--check`` prints how the existing files differ from the
output, and exits with 1 if they do.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

tomllib: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

ROOT = Path(__file__).resolve().parent.parent
PATHS = ROOT / "tests" / "compat" / "paths.toml"
SOURCE = ROOT / "src"
GENERATED_TREE = SOURCE / "openenv" / "core"
LINE_LENGTH = 100


@dataclass(frozen=True, order=True)
class Name:
    """One name of an old module.

    Attributes:
        source: The module that defines the name.
        name: The name in that module.
        alias: The name in the old module.
        is_module: Whether it is itself an old module, reached as an attribute of another package.
    """

    source: str
    name: str
    alias: str
    is_module: bool = False

    @property
    def statement(self) -> str:
        """The import statement of the name."""
        return f"from {self.source} import {self.name} as {self.alias}"


@dataclass
class Mirror:
    """One old module: its names and its submodules."""

    module: str
    names: list[Name] = field(default_factory=list)
    submodules: list[str] = field(default_factory=list)

    @property
    def is_package(self) -> bool:
        """Whether the old module has submodules."""
        return bool(self.submodules)

    @property
    def path(self) -> Path:
        """The module's file."""
        base = SOURCE.joinpath(*self.module.split("."))
        return base / "__init__.py" if self.is_package else base.with_suffix(".py")


# ------------------------------------------------------------------ reading the list


def read_mirrors(path: Path = PATHS) -> dict[str, Mirror]:
    """Read the list: every old module, including those that only have submodules."""
    listed: dict[str, dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8"))
    mirrors = {module: Mirror(module) for module in _with_parents(listed)}
    for module in mirrors:
        parent, _, name = module.rpartition(".")
        if parent in mirrors:
            mirrors[parent].submodules.append(name)
    for module, sources in listed.items():
        mirrors[module].names = sorted(_names(sources))
    for module, sources in listed.items():
        if "include" in sources:
            _include(mirrors[module], mirrors[sources["include"]])
    for mirror in mirrors.values():
        _validate(mirror)
    return mirrors


def _with_parents(modules: Mapping[str, object]) -> list[str]:
    parents = {
        ".".join(parts[:depth])
        for parts in (module.split(".") for module in modules)
        for depth in range(2, len(parts) + 1)
    }
    return sorted(parents)


def _names(sources: Mapping[str, Any]) -> list[Name]:
    names = []
    for source, listed in sources.items():
        if source != "include":
            for entry in listed:
                alias, _, name = (part.strip() for part in entry.partition("="))
                names.append(Name(source, name or alias, alias))
    return names


def _include(mirror: Mirror, included: Mirror) -> None:
    below = [
        Name(included.module, name, name, is_module=True)
        for name in included.submodules
        if name[0] != "_"
    ]
    mirror.names = sorted([*mirror.names, *included.names, *below])


def _validate(mirror: Mirror) -> None:
    seen: set[str] = set()
    for name in mirror.names:
        if name.alias in seen or name.alias in mirror.submodules:
            raise SystemExit(f"{PATHS.name}: {mirror.module} has {name.alias} twice")
        if mirror.is_package and name.alias != name.name:
            raise SystemExit(f"{PATHS.name}: the package {mirror.module} cannot rename {name.name}")
        seen.add(name.alias)


# ------------------------------------------------------------------ writing the modules


def rendered(mirrors: Mapping[str, Mirror]) -> dict[Path, str]:
    """Return the content of every generated file."""
    return {
        mirror.path: (_package if mirror.is_package else _leaf)(mirror)
        for mirror in mirrors.values()
    }


def _leaf(mirror: Mirror) -> str:
    return _joined(
        _docstring(mirror),
        "\n".join(_wrapped(name) for name in mirror.names),
        _all(mirror),
    )


def _package(mirror: Mirror) -> str:
    typed = "".join(f"    {_wrapped(name, 4)}\n" for name in mirror.names)
    for submodule in mirror.submodules:
        if submodule[0] != "_":
            typed += f"    from {mirror.module} import {submodule} as {submodule}\n"
    private = [submodule for submodule in mirror.submodules if submodule[0] == "_"]
    unlisted = sorted({mirror.module, *(name.source for name in mirror.names if name.is_module)})
    arguments = ["__name__", *([str(private)] if private else []), f"unlisted={unlisted}"]
    lazy = f"lazy({', '.join(arguments)})".replace("'", '"')
    return _joined(
        _docstring(mirror),
        "from typing import TYPE_CHECKING",
        "from openenv._internal.lazy import lazy",
        f"if TYPE_CHECKING:\n{typed}else:\n    __getattr__, __dir__, __all__ = {lazy}",
    )


def _docstring(mirror: Mirror) -> str:
    return f'"""The old path `{mirror.module}`; written by scripts/mirrors.py."""'


def _all(mirror: Mirror) -> str:
    """Write `__all__`; type checkers need the names only in a module that renames some."""
    if all(name.name == name.alias for name in mirror.names):
        # Type checkers read the imports of the form `X as X`, and not this list.
        listed = '__all__ = [name for name in dir() if not name.startswith("__")]'
        return f"{listed}  # pyright: ignore[reportUnsupportedDunderAll]"
    lines = "".join(f'    "{name}",\n' for name in sorted(name.alias for name in mirror.names))
    return f"__all__ = [\n{lines}]"


def _wrapped(name: Name, indent: int = 0) -> str:
    if indent + len(name.statement) <= LINE_LENGTH:
        return name.statement
    head, _, tail = name.statement.partition(" import ")
    pad = " " * indent
    return f"{head} import (\n{pad}    {tail},\n{pad})"


def _joined(*blocks: str) -> str:
    return "\n\n".join(block for block in blocks if block) + "\n"


# ------------------------------------------------------------------ the files


def differences(wanted: Mapping[Path, str], tree: Path = GENERATED_TREE) -> str:
    """Return a diff between the existing and the wanted files; empty if there is none."""
    there = set(tree.rglob("*.py")) if tree.exists() else set()
    lines: list[str] = []
    for path in sorted({*wanted, *there}):
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        new = wanted.get(path, "")
        name = str(path.relative_to(ROOT))
        lines += difflib.unified_diff(
            old.splitlines(keepends=True), new.splitlines(keepends=True), name, f"{name} (listed)"
        )
    return "".join(lines)


def write(wanted: Mapping[Path, str], tree: Path = GENERATED_TREE) -> None:
    """Write the wanted files, and remove all other files from the tree."""
    for path in set(tree.rglob("*.py")) - set(wanted):
        path.unlink()
    for path, content in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    """Write the mirrors, or check them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if stale")
    arguments = parser.parse_args(argv)
    wanted = rendered(read_mirrors())
    if not arguments.check:
        write(wanted)
        return 0
    diff = differences(wanted)
    if diff:
        print(diff, end="")
        print("hint: run `python scripts/mirrors.py`", file=sys.stderr)
    return 1 if diff else 0


if __name__ == "__main__":
    sys.exit(main())
