"""Write docs/reference/ and docs/schema/ from the code, and generated sections of other pages.

`python scripts/reference.py` writes them. ``--check`` lists those that differ from the output, and
exits with 1 if there are any.

A generated section stands between ``<!-- generated: NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import argparse
import ast
import enum
import functools
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import BaseModel
from typer import Context
from typer.cli import get_docs_for_click
from typer.main import get_command

import openenv
from openenv import errors, events, providers, settings, tools
from openenv.cli.__main__ import app
from openenv.cli._groups import GLOBAL_PANEL, example_lines
from openenv.manifest import manifest_schema
from openenv.protocol.messages import ErrorReply
from openenv.testing.environment import PROMISES

DOCS = Path(__file__).resolve().parent.parent / "docs"
HEADER = "<!-- Written by scripts/reference.py. -->\n\n"

# A section of a Google style docstring; its entries are indented.
SECTION = re.compile(r"^(Args|Attributes|Class attributes|Returns|Raises|Example):$")
ENTRY = re.compile(r"^    (\*{0,2}\w+): (.*)$")


# ------------------------------------------------------------------ docstrings and signatures


def prose(documented: Any) -> str:
    """Return an object's docstring as Markdown."""
    return markdown_of(inspect.getdoc(documented) or "")


def markdown_of(docstring: str) -> str:
    """Convert a docstring to Markdown."""
    lines: list[str] = []
    section = ""
    for line in docstring.splitlines():
        heading = SECTION.match(line)
        if section == "Example" and (heading or not line.startswith(" ")):
            lines.append("```")  # an example has no empty lines
            section = ""
        if heading:
            section = heading[1]
            lines += ["```pycon"] if section == "Example" else [f"**{section}**", ""]
        elif section == "Example":
            lines.append(line[4:])
        elif line and not line.startswith(" "):
            section = ""
            lines.append(line)
        elif section:
            entry = ENTRY.match(line) if section != "Returns" else None
            lines.append(f"- `{entry[1]}`: {entry[2]}" if entry else f"  {line.strip()}".rstrip())
        else:
            lines.append(line)
    if section == "Example":
        lines.append("```")
    return "\n".join(lines)


class Verbatim(str):
    """An annotation that is shown as it is written in the source."""

    def __repr__(self) -> str:
        return str(self)


def signature(function: Callable[..., Any], name: str) -> str:
    """Return a call signature, with one argument per line if it is too long for one."""
    found = inspect.signature(function)
    parameters = [p for p in found.parameters.values() if p.name not in ("self", "cls")]
    returns = inspect.Signature.empty if isinstance(function, type) else found.return_annotation
    shown = found.replace(
        parameters=[p.replace(annotation=_verbatim(p.annotation)) for p in parameters],
        return_annotation=_verbatim(returns),
    )
    line = f"{name}{shown}"
    inner = [str(parameter) for parameter in shown.parameters.values()]
    return call_block(line, name, list(_with_marks(parameters, inner)))


def call_block(line: str, name: str, arguments: list[str]) -> str:
    """Return a code block of a call: `line`, or one argument per line if that is too long."""
    if len(line) > 96:
        after = line.rpartition(")")[2]
        line = f"{name}(\n    " + ",\n    ".join(arguments) + f",\n){after}"
    return f"```text\n{line}\n```"


def _verbatim(annotation: Any) -> Any:
    return Verbatim(annotation) if isinstance(annotation, str) else annotation


def _with_marks(parameters: list[inspect.Parameter], shown: list[str]) -> Iterator[str]:
    """Insert the bare `*` before the first keyword-only argument."""
    marked = False
    for parameter, text in zip(parameters, shown, strict=True):
        if parameter.kind is parameter.KEYWORD_ONLY and not marked:
            yield "*"
        marked = marked or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        yield text


# ------------------------------------------------------------------ classes and functions


def described(name: str, value: Any, apart: frozenset[type]) -> Iterator[str]:
    """Yield the section of a public name; `apart` are the classes with a section of their own."""
    yield f"## {name}"
    if not isinstance(value, type):
        yield from (signature(value, name), prose(value))
        return
    yield f"`{value.__module__}.{value.__qualname__}`{_bases(value)}"
    if issubclass(value, enum.Enum):
        yield prose(value)
        yield "\n".join(f"- `{member.name}`: `{member.value!r}`" for member in value)
        return
    if issubclass(value, BaseModel):
        yield prose(value)
        yield fields(value)
    else:
        yield from (signature(value, name), prose(value))
    yield from members(name, value, apart - {value})


