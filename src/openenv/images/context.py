"""Build contexts: copies of a directory without ignored files and secrets.

The copy leaves out what ``.dockerignore`` names (https://docs.docker.com/build/concepts/context),
what tools leave behind, and secrets, which no rule can bring back.
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

__all__ = ["BuildContext", "read_build_context", "scratch_directory", "set_times", "copy_context"]

# In the syntax of .dockerignore, whose lines follow these and may take a file back.
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
    try:
        spec = _ignore_rules(ignore_file or root / ".dockerignore")
        return _ContextReader(root, spec).read()
    except (OSError, ValueError) as error:
        raise BuildError(f"{root} cannot be read: {error}") from error


class _ContextReader:
    def __init__(self, root: Path, spec: Any) -> None:
        self._root = root
        self._spec = spec
        # A pattern with "!" may take back a file anywhere below an ignored directory.
        self._may_return = any(pattern.include is False for pattern in spec.patterns)
        self._files: list[str] = []
        self._left_out: list[str] = []
        self._secrets: list[str] = []

    def read(self) -> BuildContext:
        self._enter("")
        return BuildContext(
            self._root,
            tuple(sorted(self._files)),
            tuple(sorted(self._left_out)),
            tuple(sorted(self._secrets)),
        )

    def _enter(self, directory: str) -> int:
        """Read a directory and return the number of files taken."""
        taken = 0
        with os.scandir(self._root / directory) as entries:
            for entry in sorted(entries, key=lambda one: one.name):
                path = f"{directory}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    taken += self._take_directory(entry.name, path)
                else:
                    taken += self._take_file(entry, path)
        return taken

    def _take_directory(self, name: str, path: str) -> int:
        if name in SECRET_DIRECTORIES:
            self._secrets.append(f"{path}/")
            return 0
        if not self._spec.match_file(path):
            return self._enter(f"{path}/")
        if not self._may_return:
            self._left_out.append(f"{path}/")
            return 0
        before = len(self._left_out)
        taken = self._enter(f"{path}/")
        if not taken:
            self._left_out[before:] = [f"{path}/"]
        return taken

    def _take_file(self, entry: os.DirEntry[str], path: str) -> int:
        if self._spec.match_file(path):
            self._left_out.append(path)
        elif _is_secret(entry):
            self._secrets.append(path)
        elif entry.is_symlink() or entry.is_file(follow_symlinks=False):
            self._files.append(path)
            return 1
        else:  # a socket, a pipe, a device
            self._left_out.append(path)
        return 0


def _ignore_rules(file: Path) -> Any:
    """Return the rules of an ignore file, after our own.

    A Docker pattern equals a Git pattern with a leading slash, and the last match counts: files
    below an ignored directory can be taken back.
    """
    from pathspec import PathSpec

    lines = list(RUBBISH)
    if file.is_file():
        lines += file.read_text(encoding="utf-8-sig").splitlines()
    lines += [".dockerignore", ".containerignore"]
    return PathSpec.from_lines("gitignore", [own for line in lines for own in _of_git(line)])


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
        # Only on a line of its own, since a program may well mention the header.
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
    """Give every file the same time, and every directory the same mode too."""
    for folder, _, files in os.walk(directory, topdown=False):
        for name in files:
            os.utime(os.path.join(folder, name), (epoch_s, epoch_s), follow_symlinks=False)
        os.chmod(folder, 0o755)  # nosec B103  # in a directory that nobody else may enter
        os.utime(folder, (epoch_s, epoch_s))


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """Provide a temporary directory, and remove those of killed programs."""
    _remove_orphans()
    directory = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        (directory / OWNER_FILE).write_text(own_name())
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _remove_orphans() -> None:
    for directory in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):
            if is_orphan((directory / OWNER_FILE).read_text()):
                shutil.rmtree(directory, ignore_errors=True)


def list_paths(paths: Sequence[str], most: int = 8) -> str:
    """Join paths for people; name at most `most`, then a count."""
    shown = ", ".join(paths[:most])
    return shown if len(paths) <= most else f"{shown} and {len(paths) - most} more"
