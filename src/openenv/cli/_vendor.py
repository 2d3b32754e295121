"""Static search for environments in the source that `openenv import` copies."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePosixPath

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

Function = ast.FunctionDef | ast.AsyncFunctionDef
METHODS = ("step", "get_prompt", "list_tasks", "load")  # every environment defines one of these

LEFT_OUT = re.compile(
    r"\..*|__pycache__|node_modules|venv|build|dist|site-packages|.*\.egg-info|.*\.py[co]"
)
LICENCE = re.compile(r"(licen[cs]e|copying|notice)", re.IGNORECASE)
LARGEST_SOURCE = 256 * 2**20  # bytes


@dataclass(frozen=True)
class VendoredSource:
    """Source code to copy into a package."""

    told: str  # the argument that named the source
    files: Mapping[str, Path]  # by path under ``vendor/``
    root: str  # the directory from which modules are imported
    dependencies: Sequence[str] = ()
    skipped: Sequence[str] = ()  # files and dependencies left out, with reasons

    @property
    def licences(self) -> list[str]:
        """Return the license files."""
        return sorted(path for path in self.files if LICENCE.match(PurePosixPath(path).name))


@dataclass(frozen=True)
class FoundEnvironment:
    """An environment found in a source."""

    kind: str  # an item of `KINDS`
    module: str  # import name
    name: str  # of the class, or of the variable that holds a server
    place: str  # file and line
    described: str  # first line of the docstring
    node: ast.AST  # definition
    tools: Sequence[Function]  # tool functions of ``mcp`` and ``ors`` environments


# ------------------------------------------------------------------ reading a source


def read_source(told: str) -> VendoredSource:
    """Read a directory, a Python file, or an installed distribution."""
    path = Path(told)
    if path.is_file():
        if path.suffix != ".py" or not path.stem.isidentifier():
            raise MisuseError(f"{told} is not a Python module", hint="name a .py file")
        files = {path.name: path, **_licences_in(path.parent)}
        source = VendoredSource(told, files, "vendor")
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
    name: str  # import name
    place: str  # file
    tree: ast.Module
    names: dict[str, str]  # dotted origin of each imported name


Classes = Mapping[str, tuple[_ParsedModule, ast.ClassDef]]
"""The classes of a source, by dotted name."""


def find_environments(source: VendoredSource) -> list[FoundEnvironment]:
    """Find the environments in a source without importing or running code."""
    modules = list(_modules(source))
    classes = {
        f"{module.name}.{node.name}": (module, node)
        for module in modules
        for node in module.tree.body
        if isinstance(node, ast.ClassDef)
    }
    found = []
    for name, (module, node) in classes.items():
        seen: set[str] = set()
        bases = list(_bases(name, classes, seen))
        kinds = [kind for dotted in bases if (kind := _kind_of(dotted)) is not None]
        methods = {method.name for one in seen for method in _functions(classes[one][1])}
        marks = [mark for one in _functions(node) for mark in one.decorator_list]
        is_abstract = any("abstractmethod" in ast.unparse(mark) for mark in marks)
        if kinds and not is_abstract and methods.intersection(METHODS):
            tools = [one for one in _functions(node) if any(map(_is_tool, one.decorator_list))]
            found.append(_found(kinds[0], module, node.name, node, node, tools))
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


def _bases(name: str, classes: Classes, seen: set[str]) -> Iterator[str]:
    """Yield the dotted names of a class's bases and their bases; add visited classes to `seen`.

    A class that the source re-exports under a shorter path is found by its name, if only one class
    has that name.
    """
    if name in seen or name not in classes:
        return
    seen.add(name)
    module, node = classes[name]
    for base in node.bases:
        dotted = _dotted(base, module)
        yield dotted
        last = dotted.rpartition(".")[2]
        same = [one for one in classes if one.rpartition(".")[2] == last]
        for other in (dotted, f"{module.name}.{dotted}", *(same if len(same) == 1 else ())):
            yield from _bases(other, classes, seen)


def _kind_of(dotted: str) -> str | None:
    package, last = dotted.partition(".")[0], dotted.rpartition(".")[2]
    for kind, (packages, bases) in BASES.items():
        if package in packages and last in bases:
            return kind
    return None


def _functions(node: ast.ClassDef | ast.Module) -> list[Function]:
    return [one for one in node.body if isinstance(one, Function)]


def _dotted(node: ast.expr, module: _ParsedModule) -> str:
    if isinstance(node, ast.Subscript):
        return _dotted(node.value, module)
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value, module)}.{node.attr}"
    return module.names.get(node.id, node.id) if isinstance(node, ast.Name) else ""


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
            mark = f"{target.id}.tool"
            tools = [
                one for one in _functions(module.tree) if mark in map(_called, one.decorator_list)
            ]
            yield _found("mcp", module, target.id, node, module.tree, tools)


def _found(
    kind: str,
    module: _ParsedModule,
    name: str,
    node: ast.stmt,
    described: ast.ClassDef | ast.Module,
    tools: Sequence[Function],
) -> FoundEnvironment:
    line = (ast.get_docstring(described) or "").partition("\n")[0].strip()
    place = f"{module.place}:{node.lineno}"
    return FoundEnvironment(kind, module.name, name, place, line, node, tools)


def _is_tool(mark: ast.expr) -> bool:
    return _called(mark).rpartition(".")[2] == "tool"


def _called(mark: ast.expr) -> str:
    return ast.unparse(mark).partition("(")[0]


def choose_environment(
    found: Sequence[FoundEnvironment], source: VendoredSource, kind: str | None, wanted: str | None
) -> FoundEnvironment:
    """Return the only environment of a kind, or the one that ``[MODULE:]CLASS`` names."""
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
    listed = ", ".join(f"{one.module}:{one.name} ({one.kind})" for one in fitting or found)
    if fitting:
        raise MisuseError(
            f"{source.told} has {len(fitting)} environments{of_kind}: {listed}",
            hint=f"say which: --env-class {fitting[0].module}:{fitting[0].name}",
        )
    if found:
        meant = did_you_mean(name, [one.name for one in found]) if wanted else None
        what = f"environment {wanted}" if wanted else "environment"
        raise MisuseError(
            f"{source.told} has no {what}{of_kind}", hint=meant or f"there are {listed}"
        )
    raise MisuseError(
        f"{source.told} has no environment that could be recognized: "
        "no subclass of one of "
        + ", ".join(f"{p[0]}.{c}" for p, classes in BASES.values() for c in classes)
        + ", and no server of FastMCP",
        hint="wrap any other class by: openenv init NAME --wraps MODULE:CLASS",
    )
