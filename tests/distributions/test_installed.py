"""A plain installation of the wheels, away from the sources: it does what it says."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from distributions.parts import (
    ROOT,
    SMOKE,
    VERSIONS,
    built,
    interpreter,
    lacking,
    requirements,
    run,
    uv,
    venv,
)

ECHO = ROOT / "envs" / "echo_env"
# As on a machine without a compiler: neither is one found, nor is anything built.
NO_COMPILER = {"CC": "/nonexistent/cc", "CXX": "/nonexistent/c++", "PATH": "/nonexistent"}


def looked_at(python: Path, folder: Path) -> None:
    """Run the smoke test with what is installed for a Python, in an empty directory."""
    folder.mkdir()
    kept = {name: value for name, value in os.environ.items() if name.startswith(("LANG", "LC_"))}
    environ = {**kept, "PATH": os.environ["PATH"], "HOME": str(folder), "COLUMNS": "200"}
    told = json.loads(run(python, "-I", SMOKE, folder, cwd=folder, env=environ))
    assert told["modules"] > 500
    assert lacking(told["missing"]) == {}


@pytest.fixture
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return [built(project, tmp_path_factory)[1] for project in (ROOT, ECHO)]


@pytest.mark.extended("installs packages into a virtual environment")
@pytest.mark.slow
@pytest.mark.compat
@pytest.mark.timeout(300)
def test_it_installs_without_a_compiler_and_works_away_from_its_sources(
    wheels: list[Path], tmp_path: Path
) -> None:
    python = venv(tmp_path / "venv")
    uv("install", "--python", python, "--only-binary", ":all:", *wheels, environ=NO_COMPILER)
    looked_at(python, tmp_path / "elsewhere")


@pytest.mark.packaging
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("version", VERSIONS)
def test_it_works_on_each_python_at_the_newest_versions_that_it_allows(
    wheels: list[Path], version: str, tmp_path: Path
) -> None:
    python = venv(tmp_path / "venv", interpreter(version))
    uv("install", "--python", python, "--only-binary", ":all:", *wheels)
    looked_at(python, tmp_path / "elsewhere")


@pytest.mark.packaging
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("version", VERSIONS)
def test_it_works_on_each_python_at_the_lowest_versions_that_it_allows(
    wheels: list[Path], version: str, tmp_path: Path
) -> None:
    python, lowest = venv(tmp_path / "venv", interpreter(version)), tmp_path / "lowest.txt"
    command = ["--only-binary", ":all:", "--resolution", "lowest-direct", "--python", python]
    uv("compile", *command, "--no-annotate", "--quiet", "-o", lowest, "-", input=wanted())
    uv("install", "--python", python, "--only-binary", ":all:", "-r", lowest)
    uv("install", "--python", python, "--no-deps", *wheels)
    looked_at(python, tmp_path / "elsewhere")


def wanted() -> str:
    return "\n".join(requirements())
