"""Carrying out the notebooks of the tutorial."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PLAYER = ROOT / "tests" / "docs" / "notebook_play.py"
JUPYTER = ("ipykernel==7.4.0", "nbclient==0.11.0", "nbformat==5.11.1")

# Ports that a notebook names, where it serves something and where it goes there.
PORT = re.compile(r"(?<=localhost:)8\d{3}\b|(?<=--port )8\d{3}\b")


def carry_out(python: str, notebook: Path, directory: Path, *tags: str, **variables: str) -> Any:
    """What each cell of code printed, with its source; fails where one raises.

    Args:
        python: Of an environment that has `JUPYTER`, and what the notebook needs.
        notebook: Whose servers get free ports in place of those that it names.
        directory: Empty, for what is left of it.
        tags: Of cells that are carried out too.
        variables: Of its kernel.
    """
    copy = directory / "tutorial" / notebook.name
    copy.parent.mkdir(parents=True)
    content = notebook.read_text(encoding="utf-8")
    ports = free_ports(sorted(set(PORT.findall(content))))
    copy.write_text(PORT.sub(lambda found: ports[found[0]], content), encoding="utf-8")
    told = {"TMPDIR": str(directory), "IPYTHONDIR": str(directory / ".ipython"), **variables}
    for name in ("PYTHONPATH", "VIRTUAL_ENV", "MPLBACKEND"):
        told.setdefault(name, "")
    done = subprocess.run(
        [python, "-Xfrozen_modules=off", str(PLAYER), str(copy), str(copy.parent), *tags],
        env={**os.environ, **told},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def free_ports(names: list[str]) -> dict[str, str]:
    """A free port for each name."""
    with ExitStack() as stack:
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in names]
        ports = [str(one.getsockname()[1]) for one in held]
        return dict(zip(names, ports, strict=True))
