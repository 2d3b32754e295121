"""Run the command line as users do: ``python -m openenv.cli`` in a process of its own.

The process is forked, not started: see `support.zygote`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openenv
from support.zygote import PythonProcess, run_python

SOURCES = Path(openenv.__file__).parents[1]
ENVIRONMENTS = SOURCES.parent / "envs"
COMMAND = (sys.executable, "-m", "openenv.cli")
FINISHES_WITHIN_S = 40.0


def environ(*more: Path) -> dict[str, str]:
    """The environment variables of a process that imports this tree, and `more`."""
    path = os.pathsep.join(map(str, (SOURCES, ENVIRONMENTS, *more)))
    return {**os.environ, "PYTHONPATH": path, "COLUMNS": "200", "NO_COLOR": "1"}


def run_openenv(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return run_python(
        [*COMMAND, *arguments],
        cwd=cwd,
        env=environ(),
        capture_output=True,
        text=True,
        timeout=FINISHES_WITHIN_S,
    )


@dataclass
class Running:
    """A command that runs until it is interrupted."""

    process: subprocess.Popen[str]
    log: Path

    def first_line(self) -> Any:
        """The first line on stdout, which is JSON."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.words()
        return json.loads(line)

    def words(self) -> str:
        """What it has written to stderr."""
        return self.log.read_text(encoding="utf-8")

    def interrupt(self) -> tuple[int, str]:
        """Press Ctrl-C; return the exit code, and what else it wrote to stdout."""
        self.process.send_signal(signal.SIGINT)
        rest, _ = self.process.communicate(timeout=FINISHES_WITHIN_S)
        return self.process.returncode, rest


@contextlib.contextmanager
def openenv_running(
    *arguments: str,
    cwd: Path,
    log: Path,
    command: Sequence[str] = COMMAND,
    is_forked: bool = True,
) -> Iterator[Running]:
    """Start a command; it ends with the block.

    With ``is_forked=False`` it is a new process, whose arguments and variables the system shows.
    """
    start = PythonProcess if is_forked else subprocess.Popen
    with (
        log.open("w", encoding="utf-8") as stderr,
        start(
            [*command, *arguments],
            cwd=cwd,
            env=environ(),
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as process,
    ):
        try:
            yield Running(process, log)
        finally:
            process.terminate()
            try:
                process.wait(FINISHES_WITHIN_S)
            finally:
                process.kill()
