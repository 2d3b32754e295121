"""A release is prepared on a copy: one version everywhere, a dated changelog, all of it built."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from distributions.parts import ROOT, tracked

pytestmark = pytest.mark.slow

CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- Everything.\n\n## [0.10.0] - 2026\n"
IDENTITY = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.invalid"]


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / "scripts" / "release.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


script: Any = load_script()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A checkout with the core, one environment and the templates, as git has it."""
    root = tmp_path / "copy"
    for name in tracked(ROOT):
        kept = ("src/", "envs/echo_env/", "scripts/release.py", "clients/typescript/package")
        if name.startswith(kept) or "/" not in name:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, root / name)
    (root / "CHANGELOG.md").write_text(CHANGELOG)
    for command in (["init", "-q"], ["add", "-A"], [*IDENTITY, "commit", "-q", "-m", "All of it"]):
        subprocess.run(["git", *command], cwd=root, check=True)
    return root


def prepared(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / "scripts" / "release.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "TZ": "UTC"})


@pytest.mark.extended("builds wheels")
@pytest.mark.timeout(180)
def test_a_release_is_written_built_and_explained(copy: Path) -> None:
    done = prepared(copy, "0.11.0")
    assert done.returncode == 0, done.stderr
    assert "git tag -a v0.11.0" in done.stdout and "uv publish" in done.stdout
    assert {path.name for path in (copy / "dist").glob("openenv*")} == {
        "openenv-0.11.0-py3-none-any.whl",
        "openenv-0.11.0.tar.gz",
        "openenv_echo_env-0.1.0-py3-none-any.whl",
        "openenv_echo_env-0.1.0.tar.gz",
    }
    left = subprocess.run(["git", "grep", "-lF", script.current(ROOT)], cwd=copy, stdout=-1).stdout
    assert left == b""
    assert '"openenv>=0.11.0"' in (copy / "envs" / "echo_env" / "pyproject.toml").read_text()
    client = (copy / "clients" / "typescript" / "package.json").read_text()
    assert json.loads(client)["version"] == "0.11.0"
    unreleased, _, released = (copy / "CHANGELOG.md").read_text().partition("## [0.11.0] - ")
    assert unreleased.endswith("## [Unreleased]\n\n") and "- Everything." in released
    assert not subprocess.run(["git", "tag"], cwd=copy, stdout=-1, check=True).stdout


def test_the_client_in_typescript_has_the_same_version() -> None:
    names = sorted((ROOT / "clients" / "typescript").glob("package*.json"))
    versions = [json.loads(path.read_text())["version"] for path in names]
    assert versions == [script.of_npm(script.current(ROOT))] * 2
    assert script.of_npm("1.2.0rc1") == "1.2.0-rc.1"


def test_one_that_nothing_is_told_of_is_refused(copy: Path) -> None:
    (copy / "CHANGELOG.md").write_text(CHANGELOG.replace("### Added\n\n- Everything.\n\n", ""))
    subprocess.run(["git", *IDENTITY, "commit", "-qam", "Less"], cwd=copy, check=True)
    done = prepared(copy, "0.11.0")
    assert done.returncode == 1 and "CHANGELOG.md has nothing under [0.11.0]" in done.stderr
    assert script.current(copy) == script.current(ROOT)


def test_changes_that_are_not_committed_are_no_release(copy: Path) -> None:
    (copy / "README.md").write_text("changed")
    assert "not committed" in prepared(copy, "0.11.0").stderr


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("0.9.0", "0.9.0 is older than"),
        ("next", "'next' is no version"),
        ("0.11", None),
        ("v0.11.0", "v0.11.0 is written 0.11.0"),
        ("0.11.0+ours", "has a local part"),
    ],
)
def test_a_version_that_cannot_be_is_named(copy: Path, version: str, why: str | None) -> None:
    if why is None:
        assert str(script.parsed(version)) == version
        return
    done = prepared(copy, version)
    assert done.returncode == 1 and why in done.stderr


def test_a_version_is_wanted() -> None:
    assert prepared(ROOT).returncode == 2
