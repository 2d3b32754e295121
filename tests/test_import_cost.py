"""What an import costs, counted in modules: a client pays for a client only."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Of an interpreter started with -I -S and nothing else, so that a machine's own start-up files
# do not count; its own modules do.
# Before 3.11 a client also loads asyncio, for its TimeoutError.
CLIENT = 262 if sys.version_info >= (3, 11) else 320
LIMITS = {"import openenv": 120, "from openenv import EnvClient": CLIENT}

FORBIDDEN = {
    "docker",
    "fastapi",
    "fastmcp",
    "gradio",
    "httpx",
    "huggingface_hub",
    "numpy",
    "openai",
    "opentelemetry",
    "prometheus_client",
    "rich",
    "starlette",
    "torch",
    "typer",
    "uvicorn",
    "websockets",
    "yaml",
}


def modules_after(statement: str) -> set[str]:
    code = f"import sys\nsys.path[:] = {sys.path!r}\n{statement}\nprint(*sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return set(answer.stdout.split())


@pytest.mark.parametrize(("statement", "limit"), LIMITS.items())
def test_an_import_loads_few_modules(statement: str, limit: int) -> None:
    loaded = modules_after(statement)
    assert len(loaded) <= limit, sorted(loaded)


@pytest.mark.parametrize("statement", LIMITS)
def test_an_import_loads_nothing_heavy(statement: str) -> None:
    assert {name.partition(".")[0] for name in modules_after(statement)}.isdisjoint(FORBIDDEN)


@pytest.mark.parametrize(
    "statement",
    [
        "from openenv import Environment, Action, Observation, State",
        "from openenv import GenericEnvClient, SyncEnvClient",
        "from openenv import AutoEnv, AutoAction",
        "from openenv.providers import ProcessProvider",
    ],
)
def test_what_needs_no_server_loads_none(statement: str) -> None:
    loaded = {name.partition(".")[0] for name in modules_after(statement)}
    assert loaded.isdisjoint(FORBIDDEN)
