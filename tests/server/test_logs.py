"""Logs for machines: an object a line, and whose request it was."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.commands import Running, openenv_running
from support.leaky import SECRET, AsyncLeaky, Leaky, LeakyEnv, Try
from support.waiting import wait_until

from openenv import Environment, ExecutionFailed
from openenv._internal.logs import JSONFormatter
from openenv._internal.redaction import register_secret
from openenv.protocol.http import SESSION_HEADER
from openenv.settings import log_format

pytestmark = pytest.mark.slow  # most start programs

TESTS = Path(__file__).parents[1]
RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED_API_KEY", SECRET)


@contextlib.contextmanager
def serving(
    environment: type[Environment[Any, Any, Any]], tmp_path: Path, *options: str
) -> Iterator[tuple[str, Running]]:
    target = f"{TESTS / 'support' / 'leaky.py'}:{environment.__name__}"
    command = ("serve", target, "--port=0", "--json", *options)
    with openenv_running(*command, cwd=tmp_path, log=tmp_path / "log") as server:
        yield server.first_line()["url"], server


def entries(server: Running) -> list[dict[str, Any]]:
    return [json.loads(line) for line in server.words().splitlines()]


@pytest.mark.parametrize("environment", [Leaky, AsyncLeaky])
@pytest.mark.parametrize("options", [(), ("--workers=1",)], ids=["here", "in a worker"])
def test_what_an_environment_logs_names_its_session_and_its_request(
    environment: type[Environment[Any, Any, Any]], options: tuple[str, ...], tmp_path: Path
) -> None:
    with serving(environment, tmp_path, "--log-format=json", *options) as (url, server):
        with LeakyEnv(base_url=url) as env:
            env.reset()
            env.step(Try(what="nothing"))
            env.step(Try(what="log"))
            with pytest.raises(ExecutionFailed) as caught:
                env.step(Try(what="raise"))
        with LeakyEnv(base_url=url) as another:
            another.reset(what="log")
        wait_until(lambda: server.words().count("my key is") == 2)
        found = entries(server)
    said, elsewhere = (e for e in found if e["logger"] == "leaky")
    assert said["message"] == "my key is ***"
    assert (said["level"], said["environment"]) == ("warning", environment.__name__)
    assert (said["request"], said["request_id"]) == ("step", 3)
    assert (elsewhere["request"], elsewhere["request_id"]) == ("reset", 1)
    assert RFC_3339.fullmatch(said["time"])
    [incident] = [e for e in found if e.get("incident") == caught.value.incident]
    assert (incident["request"], incident["request_id"]) == ("step", 4)
    assert incident["session_id"] == said["session_id"] != elsewhere["session_id"]
    assert "KeyError: 'a step of ***'" in incident["exception"]
    assert SECRET not in json.dumps(found)


def test_requests_by_http_and_the_server_itself_log_the_same_way(tmp_path: Path) -> None:
    with serving(Leaky, tmp_path, "--log-format=json") as (url, server):
        answer = httpx.post(f"{url}/reset?token=do-not-keep-me", json={"what": "log"})
        assert answer.status_code == 200
        wait_until(lambda: "uvicorn.access" in server.words())
        found = entries(server)
    [access] = [e for e in found if e["logger"] == "uvicorn.access"]
    assert (access["method"], access["status"]) == ("POST", 200)
    assert access["path"] == "/reset?token=***" and "do-not-keep-me" not in json.dumps(found)
    [said] = [e for e in found if e["logger"] == "leaky"]
    assert said["session_id"] == answer.headers[SESSION_HEADER]
    assert any(e["logger"] == "uvicorn.error" for e in found)
    assert any(e["message"].startswith("serving ") for e in found)


def test_a_log_for_people_holds_no_secret_either(tmp_path: Path) -> None:
    with serving(Leaky, tmp_path) as (url, server):
        with LeakyEnv(base_url=url) as env, pytest.raises(ExecutionFailed) as caught:
            env.reset(what="log")
            env.step(Try(what="raise"))
        httpx.get(f"{url}/health?api_key=do-not-keep-me")
        wait_until(lambda: "/health" in server.words())
        log = server.words()
    assert f"incident {caught.value.incident}: KeyError in step of session" in log
    assert "my key is ***" in log and '"GET /health?api_key=*** HTTP/1.1"' in log
    assert SECRET not in log and "do-not-keep-me" not in log


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_probe_that_asks_again_and_again_does_not_fill_the_log(tmp_path: Path, form: str) -> None:
    with serving(Leaky, tmp_path, f"--log-format={form}") as (url, server):
        for _ in range(5):
            assert httpx.get(f"{url}/health").status_code == 200
        httpx.get(f"{url}/nowhere")
        wait_until(lambda: "/nowhere" in server.words())
        log = server.words()
    assert len([line for line in log.splitlines() if "/health" in line and "200" in line]) == 1


def test_debug_is_asked_for_on_the_command_line(tmp_path: Path) -> None:
    with (
        serving(Leaky, tmp_path, "--debug") as (url, _),
        LeakyEnv(base_url=url) as env,
        pytest.raises(ExecutionFailed, match=r"'a step of \*\*\*'"),
    ):
        env.reset(what="raise")


def test_an_entry_is_one_line_whatever_it_holds() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JSONFormatter())
    logger = logging.Logger("of a test")
    logger.addHandler(handler)
    register_secret("never-to-be-seen")
    try:
        raise ValueError("never-to-be-seen\nnext line")
    except ValueError:
        logger.exception("two\nlines of %s", {"never-to-be-seen": object}, extra={"incident": "x"})
    [line] = stream.getvalue().splitlines()
    entry = json.loads(line)
    assert entry["message"].startswith("two\nlines of {'***'") and entry["incident"] == "x"
    assert entry["exception"].endswith("ValueError: ***\nnext line")


def test_another_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENENV_LOG_FORMAT", "xml")
    with pytest.raises(ValueError, match="xml"):
        log_format()
