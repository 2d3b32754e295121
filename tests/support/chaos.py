"""Runs the random fault schedules of `tests/faults/chaos`, with one Python at both ends."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.waiting import wait_until

CHAOS = Path(__file__).parents[1] / "faults" / "chaos"


@contextlib.contextmanager
def ledger_server(python: str, environment: dict[str, str]) -> Iterator[str]:
    """Serve the environment that writes down its steps, until the block ends."""
    with tempfile.TemporaryDirectory() as directory:
        port_file = Path(directory) / "port"
        command = [python, str(CHAOS / "ledger_app.py"), str(port_file)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) as process:
            try:
                # A package that was just installed is compiled first.
                wait_until(lambda: port_file.exists() or process.poll() is not None, 120)
                assert port_file.exists(), f"{python} did not serve: status {process.returncode}"
                yield f"http://127.0.0.1:{port_file.read_text()}"
            finally:
                process.kill()


def run_schedules(python: str, count: int, seed: int, **variables: str) -> dict[str, Any]:
    """Run schedules; gives how many went right, wrong loudly and wrong silently, and examples."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("OPENENV")}
    environment = {**kept, **variables}
    with ledger_server(python, environment) as url:
        command = [python, "-W", "ignore", str(CHAOS / "play.py"), "--url", url]
        command += ["--count", str(count), "--seed", str(seed)]
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=900
        )
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report
