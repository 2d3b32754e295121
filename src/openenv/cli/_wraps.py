"""Inspection of an existing class, to generate an environment with the methods as tools."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from importlib import metadata
from typing import Any

from openenv.cli._console import CommandError, MisuseError, did_you_mean
from openenv.cli._sources import EXAMPLES, format_code, format_step_call, to_code
from openenv.cli._template import OPENENV, TEMPLATES, EnvironmentNames, TemplateInputs, probe_plan
from openenv.tools.types import RESERVED_TOOL_NAMES

PROBED = 8  # tools that `openenv validate` calls
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def inspect_wrapped_class(target: str, names: EnvironmentNames) -> TemplateInputs:
    """Return layers, placeholders and files of a package that wraps a class.

    Args:
        target: ``module:Class``; the module is imported.
        names: Names of the new package.
    """
    module, name, cls = _class(target)
    requires = _distribution(module)
    gymnasium = sys.modules.get("gymnasium")
    if gymnasium is not None and issubclass(cls, gymnasium.Env):
        from openenv.cli._gymnasium import inspect_class

        return inspect_class(cls, module, requires, names)
    _check_constructor(cls, target)
    tools = _methods(cls)
    if not tools:
        raise MisuseError(
            f"{target} has no public methods of its own, which would become the tools"
        )
    dependencies = [OPENENV, requires] if requires else [OPENENV]
    example = {"tool_name": tools[0], "arguments": _arguments(getattr(cls, tools[0]))}
    fills = {
        "SUMMARY": f"The methods of {module}.{name} as tools",
        "STEP": format_step_call(f"{names.class_prefix}Action", example),
        "DEPENDENCIES": ", ".join(json.dumps(one) for one in dependencies),
        "WRAPPED": name,
        "WRAPPED_MODULE": module,
        "TOOLS": ", ".join(tools),
        "TOOL_TUPLE": format_code(to_code(tuple(tools)), "", len("TOOLS = ")),
        "PROMPT": f"Use the tools of {name}.",
    }
    actions = [
        {"type": "call_tool", "tool_name": tool, "arguments": _arguments(getattr(cls, tool))}
        for tool in tools[:PROBED]
    ]
    return TemplateInputs(TEMPLATES["package"], fills, probe_plan(actions))


def _class(target: str) -> tuple[str, str, Any]:
    module, _, name = target.partition(":")
    if not name or not name.isidentifier() or not all(map(str.isidentifier, module.split("."))):
        raise MisuseError(
            f"--wraps {target} names no class",
            hint="write MODULE:CLASS, for example --wraps collections:Counter",
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
        raise MisuseError(
            f"{module} has no class {name}" if cls is None else f"{target} is not a class",
            hint=did_you_mean(name, known),
        )
    return module, name, cls


def _check_constructor(cls: type, target: str) -> None:
    try:
        signature = inspect.signature(cls)
    except (TypeError, ValueError):
        return  # no signature, as for classes in C
    empty = inspect.Parameter.empty
    wanted = [
        one.name
        for one in signature.parameters.values()
        if one.default is empty and one.kind not in VARIADIC
    ]
    if wanted:
        raise MisuseError(
            f"{target} cannot be made without {', '.join(wanted)}, and every episode makes one",
            hint="wrap a subclass whose constructor needs no argument",
        )


def _methods(cls: type) -> list[str]:
    """Return the public methods with known arguments."""
    return [
        name
        for name, value in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_")
        and name not in RESERVED_TOOL_NAMES
        and all(one.kind not in VARIADIC for one in inspect.signature(value).parameters.values())
    ]


def _arguments(function: Any) -> dict[str, Any]:
    """Return sample values for a function's required arguments."""
    given = list(inspect.signature(function).parameters.values())[1:]
    wanted = [one for one in given if one.default is inspect.Parameter.empty]
    return {one.name: EXAMPLES.get(_type_name(one.annotation)) for one in wanted}


def _type_name(annotation: Any) -> str:
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return str(name).partition("[")[0]


def _distribution(module: str) -> str:
    """Return the requirement that provides a module; empty for the standard library."""
    for name in metadata.packages_distributions().get(module.partition(".")[0], ()):
        return f"{name}>={metadata.version(name)}"
    return ""