def _bases(cls: type) -> str:
    """List the base classes, except `object` and `Generic`."""
    bases = (base.__bases__[0] if base.__name__[0] == "_" else base for base in cls.__bases__)
    named = [f"`{b.__name__}`" for b in bases if b is not object and b.__name__ != "Generic"]
    return f"; base: {', '.join(named)}" if named else ""


def fields(model: type[BaseModel]) -> str:
    """Return the fields of a model as a table."""
    rows = ["| field | type | default | |", "| --- | --- | --- | --- |"]
    for name, field in model.model_fields.items():
        written = next(a[name] for a in map(inspect.get_annotations, model.__mro__) if name in a)
        default = "required" if field.is_required() else f"`{field.get_default()!r}`"
        if field.default_factory is not None:
            default = f"`{field.default_factory.__name__}()`"
        kind = str(written).replace("|", "\\|")
        rows.append(f"| `{name}` | `{kind}` | {default} | {field.description or ''} |")
    return "\n".join(rows)


def members(name: str, cls: type, apart: frozenset[type]) -> Iterator[str]:
    """Yield the public methods and properties of a class and of its bases without a section."""
    seen: set[str] = set()
    for owner in cls.__mro__:
        if owner in apart or not owner.__module__.startswith("openenv."):
            continue
        for attribute, raw in vars(owner).items():
            if attribute.startswith("_") or attribute in seen:
                continue
            seen.add(attribute)
            value = getattr(cls, attribute, raw)
            if isinstance(raw, property | functools.cached_property) or _is_descriptor(raw):
                yield from (f"### {name}.{attribute}", "A property.", prose(raw))
            elif inspect.isroutine(value):
                yield from (f"### {name}.{attribute}", signature(value, attribute), prose(value))


def _is_descriptor(raw: Any) -> bool:
    """Return whether an attribute is computed on access, and is not a function."""
    return inspect.ismethoddescriptor(raw) and not callable(raw) and not _wraps(raw)


def _wraps(raw: Any) -> bool:
    return isinstance(raw, classmethod | staticmethod)


# ------------------------------------------------------------------ integrations, read as text

INTEGRATIONS = Path(openenv.__file__).parent / "integrations"


def integrations_page() -> str:
    """Describe the public names of each integration.

    The descriptions come from the source, since few of the integrated libraries can be installed
    side by side.
    """
    parts = []
    for path in sorted(p for p in INTEGRATIONS.iterdir() if p.name[0] != "_"):
        source = path if path.suffix == ".py" else path / "__init__.py"
        tree = ast.parse(source.read_text(encoding="utf-8"))
        offered = [entry for name in _offered(tree) for entry in _entry(name, tree)]
        if offered:
            parts += [f"## openenv.integrations.{path.stem}", *offered]
    return page(
        "Integrations",
        "What the modules of `openenv.integrations` offer, each for one library. The "
        "[training guides](../guides/training/models.md) and "
        "[Gymnasium](../guides/gymnasium.md) show how they are used.",
        *parts,
    )


