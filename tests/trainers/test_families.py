"""Every family of chat templates that TRL ships is told and read exactly, or refused."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.commands import environ
from trainers.test_trl import python

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.trainers, pytest.mark.slow, pytest.mark.timeout(1200)]


def test_each_family_is_played_as_its_file_says() -> None:
    # Written by the same program without --check. It fails itself where a right answer of the model
    # does not earn the whole reward, in whichever way it is given.
    here = Path(__file__).parent
    page = ROOT / "docs" / "guides" / "training" / "models.md"
    program = [python(), str(here / "families_play.py"), str(here / "families"), str(page)]
    done = subprocess.run(
        [*program, "--check"],
        env=environ(ROOT / "tests"),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
