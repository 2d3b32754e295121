"""The MCP Inspector of npm, in its CLI mode, plays environments."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import workshop
from support.agents import TESTS
from support.commands import COMMAND, environ
from support.workshop import Street, Workshop

from openenv import create_app

pytestmark = [pytest.mark.packages, pytest.mark.timeout(180)]  # which may install it first

NPX = TESTS.parent / "scripts" / "npx.py"
INSPECTOR = (sys.executable, str(NPX), "mcp-inspector", "--cli")
WORLDS = Path(workshop.__file__)
TRY_LATER = 75  # the registry of npm cannot be reached

Inspect = Callable[..., dict[str, Any]]


@pytest.fixture(params=["http", "stdio"])
def inspect(
    request: pytest.FixtureRequest, serve: Callable[[Any], str], tmp_path: Path
) -> Callable[[type], Inspect]:
    """Have the Inspector ask a class of environments; gives what it prints."""

    def of(cls: type) -> Inspect:
        if request.param == "http":
            target = [f"{serve(create_app(cls))}/mcp"]
        else:
            target = [*COMMAND, "mcp", f"{WORLDS}:{cls.__name__}"]

        def ask(method: str, *options: str) -> dict[str, Any]:
            done = subprocess.run(
                [*INSPECTOR, *target, "--method", method, *options],
                cwd=tmp_path,
                env={**environ(TESTS), "HOME": str(tmp_path)},
                capture_output=True,
                text=True,
                timeout=170,
                check=False,
            )
            if done.returncode == TRY_LATER:
                pytest.skip("the registry of npm cannot be reached")
            assert done.stdout, done.stderr
            answer: dict[str, Any] = json.loads(done.stdout)
            return answer

        return ask

    return of


def test_the_inspector_lists_and_calls_tools(inspect: Callable[[type], Inspect]) -> None:
    ask = inspect(Workshop)
    tools = {one["name"]: one for one in ask("tools/list")["tools"]}
    assert tools["add"]["title"] == "Add" and "reset" not in tools
    added = ask("tools/call", "--tool-name", "add", "--tool-arg", "a=2", "b=3")
    assert added["structuredContent"] == {"result": 5}
    failed = ask("tools/call", "--tool-name", "fail")
    assert failed["isError"] and "no such luck" in failed["content"][0]["text"]


def test_the_inspector_acts_and_reads(inspect: Callable[[type], Inspect]) -> None:
    ask = inspect(Street)
    moved = ask("tools/call", "--tool-name", "move", "--tool-arg", "direction=south")
    assert moved["structuredContent"] == {"instruction": "Go south.", "place": 1, "done": False}
    assert moved["content"][1]["mimeType"] == "image/png"
    assert [one["uri"] for one in ask("resources/list")["resources"]] == ["openenv://observation"]
    read = ask("resources/read", "--uri", "openenv://observation")
    assert json.loads(read["contents"][0]["text"])["instruction"] == "Go south."
    task = ask("prompts/get", "--prompt-name", "task")
    assert "Go south." in task["messages"][0]["content"]["text"]