def _offered(tree: ast.Module) -> list[str]:
    """Return a module's public names: ``__all__``, or a lazy package's imports for types."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    return sorted(
        _imported(node for block in tree.body if isinstance(block, ast.If) for node in block.body)
    )


def _imported(statements: Iterable[ast.stmt]) -> dict[str, str]:
    """Return the OpenEnv module from which each name is imported."""
    imports = [node for node in statements if isinstance(node, ast.ImportFrom)]
    return {
        alias.name: node.module
        for node in imports
        if node.module and node.module.startswith("openenv.")
        for alias in node.names
    }


def _entry(name: str, tree: ast.Module) -> Iterator[str]:
    """Yield the section of a name that the module or another OpenEnv module defines."""
    typed = [node for block in tree.body if isinstance(block, ast.If) for node in block.body]
    if module := _imported([*tree.body, *typed]).get(name):
        source = INTEGRATIONS.parent.joinpath(*module.split(".")[1:]).with_suffix(".py")
        tree = ast.parse(source.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name == name:
                yield from _definition(f"### {name}", node)
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            yield f"### {name}"
            yield f"```text\n{ast.unparse(node)}\n```"


def _definition(heading: str, node: ast.stmt) -> Iterator[str]:
    """Yield the section of a class or function, and the sections of public methods."""
    assert isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    yield heading
    if not isinstance(node, ast.ClassDef):
        yield _called(node)
    elif bases := ", ".join(f"`{ast.unparse(base)}`" for base in node.bases):
        yield f"Base: {bases}"
    yield markdown_of(ast.get_docstring(node) or "")
    for member in node.body if isinstance(node, ast.ClassDef) else []:
        if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef) and member.name[0] != "_":
            yield from _definition(f"#{heading}.{member.name}", member)


def _called(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    arguments = node.args
    if arguments.args and arguments.args[0].arg in ("self", "cls"):
        del arguments.args[0]
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    line = f"{node.name}({', '.join(_arguments(arguments))}){returns}"
    return call_block(line, node.name, list(_arguments(arguments)))


def _arguments(arguments: ast.arguments) -> Iterator[str]:
    """Yield each argument; a joined text could not be split, since types contain commas."""
    without = len(arguments.args) - len(arguments.defaults)
    defaults: list[ast.expr | None] = [*[None] * without, *arguments.defaults]
    for one, default in zip(arguments.args, defaults, strict=True):
        yield _argument(one, default)
    if arguments.vararg:
        yield f"*{ast.unparse(arguments.vararg)}"
    elif arguments.kwonlyargs:
        yield "*"
    for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _argument(one, default)
    if arguments.kwarg:
        yield f"**{ast.unparse(arguments.kwarg)}"


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    return ast.unparse(argument) + (f" = {ast.unparse(default)}" if default else "")


# ------------------------------------------------------------------ pages


def api_page() -> str:
    """Return the page of the names of `openenv`, `openenv.tools` and `openenv.events`.

    Errors and modules are left out.
    """
    values = {
        name: getattr(module, name)
        for module in (openenv, tools, events)
        for name in module.__all__
        if name[0] != "_"
    }
    shown = {
        name: value
        for name, value in values.items()
        if not isinstance(value, ModuleType) and name not in errors.__all__
    }
    apart = frozenset(value for value in shown.values() if isinstance(value, type))
    listed = [part for name, value in shown.items() for part in described(name, value, apart)]
    return page(
        "Names",
        "What `openenv` offers, and after it `openenv.tools` and `openenv.events`; where a name is "
        "from stands below it. [Errors](errors.md) have a page of their own.",
        *listed,
    )


def errors_page() -> str:
    """Return the page of errors: the tree, and each class."""
    parts = [prose(errors)]
    for name in errors.__all__:
        value = getattr(errors, name)
        if isinstance(value, type) and issubclass(value, Exception):
            parts += [f"## {name}", f"`{value.__module__}.{name}`{_bases(value)}", prose(value)]
    return page("Errors", "All of them are in `openenv.errors`.", *parts)


def settings_page() -> str:
    """Return the page of environment variables."""
    return page("Settings", prose(settings))


def cli_page() -> str:
    """Return the page of the command line, in typer's format."""
    command: Any = get_command(app)
    context = Context(command, info_name="openenv")
    for name in command.list_commands(context):
        _document(command.get_command(context, name))
    text = get_docs_for_click(obj=command, ctx=context, name="openenv")
    return HEADER + text.replace("```console\n$ ", "```text\n").strip() + "\n"


def manifest_page() -> str:
    """Return the JSON Schema of ``openenv.yaml``, for editors."""
    return json.dumps(manifest_schema(), indent=2) + "\n"


def _document(command: Any) -> None:
    """Add the examples of a command to its text, and remove the global options."""
    command.params = [one for one in command.params if one.rich_help_panel != GLOBAL_PANEL]
    if shown := example_lines(getattr(command, "examples", [])):
        command.epilog = "**Examples**:\n\n```text\n" + "\n".join(shown) + "\n```"
    for below in getattr(command, "commands", {}).values():
        _document(below)


