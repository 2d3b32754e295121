"""The version stands in one place, and whatever tells it tells the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from distributions.parts import PROJECTS, ROOT, about
from packaging.requirements import Requirement
from support.commands import run_openenv
from support.environments import Counter

import openenv
from openenv import create_app
from openenv._internal.version import version
from openenv.cli._template import TEMPLATES, EnvironmentNames, minimum_version, render

VERSION: str = about(ROOT)["version"]
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a"}}
HELLO["clientInfo"]["version"] = "1"  # type: ignore[index]
LISTS = sorted(ROOT.glob("envs/*/server/requirements.txt"))


def test_what_is_imported_has_the_version_of_the_project() -> None:
    assert openenv.__version__ == version() == VERSION


@pytest.mark.slow
def test_the_command_says_it(tmp_path: Path) -> None:
    assert run_openenv("--version", cwd=tmp_path).stdout == f"openenv {VERSION}\n"


@pytest.mark.slow
def test_a_server_says_it_in_its_figures_and_to_clients_of_mcp(serve: Callable[[Any], str]) -> None:
    url = serve(create_app(Counter))
    assert f'version="{VERSION}"' in httpx.get(f"{url}/metrics").text
    asked = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
    accept = {"Accept": "application/json, text/event-stream"}
    assert f'"version":"{VERSION}"' in httpx.post(f"{url}/mcp", json=asked, headers=accept).text


@pytest.mark.parametrize("project", PROJECTS[1:], ids=lambda path: path.name)
def test_an_environment_asks_for_the_openenv_that_it_is_tested_with(project: Path) -> None:
    assert asked_of_openenv(about(project)["dependencies"]) == [f">={VERSION}"]


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_so_does_its_list_of_requirements(path: Path) -> None:
    assert asked_of_openenv(path.read_text().splitlines()) == [f">={VERSION}"]


@pytest.mark.parametrize("template", TEMPLATES)
def test_so_does_a_new_one(template: str, tmp_path: Path) -> None:
    tree = render(EnvironmentNames.of("my_env"), TEMPLATES[template])
    (tmp_path / "pyproject.toml").write_text(str(tree["pyproject.toml"]))
    dependencies = about(tmp_path)["dependencies"]
    assert asked_of_openenv(dependencies) == [minimum_version(VERSION)]
    assert str(tree["server/requirements.txt"]).split() == [f"openenv{minimum_version(VERSION)}"]


def test_a_version_in_development_is_asked_for_too_and_no_index_has_it() -> None:
    versions = ("0.11.0", "0.12.0rc1", "0.12.0.dev0", "0.12.0.dev0+of.a.checkout", "0.0.0")
    assert [minimum_version(version) for version in versions] == [
        ">=0.11.0",
        ">=0.12.0rc1",
        ">=0.12.0.dev0",
        ">=0.12.0.dev0",
        "",
    ]


def asked_of_openenv(lines: list[str]) -> list[str]:
    wanted = [Requirement(line) for line in lines if not line.startswith("#")]
    return [str(each.specifier) for each in wanted if each.name == "openenv"]
