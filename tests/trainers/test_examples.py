"""The examples that train by GRPO, from a model made on the spot to a plot, a few steps of each."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.commands import environ
from trainers import test_lightning, test_trl

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = {"demonstrations": 16, "shown": 10, "groups": 2, "generations": 4, "hidden": 32}

pytestmark = [pytest.mark.trainers, pytest.mark.slow, pytest.mark.timeout(900)]


def trained(example: str, trainer: str, folder: Path) -> dict[str, Any]:
    python = test_trl.python() if trainer == "trl" else test_lightning.python()
    config = folder / "small.json"
    config.write_text(json.dumps(SMALL))
    done = subprocess.run(
        [
            *(python, str(EXAMPLES / example / "train.py"), "--trainer", trainer, "--steps", "2"),
            *("--episodes", "16", "--config", str(config), "--out", str(folder)),
        ],
        env=environ() | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (found,) = json.loads(done.stdout.splitlines()[-1])
    assert (folder / "rewards.png").read_bytes().startswith(b"\x89PNG")
    kept: dict[str, Any] = json.loads((folder / "seed-0.json").read_text())
    assert len(kept["rewards"]) == 2
    assert found == {name: one for name, one in kept.items() if name != "rewards"}
    return kept


@pytest.mark.parametrize(
    ("example", "trainer", "lowest", "highest"),
    [
        ("grpo_blackjack", "trl", -1.0, 1.0),
        ("grpo_2048", "trl", 0.0, 1000.0),
        ("grpo_coding", "trl", -1.2, 1.0),
        ("grpo_blackjack", "fabric", -1.0, 1.0),
        ("grpo_2048", "fabric", 0.0, 1000.0),
        ("grpo_coding", "fabric", -1.2, 1.0),
    ],
)
def test_an_example_trains(
    example: str, trainer: str, lowest: float, highest: float, tmp_path: Path
) -> None:
    found = trained(example, trainer, tmp_path)
    assert found["trainer"] == trainer
    assert found["environment_failures"] == 0
    assert 0 < found["environment_share"] < 1
    for reward in (*found["rewards"], found["before"]["mean"], found["after"]["mean"]):
        assert lowest <= reward <= highest
