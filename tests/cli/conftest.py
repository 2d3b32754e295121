"""The command line as its users have it: `python -m openenv.cli` in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

import openenv

SOURCES = Path(openenv.__file__).parents[1]
ENVIRONMENTS = SOURCES.parent / "envs"
FINISHES_WITHIN_S = 40.0


def environ(*more: Path) -> dict[str, str]:
    """The environment variables of a process that imports this tree, and `more`."""
    path = os.pathsep.join(map(str, (SOURCES, ENVIRONMENTS, *more)))
    return {**os.environ, "PYTHONPATH": path, "COLUMNS": "200", "NO_COLOR": "1"}


class OpenEnv(Protocol):
    """Runs a command to its end."""

    def __call__(self, *arguments: str, cwd: Path = ...) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture(scope="session")
def run_openenv(tmp_path_factory: pytest.TempPathFactory) -> OpenEnv:
    def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "openenv.cli", *arguments],
            cwd=cwd or tmp_path_factory.mktemp("cwd"),
            env=environ(),
            capture_output=True,
            text=True,
            timeout=FINISHES_WITHIN_S,
        )

    return run


@pytest.fixture(scope="session")
def my_game_env(run_openenv: OpenEnv, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree that `openenv init my_game_env` writes; not to be changed."""
    directory = tmp_path_factory.mktemp("written")
    done = run_openenv("init", "my_game_env", cwd=directory)
    assert done.returncode == 0, done.stderr
    return directory / "my_game_env"


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


Start = Callable[..., Running]


@pytest.fixture
def start_openenv(tmp_path: Path) -> Iterator[Start]:
    """Start a command, and end it with the test."""
    with contextlib.ExitStack() as stack:

        def start(*arguments: str, cwd: Path = tmp_path) -> Running:
            log = tmp_path / "stderr.log"
            process = subprocess.Popen(
                [sys.executable, "-m", "openenv.cli", *arguments],
                cwd=cwd,
                env=environ(),
                stdout=subprocess.PIPE,
                stderr=stack.enter_context(log.open("w")),
                text=True,
            )
            stack.enter_context(process)  # closes the pipe and waits
            stack.callback(process.kill)
            return Running(process, log)

        yield start
