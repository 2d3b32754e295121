"""Static search for environments in the source that `openenv import` copies."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any

from openenv._internal.toml import parse_toml
from openenv.cli._console import CommandError, MisuseError, did_you_mean

# The packages and base classes that identify each kind.
BASES: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "ors": (("openreward", "ors"), ("Environment",)),
    "verifiers": (("verifiers",), ("Taskset",)),
    "gymnasium": (("gymnasium",), ("Env",)),
    "pettingzoo": (("pettingzoo",), ("AECEnv", "ParallelEnv")),
    "dm_env": (("dm_env",), ("Environment",)),
}
SERVERS = (("fastmcp", "mcp"), ("FastMCP", "MCPServer"))
KINDS = (*BASES, "mcp")
"""The recognized kinds of environments; those of ``mcp`` are servers, not classes."""

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
METHODS = ("step", "get_prompt", "list_tasks", "load")  # every environment defines one of these

LEFT_OUT = re.compile(
    r"\..*|__pycache__|node_modules|venv|build|dist|site-packages|.*\.egg-info|.*\.py[co]"
)
LICENCE = re.compile(r"(licen[cs]e|copying|notice)", re.IGNORECASE)
LARGEST_SOURCE = 256 * 2**20  # bytes


@dataclass(frozen=True)
class VendoredSource:
    """Source code to copy into a package.

    Attributes:
        told: The argument that named the source.
        files: Files to copy, by path under ``vendor/``.
        root: The directory under ``vendor/`` from which modules are imported.
        dependencies: Declared dependencies.
        skipped: Files and dependencies left out, with reasons.
    """

    told: str
    files: Mapping[str, Path]
    root: str
    dependencies: Sequence[str] = ()
    skipped: Sequence[str] = ()

    @property
    def licences(self) -> list[str]:
        """Return the license files."""
        return sorted(path for path in self.files if LICENCE.match(PurePosixPath(path).name))


@dataclass(frozen=True)
class FoundEnvironment:
    """An environment found in a source.

    Attributes:
        kind: An item of `KINDS`.
        module: The module's import name.
        name: The class, or the variable that holds a server.
        place: File and line.
        described: First line of the docstring.
        node: Syntax tree of the definition.
        tools: Tool functions of ``mcp`` and ``ors`` environments.
    """

    kind: str
    module: str
    name: str
    place: str
    described: str = ""
    node: ast.AST | None = field(default=None, repr=False, compare=False)
    tools: Sequence[ast.FunctionDef | ast.AsyncFunctionDef] = field(default=(), repr=False)


# ------------------------------------------------------------------ reading a source


def read_source(told: str) -> VendoredSource:
    """Read a directory, a Python file, or an installed distribution."""
    path = Path(told)
    if path.is_file():
        source = _of_file(told, path)
    elif path.is_dir():
        source = _of_directory(told, path)
    else:
        source = _of_distribution(told)
    size = sum(file.stat().st_size for file in source.files.values())
    if size > LARGEST_SOURCE:
        raise CommandError(
            f"{told} is {size / 1e6:,.0f} MB, and at most {LARGEST_SOURCE / 1e6:,.0f} are copied",
            hint="name the directory of the package alone",
        )
    return source


def _of_file(told: str, path: Path) -> VendoredSource:
    if path.suffix != ".py" or not path.stem.isidentifier():
        raise MisuseError(f"{told} is not a Python module", hint="name a .py file")
    files = {path.name: path, **_licences_in(path.parent)}
    return VendoredSource(told, files, "vendor")


def _of_directory(told: str, path: Path) -> VendoredSource:
    path = path.resolve()
    files, skipped = {}, []
    for file in _walk(path):
        relative = file.relative_to(path).as_posix()
        if file.is_symlink():
            skipped.append(f"{relative}: a link")
        elif not file.is_file():  # a pipe or a device: reading it would never end
            skipped.append(f"{relative}: no regular file")
        else:
            files[f"{path.name}/{relative}"] = file
    if (path / "__init__.py").exists():
        root = "vendor"
        files = {**_licences_in(path.parent), **files} if path.name.isidentifier() else files
    else:
        root = f"vendor/{path.name}" + ("/src" if (path / "src").is_dir() else "")
    dependencies = _dependencies(path)
    own = [one for one in dependencies if is_of_this_machine(one)]
    skipped += [f"the dependency {one!r}: it is a file of this machine" for one in own]
    return VendoredSource(
        told, files, root, [one for one in dependencies if one not in own], skipped
    )


def _licences_in(folder: Path) -> dict[str, Path]:
    """Return the license files in a folder, without links, which may lead anywhere."""
    return {
        one.name: one
        for one in folder.iterdir()
        if LICENCE.match(one.name) and one.is_file() and not one.is_symlink()
    }


def is_of_this_machine(dependency: str) -> bool:
    """Return whether a dependency is a local path: ``name @ file:///path``, ``./path``."""
    _, at, place = dependency.partition("@")
    place = place.strip() if at else dependency.strip()
    return place.startswith(("file:", ".", "/", "~"))


