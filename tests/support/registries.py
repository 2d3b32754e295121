"""A registry of images on this machine, which speaks plain HTTP: Debian's docker-registry."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.waiting import wait_until


@contextlib.contextmanager
def registry_in(folder: Path) -> Iterator[str]:
    """Serve a registry that keeps its images in a folder; gives its address."""
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("docker-registry is not installed")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    storage = f"storage: {{filesystem: {{rootdirectory: {folder / 'registry'}}}}}"
    told = folder / "registry.yml"
    told.write_text(f"version: 0.1\n{storage}\nhttp: {{addr: {address}}}\n")
    with subprocess.Popen(
        [program, "serve", told], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as serving:
        try:
            wait_until(lambda: _answers(address), 20)
            yield address
        finally:
            serving.terminate()


def _answers(address: str) -> bool:
    host, _, port = address.partition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1):
        return True
    return False
