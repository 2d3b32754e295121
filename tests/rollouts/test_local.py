"""A local model plays, by the libraries that train it, which are not installed beside ours."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from support.commands import environ
from support.venvs import python_of

ROOT = Path(__file__).parents[2]
NEEDED = ("torch==2.13.0", "transformers==5.23.0")


@pytest.mark.packages
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_local_model_plays_and_every_token_is_told(tmp_path: Path) -> None:
    python = python_of(ROOT / ".peers" / "transformers", *NEEDED, "-e", str(ROOT))
    command = [python, str(Path(__file__).parent / "local_play.py"), str(tmp_path)]
    done = subprocess.run(
        command, env=environ(ROOT / "tests"), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["furthest"] < 1e-4
    assert told["is_same"]
    assert told["grows"]
    assert told["is_as_trained"]
    assert told["differ"] == 3  # samples of one group
    assert told["said"]
    assert told["tokens"] == told["counted"]
    assert told["token_rewards"] == told["written"]
    assert set(told["outcomes"]) == {"limit"}