def _walk(folder: Path) -> Iterator[Path]:
    for one in sorted(folder.iterdir()):
        if LEFT_OUT.fullmatch(one.name):
            continue
        if one.is_dir() and not one.is_symlink():
            yield from _walk(one)
        else:
            yield one


def _dependencies(folder: Path) -> list[str]:
    """Return a project's declared dependencies."""
    file = folder / "pyproject.toml"
    if file.is_file() and not file.is_symlink():
        try:
            told = parse_toml(file.read_text(encoding="utf-8")).get("project", {})
        except (OSError, ValueError) as error:
            raise CommandError(f"{file} cannot be read: {error}") from error
        return [str(one) for one in told.get("dependencies", ())]
    file = folder / "requirements.txt"
    is_there = file.is_file() and not file.is_symlink()
    lines = file.read_text(encoding="utf-8").splitlines() if is_there else []
    kept = (line.partition(" #")[0].strip() for line in lines)
    return [line for line in kept if line and line[0] not in "#-"]


def _of_distribution(name: str) -> VendoredSource:
    try:
        found = metadata.distribution(name)
    except (metadata.PackageNotFoundError, ValueError):
        known = {one.name for one in metadata.distributions()}
        raise MisuseError(
            f"{name} is neither a directory, a file nor an installed package",
            hint=did_you_mean(name, known),
        ) from None
    files = {}
    for one in found.files or ():
        path, at = Path(str(one.locate())), one.as_posix()
        is_licence = ".dist-info/" in at and LICENCE.match(one.name)
        is_outside = at.startswith("/") or ".." in one.parts or ".dist-info/" in at
        if not path.is_file() or (is_outside and not is_licence):
            continue
        if is_licence:
            files[one.name] = path
        elif not any(LEFT_OUT.fullmatch(part) for part in one.parts):
            files[at] = path
    if not any(at.endswith(".py") for at in files):
        raise MisuseError(
            f"{name} has no files of Python where it is installed",
            hint="name the directory of its source (an editable install has its files elsewhere)",
        )
    wanted = [one for one in found.requires or () if "extra ==" not in one]
    return VendoredSource(name, files, "vendor", wanted)


# ------------------------------------------------------------------ finding environments in it


@dataclass
class _ParsedModule:
    """A parsed module.

    Attributes:
        name: Import name.
        place: File of the module.
        tree: Syntax tree.
        names: Dotted origin of each imported name.
    """

    name: str
    place: str
    tree: ast.Module
    names: dict[str, str]


def find_environments(source: VendoredSource) -> list[FoundEnvironment]:
    """Find the environments in a source without importing or running code."""
    modules = list(_modules(source))
    classes: dict[str, tuple[_ParsedModule, ast.ClassDef]] = {}
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                classes[f"{module.name}.{node.name}"] = module, node
    found = [_class(module, node, kind) for module, node, kind in _environments(classes)]
    return [*found, *(server for module in modules for server in _servers(module))]


def _modules(source: VendoredSource) -> Iterator[_ParsedModule]:
    root = PurePosixPath(source.root).relative_to("vendor")
    for at, file in source.files.items():
        path = PurePosixPath(at)
        if path.suffix != ".py" or not path.is_relative_to(root):
            continue
        parts = path.relative_to(root).with_suffix("").parts
        if "tests" in parts or not all(map(str.isidentifier, parts)):
            continue
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        try:
            tree = ast.parse(file.read_bytes(), filename=at)
        except (SyntaxError, ValueError, RecursionError):
            continue  # a template, or code for another Python version
        if parts:
            is_package = path.name == "__init__.py"
            yield _ParsedModule(".".join(parts), at, tree, _names(tree, parts, is_package))


def _names(tree: ast.Module, parts: Sequence[str], is_package: bool) -> dict[str, str]:
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                first = one.name.partition(".")[0]
                names[one.asname or first] = one.name if one.asname else first
        elif isinstance(node, ast.ImportFrom):
            up = node.level - is_package
            here = parts[: len(parts) - up] if node.level else ()
            base = ".".join([*here, *([node.module] if node.module else [])])
            for one in node.names:
                names[one.asname or one.name] = f"{base}.{one.name}"
    return names


def _environments(
    classes: Mapping[str, tuple[_ParsedModule, ast.ClassDef]],
) -> Iterator[tuple[_ParsedModule, ast.ClassDef, str]]:
    for name, (module, node) in classes.items():
        kind = _kind_of(name, classes, frozenset())
        if kind is not None and not _is_abstract(node) and _does(name, classes, frozenset()):
            yield module, node, kind


def _kind_of(
    name: str, classes: Mapping[str, tuple[_ParsedModule, ast.ClassDef]], seen: frozenset[str]
) -> str | None:
    """Return a class's kind, derived from base classes inside and outside the source."""
    if name in seen or name not in classes:
        return None
    module, node = classes[name]
    for base in node.bases:
        dotted = _dotted(base, module)
        package, last = dotted.partition(".")[0], dotted.rpartition(".")[2]
        for kind, (packages, bases) in BASES.items():
            if package in packages and last in bases:
                return kind
        for other in (dotted, f"{module.name}.{dotted}", *_same_name(last, classes)):
            kind_there = _kind_of(other, classes, seen | {name})
            if kind_there is not None:
                return kind_there
    return None


