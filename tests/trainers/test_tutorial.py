"""The tutorial's notebook on training, with TRL, on a tiny model in place of a real one."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from support.commands import environ
from support.notebooks import JUPYTER, ROOT, carry_out
from support.venvs import python_of

pytestmark = [pytest.mark.trainers, pytest.mark.slow, pytest.mark.timeout(1200)]

STEPS = 3


@pytest.fixture(scope="module")
def python() -> str:
    ours = ["-e", f"{ROOT}[eval]", "-e", str(ROOT / "envs" / "blackjack_env")]
    return python_of(
        ROOT / ".peers" / "trl-tutorial", "torch==2.13.0", "trl==1.16.*", *JUPYTER, *ours
    )


def test_the_notebook_trains_by_grpo(python: str, tmp_path: Path) -> None:
    model = tmp_path / "model"
    maker = Path(__file__).parent / "tutorial_model.py"
    made = subprocess.run(
        [python, str(maker), str(model)],
        env=environ(ROOT / "tests"),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert made.returncode == 0, made.stderr[-3000:]
    done = carry_out(
        python,
        ROOT / "tutorial" / "04-train.ipynb",
        tmp_path,
        "needs-trl",
        MODEL=str(model),
        STEPS=str(STEPS),
        HF_HUB_OFFLINE="1",
        TRL_EXPERIMENTAL_SILENCE="1",
    )
    (printed,) = [cell["printed"] for cell in done if "python grpo.py" in cell["source"]]
    rewards = re.findall(r"^(\d+) (-?[\d.]+)$", printed, re.MULTILINE)
    assert [int(step) for step, _ in rewards] == list(range(1, STEPS + 1)), json.dumps(done)
    assert all(-1.0 <= float(reward) <= 1.0 for _, reward in rewards)
