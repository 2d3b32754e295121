"""What the tests of packages share: wheels, interpreters, virtual environments, uv."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.locks import exclusive
from support.venvs import INSTALL

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
SMOKE = Path(__file__).with_name("programs") / "smoke.py"
PROJECTS = [ROOT, *sorted(path.parent for path in ROOT.glob("envs/*/pyproject.toml"))]
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
UV = str(Path(sys.executable).with_name("uv"))

# Modules of these speak to the one or the other version of a package: one of them lacks something.
EITHER = {"openenv.server.mcp.sdk_v1", "openenv.server.mcp.sdk_v2"}


@functools.cache
def about(project: Path) -> dict[str, Any]:
    """The ``[project]`` of a ``pyproject.toml``."""
    found: dict[str, Any] = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    return found


def groups(project: Path) -> dict[str, list[str]]:
    """The ``[dependency-groups]`` of a ``pyproject.toml``."""
    text = (project / "pyproject.toml").read_text()
    found: dict[str, list[str]] = tomllib.loads(text)["dependency-groups"]
    return found


def requirements(project: Path = ROOT, extra: str | None = None) -> list[str]:
    """What a project, or one of its extras, asks for, beside the other projects here."""
    found = about(project)
    wanted = found["dependencies"] if extra is None else found["optional-dependencies"][extra]
    return [line for line in wanted if not line.startswith("openenv")]


def run(*command: object, **options: Any) -> str:
    """Run a command to its end; gives what it wrote to stdout."""
    options.setdefault("timeout", 600)
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, **options
    )
    if "error sending request" in done.stderr:  # uv's words for an index that does not answer
        pytest.skip("the package index cannot be reached")
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return str(done.stdout)


def uv(*arguments: object, environ: Mapping[str, str] | None = None, **options: Any) -> str:
    """Run `uv pip`, told of the index as `scripts/install.py` tells it."""
    told = {**os.environ, **_told(), **(environ or {})}
    return run(UV, "pip", *arguments, env=told, **options)


@functools.cache
def _told() -> dict[str, str]:
    code = "import json, sys, install; json.dump(install.told(sys.executable), sys.stdout)"
    told: dict[str, str] = json.loads(run(sys.executable, "-c", code, cwd=INSTALL.parent))
    return told


def built(project: Path, factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist of a project, and the wheel that was built from the sdist; once in a run."""
    base = factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "dist"
    folder = shared / project.name
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive(shared / f"{project.name}.lock"):
        if not list(folder.glob("*.whl")):
            build(project, folder)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


def build(project: Path, folder: Path, *arguments: str) -> None:
    """Build a project, isolated, with the build backend that is locked."""
    command = ["--build-constraint", str(ROOT / "requirements.lock"), "--out-dir", str(folder)]
    run(UV, "build", "--quiet", *command, *arguments, project, env={**os.environ, **_told()})


def interpreter(version: str) -> str:
    """A Python of this version, wherever this machine has one; the test is skipped without."""
    here = [sys.executable] if sys.version.startswith(f"{version}.") else []
    pyenv = sorted(map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python")))
    for found in (*here, *pyenv, shutil.which(f"python{version}")):
        if found is not None and _runs(found):
            return found
    pytest.skip(f"there is no Python {version}")


def _runs(python: str) -> bool:
    return subprocess.run([python, "-c", ""], capture_output=True).returncode == 0


def venv(folder: Path, python: str = sys.executable) -> Path:
    """A virtual environment with nothing in it; gives its Python."""
    run(UV, "venv", "--quiet", "--no-project", "--python", python, folder)
    return folder / "bin" / "python"


def tracked(folder: Path) -> set[str]:
    """The files of a directory that git has, or would take, relative to it."""
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=folder)
    return {name for name in listed.splitlines() if (folder / name).is_file()}


def import_names(project: Path = ROOT) -> set[str]:
    """What the requirements of a project are imported as."""
    names = {re.split(r"[\[<>=; ]", line)[0].lower() for line in requirements(project)}
    return {{"pyyaml": "yaml"}.get(name, name.replace("-", "_")) for name in names}


def lacking(missing: dict[str, str]) -> dict[str, str]:
    """Modules that cannot be imported though all is there that a plain installation has."""
    ours = import_names() | {"openenv", "openenv_core"}
    lacks = {module: lack for module, lack in missing.items() if lack.partition(".")[0] in ours}
    return {} if len(lacks) == 1 and lacks.keys() <= EITHER else lacks