def _does(
    name: str, classes: Mapping[str, tuple[_ParsedModule, ast.ClassDef]], seen: frozenset[str]
) -> bool:
    """Return whether a class, or a base class, defines an environment's methods."""
    if name in seen or name not in classes:
        return False
    module, node = classes[name]
    if any(isinstance(one, FUNCTIONS) and one.name in METHODS for one in node.body):
        return True
    dotted = [_dotted(base, module) for base in node.bases]
    others = [*dotted, *(f"{module.name}.{one}" for one in dotted)]
    others += [same for one in dotted for same in _same_name(one.rpartition(".")[2], classes)]
    return any(_does(other, classes, seen | {name}) for other in others)


def _same_name(last: str, classes: Mapping[str, Any]) -> list[str]:
    """Return the only class of this name, for a class re-exported under a shorter path."""
    found = [name for name in classes if name.rpartition(".")[2] == last]
    return found if len(found) == 1 else []


def _dotted(node: ast.expr, module: _ParsedModule) -> str:
    if isinstance(node, ast.Subscript):
        return _dotted(node.value, module)
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value, module)}.{node.attr}"
    return module.names.get(node.id, node.id) if isinstance(node, ast.Name) else ""


def _is_abstract(node: ast.ClassDef) -> bool:
    methods = (one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))
    return any("abstractmethod" in ast.unparse(mark) for m in methods for mark in m.decorator_list)


def _class(module: _ParsedModule, node: ast.ClassDef, kind: str) -> FoundEnvironment:
    functions = [o for o in node.body if isinstance(o, ast.FunctionDef | ast.AsyncFunctionDef)]
    tools = [one for one in functions if any(_is_tool(m) for m in one.decorator_list)]
    place = f"{module.place}:{node.lineno}"
    return FoundEnvironment(kind, module.name, node.name, place, _first_line(node), node, tools)


def _servers(module: _ParsedModule) -> Iterator[FoundEnvironment]:
    packages, classes = SERVERS
    for node in module.tree.body:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        dotted = _dotted(node.value.func, module)
        target = node.targets[0]
        if dotted.partition(".")[0] not in packages or dotted.rpartition(".")[2] not in classes:
            continue
        if isinstance(target, ast.Name):
            place = f"{module.place}:{node.lineno}"
            tools = list(_tools_of(module.tree, target.id))
            yield FoundEnvironment(
                "mcp", module.name, target.id, place, _first_line(module.tree), node, tools
            )


def _tools_of(tree: ast.Module, server: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            marks = [ast.unparse(mark).partition("(")[0] for mark in node.decorator_list]
            if f"{server}.tool" in marks:
                yield node


def _is_tool(mark: ast.expr) -> bool:
    return ast.unparse(mark).partition("(")[0].rpartition(".")[2] == "tool"


def _first_line(node: ast.ClassDef | ast.Module) -> str:
    return (ast.get_docstring(node) or "").partition("\n")[0].strip()


# ------------------------------------------------------------------ choice


def choose_environment(
    found: Sequence[FoundEnvironment], source: VendoredSource, kind: str | None, wanted: str | None
) -> FoundEnvironment:
    """Return the environment that the user means.

    Args:
        found: The candidates.
        source: The source of the candidates.
        kind: An item of `KINDS`, or None for any.
        wanted: ``Class`` or ``module:Class``, or None if there is only one."""
    module, colon, name = (wanted or "").rpartition(":")
    fitting = [
        one
        for one in found
        if kind in (None, one.kind)
        and (wanted is None or (one.name == name and (not colon or one.module == module)))
    ]
    if len(fitting) == 1:
        return fitting[0]
    of_kind = f" of the type {kind}" if kind else ""
    if fitting:
        listed = ", ".join(f"{one.module}:{one.name} ({one.kind})" for one in fitting)
        raise MisuseError(
            f"{source.told} has {len(fitting)} environments{of_kind}: {listed}",
            hint=f"say which: --env-class {fitting[0].module}:{fitting[0].name}",
        )
    if found and wanted is not None:
        listed = ", ".join(f"{one.module}:{one.name}" for one in found)
        raise MisuseError(
            f"{source.told} has no environment {wanted}{of_kind}",
            hint=did_you_mean(name, [one.name for one in found]) or f"there are {listed}",
        )
    if found:
        listed = ", ".join(f"{one.module}:{one.name} ({one.kind})" for one in found)
        raise MisuseError(f"{source.told} has no environment{of_kind}", hint=f"there are {listed}")
    raise MisuseError(
        f"{source.told} has no environment that could be recognized: "
        "no subclass of one of "
        + ", ".join(f"{p[0]}.{c}" for p, classes in BASES.values() for c in classes)
        + ", and no server of FastMCP",
        hint="wrap any other class by: openenv init NAME --wraps MODULE:CLASS",
    )
