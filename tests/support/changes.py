"""Selects the tests of what has changed: ``pytest --changed COMMIT``, as in ``make test-changed``.

A test is selected if one of these has changed since the commit, in the work tree too:

* its module, a ``conftest.py`` above it, or a helper of the tests that its module imports;
* a module of ours that its module imports;
* something in the packages that its directory tests: ``src/openenv/hub`` for ``tests/hub``, an
  environment for its own tests, and those named in `SUBJECTS`;
* the page, if it carries out a page of the documentation.

A change of what everything depends on (`EVERYTHING`) selects all tests. What a module imports
indirectly does not count, or a change of the contract would select everything: ``make test`` is
there for that.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

__all__ = ["changed_since", "keep_affected"]

ROOT = Path(__file__).resolve().parents[2]
EVERYTHING = re.compile(r"^(conftest\.py|pyproject\.toml|requirements\.lock|tests/conftest\.py)$")
# What the tests of a directory are about, if it is not the package of the same name.
SUBJECTS = {
    "tests/wrappers": ("src/openenv/wrappers", "src/openenv/_internal/choices.py"),
    "tests/behaviour": ("src/openenv/client", "src/openenv/protocol", "src/openenv/execution"),
    "tests/hub/catalog": ("src/openenv/hub/catalog",),
    "tests/clients": ("clients/typescript",),
    "tests/compat": ("src/openenv/core", "src/openenv/protocol", "src/openenv/client"),
    "tests/distributions": ("scripts", "src/openenv/_internal/version.py"),
    "tests/docs": ("scripts", "tutorial"),
    "tests/faults": ("src/openenv/client", "src/openenv/protocol", "src/openenv/execution"),
    "tests/integrations": ("src/openenv/integrations", "examples"),
    "tests/trainers": ("src/openenv/integrations", "src/openenv/rollouts", "examples"),
}


def changed_since(commit: str) -> frozenset[str]:
    """Return the paths of the files that differ from a commit, relative to the root.

    Raises:
        pytest.UsageError: Git does not know the commit.
    """
    try:
        return frozenset(
            [
                *_git("diff", "--name-only", commit, "--"),
                *_git("ls-files", "--others", "--exclude-standard"),
            ]
        )
    except subprocess.CalledProcessError as error:
        raise pytest.UsageError(f"--changed {commit}: {error.stderr.strip()}") from None


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def keep_affected(config: pytest.Config, items: list[pytest.Item], changed: Iterable[str]) -> None:
    """Deselect the tests that no change concerns."""
    files = set(changed)
    if any(EVERYTHING.match(name) for name in files):
        return
    kept = [item for item in items if _is_affected(item, files)]
    gone = [item for item in items if item not in set(kept)]
    if gone:
        config.hook.pytest_deselected(items=gone)
        items[:] = kept


def _is_affected(item: pytest.Item, changed: set[str]) -> bool:
    page = getattr(item, "callspec", None) and item.callspec.params.get("page")  # type: ignore[attr-defined]
    if isinstance(page, Path):
        return page.relative_to(ROOT).as_posix() in changed
    return _module_is_affected(item.path, frozenset(changed))


@cache
def _module_is_affected(module: Path, changed: frozenset[str]) -> bool:
    if not changed.isdisjoint(_files_of(module)):
        return True
    subjects = tuple(f"{subject.rstrip('/')}" for subject in _subjects_of(module))
    return any(name == one or name.startswith(f"{one}/") for name in changed for one in subjects)


def _subjects_of(module: Path) -> Iterator[str]:
    """The paths of what the tests of a module are about."""
    name = module.relative_to(ROOT).as_posix()
    parts = name.split("/")
    if parts[0] == "envs":
        yield "/".join(parts[:2])
        return
    for depth in range(2, len(parts)):
        folder = "/".join(parts[:depth])
        yield from SUBJECTS.get(folder, (f"src/openenv/{'/'.join(parts[1:depth])}",))
    stem = parts[-1].removeprefix("test_").removesuffix(".py")
    yield "/".join(["src/openenv", *parts[1:-1], f"{stem}.py"])


@cache
def _files_of(module: Path) -> frozenset[str]:
    """A module of the tests, what it imports of ours, and every conftest.py above it."""
    found = {
        module,
        *(folder / "conftest.py" for folder in module.parents if ROOT in folder.parents),
    }
    for name in _imported(module):
        for base in (ROOT / "src", ROOT / "tests", ROOT / "envs", module.parent):
            path = base.joinpath(*name.split("."))
            found |= {path.with_suffix(".py"), path / "__init__.py"}
    return frozenset(path.relative_to(ROOT).as_posix() for path in found if path.is_file())


def _imported(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
