"""Reading what is committed in a git repository: its blobs, and nothing of the working tree."""

from __future__ import annotations

import subprocess
from pathlib import Path, PurePosixPath

from openenv.auto.catalog.cards import CatalogError

__all__ = ["GitSnapshot"]

MOST_BYTES = 8 * 2**20
TIMEOUT_S = 60.0


class GitSnapshot:
    """The files of one commit. Links and submodules are not followed.

    Args:
        path: A checkout, or a bare repository.
        revision: A commit, a branch or a tag.
        root: The directory whose directories are looked at.

    Raises:
        CatalogError: There is no such repository, revision or directory.
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
        """The directories right below the root that have a file of this name."""
        depth = 0 if self.root == "." else len(PurePosixPath(self.root).parts)
        below = "" if self.root == "." else f"{self.root}/"
        found = (PurePosixPath(path) for path in self._blobs if path.startswith(below))
        return sorted(str(p.parent) for p in found if p.name == name and len(p.parts) == depth + 2)

    def has(self, path: str) -> bool:
        """Whether there is such a file."""
        return path in self._blobs

    def read(self, path: str) -> bytes | None:
        """The content of a file; None where there is none.

        Raises:
            CatalogError: It is too large.
        """
        if path not in self._blobs:
            return None
        blob, size = self._blobs[path]
        if size > MOST_BYTES:
            raise CatalogError(f"{path} is larger than {MOST_BYTES // 2**20} MiB")
        return self._git("cat-file", "blob", blob)

    def text(self, path: str) -> str:
        """The text of a file; empty where there is none, and with what is no UTF-8 replaced."""
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
