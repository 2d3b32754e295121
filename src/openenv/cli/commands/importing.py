"""`openenv import`: a package from another library's environment, including the source."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from openenv.cli._console import CommandError, say, unknown_name
from openenv.cli._openenv import origin_for
from openenv.cli._options import argument, option, takes_options
from openenv.cli._sources import EXAMPLES, format_step_call
from openenv.cli._template import OPENENV, EnvironmentNames, probe_plan, render
from openenv.cli._vendor import (
    KINDS,
    FoundEnvironment,
    VendoredSource,
    choose_environment,
    find_environments,
    read_source,
)
from openenv.cli.commands.init import check_name, check_target, write_environment


class _Library(NamedTuple):
    title: str
    needs: Sequence[str]  # requirements
    layers: Sequence[str]  # template layers, after `common`
    models: str  # words for the README: what actions and observations are


OF_SPACES = ("imported", "imported-spaces"), "of its own spaces; `/schema` shows them"
OF_TOOLS = "calls of its tools"
LIBRARIES = {
    "ors": _Library(
        "the Open Reward Standard",
        ["openreward"],
        ("tools", "imported", "imported-tools", "imported-adapted"),
        OF_TOOLS,
    ),
    "verifiers": _Library(
        "verifiers",
        ["verifiers>=0.4"],
        ("imported", "imported-messages", "imported-adapted"),
        "messages of a chat",
    ),
    "gymnasium": _Library("Gymnasium", ["gymnasium", "numpy"], *OF_SPACES),
    "pettingzoo": _Library("PettingZoo", ["pettingzoo", "gymnasium", "numpy"], *OF_SPACES),
    "dm_env": _Library("dm_env", ["dm-env", "gymnasium", "numpy"], *OF_SPACES),
    "mcp": _Library(
        "MCP", ["fastmcp"], ("tools", "imported", "imported-tools", "imported-mcp"), OF_TOOLS
    ),
}


@takes_options
def import_environment(
    source: str = argument(
        ..., metavar="SOURCE", help="Directory, Python file, or name of an installed package."
    ),
    name: str = option(..., "-n", help="Name of the new package."),
    output_dir: Path = option(..., "-o", help="Create the package in this directory."),
    env_class: str | None = option(
        None, metavar="[MODULE:]CLASS", help="Environment to import, if the source has several."
    ),
    kind: str | None = option(
        None, "--type", metavar="|".join(KINDS), help="Type of the environment; by default any."
    ),
    lock: bool = option(
        True, help="Write a uv.lock with the versions of all dependencies; needs an index."
    ),
    as_json: bool = option(False, "--json", help="Print the written files as JSON."),
) -> None:
    """Create a package from an environment of another library.

    The environment is found by reading the source, and copied beside an adapter. Neither the
    source nor the dependencies are run.

    Examples:
        openenv import ./their_repo -n their_env -o envs
        openenv import game.py -n game_env -o . --type gymnasium
    """
    check_name(name, "import")
    if kind is not None and kind not in KINDS:
        raise unknown_name(f"there is no type {kind!r}", kind, KINDS)
    target = output_dir / name
    check_target(target)
    read = read_source(source)
    chosen = choose_environment(find_environments(read), read, kind, env_class)
    say(f"found {chosen.module}:{chosen.name} ({chosen.kind}) in {chosen.place}")
    for one in read.skipped:
        say(f"left out {one}")
    origin = origin_for(target)
    tree = _tree(read, chosen, EnvironmentNames.of(name), origin.fills)
    write_environment(tree, target, origin, lock=lock, as_json=as_json, builds=False)


def _tree(
    source: VendoredSource,
    found: FoundEnvironment,
    names: EnvironmentNames,
    more: Mapping[str, str],
) -> dict[str, str | bytes]:
    actions, is_known = _probe(found)
    fills = {**_fills(source, found, names, actions[0], is_known), **more}
    try:
        copied = {f"vendor/{path}": file.read_bytes() for path, file in source.files.items()}
    except OSError as error:
        raise CommandError(f"{source.told} cannot be read: {error}") from error
    layers = ("common", *LIBRARIES[found.kind].layers)
    return {**render(names, layers, fills, probe_plan(actions)), **copied}


def _fills(
    source: VendoredSource,
    found: FoundEnvironment,
    names: EnvironmentNames,
    action: Any,
    is_known: bool,
) -> dict[str, str]:
    library = LIBRARIES[found.kind]
    wanted = {_project(one): one for one in [OPENENV, *library.needs, *source.dependencies]}
    told = found.described.replace("`", "").rstrip(".")
    example = {key: value for key, value in action.items() if key != "type"}
    arguments = {
        "ors": f'vendored("{found.module}").{found.name}',
        "verifiers": f'vendored("{found.module}").__name__',
    }
    return {
        "SUMMARY": f"{found.name} of {library.title}",
        "ABOUT": f"{told}." if told else f"An environment of {library.title}.",
        "FOUND": found.name,
        "MODULE": found.module,
        "KIND_TITLE": library.title,
        "KIND": found.kind,
        "SOURCE": Path(source.told).name or Path(source.told).resolve().name,
        "PLACE": found.place,
        "LICENCES": ", ".join(f"`{one}`" for one in source.licences) or "it has none",
        "MODELS": library.models,
        "DEPENDS": ", ".join(f"`{one}`" for one in wanted.values()),
        "DEPENDENCIES": ", ".join(json.dumps(one) for one in wanted.values()),
        "GUESS": "" if is_known else ", and may need corrections",
        "STEP": format_step_call(f"{names.class_prefix}Action", example),
        "ADAPTER": f"from_{found.kind}",
        "ARGUMENTS": arguments.get(found.kind, ""),
        "ROOT": source.root,
        "ACTION_FIELD": next(iter(example)),
        "TOOLS": ", ".join(sorted(one.name for one in found.tools)),
        "TAGS": found.kind,
        "ALSO_IN_THE_WHEEL": '\n    "vendor",',
        "ALSO_OF_RUFF": '\nextend-exclude = ["vendor"]',
        "ALSO_OF_MYPY": '\nexclude = ["(^|/)vendor/"]',
    }


def _project(requirement: str) -> str:
    """Return the normalized name of a requirement."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    return re.sub("[-_.]+", "-", found[0] if found else requirement).lower()


