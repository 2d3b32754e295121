"""Processes that are paused, stopped or killed, or share a port, and clocks that jump."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from support.commands import environ
from support.environments import Counter, CounterEnv, Do, Log
from support.relay import Relay
from support.servers import serving
from support.waiting import wait_until
from support.zygote import PythonProcess

from openenv import SessionLost, create_app
from openenv.execution.manager import ConcurrencyConfig

TESTS = Path(__file__).parents[1]
PLAYER = str(TESTS / "faults/player.py")


@pytest.mark.slow
def test_a_client_that_is_paused_goes_on_where_it_was(log: Log) -> None:
    """As a laptop that sleeps: meanwhile its connection has gone, and it does not know."""
    with serving(create_app(Counter)) as url:
        relay = Relay(url)
        command = [sys.executable, PLAYER, relay.url, "20", "0.02"]
        with PythonProcess(
            command, stdout=subprocess.PIPE, text=True, env=environ(TESTS)
        ) as player:
            assert player.stdout is not None
            assert player.stdout.readline() == "ready\n"
            assert player.stdout.readline() == "step 1\n"
            os.kill(player.pid, signal.SIGSTOP)
            relay.cut()
            time.sleep(0.5)  # what a pause is
            os.kill(player.pid, signal.SIGCONT)
            assert player.stdout.read().split() == [
                word for number in range(2, 21) for word in ("step", str(number))
            ]
        relay.close()
    assert log.count("step") == 20 and log.count("init") == 1


@pytest.mark.slow
def test_a_clock_that_jumps_ends_no_session(monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    config = ConcurrencyConfig(max_concurrent_envs=4, session_timeout=1.0)
    with serving(create_app(Counter, concurrency_config=config)) as url:
        relay = Relay(url)
        with CounterEnv(base_url=relay.url) as env, httpx.Client(base_url=url) as by_http:
            env.reset()
            by_http.post("/reset")  # it has no socket, so it may be idle for a second
            real = time.time
            for number, jump_s in enumerate((86_400.0, -86_400.0), 1):
                relay.refuse()
                relay.cut()
                monkeypatch.setattr(time, "time", lambda jump_s=jump_s: real() + jump_s)
                time.sleep(0.6)  # the reaper looks four times in a second
                relay.accept_again()
                assert env.step(Do(), timeout_s=5).observation.text == f"step {number}"
                assert by_http.post("/step", json={"action": {}}).json()["reward"] == number
        relay.close()
    assert log.count("init") == 2


# ------------------------------------------------------------------ a server that is told to stop


@contextmanager
def server(tmp_path: Path, *command: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    (tmp_path / "notes").mkdir()
    variables = {**environ(TESTS), "NOTES_OF_ENVIRONMENTS": str(tmp_path / "notes")}
    with (tmp_path / "log").open("wb") as log:
        process = PythonProcess(
            [sys.executable, "-m", *command], env=variables, stdout=log, stderr=log, cwd=tmp_path
        )
        try:
            yield str(tmp_path / "log"), process
        finally:
            process.kill()
            process.wait(10)


def url_in(log: str) -> str:
    wait_until(lambda: "http://127.0.0.1:" in Path(log).read_text(), 20)
    text = Path(log).read_text().partition("http://127.0.0.1:")[2]
    return "http://127.0.0.1:" + text[: len(text) - len(text.lstrip("0123456789"))]


@pytest.mark.slow
def test_sigterm_lets_running_steps_end_and_says_that_nothing_is_kept(tmp_path: Path) -> None:
    serve = ["openenv.cli", "serve", "support.noted:app", "--port", "0"]
    with server(tmp_path, *serve) as (log, process):
        url = url_in(log)
        results: list[object] = []

        def step(env: CounterEnv) -> None:
            try:
                results.append(env.step(Do(what="sleep", value=0.6)).observation.text)
            except Exception as error:
                results.append(error)

        with CounterEnv(base_url=url) as busy, CounterEnv(base_url=url) as idle:
            busy.reset()
            idle.reset()
            thread = threading.Thread(target=step, args=[busy])
            thread.start()
            wait_until(lambda: any((tmp_path / "notes").glob("begun.*")))
            process.send_signal(signal.SIGTERM)
            began = time.monotonic()
            with pytest.raises(SessionLost):
                for _ in range(1000):
                    idle.step(Do())
            assert time.monotonic() - began < 5, "it does not try to resume what is gone"
            thread.join(5)
            assert results == ["step 1"], "what ran was finished and answered"
            process.wait(10)
        assert len(list((tmp_path / "notes").glob("closed.*"))) == 2
        assert "Traceback" not in Path(log).read_text()


# ------------------------------------------------------------------ several processes, one port


@pytest.mark.slow
def test_a_resume_finds_its_process_among_several_that_share_a_port(tmp_path: Path) -> None:
    """uvicorn's own workers share nothing but the port, and the system chooses who accepts."""
    command = ["uvicorn", "support.noted:app", "--port", "0", "--workers", "3"]
    with server(tmp_path, *command) as (log, process):
        url = url_in(log)
        relay = Relay(url)
        wait_until(lambda: _answers(url), 20)
        clients = [CounterEnv(base_url=relay.url) for _ in range(12)]
        for env in clients:
            env.reset()
        for number in range(1, 4):
            relay.cut()
            for env in clients:
                assert env.step(Do()).observation.text == f"step {number}"
        for env in clients:
            env.close()
        relay.close()
        process.terminate()  # killed, it would leave its workers behind
        process.wait(20)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health").status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.slow
def test_a_server_that_is_killed_is_a_loss_that_is_said_at_once(tmp_path: Path) -> None:
    serve = ["openenv.cli", "serve", "support.noted:app", "--port", "0"]
    with server(tmp_path, *serve) as (log, process), CounterEnv(base_url=url_in(log)) as env:
        env.reset()
        process.kill()
        process.wait(5)
        began = time.monotonic()
        with pytest.raises(SessionLost, match="nothing listens"):
            env.step(Do())
        assert time.monotonic() - began < 3
