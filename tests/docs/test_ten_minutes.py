"""The page that leads from an idea to a trained policy is carried out, with Podman."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

WALK = Path(__file__).parents[2] / "benchmarks" / "ten_minutes.py"
SECTIONS = ["Write the environment", "Test the environment", "Build and validate an image"]
SECTIONS += ["Serve the image", "Publish to the Hub", "Install by name", "Train a policy"]


@pytest.mark.containers
@pytest.mark.timeout(900)
def test_an_idea_becomes_a_trained_policy() -> None:
    done = subprocess.run([sys.executable, str(WALK)], capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stderr[-4000:]
    assert re.findall(r"^\| (.*) \| \d+ s \|$", done.stdout, re.MULTILINE)[:-1] == SECTIONS
    assert "Verdict: PASS" in done.stderr
    found = re.search(r"found (0\.\d+) at first, (0\.\d+) at last", done.stderr)
    assert found is not None and float(found[2]) > 2 * float(found[1])