def _probe(found: FoundEnvironment) -> tuple[list[dict[str, Any]], bool]:
    """Return sample actions, and whether they follow from the source."""
    if found.kind == "verifiers":
        return [{"content": "42"}], True
    if found.kind in ("ors", "mcp"):
        calls = [
            {"type": "call_tool", "tool_name": one.name, "arguments": _arguments(found, one)}
            for one in found.tools
        ]
        unknown = {"type": "call_tool", "tool_name": "unknown", "arguments": {}}
        return calls or [unknown], bool(calls)
    element = _element(found.node)
    action = 0 if element is None else element
    agents = _agents(found.node) if found.kind == "pettingzoo" else []
    probed = {"actions": dict.fromkeys(agents, action)} if agents else {"action": action}
    return [probed] * 3, element is not None


def _arguments(
    found: FoundEnvironment, tool: ast.FunctionDef | ast.AsyncFunctionDef
) -> dict[str, Any]:
    given = [one for one in tool.args.args if one.arg != "self"]
    required = given[: len(given) - len(tool.args.defaults)]
    if found.kind == "ors":  # a single argument: a model whose fields are the tool's arguments
        return {}
    return {one.arg: EXAMPLES.get(_type_name(one.annotation)) for one in required}


def _type_name(annotation: ast.expr | None) -> str:
    return "" if annotation is None else ast.unparse(annotation).partition("[")[0]


def _agents(node: ast.AST | None) -> list[str]:
    """Return the simultaneously acting agents, if the source lists them."""
    bases = [ast.unparse(one) for one in node.bases] if isinstance(node, ast.ClassDef) else []
    if node is None or not any(one.endswith("ParallelEnv") for one in bases):
        return []
    lists = (
        one.value.elts
        for one in ast.walk(node)
        if isinstance(one, ast.Assign)
        and "possible_agents" in ast.unparse(one.targets[0])
        and isinstance(one.value, ast.List)
    )
    return [str(one.value) for one in next(lists, []) if isinstance(one, ast.Constant)]


def _element(node: ast.AST | None) -> Any:
    """Return an element of the action space, if the source defines the space by literals."""
    for one in ast.walk(node) if node is not None else ():
        if isinstance(one, ast.Assign) and isinstance(one.value, ast.Call):
            names = [ast.unparse(target) for target in one.targets]
            if "self.action_space" in names or "action_space" in names:
                return _element_of(one.value)
        if isinstance(one, ast.FunctionDef) and one.name == "action_space":
            last = one.body[-1]
            if isinstance(last, ast.Return) and isinstance(last.value, ast.Call):
                return _element_of(last.value)
    return None


def _element_of(space: ast.Call) -> Any:
    kind = ast.unparse(space.func).rpartition(".")[2]
    told = [*space.args, *(one.value for one in space.keywords)]
    named = {one.arg: one.value for one in space.keywords}
    try:
        if kind == "Discrete":
            return ast.literal_eval(named["start"]) if "start" in named else 0
        if kind == "MultiDiscrete":
            return [0] * len(ast.literal_eval(told[0]))
        if kind == "MultiBinary":
            return [0] * ast.literal_eval(told[0])
        if kind == "Box":
            return _point(named, space.args)
    except (ValueError, TypeError, IndexError):
        return None
    return None


def _point(named: dict[str | None, ast.expr], given: list[ast.expr]) -> Any:
    """Return the center of a box with uniform bounds."""
    low, high, shape = (
        ast.literal_eval(named[name] if name in named else given[place])
        for place, name in enumerate(("low", "high", "shape"))
    )
    point: Any = (low + high) / 2
    for length in reversed(shape):
        point = [point] * length
    return point
