"""The examples that train over a socket run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(name: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name / f"{name}.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.extended("trains a policy")
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_ppo_gets_better_at_cartpole_and_draws_it(tmp_path: Path) -> None:
    picture = tmp_path / "returns.png"
    said = run("ppo_cartpole", "--steps", "6144", "--picture", str(picture))
    evaluation = next(line for line in said.splitlines() if line.startswith("evaluation"))
    assert float(evaluation.split()[3]) > 60, "a random policy gets 22"
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.extended("trains a policy")
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_frames_of_pong_move_a_policy() -> None:
    said = run("atari_frames", "--steps", "512", "--envs", "2", "--rollout", "128")
    last = said.splitlines()[-1]
    assert " 512 steps" in last
    assert float(last.split()[-1]) > 0
