"""What is built of the core and of each environment: files, metadata, and that it is the same."""

from __future__ import annotations

import configparser
import tarfile
import zipfile
from pathlib import Path

import pytest
from distributions.parts import PROJECTS, ROOT, about, build, built, tracked
from packaging.metadata import Metadata
from support.amounts import mostly_extended

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ENVIRONMENTS = PROJECTS[1:]
# What of an environment's directory is for those who develop it, or read its README there.
NOT_INSTALLED = (".", "pyproject.toml", "requirements.lock", "tests/", "validation/")
SHOWN = [path for path in ENVIRONMENTS if path.name == "echo_env"]
every_project = pytest.mark.parametrize(
    "project", mostly_extended(PROJECTS, [ROOT, *SHOWN]), ids=lambda path: path.name
)
every_environment = pytest.mark.parametrize(
    "project", mostly_extended(ENVIRONMENTS, SHOWN), ids=lambda path: path.name
)


@pytest.fixture
def sdist(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(project, tmp_path_factory)[0]


@pytest.fixture
def wheel(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(project, tmp_path_factory)[1]


def files_of(wheel: Path) -> set[str]:
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


def text_of(wheel: Path, name: str) -> str:
    with zipfile.ZipFile(wheel) as opened:
        [found] = [each for each in opened.namelist() if each.endswith(f".dist-info/{name}")]
        return opened.read(found).decode()


@pytest.mark.extended("builds wheels")
@pytest.mark.parametrize("project", [ROOT], ids=["core"])
def test_the_wheel_of_the_core_holds_every_source_and_nothing_else(wheel: Path) -> None:
    assert files_of(wheel) == tracked(ROOT / "src")


@pytest.mark.parametrize("project", [ROOT], ids=["core"])
def test_the_sdist_of_the_core_holds_its_sources_and_what_tells_of_it(sdist: Path) -> None:
    with tarfile.open(sdist) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    told = {"CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml", ".gitignore"}
    assert names == {f"src/{name}" for name in tracked(ROOT / "src")} | told


@pytest.mark.extended("builds wheels")
@every_environment
def test_the_wheel_of_an_environment_holds_what_it_serves(project: Path, wheel: Path) -> None:
    installed = {name for name in tracked(project) if not name.startswith(NOT_INSTALLED)}
    assert {"openenv.yaml", "py.typed", "README.md", "server/app.py"} <= installed
    pictures = {name for name in installed if "/" not in name and name.endswith((".png", ".svg"))}
    assert files_of(wheel) == {f"{project.name}/{name}" for name in installed - pictures}


@every_environment
def test_the_sdist_of_an_environment_holds_what_git_has(project: Path, sdist: Path) -> None:
    with tarfile.open(sdist) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert names - {"PKG-INFO", ".gitignore"} == tracked(project) - {".gitignore"}


@pytest.mark.extended("builds wheels")
@pytest.mark.parametrize("project", [ROOT, ROOT / "envs" / "chess_env"], ids=["core", "chess"])
def test_the_sdist_and_the_tree_build_the_same_wheel(
    project: Path, wheel: Path, tmp_path: Path
) -> None:
    build(project, tmp_path, "--wheel")
    [again] = tmp_path.glob("*.whl")
    assert again.name == wheel.name and again.read_bytes() == wheel.read_bytes()


@every_project
def test_the_metadata_is_valid_and_says_what_the_project_says(project: Path, wheel: Path) -> None:
    told, found = about(project), Metadata.from_email(text_of(wheel, "METADATA"), validate=True)
    assert (found.name, str(found.version)) == (told["name"], told["version"])
    assert found.summary == told["description"]
    assert found.license_expression == "BSD-3-Clause"
    assert str(found.requires_python) == ">=3.10"
    assert found.description_content_type == "text/markdown"
    assert found.description == (project / "README.md").read_text(encoding="utf-8")
    scripts = configparser.ConfigParser()
    scripts.read_string(text_of(wheel, "entry_points.txt"))
    assert dict(scripts["console_scripts"]) == told["scripts"]
