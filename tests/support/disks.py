"""Disks that are full."""

from __future__ import annotations

import contextlib
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

__all__ = ["SmallDisk", "files_limited_to"]


class SmallDisk:
    """A file system of its own, of 100 KB; skips where it may not be mounted.

    Attributes:
        place: Where it is.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", str(place)], capture_output=True
        )
        if done.returncode:
            pytest.skip("mounts a file system, which takes the rights for it")

    def grow(self) -> None:
        """Have room for all that a test writes."""
        subprocess.run(["mount", "-o", "remount,size=50m", str(self.place)], check=True)

    def fill(self) -> None:
        """Leave no room for another file, and at most 4 KB in those that are there."""
        with (self.place / "full").open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x")

    def close(self) -> None:
        """Have it gone."""
        subprocess.run(["umount", "-l", str(self.place)], check=True)


@contextlib.contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """Have no file of this process grow beyond a size, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
