"""Access to the committed files of a git repository; the working tree is ignored."""

from __future__ import annotations

import subprocess
from pathlib import Path, PurePosixPath

from openenv.hub.catalog.cards import CatalogError

__all__ = ["GitSnapshot"]

MOST_BYTES = 8 * 2**20
TIMEOUT_S = 60.0


class GitSnapshot:
    """The files of a commit, without links and submodules.

    Args:
        path: A checkout, or a bare repository.
        revision: A commit, a branch or a tag.
        root: Directory whose subdirectories are listed.

    Raises:
        CatalogError: The repository, the revision or the directory does not exist.
    """

    def __init__(self, path: Path, revision: str = "HEAD", root: str = "envs") -> None:
        self._path = path
        name = f"{revision}^{{commit}}"
        self.revision = (
            self._git("rev-parse", "--verify", "--end-of-options", name).decode().strip()
        )
        self.root = str(PurePosixPath(root)).strip("/")
        listed = self._git("ls-tree", "-r", "-l", "-z", "--full-tree", self.revision)
        self._blobs: dict[str, tuple[str, int]] = {}
        for line in listed.decode("utf-8", "replace").split("\0"):
            about, _, name = line.partition("\t")
            mode, kind, blob, size = (about.split() + [""] * 4)[:4]
            if kind == "blob" and mode in ("100644", "100755"):
                self._blobs[name] = blob, int(size)
        if self.root != "." and not any(n.startswith(f"{self.root}/") for n in self._blobs):
            raise CatalogError(f"{path} has no directory {root!r} at {revision}")

    def directories_with(self, name: str) -> list[str]:
        """Return the direct subdirectories of the root that hold a file of this name."""
        depth = 0 if self.root == "." else len(PurePosixPath(self.root).parts)
        below = "" if self.root == "." else f"{self.root}/"
        found = (PurePosixPath(path) for path in self._blobs if path.startswith(below))
        return sorted(str(p.parent) for p in found if p.name == name and len(p.parts) == depth + 2)

    def has(self, path: str) -> bool:
        """Return whether a file exists."""
        return path in self._blobs

    def read(self, path: str) -> bytes | None:
        """Return a file's content, or None if the file does not exist.

        Raises:
            CatalogError: The file is too large.
        """
        if path not in self._blobs:
            return None
        blob, size = self._blobs[path]
        if size > MOST_BYTES:
            raise CatalogError(f"{path} is larger than {MOST_BYTES // 2**20} MiB")
        return self._git("cat-file", "blob", blob)

    def text(self, path: str) -> str:
        """Return a file's text; empty if missing, with invalid UTF-8 replaced."""
        return (self.read(path) or b"").decode("utf-8", "replace")

    def _git(self, *arguments: str) -> bytes:
        try:
            done = subprocess.run(  # nosec B603 B607  # no shell
                ["git", "-C", str(self._path), *arguments], capture_output=True, timeout=TIMEOUT_S
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise CatalogError(f"git cannot be run in {self._path}: {error}") from error
        if done.returncode:
            why = done.stderr.decode("utf-8", "replace").strip().removeprefix("fatal: ")
            raise CatalogError(f"{self._path} cannot be read: {why}")
        return done.stdout
