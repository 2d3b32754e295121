"""Build contexts: copies of a directory without ignored files and secrets.

The copy leaves out files that ``.dockerignore`` names
(https://docs.docker.com/build/concepts/context), files that tools generate, and secrets, which no
rule can include again.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from openenv.images.errors import BuildError
from openenv.providers.owners import is_orphan, own_name

# In the syntax of .dockerignore, whose lines follow these and may include a file again.
RUBBISH = (
    "**/.git",
    "**/.hg",
    "**/.svn",
    "**/.venv",
    "**/venv",
    "**/__pycache__",
    "**/*.py[cod]",
    "**/.pytest_cache",
    "**/.mypy_cache",
    "**/.ruff_cache",
    "**/.hypothesis",
    "**/.tox",
    "**/.nox",
    "**/.ipynb_checkpoints",
    "**/node_modules",
    "**/*.egg-info",
    "**/.coverage",
    "**/.DS_Store",
    "build",
    "dist",
    "outputs",
)

SECRET_NAMES = (
    ".env",
    ".env.*",
    "*.env",
    ".netrc",
    ".pypirc",
    ".git-credentials",
    ".htpasswd",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keystore",
)
SECRET_DIRECTORIES = (".ssh", ".aws", ".gnupg", ".kube", ".docker")
HARMLESS_NAMES = (".env.example", ".env.sample", ".env.template", ".env.dist")
PRIVATE_KEY = b"PRIVATE KEY-----"
KEY_FILE_BYTES = 64 * 1024

PREFIX = "openenv-build-"
OWNER_FILE = "owner"


@dataclass(frozen=True)
class BuildContext:
    """The files of a directory that go into an image.

    Attributes:
        root: The directory.
        files: Files that go into the image, links included; relative, with slashes, sorted.
        left_out: Ignored files, and wholly ignored directories with a slash at the end.
        secrets: Files and directories that look like secrets.
    """

    root: Path
    files: tuple[str, ...]
    left_out: tuple[str, ...]
    secrets: tuple[str, ...]

    @property
    def size_bytes(self) -> int:
        """Return the total size of the files."""
        return sum(os.lstat(self.root / file).st_size for file in self.files)


def read_build_context(root: Path, ignore_file: Path | None = None) -> BuildContext:
    """Find the files of a directory that go into an image.

    Args:
        root: The directory.
        ignore_file: A file in the syntax of ``.dockerignore``; by default the directory's own.

    Raises:
        BuildError: The directory or its ignore file cannot be read.
    """
    found: dict[str, list[str]] = {"files": [], "left_out": [], "secrets": []}
    try:
        for kind, path in _entries(root, _ignore_rules(ignore_file or root / ".dockerignore")):
            found[kind].append(path)
    except (OSError, ValueError) as error:
        raise BuildError(f"{root} cannot be read: {error}") from error
    return BuildContext(root, **{kind: tuple(sorted(paths)) for kind, paths in found.items()})


def _entries(root: Path, rules: Any, directory: str = "") -> Iterator[tuple[str, str]]:
    """Yield the entries below a directory: the field of `BuildContext`, and the path."""
    with os.scandir(root / directory) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            path = f"{directory}{entry.name}"
            is_ignored = rules.match_file(path)
            if not entry.is_dir(follow_symlinks=False):
                yield "left_out" if is_ignored else _kind_of(entry), path
            elif entry.name in SECRET_DIRECTORIES:
                yield "secrets", f"{path}/"
            elif not is_ignored:
                yield from _entries(root, rules, f"{path}/")
            else:
                # A pattern with "!" may include a file anywhere below an ignored directory.
                may_return = any(pattern.include is False for pattern in rules.patterns)
                inner = list(_entries(root, rules, f"{path}/")) if may_return else []
                if any(kind == "files" for kind, _ in inner):
                    yield from inner
                else:
                    yield from (one for one in inner if one[0] == "secrets")
                    yield "left_out", f"{path}/"


def _kind_of(entry: os.DirEntry[str]) -> str:
    if _is_secret(entry):
        return "secrets"
    is_file = entry.is_symlink() or entry.is_file(follow_symlinks=False)
    return "files" if is_file else "left_out"  # a socket, a pipe, a device


def _ignore_rules(file: Path) -> Any:
    """Return the rules of an ignore file, after our own.

    A Docker pattern equals a Git pattern with a leading slash, and the last match counts: files
    below an ignored directory can be included again.
    """
    from pathspec import PathSpec

    own = file.read_text(encoding="utf-8-sig").splitlines() if file.is_file() else []
    lines = [*RUBBISH, *own, ".dockerignore", ".containerignore"]
    return PathSpec.from_lines("gitignore", [rule for line in lines for rule in _of_git(line)])


def _of_git(line: str) -> list[str]:
    """Translate a Docker pattern into Git patterns for the path and everything below it."""
    pattern = line.strip()
    if not pattern or line.startswith("#"):
        return []
    sign = "!" if pattern.startswith("!") else ""
    path = posixpath.normpath(f"/{pattern.removeprefix('!').strip()}").lstrip("/")
    return [f"{sign}/{path}", f"{sign}/{path}/**"] if path else []


def _is_secret(entry: os.DirEntry[str]) -> bool:
    name = entry.name
    if name in HARMLESS_NAMES:
        return False
    if any(fnmatchcase(name, pattern) for pattern in SECRET_NAMES):
        return True
    if not entry.is_file() or entry.stat().st_size > KEY_FILE_BYTES:
        return False
    with open(entry.path, "rb") as file:
        # Only on a line of its own, since a program may mention the header.
        return any(
            line.startswith(b"-----BEGIN ") and line.rstrip().endswith(PRIVATE_KEY) for line in file
        )


# ------------------------------------------------------------------ the copy


def copy_context(contents: BuildContext, target: Path) -> None:
    """Copy a context, with modes that do not depend on the user's umask."""
    target.mkdir(parents=True, exist_ok=True)
    for file in contents.files:
        source, copy = contents.root / file, target / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            copy.symlink_to(os.readlink(source))
            continue
        shutil.copyfile(source, copy)
        copy.chmod(0o755 if source.stat().st_mode & stat.S_IXUSR else 0o644)


def set_times(directory: Path, epoch_s: int) -> None:
    """Set the same time on every file and directory, and the same mode on every directory."""
    for folder, _, files in os.walk(directory, topdown=False):
        for name in files:
            os.utime(os.path.join(folder, name), (epoch_s, epoch_s), follow_symlinks=False)
        os.chmod(folder, 0o755)  # nosec B103  # in a directory that nobody else may enter
        os.utime(folder, (epoch_s, epoch_s))


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """Provide a temporary directory; remove those that killed programs left."""
    for left in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):
            if is_orphan((left / OWNER_FILE).read_text()):
                shutil.rmtree(left, ignore_errors=True)
    directory = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        (directory / OWNER_FILE).write_text(own_name())
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def list_paths(paths: Sequence[str], most: int = 8) -> str:
    """Join paths for people: at most `most` of them, then a count of the rest."""
    shown = ", ".join(paths[:most])
    return shown if len(paths) <= most else f"{shown} and {len(paths) - most} more"
