"""An arrow may only point down: every import is held against one table."""

from __future__ import annotations

import ast
import graphlib
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src"

# ------------------------------------------------------------------ the tables

# Which layer a module belongs to: the longest name that it is, or lies below.
LAYERS = {
    "openenv": "root",
    "openenv.types": "contract",
    "openenv.arrays": "contract",
    "openenv.environment": "contract",
    "openenv.events": "contract",
    "openenv.errors": "contract",
    "openenv.reward": "contract",
    "openenv.settings": "contract",
    "openenv.spaces": "contract",
    "openenv.manifest": "contract",
    "openenv._internal": "contract",
    "openenv.tools": "tools",
    "openenv.tools.types": "tool values",
    "openenv.tools.results": "tool values",
    "openenv.tools.functions": "tool values",
    "openenv.tools.progress": "tool values",
    "openenv.tools.rendering": "tool values",
    "openenv.protocol": "protocol",
    "openenv.sandbox": "sandbox",
    "openenv.sandbox.inside": "programs",
    "openenv.sandbox.inside.frames": "sandbox",
    "openenv.sandbox.inside.forward": "sandbox",
    "openenv.rewards": "rewards",
    "openenv.rewards.llm": "language models",
    "openenv.tasks": "tasks",
    "openenv.execution": "execution",
    "openenv.providers.base": "provider contract",
    "openenv.providers": "providers",
    "openenv.client": "client",
    "openenv.server": "server",
    "openenv.wrappers": "wrappers",
    "openenv.integrations": "integrations",
    "openenv.integrations._episodes": "trainers",
    "openenv.integrations.typed_tools": "trainers",
    "openenv.integrations.trl": "trainers",
    "openenv.integrations.skyrl": "trainers",
    "openenv.integrations.verifiers": "trainers",
    "openenv.integrations.art": "trainers",
    "openenv.integrations.oumi": "trainers",
    "openenv.integrations.unsloth": "trainers",
    "openenv.integrations.torchforge": "trainers",
    "openenv.integrations.lightning": "trainers",
    "openenv.integrations.transformers": "trainers",
    "openenv.integrations.nemo_gym": "trainers",
    "openenv.integrations.verl": "trainers",
    "openenv.integrations.rllib": "trainers",
    "openenv.pool": "pool",
    "openenv.gateway": "gateway",
    "openenv.images": "images",
    "openenv.hub": "hub",
    "openenv.agents": "agents",
    "openenv.capture": "capture",
    "openenv.rollouts": "rollouts",
    "openenv.rollouts.replays": "replays",
    "openenv.evals": "evals",
    "openenv.validation": "validation",
    "openenv.testing": "testing",
    "openenv.web": "web",
    "openenv.cli": "cli",
    "openenv.core": "mirrors",
    "openenv.auto": "mirrors",
    "openenv.models": "mirrors",
    "openenv.adapters": "mirrors",
    "openenv.mcp": "mirrors",
    "openenv.recording": "mirrors",
    "openenv_core": "mirrors",
}

CONTRACT = {"contract"}
VALUES = CONTRACT | {"tool values", "protocol", "rewards", "tasks"}
EXECUTION = VALUES | {"execution"}
INNER = EXECUTION | {"provider contract", "providers", "client", "server"}

