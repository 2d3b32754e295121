"""The OpenEnv that runs: a wheel of it, and a comparison with what an environment locks."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import zipfile
from pathlib import Path

import pytest

import openenv
from openenv.images import BuildError
from openenv.images import running as subject
from openenv.images.running import check_locked, declared_source, is_released, write_wheel


def test_the_wheel_holds_what_runs_and_gives_the_same_bytes_each_time(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "one")
    assert wheel.name == f"openenv-{openenv.__version__}-py3-none-any.whl"
    assert wheel.read_bytes() == write_wheel(tmp_path / "other").read_bytes()
    root = Path(openenv.__file__).parent
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        sources = {file.relative_to(root.parent).as_posix() for file in root.rglob("*.py")}
        assert sources < names and not [name for name in names if "__pycache__" in name]
        info = f"openenv-{openenv.__version__}.dist-info"
        for line in archive.read(f"{info}/RECORD").decode().splitlines():
            name, digest, size = line.rsplit(",", 2)
            if digest:
                data = archive.read(name)
                told = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()
                assert (digest, size) == (f"sha256={told.rstrip('=')}", str(len(data))), name
            names.discard(name)
        assert not names
        assert f"Version: {openenv.__version__}" in archive.read(f"{info}/METADATA").decode()
        assert "openenv.cli" in archive.read(f"{info}/entry_points.txt").decode()


@pytest.mark.parametrize(
    ("number", "url", "expected"),
    [
        ("0.11.0.dev0", None, False),
        ("0.11.0+local", None, False),
        ("0.11.0", '{"url": "file:///somewhere"}', False),
        ("0.11.0", None, True),
    ],
)
def test_released_is_what_an_index_can_have(
    number: str, url: str | None, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Installed:
        def read_text(self, name: str) -> str | None:
            return url

    monkeypatch.setattr(subject, "version", lambda: number)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Installed())
    assert is_released() is expected


def locking(folder: Path, number: str) -> Path:
    text = f'version = 1\n[[package]]\nname = "openenv"\nversion = "{number}"\n'
    (folder / "uv.lock").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("locked", "running", "is_said", "is_refused"),
    [
        ("0.11.0", "0.11.0", False, False),
        ("0.11.0", "0.11.2", True, False),
        ("0.10.0", "0.11.0.dev0", True, True),
        ("0.12.0", "0.11.0", True, True),
        ("1.4.0", "1.0.0", True, False),
        ("2.0.0", "1.9.0", True, True),
    ],
)
def test_the_locked_version_is_compared_with_the_one_that_runs(
    locked: str,
    running: str,
    is_said: bool,
    is_refused: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subject, "version", lambda: running)
    environment = locking(tmp_path, locked)
    words = check_locked(environment, is_fatal=False)
    differs = f"uv.lock has openenv {locked}, and openenv {running} runs here"
    assert words == (differs if is_said else None)
    if not is_refused:
        assert check_locked(environment) == words
        return
    with pytest.raises(BuildError, match=f"uv.lock has openenv {locked}") as caught:
        check_locked(environment)
    assert "--openenv running" in str(caught.value.hint)


def test_what_locks_nothing_is_no_difference(tmp_path: Path) -> None:
    assert check_locked(tmp_path) is None
    (tmp_path / "uv.lock").write_text("version = 1\n")
    assert check_locked(tmp_path) is None
    (tmp_path / "uv.lock").write_text("version =")
    with pytest.raises(BuildError, match=r"uv\.lock cannot be read"):
        check_locked(tmp_path)


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ({}, None),
        ({"openenv": {"path": "wheels/a.whl"}}, "wheels/a.whl"),
        ({"openenv": {"git": "https://git.example/x"}}, None),
        ({"other": {"path": "x"}}, None),
    ],
)
def test_a_declared_source_is_a_path_of_the_environment(
    sources: dict[str, dict[str, str]], expected: str | None, tmp_path: Path
) -> None:
    found = declared_source(tmp_path, {"tool": {"uv": {"sources": sources}}})
    assert found == (None if expected is None else (tmp_path / expected).resolve())
