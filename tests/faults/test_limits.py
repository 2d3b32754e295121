"""Sizes and readers: what is too large is refused by name, and nobody makes a server grow."""

from __future__ import annotations

import contextlib
import json
import logging
import resource
import subprocess
import sys
import time
from typing import Any

import httpx
import pytest
from support.commands import environ
from support.environments import Counter, CounterEnv, Do, Log
from support.servers import NotAdopted, serving
from support.waiting import wait_until
from support.ws import Frame, raw

from openenv import create_app
from openenv.client.vector import VectorEnv
from openenv.errors import MessageTooLarge, TooLargeError
from openenv.execution import slow_readers
from openenv.execution.limits import Limits

LIMIT = 100_000
SMALL = Limits(max_message_bytes=LIMIT, max_unread_bytes=500_000)


@pytest.fixture(autouse=True)
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    log = Log()
    monkeypatch.setattr(Counter, "log", log)
    return log


def test_an_action_over_the_limit_is_refused_before_it_is_sent(log: Log) -> None:
    with serving(create_app(Counter, limits=SMALL)) as url, CounterEnv(base_url=url) as env:
        env.reset()
        with pytest.raises(TooLargeError, match="OPENENV_MAX_MESSAGE_BYTES") as caught:
            env.step(Do(what="echo", value="x" * LIMIT))
        assert caught.value.size > LIMIT == caught.value.limit
        assert env.step(Do()).observation.text == "step 1", "nothing was lost"


def test_an_observation_over_the_limit_is_refused_with_the_sizes(log: Log) -> None:
    with serving(create_app(Counter, limits=SMALL)) as url, CounterEnv(base_url=url) as env:
        env.reset()
        with pytest.raises(MessageTooLarge) as caught:
            env.step(Do(what="large", value=2 * LIMIT))
        assert caught.value.data["size"] > 2 * LIMIT > caught.value.data["limit"]
        assert env.step(Do()).observation.text == "step 2"


def test_version_0_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENENV_PROTOCOL", "0")
    with serving(create_app(Counter, limits=SMALL)) as url, CounterEnv(base_url=url) as env:
        env.reset()
        with pytest.raises(MessageTooLarge):
            env.step(Do(what="large", value=2 * LIMIT))
        assert env.step(Do()).observation.text == "step 2"


def test_a_batch_over_the_limit_goes_in_several_frames() -> None:
    with (
        serving(create_app(Counter, limits=SMALL)) as url,
        VectorEnv(url, 8, client=CounterEnv, stack=False) as envs,
    ):
        envs.reset()
        values = [str(number) * 60_000 for number in range(8)]
        observations = envs.step([Do(what="echo", value=value) for value in values])[0]
        assert [o.value for o in observations] == values
        assert envs.step([Do()] * 8)[1].tolist() == [2] * 8


@pytest.mark.slow
@pytest.mark.parametrize("subprotocol", ["openenv.v1.json", None])
@pytest.mark.parametrize("way", ["socket", "asgi"])
def test_a_client_that_does_not_read_is_cut_off(
    way: str,
    subprotocol: str | None,
    log: Log,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slow_readers, "PATIENCE_S", 0.3)
    headers = {} if subprotocol is None else {"Sec_WebSocket_Protocol": subprotocol}
    limits = Limits(max_unread_bytes=200_000, resume_grace_s=0)
    app: Any = create_app(Counter, limits=limits)
    with (
        caplog.at_level(logging.WARNING, "openenv.server"),
        serving(app if way == "socket" else NotAdopted(app)) as url,
        raw(url, **headers) as client,
    ):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if subprotocol:
            client.text('{"type":"open"}')
        client.socket.settimeout(10)
        data = {"what": "large", "value": 300_000}
        with contextlib.suppress(OSError):  # which is when it was cut off
            for number in range(1, 5000):
                client.text(
                    json.dumps(
                        {"type": "step", "id": number, "data": data}
                        if subprotocol
                        else {"type": "step", "data": data}
                    )
                )
                if log.count("close"):
                    break
        wait_until(lambda: log.count("close") == 1)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown < 200_000, "KiB: the server has not kept it all"
    assert any("unread" in record.message for record in caplog.records)


def messages(frame: Frame) -> list[dict[str, Any]]:
    """Those of a frame of version 1."""
    found = json.loads(frame.payload)
    return found if isinstance(found, list) else [found]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["socket", "asgi"])
