"""A run that is killed, or whose server is, loses no task and does none twice."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.amounts import amount
from support.commands import environ
from support.waiting import wait_until
from support.zygote import PythonProcess

from openenv import GenericEnvClient
from openenv.rollouts import read_header, read_rollouts

HERE = Path(__file__).parent
PLAYER = str(HERE / "player.py")


@contextlib.contextmanager
def server(folder: Path, port: int = 0) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Serve sums from a process of its own."""
    told = folder / "port"
    told.unlink(missing_ok=True)
    command = [sys.executable, "-m", "openenv.server.run", "ledger_app:app", "--app-dir", str(HERE)]
    command += ["--port", str(port), "--port-file", str(told)]
    with (folder / "server.log").open("ab") as log:
        process = PythonProcess(command, stderr=log, stdout=log, env=environ())
        try:
            wait_until(told.exists, 20, (folder / "server.log").read_text)
            url = f"http://127.0.0.1:{int(told.read_text())}"
            wait_until(lambda: answers(url), 20, (folder / "server.log").read_text)
            yield url, process
        finally:
            process.kill()
            process.wait(10)


def write_tasks(path: Path, count: int) -> Path:
    rows = ({"id": f"sum/{n}", "reset": {"number": n}} for n in range(count))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def play(url: str, tasks: Path, output: Path, concurrency: int) -> subprocess.Popen[str]:
    command = [sys.executable, PLAYER, url, str(tasks), str(output), str(concurrency)]
    return PythonProcess(command, stdout=subprocess.PIPE, text=True, env=environ(HERE.parent))


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def answers(url: str) -> bool:
    port = int(url.rpartition(":")[2])
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def done_by(url: str) -> dict[str, Any]:
    """What the sessions of a server have done."""
    with GenericEnvClient(base_url=url).sync() as env:
        return env.state()


@pytest.mark.slow("plays thousands of tasks while the run is killed")
@pytest.mark.timeout(120)
def test_of_thousands_of_tasks_none_is_lost_or_done_twice_however_often_the_run_is_killed(
    tmp_path: Path,
) -> None:
    count, concurrency = amount(10_000, 3_000), 256
    tasks, output = write_tasks(tmp_path / "tasks.jsonl", count), tmp_path / "runs" / "sums.jsonl"
    chance = random.Random(8)
    kills = sorted(chance.uniform(0.02, 0.95) for _ in range(5))
    line_bytes = 0.0
    with server(tmp_path) as (url, _):
        for share in kills:
            with play(url, tasks, output, concurrency) as player:
                if not line_bytes:
                    wait_until(lambda: size(output) > 100_000, 20)
                    line_bytes = size(output) / len(output.read_bytes().splitlines())
                at = share * count * line_bytes
                wait_until(lambda: size(output) >= at or player.poll() is not None, 30)  # noqa: B023
                assert player.poll() is None, "it was over before it could be killed"
                player.kill()
        with play(url, tasks, output, concurrency) as player:
            assert player.stdout is not None
            ended, _retries = player.stdout.read().split()
        state = done_by(url)
    assert player.returncode == 0
    assert int(ended) == count
    lines = output.read_bytes()
    assert lines.endswith(b"\n")
    assert lines.count(b"\n") == count + 1
    rollouts = list(read_rollouts(output))
    assert Counter(one.id for one in rollouts) == Counter(f"sum/{n}#0" for n in range(count))
    assert {one.reward for one in rollouts} == {1.0}
    assert all(one.first["first"] == int(one.id[4:-2]) for one in rollouts)
    assert read_header(output).settings["seed"] == 1
    finished = Counter({int(number): times for number, times in state["finished"].items()})
    assert set(finished) == set(range(count))
    # What was finished, but not written yet, when a run was killed, is all that was done again.
    assert finished.total() - count <= len(kills) * concurrency
    assert state["most_sessions"] >= concurrency


@pytest.mark.extended("plays while servers are killed")
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_server_that_is_killed_costs_retries_and_no_task(tmp_path: Path) -> None:
    count, concurrency = 3000, 64
    tasks, output = write_tasks(tmp_path / "tasks.jsonl", count), tmp_path / "sums.jsonl"
    with contextlib.ExitStack() as servers:
        url, process = servers.enter_context(server(tmp_path))
        port = int(url.rpartition(":")[2])
        with play(url, tasks, output, concurrency) as player:
            for more in (200_000, 500_000):
                wait_until(lambda: size(output) > more, 30)  # noqa: B023
                process.kill()
                process.wait(10)
                url, process = servers.enter_context(server(tmp_path, port))
            assert player.stdout is not None
            ended, retries = player.stdout.read().split()
        assert player.returncode == 0
    assert int(ended) == count
    rollouts = list(read_rollouts(output))
    assert Counter(one.id for one in rollouts) == Counter(f"sum/{n}#0" for n in range(count))
    assert {one.outcome for one in rollouts} == {"done"}
    told = [failure for one in rollouts for failure in one.failures]
    assert len(told) == int(retries) > 0
    assert {failure.type for failure in told} <= {"SessionLost", "ConnectError"}
    assert all(failure.is_retried for failure in told)
