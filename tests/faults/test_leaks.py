"""Ten thousand sessions that nobody closes, and a server that holds nothing of them afterwards."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from support.amounts import ALL, amount
from support.commands import environ
from support.environments import CounterEnv, Do
from support.held import excess
from support.waiting import wait_until
from support.zygote import PythonProcess

TESTS = Path(__file__).parents[1]
ROUNDS = 5
A_ROUND = {  # ways, how many processes, how many sessions each: 2,000 in `make test-all`
    "killed_at_work": (4, amount(250, 50)),
    "reset_in_mid_air": (1, amount(500, 100)),
    "cancelled": (1, amount(400, 100)),
    "left_open": (1, amount(100, 20)),
}


@dataclass
class Witness:
    """A session that is at work all the time, and must not notice anything."""

    url: str
    steps: int = 0
    failure: list[BaseException] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def play(self) -> None:
        try:
            with CounterEnv(base_url=self.url) as env:
                env.reset()
                while not self.over.wait(0.005):
                    self.steps += 1
                    assert env.step(Do()).observation.text == f"step {self.steps}"
        except BaseException as error:
            self.failure.append(error)


@contextlib.contextmanager
def witness(url: str) -> Iterator[Witness]:
    witness = Witness(url)
    thread = threading.Thread(target=witness.play)
    thread.start()
    try:
        yield witness
    finally:
        witness.over.set()
        thread.join(20)
    assert witness.failure == [] and witness.steps > amount(100, 10), (
        "a live session was never touched"
    )


@contextlib.contextmanager
def ugly_server(directory: Path, **variables: str) -> Iterator[str]:
    port_file, held = directory / "port", directory / "held"
    held.mkdir()
    command = [sys.executable, "-m", "openenv.server.run", "support.ugly:app", "--port", "0"]
    command += ["--port-file", str(port_file), "--app-dir", str(TESTS)]
    with (directory / "log").open("wb") as log:
        process = PythonProcess(
            command,
            env={**environ(TESTS), "UGLY_DIRECTORY": str(held), **variables},
            stdout=log,
            stderr=log,
        )
        try:
            wait_until(port_file.exists, 20)
            url = f"http://127.0.0.1:{port_file.read_text()}"
            wait_until(lambda: _answers(url), 20)
            yield url
        finally:
            process.terminate()
            process.wait(20)


def _answers(url: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{url}/health").status_code == 200
    return False


def opened(url: str) -> int:
    """How many sessions there have been."""
    values = dict(line.rsplit(" ", 1) for line in httpx.get(f"{url}/metrics").text.splitlines())
    return int(float(values['openenv_sessions_opened_total{environment="Ugly"}']))


def held(url: str) -> dict[str, int]:
    counts: dict[str, int] = httpx.get(f"{url}/held", timeout=30).json()
    return counts


def vandalise(url: str, seed: int) -> None:
    """A round of sessions, in every way at once."""
    vandals = [
        PythonProcess(
            [sys.executable, str(TESTS / "faults/vandal.py"), url, way, str(count), f"{seed}"],
            env=environ(TESTS),
        )
        for way, (processes, count) in A_ROUND.items()
        for _ in range(processes)
    ]
    for vandal in vandals:
        assert vandal.wait(90) in (0, -signal.SIGKILL)


@pytest.mark.slow("opens and leaves hundreds of sessions")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("workers", "rounds"),
    [("0", 1), ("2", 1), pytest.param("0", ROUNDS, marks=pytest.mark.extended("10,000 sessions"))],
)
def test_thousands_of_sessions_leave_nothing_behind(
    tmp_path: Path, workers: str, rounds: int
) -> None:
    with ugly_server(tmp_path, UGLY_WORKERS=workers) as url:
        vandalise(url, 0)  # warmed up: what a server keeps once, it keeps
        wait_until(lambda: held(url)["sessions"] == 0, 60)
        opened_before, before = opened(url), held(url)
        with witness(url):
            for number in range(1, rounds + 1):
                vandalise(url, number)
        wait_until(lambda: not excess(before, held(url)), 60, lambda: (before, held(url)))
        assert held(url)["directories"] == 0
        assert opened(url) - opened_before == rounds * sum(n * m for n, m in A_ROUND.values()) + 1
    if workers != "0" and ALL:  # of fewer sessions none may hang
        assert "is ended: its calls do not come back" in (tmp_path / "log").read_text()
