"""A class of an existing package, looked at: its methods as the tools of an environment."""

from __future__ import annotations

import difflib
import importlib
import inspect
import json
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

from openenv.cli._console import MISUSED, CommandError
from openenv.cli._sources import EXAMPLES, code_of, laid_out, step_of
from openenv.cli._template import OPENENV, TEMPLATES, EnvironmentNames
from openenv.tools.types import RESERVED_TOOL_NAMES

__all__ = ["wrapped"]

PROBED = 8  # tools that `openenv validate` calls

Looked = tuple[Sequence[str], Mapping[str, str], Mapping[str, str]]


def wrapped(target: str, names: EnvironmentNames) -> Looked:
    """The layers, the placeholders and further files of a package that wraps a class.

    Args:
        target: ``module:Class``, which is imported.
        names: Those of the package that is written.

    Raises:
        CommandError: There is no such class, or nothing can be made of it.
    """
    module, name, cls = _class(target)
    requires = _distribution(module)
    if _is_of_gymnasium(cls):
        from openenv.cli._gymnasium import look_at_class

        looked = look_at_class(cls, module, requires, names)
        return ("common", "gymnasium"), looked.fills, looked.written
    _check_constructor(cls, target)
    tools = _methods(cls)
    if not tools:
        raise CommandError(
            f"{target} has no public methods of its own, which would become the tools",
            exit_code=MISUSED,
        )
    dependencies = [OPENENV, requires] if requires else [OPENENV]
    example = {"tool_name": tools[0], "arguments": _arguments(getattr(cls, tools[0]))}
    fills = {
        "SUMMARY": f"The methods of {module}.{name} as tools",
        "STEP": step_of(f"{names.class_prefix}Action", example),
        "DEPENDENCIES": ", ".join(json.dumps(one) for one in dependencies),
        "WRAPPED": name,
        "WRAPPED_MODULE": module,
        "TOOLS": ", ".join(tools),
        "TOOL_TUPLE": laid_out(code_of(tuple(tools)), "", len("TOOLS = ")),
        "PROMPT": f"Use the tools of {name}.",
    }
    plan = {
        "plan_schema_version": "1",
        "reset": {"episode_id": "validation-probe", "seed": 42, "options": {}},
        "actions": [
            {"type": "call_tool", "tool_name": tool, "arguments": _arguments(getattr(cls, tool))}
            for tool in tools[:PROBED]
        ],
    }
    return (
        TEMPLATES["package"],
        fills,
        {"validation/runtime.json": json.dumps(plan, indent=2) + "\n"},
    )


def _class(target: str) -> tuple[str, str, Any]:
    module, _, name = target.partition(":")
    if not name or not name.isidentifier() or not all(map(str.isidentifier, module.split("."))):
        raise CommandError(
            f"--wraps {target} names no class",
            hint="write MODULE:CLASS, for example --wraps collections:Counter",
            exit_code=MISUSED,
        )
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise CommandError(
            f"{module} cannot be imported: {error}",
            hint=f"install what has it beside openenv ({sys.executable} -m pip install ...)",
        ) from error
    cls = getattr(found, name, None)
    if not isinstance(cls, type):
        known = [one for one, value in vars(found).items() if isinstance(value, type)]
        close = difflib.get_close_matches(name, known, n=3)
        raise CommandError(
            f"{module} has no class {name}" if cls is None else f"{target} is no class",
            hint=f"did you mean {' or '.join(close)}?" if close else None,
            exit_code=MISUSED,
        )
    return module, name, cls


def _is_of_gymnasium(cls: type) -> bool:
    gymnasium = sys.modules.get("gymnasium")
    return gymnasium is not None and issubclass(cls, gymnasium.Env)


def _check_constructor(cls: type, target: str) -> None:
    try:
        signature = inspect.signature(cls)
    except (TypeError, ValueError):
        return  # it says none, as classes in C do
    empty = inspect.Parameter.empty
    plain = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    wanted = [
        one.name
        for one in signature.parameters.values()
        if one.default is empty and one.kind not in plain
    ]
    if wanted:
        raise CommandError(
            f"{target} cannot be made without {', '.join(wanted)}, and every episode makes one",
            hint="wrap a subclass whose constructor needs no argument",
            exit_code=MISUSED,
        )


def _methods(cls: type) -> list[str]:
    """The public methods whose arguments are known."""
    return [
        name
        for name, value in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_") and name not in RESERVED_TOOL_NAMES and _can_be_tool(value)
    ]


def _can_be_tool(function: Any) -> bool:
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return all(one.kind not in kinds for one in parameters)


def _arguments(function: Any) -> dict[str, Any]:
    """Some arguments that it may take; what has a default is left out."""
    given = list(inspect.signature(function).parameters.values())[1:]
    wanted = [one for one in given if one.default is inspect.Parameter.empty]
    return {one.name: EXAMPLES.get(_type_name(one.annotation)) for one in wanted}


def _type_name(annotation: Any) -> str:
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return str(name).partition("[")[0]


def _distribution(module: str) -> str:
    """What has a module, as a requirement; nothing for one of Python, or of nobody."""
    for name in metadata.packages_distributions().get(module.partition(".")[0], ()):
        return f"{name}>={metadata.version(name)}"
    return ""
