"""Locking what goes into an image, by uv, from a directory of wheels: no index is asked."""

from __future__ import annotations

import configparser
import hashlib
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

import openenv
from openenv.images import BuildError, LockOptions, read_plan
from openenv.images import locking as subject
from openenv.images.locking import openenv_source, write_lock
from openenv.images.running import LOCKED, RUNNING

pytestmark = pytest.mark.slow  # uv builds wheels

DOCKERFILE = "FROM x\nRUN pip install -r .openenv/requirements.lock\n"

PIP = [sys.executable, "-m", "pip", "install", "--require-hashes", "--no-deps", "--no-index"]
PIP += ["--find-links", ".openenv/wheels"]


def wheel_of(folder: Path, name: str, version: str, *requires: str) -> Path:
    """A wheel of a package with nothing in it."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", "")
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    wheel_of(folder, "lamp", "1.0")
    wheel_of(folder, "lamp", "2.0")
    wheel_of(folder, "switch", "1.0", "lamp")
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment that is built by what every machine has: a backend of its own."""
    made = tmp_path / "lights_env"
    made.mkdir()
    (made / "openenv.yaml").write_text("name: lights_env\n")
    (made / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "openenv-lights-env"\nversion = "0.1"\nrequires-python = ">=3.10"\n'
        'dependencies = ["openenv", "switch"]\n'
    )
    (made / "backend.py").write_text(
        "import zipfile\n"
        "def build_wheel(folder, config_settings=None, metadata_directory=None):\n"
        "    name, info = 'openenv_lights_env-0.1-py3-none-any.whl', 'openenv_lights_env-0.1'\n"
        "    text = 'Metadata-Version: 2.1\\nName: openenv-lights-env\\nVersion: 0.1\\n'\n"
        "    text += 'Requires-Dist: openenv\\nRequires-Dist: switch\\n'\n"
        "    tags = 'Wheel-Version: 1.0\\nTag: py3-none-any\\n'\n"
        "    entry = lambda file: zipfile.ZipInfo(f'{info}.dist-info/{file}')\n"
        "    with zipfile.ZipFile(f'{folder}/{name}', 'w') as archive:\n"
        "        archive.writestr(entry('METADATA'), text)\n"
        "        archive.writestr(entry('WHEEL'), tags)\n"
        "        archive.writestr(entry('RECORD'), '')\n"
        "    return name\n"
    )
    return made


def allow_development_versions(environment: Path) -> None:
    project = environment / "pyproject.toml"
    project.write_text(project.read_text().replace('"openenv"', '"openenv>=0.1.dev0"'))


def locked(environment: Path, scratch: Path, how: LockOptions) -> str:
    context = scratch / "context"
    context.mkdir(parents=True)
    plan = read_plan(environment, default_dockerfile=DOCKERFILE)
    told = write_lock(plan, context, how, lambda words: None)
    text = (context / ".openenv" / "requirements.lock").read_text()
    assert told.sha256 == hashlib.sha256(text.encode()).hexdigest()
    return text


@pytest.mark.slow("resolves and installs a project")
def test_everything_is_locked_with_hashes_and_installs(
    environment: Path, wheels: Path, tmp_path: Path
) -> None:
    ours = wheel_of(tmp_path / "ours", "openenv", "9.9")
    certificates = tmp_path / "ca.pem"
    certificates.write_text("x")
    how = LockOptions(ours, "https://index.example/simple", wheels, certificates, offline=True)
    text = locked(environment, tmp_path / "one", how)
    assert [line.split()[0] for line in text.splitlines() if not line.startswith(" ")] == [
        "lamp==2.0",
        "switch==1.0",
        "./.openenv/wheels/openenv-9.9-py3-none-any.whl",
        "./.openenv/wheels/openenv_lights_env-0.1-py3-none-any.whl",
    ]
    assert text.count("--hash=sha256:") == 4
    assert text == locked(environment, tmp_path / "other", how)
    context = tmp_path / "one" / "context"
    pip = configparser.RawConfigParser()
    pip.read(context / ".openenv" / "pip.conf")
    assert pip["global"]["index-url"] == "https://index.example/simple"
    assert pip["global"]["cert"] == ".openenv/ca.pem"
    installed = subprocess.run(
        [*PIP, "--target", str(tmp_path / "installed"), "-r", ".openenv/requirements.lock"],
        cwd=context,
        capture_output=True,
        text=True,
    )
    assert installed.returncode == 0, installed.stderr
    assert (tmp_path / "installed" / "lamp.py").exists()


