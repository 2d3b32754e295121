"""TRL's own SFTTrainer learns from what was collected, and only from what was worth it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.commands import environ
from support.venvs import python_of
from trainers.lights import RULES, Crossing, driver

from openenv.rollouts.collect import SFTFilters, collect, write_sft

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.trainers, pytest.mark.slow, pytest.mark.timeout(1200)]


def trained(tmp_path: Path, form: str, mode: str, steps: int) -> dict[str, Any]:
    """What TRL's trainer makes of the episodes that were worth it."""
    done = collect(Crossing, driver, tmp_path / "data", num_episodes=40, seed=0)
    assert done.episodes == 40
    path = tmp_path / "sft.parquet"
    filters = SFTFilters(min_reward=1.0, unique=False)
    summary = write_sft(tmp_path / "data", output=path, form=form, filters=filters)
    assert summary.left_out == {"its reward is too low": 10}

    python = python_of(ROOT / ".peers" / "trl", "torch==2.13.0", "trl==1.16.*", "-e", str(ROOT))
    program = Path(__file__).parent / "sft_train.py"
    run = subprocess.run(
        [python, str(program), str(path), str(tmp_path / "out"), mode, str(steps)],
        env=environ(ROOT / "examples"),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    told: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    assert told["rows"] == summary.rows
    assert told["losses"][1] < told["losses"][0] / 5
    return told


def test_a_model_does_as_the_teacher_did_where_it_did_well(tmp_path: Path) -> None:
    told = trained(tmp_path, "messages", "assistant", 260)
    assert told["rows"] == 30
    for light, move in RULES.items():
        assert told["calls"][light] == {"name": "pedal", "arguments": {"move": move}}


def test_replies_alone_teach_how_one_acts(tmp_path: Path) -> None:
    told = trained(tmp_path, "prompt-completion", "completion", 80)
    assert told["rows"] == 60
    for call in told["calls"].values():
        assert call["name"] == "pedal"
        assert call["arguments"]["move"] in RULES.values()
