"""`openenv top`: what it shows is what servers did."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import threading
from collections import Counter as Counts
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from support.commands import COMMAND, environ, openenv_running, run_openenv
from support.environments import Counter, CounterEnv, Do

from openenv import create_app
from openenv.cli._readings import (
    MetricsReading,
    MetricsUnreadable,
    compare_readings,
    quantile,
    read_metrics,
)
from openenv.errors import ExecutionFailed

pytestmark = pytest.mark.slow  # most start programs

Serve = Callable[[Any], str]


@contextlib.contextmanager
def stepping(url: str) -> Iterator[None]:
    """Have a client at work until the block ends; every tenth step fails."""
    is_over = threading.Event()

    def work() -> None:
        with CounterEnv(base_url=url) as env:
            env.reset()
            for number in range(10**6):
                if is_over.is_set():
                    return
                with contextlib.suppress(ExecutionFailed):
                    env.step(Do(what="count" if number % 10 else "raise"))

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        is_over.set()
        worker.join(10)


@pytest.mark.extended("draws on a terminal for a while")
def test_one_interval_as_json(serve: Serve, tmp_path: Path) -> None:
    url = serve(create_app(Counter, max_concurrent_envs=5))
    before = read_metrics(url)
    with stepping(url):
        done = run_openenv("top", url, "--once", "--json", "--interval=0.5", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)[url]
    really_done = (
        read_metrics(url).values["openenv_steps_total"] - before.values["openenv_steps_total"]
    )
    assert 0 < shown["steps_per_s"] * 0.5 <= really_done
    assert shown["environments"] == ["Counter"] and shown["version"]
    assert (shown["sessions"], shown["slots"], shown["queue"]) == (1, 5, 0)
    assert 0 < shown["latency_p50_s"] <= shown["latency_p99_s"] < 5
    assert set(shown["errors"]) == {"EXECUTION_ERROR"}
    assert 0 < shown["errors"]["EXECUTION_ERROR"] < shown["steps_per_s"]
    assert shown["bytes_out_per_s"] > shown["steps_per_s"]
    assert shown["workers_wanted"] == 0


@pytest.mark.extended("draws on a terminal for a while")
def test_several_servers_at_once_in_words(serve: Serve, tmp_path: Path) -> None:
    url, gone = serve(create_app(Counter)), "127.0.0.1:1"
    with stepping(url):
        done = run_openenv("top", url, gone, "--once", "--interval=0.3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Counter" in done.stdout and "1/64" in done.stdout
    assert f"{gone}: no server answers at http://{gone}/metrics" in done.stdout
    assert "errors: EXECUTION_ERROR" in done.stdout


def test_it_goes_on_until_it_is_interrupted(serve: Serve, tmp_path: Path) -> None:
    url = serve(create_app(Counter))
    command = ("top", url, "--json", "--interval=0.1")
    with openenv_running(*command, cwd=tmp_path, log=tmp_path / "log") as top:
        assert top.first_line()[url]["sessions"] == 0
        assert top.first_line()[url]["steps_per_s"] == 0
        code, _ = top.interrupt()
    assert code == 130


def test_a_server_without_metrics_is_named(serve: Serve, tmp_path: Path) -> None:
    url = serve(Starlette())
    done = run_openenv("top", url, "--once", cwd=tmp_path)
    assert done.returncode == 1
    assert f"there is no {url}/metrics" in done.stderr and "public package" in done.stderr


def test_the_metrics_of_another_program_are_told_from_ours(serve: Serve) -> None:
    async def other(request: Request) -> Response:
        return PlainTextResponse("# TYPE up gauge\nup 1\n# EOF\n")

    url = serve(Starlette(routes=[Route("/metrics", other)]))
    with pytest.raises(MetricsUnreadable, match="another program"):
        read_metrics(url)


@pytest.mark.extended("draws on a terminal for a while")
def test_a_key_is_shown_to_who_asks_for_one(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = serve(create_app(Counter))

    def locked(request: Request) -> Response:
        if request.headers.get("authorization") != "Bearer a-key-of-mine":
            return PlainTextResponse("no", 401)
        answer = httpx.get(f"{there}/metrics", headers={"accept": request.headers["accept"]})
        return PlainTextResponse(answer.text)

    url = serve(Starlette(routes=[Route("/metrics", locked)]))
    refused = run_openenv("top", url, "--once", cwd=tmp_path)
    assert refused.returncode == 1 and "--api-key-file" in refused.stderr
    (tmp_path / "key").write_text("a-key-of-mine\n")
    command = ("top", url, "--once", "--json", "--interval=0.1")
    by_file = run_openenv(*command, "--api-key-file=key", cwd=tmp_path)
    monkeypatch.setenv("OPENENV_API_KEY", "a-key-of-mine")
    by_variable = run_openenv(*command, cwd=tmp_path)
    for done in (by_file, by_variable):
        assert json.loads(done.stdout)[url]["slots"] == 64, done.stderr


def test_a_restart_is_noticed_by_whatever_was_counted() -> None:
    name = "openenv_websocket_bytes_total in"
    before = MetricsReading(1.0, values=Counts({name: 900.0, "openenv_slots": 64.0}))
    after = MetricsReading(3.0, values=Counts({name: 500.0, "openenv_slots": 4.0}))
    change = compare_readings(before, after)
    assert (change.bytes_in_per_s, change.slots) == (250.0, 4)
    assert compare_readings(after, replace(after, at=4.0)).bytes_in_per_s == 0


@pytest.mark.extended("draws on a terminal for a while")
def test_it_is_live_in_a_terminal_until_it_is_interrupted(serve: Serve, tmp_path: Path) -> None:
    url = serve(create_app(Counter))
    ours, theirs = pty.openpty()
    with (
        stepping(url),
        os.fdopen(ours, "rb", buffering=0) as screen,
        subprocess.Popen(
            [*COMMAND, "top", url, "--interval=0.1"],
            env={**environ(), "TERM": "xterm", "COLUMNS": "120"},
            cwd=tmp_path,
            stderr=theirs,
        ) as top,
    ):
        os.close(theirs)
        shown = b""
        while shown.count(b"Counter") < 3:  # which it shows anew
            shown += screen.read(65536)
        top.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # which is how a terminal ends
            while rest := screen.read(65536):
                shown += rest
        assert top.wait(10) == 130
    assert b"1/64" in shown and b"EXECUTION_ERROR" in shown
    assert shown.count(b"\x1b[?1049h") == shown.count(b"\x1b[?1049l") == 1, "the screen is back"


def test_a_quantile_lies_where_the_buckets_say() -> None:
    infinity = float("inf")
    assert quantile({0.1: 50, 0.2: 100, infinity: 100}, 0.5) == pytest.approx(0.1)
    assert quantile({0.1: 50, 0.2: 100, infinity: 100}, 0.75) == pytest.approx(0.15)
    assert quantile({0.1: 0, 0.2: 0, infinity: 7}, 0.5) == 0.2
    assert quantile({0.1: 0, infinity: 0}, 0.5) is None
    assert quantile({}, 0.5) is None


@pytest.mark.parametrize("content", ['[[keys]]\nkey = "planted-0123456789"\n', ""])
def test_a_file_that_holds_anything_but_a_key_is_not_sent_nor_shown(
    content: str, tmp_path: Path
) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(content)
    done = run_openenv("top", "127.0.0.1:1", "--once", f"--api-key-file={path}", cwd=tmp_path)
    assert done.returncode != 0 and "does not hold a key" in done.stderr
    assert "planted" not in done.stderr + done.stdout
