"""A directory's modules that are named like libraries of this package break nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import COMMAND, ENVIRONMENTS, SOURCES

NAMES = ("click", "picows", "prometheus_client", "rich", "starlette", "typer", "uvicorn", "yaml")

ENVIRONMENT = """
from datasets import LENGTH  # its own, though a library is called so
from openenv import Action, Environment, Observation, State

class Short(Environment[Action, Observation, State]):
    def reset(self, seed=None, episode_id=None, **kwargs):
        self.left = LENGTH
        return Observation()

    def step(self, action, timeout_s=None, **kwargs):
        self.left -= 1
        return Observation(reward=1.0, done=self.left == 0)

    @property
    def state(self):
        return State()
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text("raise SystemExit(f'{__file__} was imported')")
    (tmp_path / "websockets").mkdir()
    (tmp_path / "websockets" / "__init__.py").write_text("raise SystemExit('of the directory')")
    (tmp_path / "datasets.py").write_text("LENGTH = 2")
    (tmp_path / "short.py").write_text(ENVIRONMENT)
    return tmp_path


@pytest.mark.slow("starts commands, since a process that runs has imported the libraries")
@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("info", "short.py"), "health      healthy"),  # of a server, which it starts
        (("rollout", "short.py", "-n", "2"), "2 scored"),
    ],
)
def test_modules_that_are_named_like_libraries_break_nothing(
    command: tuple[str, ...], said: str, directory: Path
) -> None:
    done = subprocess.run(
        [*COMMAND, *command],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (SOURCES, ENVIRONMENTS)))},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert said in done.stdout + done.stderr


def test_only_what_this_package_needs_is_kept(directory: Path) -> None:
    program = """
import sys
sys.path.insert(0, sys.argv[1])
from openenv._internal.shadowing import keep_libraries
keep_libraries(); keep_libraries()
import datasets, rich, yaml, short
print(datasets.LENGTH, sys.argv[1] in rich.__file__, len(sys.meta_path))
"""
    told = subprocess.run(
        [sys.executable, "-c", program, str(directory)],
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert told.stdout.split()[:2] == ["2", "False"], told.stderr
