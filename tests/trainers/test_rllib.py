"""RLlib's PPO trains on our environments: over a socket, in this process, and where they break.

In a namespace without a network, as `scripts/ray` says: Ray would listen on the machine's outer
address.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.commands import ENVIRONMENTS, SOURCES
from support.venvs import python_of

pytestmark = [pytest.mark.trainers, pytest.mark.slow, pytest.mark.timeout(600)]

HERE = Path(__file__).parent
ROOT = SOURCES.parent
ALONE = ["unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
ON_LOOPBACK = ["sh", "-c", 'ip link set lo up; "$@"; exit $?', "_"]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    # torch first: the newest that it would choose itself is another build.
    wanted = ["torch==2.13.0", "ray[rllib]==2.60.0", "-e", str(ROOT)]
    folder = ROOT / ".peers" / "trainers_rllib"
    python = python_of(folder, *wanted, "-e", str(ENVIRONMENTS / "blackjack_env"))
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    scratch = tmp_path_factory.mktemp("ray")
    done = subprocess.run(
        [*ALONE, *as_root, *ON_LOOPBACK, python, str(HERE / "rllib_play.py")],
        env={**os.environ, "PYTHONPATH": str(HERE.parent), "TMPDIR": str(scratch)},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Exception ignored" not in done.stderr, done.stderr
    outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return outcome


@pytest.mark.parametrize("name", ["blackjack", "cartpole"])
def test_it_trains(told: dict[str, Any], name: str) -> None:
    """The cart's environments are stepped together, over a socket; blackjack's one by one."""
    assert told[name]["steps"] >= 512
    assert told[name]["moved"], "the policy's weights have not changed"
    assert told[name]["failures"] == 0
    assert told[name]["lowest"] < told[name]["highest"]


def test_what_breaks_is_made_anew_and_counts_for_nothing(told: dict[str, Any]) -> None:
    """Every whole episode is worth 10: one that was cut short, or had a step of 0, would show."""
    assert told["shaky"]["failures"] >= 1
    assert (told["shaky"]["lowest"], told["shaky"]["highest"]) == (10, 10)
    assert told["shaky"]["steps"] >= 768
