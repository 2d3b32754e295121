"""A meaningful look at an installed openenv, by what is installed and nothing else.

    python -I smoke.py FOLDER

It imports every module, asks every command for its help, serves the echo environment, plays an
episode by each version of the protocol, calls tools, reads the pages, and makes and validates an
environment in FOLDER. It writes JSON: how many modules there are, and which package each module
lacks that cannot be imported.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pkgutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer import Context
from typer.main import get_group
from typer.testing import CliRunner

import openenv

OPENENV = str(Path(sys.executable).with_name("openenv"))
WITHIN_S = 60.0
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


def main() -> None:
    """Look at everything; an exception is the finding."""
    folder = Path(sys.argv[1])
    modules, missing = imports()
    helps()
    with served(folder, "echo_env", "--web") as url:
        pages(url)
        for version in ("0", "1"):
            os.environ["OPENENV_PROTOCOL"] = version
            episode(url)
        with served(folder, "--mcp", f"{url}/mcp") as wrapped:
            tools(wrapped)
    new(folder)
    json.dump({"modules": modules, "missing": missing}, sys.stdout)


def imports() -> tuple[int, dict[str, str]]:
    """How many modules there are, and what those lack that need a package of some extra."""
    for name in vars(openenv)["__all__"]:
        getattr(openenv, name)
    missing: dict[str, str] = {}
    names = [module.name for module in pkgutil.walk_packages(openenv.__path__, "openenv.", print)]
    for name in names:
        if name.endswith("__main__") or ".template." in name or ".inside." in name:
            continue
        try:
            importlib.import_module(name)
        except ImportError as error:
            missing[name] = error.name or str(error)
    return len(names), missing


def helps() -> None:
    """The help of every command, drawn by whichever Typer, Click and Rich there are."""
    from openenv.cli.__main__ import app

    group = get_group(app)
    names = sorted(group.list_commands(Context(group)))
    assert len(names) > 10, names
    for name in names:
        shown = CliRunner().invoke(app, [name, "--help"])
        assert shown.exit_code == 0 and "Usage" in shown.output, (name, shown.exception)
    done = subprocess.run([OPENENV, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["openenv", openenv.__version__]


@contextlib.contextmanager
def served(folder: Path, *arguments: str) -> Iterator[str]:
    """An environment, served by the console script; gives its URL."""
    command = [OPENENV, "serve", *arguments, "--port", "0", "--json"]
    with (
        (folder / "served.log").open("a") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, cwd=folder) as process,
    ):
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line, (folder / "served.log").read_text()
            yield json.loads(line)["url"]
        finally:
            process.terminate()
            process.wait(WITHIN_S)


def pages(url: str) -> None:
    """What a browser and a probe ask for."""
    told = json.loads(_read(f"{url}/openapi.json"))
    assert {"/reset", "/step", "/state", "/schema", "/health"} <= set(told["paths"])
    assert b"OpenEnv" in _read(f"{url}/docs")
    assert b"page.js" in _read(f"{url}/web/")
    assert f'version="{openenv.__version__}"'.encode() in _read(f"{url}/metrics")
    assert json.loads(_read(f"{url}/health"))["status"] == "healthy"
    assert json.loads(_read(f"{url}/reset", {"seed": 1}))["done"] is False
    told = json.loads(_read(f"{url}/step", {"action": {"message": "hello"}}))
    assert told["observation"]["echoed_message"] == "hello"
    assert json.loads(_read(f"{url}/mcp", CALL))["result"]["tools"]


def episode(url: str) -> None:
    """One episode by the environment's own client."""
    from echo_env import EchoAction, EchoEnv

    with EchoEnv(base_url=url) as env:
        env.reset(seed=1)
        assert env.step(EchoAction(message="hello")).observation.echoed_message == "hello"
        assert env.state().step_count == 1
        tools = {tool.name for tool in env.list_tools()}
        assert "echo_message" in tools
        assert "hello" in str(env.call_tool("echo_message", message="hello"))


def tools(url: str) -> None:
    """Call a tool of an MCP server that was made an environment, by the official SDK."""
    from openenv.client import MCPToolClient

    with MCPToolClient(base_url=url) as env:
        env.reset()
        assert "hello" in str(env.call_tool("echo_message", message="hello"))


def new(folder: Path) -> None:
    """Make an environment, as `openenv init` does, and read whether it is fit."""
    made = subprocess.run([OPENENV, "init", "toy_env"], cwd=folder)
    assert made.returncode == 0
    command = ["validate", "toy_env", "--level", "static", "--skip-build", "--json"]
    done = subprocess.run([OPENENV, *command], cwd=folder, stdout=subprocess.PIPE)
    outcomes = {each["check_id"]: each["status"] for each in json.loads(done.stdout)["results"]}
    assert outcomes["static.manifest"] == outcomes["static.layout"] == "pass", outcomes


def _read(url: str, body: dict[str, Any] | None = None) -> bytes:
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/html"}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=30) as answer:
        read: bytes = answer.read()
        return read


if __name__ == "__main__":
    main()
