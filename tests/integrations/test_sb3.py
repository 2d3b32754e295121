"""Stable-Baselines3 trains on environments over a socket, as it does on Gymnasium's own."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from support.venvs import python_of

from openenv.providers import ProcessProvider

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PEER = ROOT / ".peers" / "sb3"


@pytest.fixture(scope="module")
def python() -> str:
    # torch first: the newest that it would choose itself is another build.
    return python_of(PEER, "torch==2.13.0", "stable-baselines3", "-e", str(ROOT))


@pytest.mark.packages
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_stable_baselines_checks_and_trains(python: str) -> None:
    provider = ProcessProvider("gymnasium:CartPole-v1", api_key=None)
    url = provider.start()
    try:
        provider.wait_for_ready()
        done = subprocess.run(
            [python, str(HERE / "sb3_play.py"), url],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    finally:
        provider.stop()
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["steps"] == 512
    assert said["moved"], "the policy's weights have not changed"
    assert said["episodes"] > 5


@pytest.mark.packages
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_its_example_trains(python: str) -> None:
    example = ROOT / "examples" / "sb3" / "ppo_cartpole.py"
    done = subprocess.run(
        [python, str(example), "--steps", "8192"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    before, after = map(float, re.findall(r"([\d.]+) ±", done.stdout))
    assert "8,192 steps" in done.stdout
    assert after > 3 * before