# Which layers a layer may import from, beside itself.
ARROWS = {
    "root": {"contract"},
    "contract": set(),
    "tool values": CONTRACT,
    "tools": CONTRACT | {"tool values", "sandbox"},
    "sandbox": CONTRACT,
    "wrappers": CONTRACT | {"tool values", "tools"},
    "agents": CONTRACT | {"tool values", "tools"},
    "integrations": INNER,
    "trainers": INNER | {"capture", "hub", "integrations", "language models", "pool", "rollouts"},
    "programs": set(),  # they run alone, in a sandbox
    "protocol": CONTRACT | {"tool values"},
    "rewards": CONTRACT | {"language models"},
    "tasks": CONTRACT,
    "language models": CONTRACT,
    "execution": VALUES,
    "provider contract": CONTRACT,
    "providers": EXECUTION | {"provider contract", "sandbox"},
    "client": EXECUTION | {"provider contract"},
    "server": EXECUTION | {"tools", "wrappers"},
    "replays": INNER | {"hub"},
    "pool": INNER,
    "gateway": INNER,
    "images": CONTRACT | {"providers", "root"},
    "hub": INNER | {"images"},
    "testing": INNER | {"sandbox"},
    "rollouts": INNER | {"agents", "hub", "language models", "pool", "replays", "wrappers"},
    "capture": INNER | {"agents", "language models", "rollouts"},
    "evals": INNER | {"hub", "language models", "rollouts"},
    "validation": INNER
    | {
        "evals",
        "hub",
        "images",
        "language models",
        "replays",
        "rollouts",
        "sandbox",
        "testing",
    },
    "web": EXECUTION | {"client"},
    "cli": INNER
    | {
        "agents",
        "capture",
        "evals",
        "gateway",
        "hub",
        "images",
        "language models",
        "pool",
        "replays",
        "rollouts",
        "root",
        "sandbox",
        "testing",
        "tools",
        "validation",
        "web",
    },
    "mirrors": INNER
    | {
        "agents",
        "capture",
        "evals",
        "hub",
        "language models",
        "rollouts",
        "sandbox",
        "replays",
        "tools",
        "web",
        "wrappers",
    },
}

# What one module may import from a layer that it may not otherwise, inside functions only.
LAZILY = {"openenv.client.launch": {"providers"}, "openenv.server.app": {"web"}}