def page(title: str, *parts: str) -> str:
    """Return a page of Markdown."""
    return HEADER + "\n\n".join([f"# {title}", *(part for part in parts if part)]) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "reference/api.md": api_page,
    "reference/integrations.md": integrations_page,
    "reference/errors.md": errors_page,
    "reference/settings.md": settings_page,
    "reference/cli.md": cli_page,
    "schema/openenv.schema.json": manifest_page,
}


# ------------------------------------------------------------------ sections of other pages


def promises_section() -> str:
    """Return the list of the checks of `check_environment`."""
    return "\n".join(f"- {promise}" for promise in PROMISES)


def errors_section() -> str:
    """Return the table of errors: how each leaves a server and arrives at a client."""
    rows = [
        "| in the server | code | HTTP | JSON-RPC | in the client | the socket |",
        "| --- | --- | ---: | ---: | --- | --- |",
    ]
    for cls, row in errors.OUTWARD.items():
        raised = "any other exception" if cls is Exception else f"`{cls.__name__}`"
        client: type[Exception] | None = errors.CLIENT_SIDE.get(row.code)
        socket = "closes" if ErrorReply({"code": row.code.value}).is_fatal else "stays"
        if cls is errors.StepTimeout:  # the same class on both sides
            client = cls
        elif client is None:
            client = errors.REFUSALS.get(row.http_status, errors.ConnectError)
            socket = "is refused"
        rows.append(
            f"| {raised} | `{row.code.value}` | {row.http_status} | {row.json_rpc} "
            f"| `{client.__name__}` | {socket} |"
        )
    return "\n".join(rows)


def capabilities_section() -> str:
    """Return the table of each provider's guarantees."""
    kinds: list[Any] = [
        providers.ProcessProvider,
        providers.UVProvider,
        providers.LocalDockerProvider,
    ]
    kinds += [providers.DockerSwarmProvider, providers.KubernetesProvider, providers.RayProvider]
    kinds += [providers.DaytonaProvider, providers.ModalProvider, providers.ACASandboxProvider]
    kinds += [providers.HFSandboxProvider]
    rows = [
        "| | isolation | own files | read-only | no rights | network | limits | fresh key "
        "| logs, commands | orphans |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for kind in kinds:
        can = kind.capabilities
        flags = [can.own_files, can.read_only, can.unprivileged]
        marks = " | ".join("yes" if flag else "" for flag in flags)
        offered = [(can.has_logs, "logs"), (can.can_execute, "commands")]
        reads = ", ".join(name for has, name in offered if has)
        rows.append(
            f"| `{kind.__name__}` | {can.isolation} | {marks} | {', '.join(can.networks)} "
            f"| {', '.join(can.limits)} | {'yes' if can.fresh_keys else ''} | {reads} "
            f"| {can.orphans} |"
        )
    return "\n".join(rows)


SECTIONS: dict[str, tuple[str, Callable[[], str]]] = {
    "promises": ("concepts/contract.md", promises_section),
    "errors": ("protocol/errors.md", errors_section),
    "capabilities": ("concepts/isolation.md", capabilities_section),
}


def with_section(text: str, name: str, content: str) -> str:
    """Replace the section `name` of a page."""
    marks = rf"(<!-- generated: {name} -->\n).*?(<!-- end -->)"
    replaced, count = re.subn(
        marks, lambda match: f"{match[1]}\n{content}\n\n{match[2]}", text, flags=re.DOTALL
    )
    if count != 1:
        raise SystemExit(f"the section {name!r} stands {count} times in its page, not once")
    return replaced


def generated() -> dict[Path, str]:
    """Return every file that this script writes, with its content."""
    files = {DOCS / name: make() for name, make in PAGES.items()}
    for section, (name, make) in SECTIONS.items():
        path = DOCS / name
        text = files.get(path) or path.read_text(encoding="utf-8")
        files[path] = with_section(text, section, make())
    return files


def main() -> int:
    """Write the files, or check them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if stale")
    options = parser.parse_args()
    stale = {
        path: text
        for path, text in generated().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    }
    for path, text in stale.items():
        print(f"{'stale' if options.check else 'written'}: {path.relative_to(DOCS.parent)}")
        if not options.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if stale and options.check:
        print("write them anew: make docs", file=sys.stderr)
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
