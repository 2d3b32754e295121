"""What an image is to be, read from an environment's directory."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.commands import ENVIRONMENTS

from openenv.auto import AutoEnv
from openenv.images import BuildError, BuildPlan, default_tags, read_plan

DEFAULT = "ARG BASE=python:3.12-slim\nFROM $BASE\nCOPY . /build/__ENV_NAME__\n"


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    made = tmp_path / "lights_env"
    (made / "server").mkdir(parents=True)
    (made / "openenv.yaml").write_text("name: lights_env\ndescription: On and off\n")
    (made / "pyproject.toml").write_text(
        '[project]\nname = "openenv-lights-env"\nversion = "1.2"\nlicense = "MIT"\n'
    )
    return made


def plan(environment: Path, **options: object) -> BuildPlan:
    return read_plan(environment, default_dockerfile=DEFAULT, **options)  # type: ignore[arg-type]


def git(directory: Path, *command: str) -> None:
    own = ["-c", "user.name=n", "-c", "user.email=e@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(directory), *own, *command], check=True, capture_output=True)


def test_one_without_a_dockerfile_gets_ours(environment: Path) -> None:
    assert "COPY . /build/lights_env" in plan(environment).dockerfile.text
    (environment / "Dockerfile").write_text("FROM a")
    assert plan(environment).dockerfile.text == "FROM a"
    (environment / "server" / "Dockerfile").write_text("FROM b")
    assert plan(environment).bases == ["b"]
    other = environment.parent / "Other"
    other.write_text("FROM c")
    assert plan(environment, dockerfile=other).bases == ["c"]


def test_its_context_can_be_another_directory(environment: Path) -> None:
    (environment.parent / "shared.txt").write_text("x")
    assert "shared.txt" not in plan(environment).contents.files
    assert "shared.txt" in plan(environment, context=environment.parent).contents.files


def test_an_ignore_file_of_the_dockerfile_comes_first(environment: Path) -> None:
    (environment / "a.txt").write_text("x")
    (environment / "server" / "Dockerfile").write_text("FROM a")
    (environment / ".dockerignore").write_text("openenv.yaml")
    (environment / "server" / "Dockerfile.dockerignore").write_text("a.txt")
    files = plan(environment).contents.files
    assert "openenv.yaml" in files and "a.txt" not in files


def test_a_base_is_an_argument_of_the_dockerfile(environment: Path) -> None:
    assert plan(environment, base="localhost/mine").bases == ["localhost/mine"]
    (environment / "Dockerfile").write_text("FROM a AS builder\nFROM a")
    with pytest.raises(BuildError, match="has no ARG BASE") as caught:
        plan(environment, base="localhost/mine")
    assert "FROM $BASE" in str(caught.value.hint)


def test_a_dockerfile_of_the_public_package_is_told_what_it_asks_for(environment: Path) -> None:
    (environment / "Dockerfile").write_text("FROM a\nARG BUILD_MODE=in-repo\nARG ENV_NAME")
    told = plan(environment).arguments
    assert (told["BUILD_MODE"], told["ENV_NAME"]) == ("standalone", "lights_env")


def test_labels_say_what_it_is_and_where_it_came_from(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    assert plan(environment).epoch_s == 1580601600
    git(environment, "init", "--quiet")
    git(environment, "remote", "add", "origin", "https://me:hunter22@example.com/some/where.git")
    git(environment, "add", ".")
    monkeypatch.setenv("GIT_COMMITTER_DATE", "1700000000 +0000")
    git(environment, "commit", "--quiet", "-m", "m")
    monkeypatch.delenv("GIT_COMMITTER_DATE")
    read = plan(environment, labels={"team": "blue"})
    labels = {name.removeprefix("org.opencontainers.image."): v for name, v in read.labels.items()}
    revision = labels.pop("revision")
    assert len(revision) == 40
    assert labels == {
        "title": "lights_env",
        "description": "On and off",
        "version": "1.2",
        "licenses": "MIT",
        "source": "https://example.com/some/where.git",
        "team": "blue",
    }
    assert read.epoch_s == 1700000000
    assert read.arguments["SOURCE_DATE_EPOCH"] == "1700000000"
    (environment / "new.py").touch()
    assert plan(environment).labels["org.opencontainers.image.revision"] == f"{revision}-modified"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "12")
    assert plan(environment).epoch_s == 12


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (
            lambda e: (e / "openenv.yaml").unlink(),
            "has no openenv.yaml, so it is not an environment",
        ),
        (lambda e: (e / "openenv.yaml").write_text("- a"), "must hold a mapping"),
        (lambda e: (e / "pyproject.toml").write_text("[a"), "pyproject.toml cannot be read"),
    ],
)
def test_what_cannot_be_read_is_named(spoil: object, words: str, environment: Path) -> None:
    spoil(environment)  # type: ignore[operator]
    with pytest.raises(BuildError, match=words):
        plan(environment)


def test_a_dockerfile_or_context_that_is_not_there_is_named(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BuildError, match="the Dockerfile nowhere does not exist"):
        plan(environment, dockerfile=Path("nowhere"))
    with pytest.raises(BuildError, match="is not a directory"):
        plan(environment, context=environment / "nowhere")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "today")
    with pytest.raises(BuildError, match="SOURCE_DATE_EPOCH is 'today'"):
        plan(environment)


@pytest.mark.slow
@pytest.mark.parametrize("directory", sorted(p.parent for p in ENVIRONMENTS.glob("*/openenv.yaml")))
def test_an_image_has_the_name_that_autoenv_looks_for(directory: Path) -> None:
    read = plan(directory)
    assert read.workspace == ENVIRONMENTS.parent
    tags = default_tags(read)
    assert AutoEnv.get_env_info(directory.name)["default_image"] == tags[0]
    assert tags[1] == f"openenv-{directory.name.removesuffix('_env').replace('_', '-')}:latest"