def test_it_holds_to_the_lock_of_the_workspace(
    environment: Path, wheels: Path, tmp_path: Path
) -> None:
    (tmp_path / "src" / "openenv").mkdir(parents=True)
    (tmp_path / "src" / "openenv" / "__init__.py").touch()
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "openenv"\nversion = "9.9"\n')
    (tmp_path / "requirements.lock").write_text("lamp==1.0\n")
    ours = wheel_of(tmp_path / "ours", "openenv", "9.9")
    text = locked(environment, tmp_path / "one", LockOptions(ours, wheels=wheels, offline=True))
    assert "lamp==1.0" in text


def test_one_without_a_lock_is_locked_once_and_the_lock_is_kept(
    environment: Path, wheels: Path, tmp_path: Path
) -> None:
    running = openenv.__version__
    wheel_of(wheels, "openenv", running)
    allow_development_versions(environment)
    first = locked(environment, tmp_path / "one", LockOptions(wheels=wheels, offline=True))
    assert f"openenv=={running}" in first and "lamp==2.0" in first
    assert (environment / "uv.lock").is_file()
    wheel_of(wheels, "lamp", "3.0")
    assert (
        locked(environment, tmp_path / "other", LockOptions(wheels=wheels, offline=True)) == first
    )
    project = environment / "pyproject.toml"
    project.write_text(project.read_text().replace('"switch"', '"switch", "lamp>2"'))
    with pytest.raises(BuildError, match=r"uv\.lock cannot be used") as caught:
        locked(environment, tmp_path / "third", LockOptions(wheels=wheels, offline=True))
    assert caught.value.hint == "bring it up to date: uv lock"


def test_another_openenv_in_the_lock_is_refused_before_anything_is_built(
    environment: Path, wheels: Path, tmp_path: Path
) -> None:
    wheel_of(wheels, "openenv", "0.9.0")
    how = LockOptions(wheels=wheels, offline=True)
    with pytest.raises(BuildError, match=r"uv\.lock has openenv 0\.9\.0"):  # it was just locked
        locked(environment, tmp_path / "one", how)
    assert not (environment / "uv.lock").exists()
    text = locked(environment, tmp_path / "two", replace(how, openenv=LOCKED))
    assert "openenv==0.9.0" in text and (environment / "uv.lock").exists()
    with pytest.raises(BuildError, match=r"uv\.lock has openenv 0\.9\.0"):
        locked(environment, tmp_path / "three", how)
    assert not list((tmp_path / "three").rglob("*.whl"))


def test_the_openenv_of_an_image_is_the_one_that_is_named_or_runs(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index has another package of its name."""
    ours = wheel_of(tmp_path / "ours", "openenv", openenv.__version__)
    monkeypatch.setattr(subject, "write_wheel", lambda folder: ours)
    said: list[str] = []

    def chosen(how: LockOptions) -> Path | None:
        plan = read_plan(environment, default_dockerfile=DOCKERFILE)
        return openenv_source(plan, how, tmp_path, said.append)

    monkeypatch.setattr(subject, "is_released", lambda: False)
    assert chosen(LockOptions()) == ours and "is on no index" in said.pop()
    assert chosen(LockOptions(RUNNING)) == ours
    assert chosen(LockOptions(tmp_path / "checkout")) == tmp_path / "checkout"
    assert chosen(LockOptions(index_url="https://index.example")) is None
    monkeypatch.setattr(subject, "is_released", lambda: True)
    assert chosen(LockOptions()) is None and not said
    vendored = wheel_of(environment / "vendored", "openenv", "9.9")
    project = environment / "pyproject.toml"
    source = f'[tool.uv.sources]\nopenenv = {{path = "vendored/{vendored.name}"}}\n'
    project.write_text(f"{project.read_text()}{source}")
    assert chosen(LockOptions()) == vendored
    assert chosen(LockOptions(LOCKED)) is None
    vendored.unlink()
    with pytest.raises(BuildError, match="which does not exist"):
        chosen(LockOptions())


def test_what_uv_cannot_resolve_is_said_in_its_words(
    environment: Path, wheels: Path, tmp_path: Path
) -> None:
    (wheels / "switch-1.0-py3-none-any.whl").unlink()
    ours = wheel_of(tmp_path / "ours", "openenv", "9.9")
    with pytest.raises(BuildError, match=r"uv cannot resolve it(.|\n)*switch was not found"):
        locked(environment, tmp_path / "one", LockOptions(ours, wheels=wheels, offline=True))


def test_one_that_says_nothing_of_packages_is_refused(environment: Path, tmp_path: Path) -> None:
    (environment / "pyproject.toml").unlink()
    with pytest.raises(BuildError, match=r"has no pyproject\.toml with a \[project\]"):
        locked(environment, tmp_path / "one", LockOptions())