# Packages that are not ours, and who needs them. What is not listed is not imported at all.
EVERYWHERE = {"annotated_types", "pydantic", "pydantic_core", "typing_extensions"}
HOMES = {
    "accelerate": {"openenv.integrations.trl.processes"},
    "anthropic": {"openenv.rewards.llm.anthropic"},
    "anyio": {
        "openenv.tools.connections",
        "openenv.server.mcp.sdk_v1",
        "openenv.tools.transports",
        "openenv.server.home",
    },
    "fastapi": {"openenv.integrations.nemo_gym", "openenv.server", "openenv.web"},
    "fastmcp": {"openenv.tools.servers"},
    "dm_env": {"openenv.wrappers", "openenv.integrations"},
    "gradio": {"openenv.web.custom"},
    "gymnasium": {
        "openenv._internal.choices",
        "openenv.wrappers",
        "openenv.cli._gymnasium",
        "openenv.integrations",
        "openenv.spaces",
    },
    "inspect_ai": {
        "openenv.evals.inspect",
        "openenv.evals.inspect_harness",
        "openenv.rewards.external.inspect_ai",
    },
    "jinja2": {"openenv._internal.reports.pages"},
    "markdown_it": {"openenv.hub.catalog.site"},
    "markupsafe": {"openenv.hub.catalog.site"},
    "matplotlib": {
        "openenv._internal.reports.plots",
        "openenv.evals.plots",
        "openenv.validation.plots",
    },
    "datasets": {"openenv.integrations.trl.datasets", "openenv.tasks"},
    "docker": {"openenv.providers.engines"},
    "azure": {"openenv.providers.aca"},
    "daytona": {"openenv.providers.daytona"},
    "huggingface_hub": {
        "openenv.cli._doctor",
        "openenv.rollouts.collect.hub",
        "openenv.hub.client",
        "openenv.providers.hf",
        "openenv.tasks.hub",
    },
    "kubernetes": {"openenv.providers._clusters"},
    "modal": {"openenv.providers.modal"},
    "urllib3": {"openenv.providers._clusters"},
    "pathspec": {"openenv.hub.staging", "openenv.images.context"},
    "h11": {"openenv._internal.net", "openenv.gateway", "openenv.agents.bridge"},
    "pettingzoo": {"openenv.wrappers", "openenv.integrations"},
    "mcp": {
        "openenv.integrations.verifiers",
        "openenv.tools.connections",
        "openenv.server.mcp.sdk_v1",
        "openenv.server.mcp.sdk_v2",
        "openenv.tools.transports",
    },
    "jsonschema": {"openenv.validation.runtime.protocol"},
    "mcp_types": {
        "openenv.integrations.verifiers",
        "openenv.server.mcp.sdk_v2",
        "openenv.tools.transports",
    },
    "PIL": {"openenv.integrations.trl.environments"},
    "openai": {"openenv.rewards.llm.openai"},
    "openspiel_env": {"openenv.cli"},
    "msgspec": {
        "openenv.protocol",
        "openenv.execution",
        "openenv.web.watch",
        "openenv.client.connection",
    },
    "numpy": {
        "openenv._internal.choices",
        "openenv.wrappers",
        "openenv.arrays",
        "openenv.cli._gymnasium",
        "openenv.client",
        "openenv.evals",
        "openenv.integrations",
        "openenv.rollouts.replays",
        "openenv.spaces",
        "openenv.validation.learner",
    },
    "art": {"openenv.integrations.art"},
    "ray": {"openenv.integrations.rllib"},
    "oumi": {"openenv.integrations.oumi"},
    "verl": {"openenv.integrations.verl"},
    "skyrl_gym": {"openenv.integrations.skyrl"},
    "reasoning_gym": {"openenv.rewards.external.reasoning_gym"},
    "reasoning_gym_env": {"openenv.rewards.external.reasoning_gym"},
    "verifiers": {
        "openenv.wrappers.verifiers",
        "openenv.integrations.verifiers",
        "openenv.rewards.external.verifiers",
    },
    "nemo_gym": {"openenv.integrations.nemo_gym"},
    "opentelemetry": {"openenv._internal.traces"},
    "pyarrow": {
        "openenv.rollouts.collect.tables",
        "openenv.rollouts.files",
        "openenv.tasks.rows",
    },
    "pyseccomp": {"openenv.sandbox.seccomp"},
    "frames": {"openenv.sandbox.inside"},  # beside the programs there
    "prometheus_client": {
        "openenv.cli._readings",
        "openenv.gateway.metrics",
        "openenv.server.metrics",
    },
    "picows": {"openenv._internal.fragments", "openenv.client.transports", "openenv.server.socket"},
    "python_socks": {
        "openenv._internal.net.http",
        "openenv._internal.net.proxies",
        "openenv.client.transports.websocket",
    },
    "rich": {
        "openenv._internal.bars",
        "openenv._internal.terminal",
        "openenv.cli",
        "openenv.providers._pulls",
    },
    "smolagents": {"openenv.sandbox.py_executor"},
    "scipy": {"openenv.evals.statistics", "openenv.validation.learner"},
    "starlette": {
        "openenv._internal.net.responses",
        "openenv.capture",
        "openenv.server.mcp.bridge",
        "openenv.server.mcp.sdk_v1",
        "openenv.server",
        "openenv.web",
    },
    "torch": {
        "openenv.integrations.lightning",
        "openenv.integrations.transformers",
        "openenv.rollouts.policies.local",
    },
    "transformers": {"openenv.integrations.trl.costs", "openenv.rollouts.policies.local"},
    "typer": {"openenv.cli"},
    "uvloop": {"openenv._internal.timing"},
    "uvicorn": {
        "openenv.wrappers.ors",
        "openenv.capture",
        "openenv.integrations.verifiers",
        "openenv.server.heads",
        "openenv.server.run",
        "openenv.server.socket",
        "openenv.testing.trainers",
    },
    "websockets": {"openenv.providers._relay", "openenv.server.run"},
    "yaml": {
        "openenv._internal.yaml",
        "openenv.cli._template",
        "openenv.cli.commands.deploy",
        "openenv.hub.front_matter",
    },
}
# Of these, what is imported on first use only, wherever it is needed.
LAZY_PACKAGES = {
    "accelerate",
    "anthropic",
    "anyio",
    "datasets",
    "fastmcp",
    "gradio",
    "jinja2",
    "jsonschema",
    "markdown_it",
    "markupsafe",
    "matplotlib",
    "numpy",
    "openai",
    "openspiel_env",
    "opentelemetry",
    "pathspec",
    "PIL",
    "prometheus_client",
    "pyarrow",
    "pyseccomp",
    "python_socks",
    "reasoning_gym",
    "reasoning_gym_env",
    "scipy",
    "smolagents",
    "torch",
    "transformers",
    "uvloop",
    "websockets",
    "yaml",
}