def test_what_a_client_asks_and_does_not_read_is_not_begun(way: str, log: Log) -> None:
    """Of a thousand requests in one frame, it gets as many answers at a time as it reads."""
    app: Any = create_app(Counter)
    with (
        serving(app if way == "socket" else NotAdopted(app)) as url,
        raw(url, Sec_WebSocket_Protocol="openenv.v1.json") as client,
    ):
        client.text('{"type":"open"}')
        data = {"what": "large", "value": 100_000}
        steps = [{"type": "step", "id": number, "data": data} for number in range(1, 1001)]
        client.text(json.dumps(steps))
        wait_until(lambda: log.count("step") > 10)
        begun = 0
        while begun != log.count("step"):
            begun = log.count("step")
            time.sleep(0.3)
        assert begun < 300, "the rest waits until it reads"
        answered: list[int] = []
        while len(answered) < 1000:
            answers = messages(client.read())
            answered += [answer["id"] for answer in answers if answer["type"] == "observation"]
        assert answered == list(range(1, 1001))


@pytest.mark.slow
@pytest.mark.parametrize("acknowledges", [True, False])
def test_what_a_client_reads_it_must_acknowledge(
    acknowledges: bool, monkeypatch: pytest.MonkeyPatch, log: Log
) -> None:
    """Once it has begun to: the server keeps for it what it may not have."""
    monkeypatch.setattr(slow_readers, "PATIENCE_S", 0.3)
    app = create_app(Counter, limits=Limits(max_unread_bytes=1_000_000, resume_grace_s=0))
    (manager,) = app.state.openenv_managers
    with serving(app) as url, raw(url, Sec_WebSocket_Protocol="openenv.v1.json") as client:
        client.text('{"type":"open"}')
        data = {"what": "large", "value": 100_000}
        steps = [{"type": "step", "id": number, "data": data} for number in range(1, 301)]
        client.text(json.dumps([{"type": "ack", "ack": 1}, *steps]))
        if acknowledges:
            received, last = 0, 0
            while last != 300:
                last = messages(client.read())[-1].get("id") or last
                received += 1
                client.text(json.dumps({"type": "ack", "ack": received}))
            client.text('{"type":"state","id":301}')
            while messages(client.read())[-1].get("id") != 301:  # acknowledgements may come first
                pass
        else:
            while b"acknowledged" not in client.read().payload:
                pass
            assert client.read().code == 1002
    assert manager.counters.slow_readers_cut == (not acknowledges)


@pytest.mark.slow
def test_a_client_that_is_given_much_at_once_is_not_cut_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Many large observations leave in one tick: more than the limit, until they are read."""
    monkeypatch.setattr(slow_readers, "PATIENCE_S", 2.0)
    limits = Limits(max_unread_bytes=100_000, resume_grace_s=0)
    with (
        serving(create_app(Counter, limits=limits)) as url,
        VectorEnv(url, 64, client=CounterEnv, stack=False) as envs,
    ):
        envs.reset()
        for _ in range(3):
            observations = envs.step([Do(what="large", value=500_000)] * 64)[0]
            assert {len(o.value) for o in observations} == {500_000}
    assert not any("unread" in record.message for record in caplog.records)


def test_a_client_that_acknowledges_nothing_is_kept_nothing_for() -> None:
    """It may never have heard of resuming; the server must not grow for it."""
    app = create_app(Counter)
    (manager,) = app.state.openenv_managers
    with serving(app) as url, raw(url, Sec_WebSocket_Protocol="openenv.v1.json") as client:
        client.text('{"type":"open"}')
        for number in range(1, 40):
            data = {"what": "large", "value": 100_000}
            client.text(json.dumps({"type": "step", "id": number, "data": data}))
            while f'"id":{number}' not in client.read().payload[:200].decode():
                pass
        (connection,) = manager.connections.values()
        assert connection._buffer.kept_bytes < 2**21


def test_bodies_and_answers_over_http_have_the_same_limit() -> None:
    with serving(create_app(Counter, limits=SMALL)) as url, httpx.Client(base_url=url) as client:
        client.post("/reset")
        large = {"action": {"what": "echo", "value": "x" * 2 * LIMIT}}
        refused = client.post("/step", json=large)
        assert refused.status_code == 413
        assert refused.json()["code"] == "TOO_LARGE" and refused.json()["limit"] == LIMIT
        asked = client.post("/step", json={"action": {"what": "large", "value": 2 * LIMIT}})
        assert asked.json()["code"] == "TOO_LARGE" and asked.json()["size"] > 2 * LIMIT
        assert client.post("/step", json={"action": {}}).json()["reward"] == 2.0


@pytest.mark.slow
def test_a_program_that_ends_without_closing_frees_its_slots(log: Log) -> None:
    """Its clients say goodbye at the end, so that the next one need not wait for the grace."""
    program = """
import sys
from openenv import GenericEnvClient, VectorEnv
client, envs = GenericEnvClient(base_url=sys.argv[1]), VectorEnv(sys.argv[1], 3)
client.reset(), envs.reset()
"""
    with serving(create_app(Counter, max_concurrent_envs=4)) as url:
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program, url], env=environ(), check=True
        )
        wait_until(lambda: log.count("close") == 4)
