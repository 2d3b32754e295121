"""`/metrics`: every number is what was really done."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from support.environments import AsyncCounter, Counter, CounterEnv
from support.probe import Ask, ProbeEnv, ProbeEnvironment
from support.stuck import Stuck
from support.waiting import wait_until
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from openenv import ConcurrencyConfig, Environment, create_app
from openenv.errors import CapacityError, ServerError, SessionFailed
from openenv.execution.metrics import BOUNDS_S, CallLatency, Histogram
from openenv.protocol.http import SESSION_HEADER

Serve = Callable[[Any], str]
Samples = dict[str, float]
parse_openmetrics: Any = openmetrics.text_string_to_metric_families


def scraped(url: str) -> Samples:
    """Every sample, by its name and its labels but that of the environment."""
    families = text_string_to_metric_families(httpx.get(f"{url}/metrics").text)
    return {
        " ".join([s.name, *(v for k, v in sorted(s.labels.items()) if k != "environment")]): s.value
        for family in families
        for s in family.samples
    }


def connected_to(url: str) -> ClientConnection:
    return connect(
        f"ws{url.removeprefix('http')}/ws", subprotocols=[Subprotocol("openenv.v1.json")]
    )


def play(url: str, *deeds: str) -> None:
    with CounterEnv(base_url=url) as env:
        env.reset()
        for what in deeds:
            try:
                env.step({"what": what} if what != "invalid" else {"what": 1})  # type: ignore[arg-type]
            except ServerError:
                assert what in ("raise", "invalid")
        env.state()


@pytest.mark.parametrize("version", ["0", "1"])
@pytest.mark.parametrize("environment", [Counter, AsyncCounter])
def test_calls_and_errors_are_counted(
    serve: Serve,
    version: str,
    environment: type[Environment[Any, Any, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENENV_PROTOCOL", version)
    url = serve(create_app(environment))
    play(url, *["count"] * 5, "raise", "invalid")
    wait_until(lambda: scraped(url)["openenv_sessions_closed_total client"] == 1)
    found = scraped(url)
    assert found["openenv_steps_total"] == 7
    assert found["openenv_resets_total"] == 1
    assert found["openenv_errors_total EXECUTION_ERROR"] == 1
    assert found["openenv_errors_total VALIDATION_ERROR"] == 1
    for name in ("openenv_request_seconds", "openenv_environment_seconds"):
        assert found[f"{name}_count step"] == found[f"{name}_bucket +Inf step"] == 7
        assert found[f"{name}_count reset"] == found[f"{name}_count state"] == 1
        assert 0 < found[f"{name}_sum step"] < 5
    whole, inside = "openenv_request_seconds_sum step", "openenv_environment_seconds_sum step"
    assert found[inside] <= found[whole]
    assert found["openenv_sessions_opened_total"] == 1
    assert found["openenv_slots_taken"] == 0 and found["openenv_slots"] == 64


@pytest.mark.slow
def test_time_in_the_environment_is_told_from_time_in_the_queue(serve: Serve) -> None:
    url = serve(create_app(Counter))
    sleep = '{"type":"step","id":%d,"data":{"what":"sleep","value":0.1}}'
    with connected_to(url) as socket:
        began = time.monotonic()
        socket.send(f'[{{"type":"open"}},{",".join(sleep % n for n in (1, 2, 3))}]')
        for _ in range(5):  # hello, opened, and one each
            socket.recv(10)
        took_s = time.monotonic() - began
    found = scraped(url)
    inside_s = found["openenv_environment_seconds_sum step"]
    assert 0.3 <= inside_s < took_s
    assert inside_s + 0.25 < found["openenv_request_seconds_sum step"] < 3 * took_s
    assert found["openenv_environment_seconds_bucket 0.05 step"] == 0
    assert found["openenv_environment_seconds_bucket 60.0 step"] == 3


def test_what_is_there_just_now_is_seen(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stuck, "let_go", threading.Event())
    url = serve(create_app(Stuck, max_concurrent_envs=2))
    with connected_to(url) as socket, CounterEnv(base_url=url) as env:
        env.reset()
        socket.send('{"type":"open"}')
        socket.send('{"type":"step","id":1,"data":{"what":"hang"}}')
        socket.send('{"type":"state","id":2}')
        wait_until(lambda: scraped(url)["openenv_calls waiting"] == 1)
        found = scraped(url)
        assert (found["openenv_sessions open"], found["openenv_slots_taken"]) == (2, 2)
        assert found["openenv_calls running"] == 1
        assert 0 < found["openenv_oldest_call_seconds"] < 5
        assert found["openenv_threads"] == 2
        with pytest.raises(CapacityError), CounterEnv(base_url=url, queue_timeout_s=0) as third:
            third.reset()
        Stuck.let_go.set()
    assert scraped(url)["openenv_errors_total CAPACITY_REACHED"] == 1


def test_bytes_and_frames_are_those_of_the_wire(serve: Serve) -> None:
    url = serve(create_app(Counter))
    sent, received = [], []
    with connect(f"ws{url.removeprefix('http')}/ws") as socket:
        for frame in ('{"type":"reset"}', '{"type":"state"}', "nonsense"):
            socket.send(frame)
            sent.append(frame)
            received.append(socket.recv(10))
    found = scraped(url)
    assert found["openenv_websocket_frames_total in"] == 3
    assert found["openenv_websocket_frames_total out"] == 3
    assert found["openenv_websocket_bytes_total in"] == sum(map(len, sent))
    assert found["openenv_websocket_bytes_total out"] == sum(map(len, received))
    assert found["openenv_errors_total INVALID_JSON"] == 1


@pytest.mark.slow
def test_sessions_end_for_a_reason(serve: Serve) -> None:
    config = ConcurrencyConfig(max_concurrent_envs=1, session_timeout=300)
    url = serve(create_app(Counter, concurrency_config=config))
    httpx.post(f"{url}/step", json={"action": {}})  # an environment of its own
    httpx.post(f"{url}/reset")
    named = httpx.post(f"{url}/reset")  # which the first gives way to
    httpx.post(f"{url}/step", json={"action": {}}, headers=_session(named))
    assert _closed(url) == {"request": 1, "evicted": 1}
    assert scraped(url)["openenv_sessions_opened_total"] == 3

    config = ConcurrencyConfig(max_concurrent_envs=1, session_timeout=0.2)
    url = serve(create_app(Counter, concurrency_config=config))
    httpx.post(f"{url}/reset")
    wait_until(lambda: _closed(url) == {"idle": 1})


def _closed(url: str) -> dict[str, float]:
    """How many sessions were closed, by reason."""
    name = "openenv_sessions_closed_total "
    found = {key.removeprefix(name): v for key, v in scraped(url).items() if key.startswith(name)}
    return {reason: count for reason, count in found.items() if count}


def _session(answer: httpx.Response) -> dict[str, str]:
    return {SESSION_HEADER: answer.headers[SESSION_HEADER]}


@pytest.mark.slow
def test_the_death_of_a_worker_is_counted(serve: Serve) -> None:
    url = serve(create_app(ProbeEnvironment, workers=1))
    with ProbeEnv(base_url=url) as env:
        env.reset()
        env.step(Ask(what="length", value="abc"))
        assert scraped(url)["openenv_environment_seconds_sum step"] > 0
        assert scraped(url)["openenv_workers ready"] == 1
        with pytest.raises(SessionFailed):
            env.step(Ask(what="kill"))
    wait_until(lambda: scraped(url)["openenv_worker_deaths_total"] == 1)
    wait_until(lambda: scraped(url)["openenv_sessions_closed_total crashed"] == 1)
    wait_until(lambda: scraped(url)["openenv_workers ready"] == 1, 20)
    with ProbeEnv(base_url=url) as env:
        env.reset()
        env.step(Ask(what="length", value="abc"))
    found = scraped(url)
    assert found["openenv_steps_total"] == found["openenv_environment_seconds_count step"] == 3
    assert found["openenv_errors_total SESSION_ERROR"] == found["openenv_worker_deaths_total"] == 1
    assert found["openenv_workers wanted"] == 1


def test_the_format_is_the_one_that_is_asked_for(serve: Serve) -> None:
    url = serve(create_app(Counter))
    plain = httpx.get(f"{url}/metrics")
    assert plain.headers["content-type"].startswith("text/plain; version=")
    wanted = {"Accept": "application/openmetrics-text; version=1.0.0"}
    modern = httpx.get(f"{url}/metrics", headers=wanted)
    assert modern.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert modern.text.endswith("# EOF\n")
    names = {family.name for family in parse_openmetrics(modern.text)}
    assert {"openenv_steps", "openenv_request_seconds", "process_cpu_seconds"} <= names


def test_what_others_count_is_shown() -> None:
    app = create_app(Counter)
    [manager] = app.state.openenv_managers
    counters = manager.counters
    counters.resumes, counters.refused_resumes = 1, 2
    counters.queue_timeouts, counters.step_timeouts = 5, 6
    counters.slow_readers_cut = 7
    counters.queue_wait.observe([0.2])
    found = _sampled(app)
    assert found["openenv_resumes_total"] == 1
    assert found["openenv_resumes_refused_total"] == 2
    assert found["openenv_queue_timeouts_total"] == 5
    assert found["openenv_step_timeouts_total"] == 6
    assert found["openenv_slow_readers_cut_total"] == 7
    assert found["openenv_queue_wait_seconds_bucket 0.25"] == 1
    assert found["openenv_queue_wait_seconds_bucket 0.1"] == 0


def _sampled(app: FastAPI) -> Samples:
    from support.servers import serving

    with serving(app) as url:
        return scraped(url)


DURATIONS = [bound * factor for bound in BOUNDS_S for factor in (0.99, 1.0)] * 20 + [1000.0]


def _holds_all(histogram: Histogram) -> bool:
    is_all = histogram.count == len(DURATIONS)
    is_all = is_all and histogram.counts == [40] * len(BOUNDS_S) + [1]
    return is_all and histogram.sum_s == pytest.approx(sum(DURATIONS))


def test_a_histogram_counts_what_it_was_given() -> None:
    at_once, one_by_one = Histogram(), Histogram()
    at_once.observe(DURATIONS[::-1])
    for duration in DURATIONS:
        one_by_one.observe([duration])
    assert _holds_all(at_once) and _holds_all(one_by_one)


def test_calls_are_counted_in_batches_and_when_somebody_looks() -> None:
    latency = CallLatency()
    for duration in DURATIONS:
        latency.uncounted += (duration, 0.0)
        if duration in DURATIONS[::100]:
            latency.count()
    assert _holds_all(latency.whole)
    assert latency.inside.counts[0] == len(DURATIONS)