# What is itself imported on first use only, and then needs them at once.
AT_ONCE = {
    "torch": {"openenv.integrations.lightning", "openenv.integrations.transformers"},
    "transformers": {"openenv.integrations.trl.costs"},
    "matplotlib": {"openenv._internal.reports.plots", "openenv.evals.plots"},
    "openspiel_env": {"openenv.cli._demo"},
    "numpy": {
        "openenv.cli._gymnasium",
        "openenv._internal.choices",
        "openenv.wrappers",
        "openenv.evals.plots",
        "openenv.evals.statistics",
        "openenv.integrations",
    },
    "scipy": {"openenv.evals.statistics"},
}


# ------------------------------------------------------------------ reading imports


class Import(NamedTuple):
    """One import: of what, by whom, and when it takes place."""

    importer: str
    target: str
    line: int
    when: str  # "import", "call" (inside a function) or "typing"

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.target}"


@cache
def modules() -> dict[str, Path]:
    """Every module under src."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        if all(part.isidentifier() for part in parts):
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


@cache
def imports() -> list[Import]:
    """Every import under src of anything but the standard library."""
    found = [
        one
        for name, path in modules().items()
        for one in _imports_in(name, ast.parse(path.read_text()), "import")
    ]
    return [one for one in found if one.target.partition(".")[0] not in sys.stdlib_module_names]


def _imports_in(importer: str, node: ast.AST, when: str) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            continue  # no import is part of one
        if isinstance(child, ast.Import | ast.ImportFrom):
            for target in _targets(child):
                yield Import(importer, target, child.lineno, when)
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            typed, runtime = ("typing", when) if _is_positive(child.test) else (when, "typing")
            yield from _imports_in(importer, ast.Module(child.body, []), typed)
            yield from _imports_in(importer, ast.Module(child.orelse, []), runtime)
        else:
            function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from _imports_in(importer, child, "call" if function else when)


def _is_positive(test: ast.expr) -> bool:
    return not isinstance(test, ast.UnaryOp)


def _targets(statement: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    assert statement.level == 0, "imports in src are absolute"
    module = statement.module or ""
    below = [f"{module}.{alias.name}" for alias in statement.names]
    return [name if name in modules() else module for name in below]


def layer_of(module: str) -> str:
    return LAYERS[_longest(module, set(LAYERS))]


def _longest(module: str, names: set[str]) -> str:
    lies_below = [name for name in names if module == name or module.startswith(f"{name}.")]
    return max(lies_below, key=len, default="")


# ------------------------------------------------------------------ the tests


def is_allowed(one: Import) -> bool:
    layer, target = layer_of(one.importer), layer_of(one.target)
    if target == layer or target in ARROWS[layer]:
        return True
    if one.importer == "openenv":
        return one.when == "typing"
    return one.when == "call" and target in LAZILY.get(one.importer, set())


def test_every_import_follows_an_arrow_of_the_table() -> None:
    ours = [one for one in imports() if one.target.partition(".")[0] in ("openenv", "openenv_core")]
    assert len(ours) > 100
    wrong = [
        f"{one} ({layer_of(one.importer)} -> {layer_of(one.target)})"
        for one in ours
        if not is_allowed(one)
    ]
    assert wrong == []


def test_no_arrow_of_the_table_points_up() -> None:
    graphlib.TopologicalSorter(ARROWS).prepare()


def test_every_module_lies_in_a_layer_of_its_own() -> None:
    homeless = [name for name in modules() if layer_of(name) == "root" and name != "openenv"]
    assert homeless == [], "give it a layer in LAYERS"


def test_nothing_imports_the_old_paths() -> None:
    wrong = [
        str(one)
        for one in imports()
        if _longest(
            one.target,
            {
                "openenv.adapters",
                "openenv.core",
                "openenv.mcp",
                "openenv.models",
                "openenv.recording",
                "openenv_core",
            },
        )
        and layer_of(one.importer) != "mirrors"
        and one.importer != "openenv"
    ]
    assert wrong == []


def test_no_package_is_imported_by_what_it_imports_not_even_inside_functions() -> None:
    graph: dict[str, set[str]] = {}
    for one in imports():
        importer, target = package_of(one.importer), package_of(one.target)
        if one.when != "typing" and target and importer not in ("", target, "mirrors"):
            graph.setdefault(importer, set()).add(target)
    graphlib.TopologicalSorter(graph).prepare()


def package_of(module: str) -> str:
    """Return the package of a module of ours; the contract is one, and so are the mirrors.

    It is empty for the lazy face `openenv`, and for modules that are not ours.
    """
    if module == "openenv" or not module.startswith(("openenv.", "openenv_core")):
        return ""
    layer = layer_of(module)
    return layer if layer in ("contract", "mirrors") else module.split(".")[1]


def test_no_module_is_imported_by_what_it_imports() -> None:
    graph: dict[str, set[str]] = {}
    for one in imports():
        if one.when == "import" and one.target in modules() and one.target != one.importer:
            graph.setdefault(one.importer, set()).add(one.target)
    graphlib.TopologicalSorter(graph).prepare()


def test_every_package_is_imported_by_who_needs_it_only() -> None:
    wrong = []
    for one in imports():
        package = one.target.partition(".")[0]
        if package in EVERYWHERE or package in ("openenv", "openenv_core"):
            continue
        if not _longest(one.importer, HOMES.get(package, set())):
            wrong.append(str(one))
        elif _longest(one.importer, AT_ONCE.get(package, set())):
            continue
        elif package in LAZY_PACKAGES and one.when == "import":
            wrong.append(f"{one}, at once and not on first use")
    assert wrong == []


@pytest.mark.parametrize("package", sorted(HOMES))
def test_every_listed_package_is_needed(package: str) -> None:
    for home in HOMES[package]:
        users = [one.importer for one in imports() if one.target.partition(".")[0] == package]
        assert any(_longest(user, {home}) for user in users), f"{home} does not need {package}"


# ------------------------------------------------------------------ the reader itself


def test_the_reader_tells_when_an_import_takes_place() -> None:
    tree = ast.parse(
        "from typing import TYPE_CHECKING\n"
        "import fastapi\n"
        "if TYPE_CHECKING:\n    import a\nelse:\n    import b\n"
        "if not TYPE_CHECKING:\n    import c\n"
        "class K:\n    import d\n    async def f(self):\n        import e\n"
    )
    found = {one.target: one.when for one in _imports_in("x", tree, "import")}
    assert found == {
        "typing": "import",
        "fastapi": "import",
        "a": "typing",
        "b": "import",
        "c": "import",
        "d": "import",
        "e": "call",
    }


@pytest.mark.parametrize(
    ("importer", "target", "when", "allowed"),
    [
        ("openenv.execution.session", "openenv.protocol.v0.codec", "import", True),
        ("openenv.protocol.v0.codec", "openenv.execution.session", "import", False),
        ("openenv.protocol.v0.codec", "openenv.execution.session", "typing", False),
        ("openenv.client.client", "openenv.server.app", "call", False),
        ("openenv.server.app", "openenv.client.client", "call", False),
        ("openenv.client.launch", "openenv.providers.process", "call", True),
        ("openenv.client.launch", "openenv.providers.process", "import", False),
        ("openenv.client.client", "openenv.providers.base", "import", True),
        ("openenv.hub.auto_env", "openenv.core.utils", "import", False),
        ("openenv", "openenv.server.app", "import", False),
        ("openenv", "openenv.server.app", "typing", True),
    ],
)
def test_the_table_says(importer: str, target: str, when: str, allowed: bool) -> None:
    assert is_allowed(Import(importer, target, 1, when)) is allowed


# ------------------------------------------------------------------ the network

DOOR = "openenv._internal.net"
CLIENTS = {"urllib.request", "http.client", "httpx", "httpx2", "requests", "aiohttp"}


def test_one_package_opens_http_connections() -> None:
    """Keys, proxies, certificates, redirects and limits are decided there for all."""
    found = [
        f"{name}:{node.lineno}"
        for name, path in modules().items()
        if not name.startswith(DOOR)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom) and CLIENTS & _named_by(node)
    ]
    assert not found


def test_the_client_of_h11_is_used_by_the_door_and_the_gateway() -> None:
    """The gateway passes messages on as they come, and connects by the door's `connect`."""
    users = {name for name, path in modules().items() if "h11.CLIENT" in path.read_text()}
    assert users == {f"{DOOR}.http", f"{DOOR}.wire", "openenv.gateway.gateway"}


def _named_by(statement: ast.Import | ast.ImportFrom) -> set[str]:
    if isinstance(statement, ast.Import):
        return {alias.name for alias in statement.names}
    module = statement.module or ""
    return {module, *(f"{module}.{alias.name}" for alias in statement.names)}
