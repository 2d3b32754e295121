"""`openenv capture`, as one starts it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.commands import environ
from support.token_server import token_server

from openenv.capture import export_session, read_sessions, to_training_trace

pytestmark = pytest.mark.slow  # a program is started

COMMAND = [sys.executable, "-m", "openenv.cli", "capture"]


@contextmanager
def capturing(url: str, out: Path, *words: str, **env: str) -> Iterator[Any]:
    command = [*COMMAND, "--upstream", url, "--out", str(out), "--port", "0", "--json", *words]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ() | {"NO_COLOR": "1", **env},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ask(url: str, key: str, text: str = "hello", path: str = "/v1/chat/completions") -> Any:
    body = {"messages": [{"role": "user", "content": text}]}
    headers = {"authorization": f"Bearer {key}"}
    return httpx.post(url + path, json=body, headers=headers, trust_env=False, timeout=10)


@pytest.mark.extended("starts agents or hubs as processes; other tests show it in this process")
def test_what_agents_ask_is_in_the_file_and_keys_are_not(tmp_path: Path) -> None:
    with (
        token_server() as upstream,
        capturing(
            upstream.url, tmp_path, "--model", "toy", OPENENV_LLM_API_KEY="the-models"
        ) as run,
    ):
        told = json.loads(run.stdout.readline())
        for name in ("sk-one", "sk-one", "sk-two"):
            assert ask(told["url"], name).status_code == 200
        assert {asked.key for asked in upstream.asked} == {"the-models"}
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=20)
    ended = [json.loads(line) for line in out.splitlines()]
    assert sorted(one["stats"]["n_turns"] for one in ended) == [1, 2]
    assert all(one["trainable"] for one in ended)
    assert "it returns tokens" in err and "tokens to train on" in err
    text = Path(told["calls"]).read_text()
    assert "sk-one" not in text and "the-models" not in text
    sessions = read_sessions(tmp_path)
    assert {one.session_id for one in sessions} == {one["session_id"] for one in ended}
    for session in sessions:
        assert to_training_trace(session.graph, export_session(session)).turns


@pytest.mark.extended("starts agents or hubs as processes; other tests show it in this process")
def test_only_registered_sessions_are_let_in_where_one_says_so(tmp_path: Path) -> None:
    with token_server() as upstream:
        with capturing(upstream.url, tmp_path, "--registered") as run:
            assert run.wait(20) == 2
            assert "OPENENV_CAPTURE_ADMIN_KEY" in run.stderr.read()
        admin = {"OPENENV_CAPTURE_ADMIN_KEY": "admin"}
        with capturing(upstream.url, tmp_path, "--registered", **admin) as run:
            url = json.loads(run.stdout.readline())["url"]
            assert ask(url, "sk-any").status_code == 401
            assert ask(url, "sk-any", path="/sessions").status_code == 401
            made = httpx.post(
                f"{url}/sessions", headers={"authorization": "Bearer admin"}, trust_env=False
            ).json()
            assert ask(url, made["session_id"]).status_code == 200


@pytest.mark.extended("starts agents or hubs as processes; other tests show it in this process")
def test_an_upstream_that_is_not_there_or_no_address_is_said(tmp_path: Path) -> None:
    for url, code, words in (
        ("http://127.0.0.1:9/v1", 1, "cannot be reached"),
        ("zork", 2, "no address of HTTP"),
    ):
        with capturing(url, tmp_path, "--model", "toy") as run:
            assert run.wait(20) == code
            assert words in run.stderr.read()
            assert run.stdout.read() == ""


def test_an_upstream_without_tokens_is_started_and_warned_of(tmp_path: Path) -> None:
    with (
        token_server(tells="text") as upstream,
        capturing(upstream.url, tmp_path, "--model", "toy") as run,
    ):
        url = json.loads(run.stdout.readline())["url"]
        assert ask(url, "sk").status_code == 200
        run.send_signal(signal.SIGTERM)
        _, err = run.communicate(timeout=20)
    assert "cannot be trained on" in err and "not fit for training" in err
