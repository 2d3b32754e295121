"""Environment packages made on the spot: importable, installed, or to be built."""

from __future__ import annotations

import textwrap
from pathlib import Path

CLIENT = '''
from openenv.client import EnvClient
from openenv.types import State
from .models import {stem}Action, {stem}Observation


class {stem}Env(EnvClient[{stem}Action, {stem}Observation, State]):
    """A client."""
'''

MODELS = """
from openenv.types import Action, Observation


class {stem}Action(Action):
    word: str = ""


class {stem}Observation(Observation):
    word: str = ""
"""

APP = """
import os
from openenv.environment import Environment
from openenv.server import create_app
from openenv.types import State
from ..models import {stem}Action, {stem}Observation


class {stem}Environment(Environment[{stem}Action, {stem}Observation, State]):
    def reset(self):
        return {stem}Observation(word=os.environ.get("PARROT_GREETING", "hello"))

    def step(self, action):
        return {stem}Observation(word=action.word, reward=1.0)

    @property
    def state(self):
        return State(episode_id="e", step_count=1)


app = create_app({stem}Environment)
"""

# A build backend that needs nothing from anywhere: a wheel is a zip file.
BACKEND = """
import pathlib
import zipfile

NAME, VERSION, PACKAGE = "{distribution}", "{version}", "{package}"


def build_wheel(directory, config_settings=None, metadata_directory=None):
    stem = NAME.replace("-", "_") + "-" + VERSION
    info = stem + ".dist-info"
    files = {{
        path.as_posix(): path.read_text() for path in sorted(pathlib.Path(PACKAGE).rglob("*.*"))
    }}
    about = "Metadata-Version: 2.1\\nName: %s\\nVersion: %s\\n"
    files[info + "/METADATA"] = about % (NAME, VERSION)
    files[info + "/WHEEL"] = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    record = "".join(name + ",,\\n" for name in files) + info + "/RECORD,,\\n"
    with zipfile.ZipFile(pathlib.Path(directory) / (stem + "-py3-none-any.whl"), "w") as wheel:
        for name, text in (files | {{info + "/RECORD": record}}).items():
            wheel.writestr(name, text)
    return stem + "-py3-none-any.whl"
"""

PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "{distribution}"
version = "{version}"
"""


def write(directory: Path, files: dict[str, str]) -> None:
    """Write files, with the indentation of the test that holds them removed."""
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


def make_package(
    site: Path, package: str, stem: str, manifest: str | None = None, **files: str
) -> Path:
    """Write a whole environment package. A keyword replaces a file: ``client="..."``."""
    sources = {
        "__init__.py": "",
        "client.py": files.get("client", CLIENT.format(stem=stem)),
        "models.py": files.get("models", MODELS.format(stem=stem)),
        "server/__init__.py": "",
        "server/app.py": APP.format(stem=stem),
    }
    if "init" in files:
        sources["__init__.py"] = files["init"]
    if manifest is not None:
        sources["openenv.yaml"] = manifest
    write(site / package, sources)
    return site / package


def make_distribution(
    site: Path, name: str, version: str = "1.0", summary: str = "", record: str = ""
) -> Path:
    """Write what an installer leaves behind, next to the package that it installed."""
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    directory = site / f"{name.replace('-', '_')}-{version}.dist-info"
    write(
        directory,
        {
            "METADATA": metadata + (f"Summary: {summary}\n" if summary else ""),
            "RECORD": "".join(f"{line},,\n" for line in record.split()),
        },
    )
    return directory


def make_project(directory: Path, distribution: str, package: str, stem: str) -> Path:
    """Write an environment package with what builds it, from nothing but Python."""
    make_package(directory, package, stem, manifest=f"name: {package}\nversion: 0.3.0\n")
    names = {"distribution": distribution, "version": "0.3.0", "package": package}
    write(
        directory,
        {"backend.py": BACKEND.format(**names), "pyproject.toml": PYPROJECT.format(**names)},
    )
    return directory


def files_of(directory: Path) -> dict[str, bytes]:
    """What is in a directory, by its path there."""
    found = sorted(one for one in directory.rglob("*") if one.is_file())
    return {one.relative_to(directory).as_posix(): one.read_bytes() for one in found}
