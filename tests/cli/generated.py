"""What every tree that `openenv init` and `openenv import` write has to pass, at once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from support.commands import COMMAND, SOURCES, environ

__all__ = ["NEWEST", "check_clean", "check_generated", "check_typed", "check_valid", "ran"]

OLDEST, NEWEST = "3.10", "3.13"
NO_LOCK = "static.dependency_pinning"  # a lock needs an index


def ran(arguments: Sequence[str], cwd: Path, *path: Path) -> str:
    """The output of a command of this Python, which succeeds."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**environ(*path), "MYPYPATH": environ()["PYTHONPATH"]},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check_clean(tree: Path) -> None:
    """Lint and layout, by the configuration that the tree brings."""
    ran(["-m", "ruff", "check", "--no-cache", "."], tree)
    ran(["-m", "ruff", "format", "--no-cache", "--check", "."], tree)


def check_typed(tree: Path, version: str = OLDEST) -> None:
    """Types, as a version of Python has them."""
    cache = f"--cache-dir={SOURCES.parent / '.mypy_cache' / f'generated-{version}'}"
    config = f"--config-file={tree.name}/pyproject.toml"
    arguments = ["-m", "mypy", "--strict", config, cache, f"--python-version={version}"]
    ran([*arguments, tree.name], tree.parent)


def check_valid(tree: Path, level: str, *path: Path) -> None:
    """No check fails, but for the lock, which the tests leave out."""
    arguments = ["validate", tree.name, "--skip-build", "--provider", "process", "--json"]
    done = subprocess.run(
        [*COMMAND, *arguments, "--level", level],
        cwd=tree.parent,
        env=environ(*path),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.stdout, done.stderr
    results = json.loads(done.stdout)["results"]
    failed = [one for one in results if one["status"] in ("fail", "error")]
    assert [one for one in failed if one["check_id"] != NO_LOCK] == []
    assert len(results) > len(failed)


def check_generated(tree: Path, level: str = "runtime", *path: Path) -> None:
    """All of it: lint, layout, types, its own tests, and `openenv validate`."""
    check_clean(tree)
    check_typed(tree)
    ran(["-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"], tree, *path)
    check_valid(tree, level, *path)
