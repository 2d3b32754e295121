"""What is promised to a caller, whatever the caller and the network do: see `promise/machine.py`.

To play one schedule again, and have it made shorter where it fails:
``cd tests; python -m faults.promise.play --seed SEED --only NUMBER``. `make test-all` plays the
client in TypeScript too, and so numbers the schedules differently: of those it needs
``PROMISE_TYPESCRIPT=1``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.amounts import ALL, amount
from support.commands import environ
from support.typescript import is_installed

TESTS = Path(__file__).parents[1]
SEEDS = ("20261127", "2", "3") if ALL else ("20261127",)


@pytest.mark.slow("plays schedules of acts and faults against servers of every kind")
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("seed", SEEDS)
def test_each_call_is_done_once_or_its_session_is_lost(seed: str) -> None:
    count = amount(2000, 48)
    command = [sys.executable, "-W", "ignore", "-m", "faults.promise.play", "--seed", seed]
    command += ["--schedules", str(count)]
    with_typescript = {"PROMISE_TYPESCRIPT": "1"} if ALL and is_installed() else {}
    environment = {**environ(TESTS), **with_typescript}
    done = subprocess.run(command, cwd=TESTS, env=environment, stdout=subprocess.PIPE, text=True)
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["is_kept"], json.dumps(report, indent=2)
    assert report["steps_answered"] > 4 * count
    acts = ("interrupt", "cancel", "blocked", "turns", "deadline", "timeout", "fork", "drop")
    faults = (
        "cut",
        "cut_at_a_byte",
        "answers_lost",
        "requests_lost",
        "stalls",
        "half_open",
        "away",
    )
    happened = report["happened"]
    assert all(happened.get(name) for name in (*acts, *faults)), happened
