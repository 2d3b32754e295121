"""A trace goes from the client's call through the server into the environment."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from support.commands import openenv_running
from support.environments import AsyncCounter, Counter, CounterEnv, Do
from support.waiting import wait_until

from openenv import Environment, ExecutionFailed, create_app
from openenv.protocol.messages import Request
from openenv.protocol.v1.codec import codec_named

Serve = Callable[[Any], str]
TESTS = Path(__file__).parents[1]


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """What the program's tracer provider exports; there is none after the test."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exporter
    provider.shutdown()


def spans(exporter: InMemorySpanExporter, count: int) -> dict[str, ReadableSpan]:
    """What was exported, by name, once there are as many."""
    wait_until(lambda: len(ours(exporter)) >= count)
    found = ours(exporter)
    assert len(found) == count, [span.name for span in found]
    return {span.name: span for span in found}


def ours(exporter: InMemorySpanExporter) -> list[ReadableSpan]:
    """What was exported; FastAPI has spans of its own, for each connection."""
    frames = ("WS ", "POST ", "fastapi.")
    return [s for s in exporter.get_finished_spans() if not s.name.startswith(frames)]


def is_child(child: ReadableSpan, parent: ReadableSpan) -> bool:
    assert child.context is not None and parent.context is not None and child.parent is not None
    ids = (child.parent.span_id, child.context.trace_id)
    return ids == (parent.context.span_id, parent.context.trace_id)


class Traced(Counter):
    """Makes a span of its own."""

    def step(self, action: Do, timeout_s: float | None = None) -> Any:  # type: ignore[override]
        with trace.get_tracer("of the environment").start_as_current_span("physics"):
            return super().step(action)


class TracedAsync(AsyncCounter):
    async def step(self, action: Do) -> Any:  # type: ignore[override]
        with trace.get_tracer("of the environment").start_as_current_span("physics"):
            return await super().step(action)


@contextmanager
def episode(
    serve: Serve, exported: InMemorySpanExporter, environment: type[Environment[Any, Any, Any]]
) -> Iterator[CounterEnv]:
    """A client that has reset; of that nothing is left in what is exported."""
    with CounterEnv(base_url=serve(create_app(environment))) as env:
        env.reset()
        spans(exported, 3)
        exported.clear()
        yield env


@pytest.mark.parametrize("environment", [Traced, TracedAsync])
def test_the_spans_of_a_step_hang_together(
    serve: Serve,
    exported: InMemorySpanExporter,
    environment: type[Environment[Any, Any, Any]],
) -> None:
    with episode(serve, exported, environment) as env:
        with trace.get_tracer("of the trainer").start_as_current_span("rollout"):
            env.step(Do())
        found = spans(exported, 5)
    by_name = [s for s in ours(exported) if s.name == "openenv.step"]
    client, server = sorted(by_name, key=lambda span: span.kind is SpanKind.SERVER)
    assert (client.kind, server.kind) == (SpanKind.CLIENT, SpanKind.SERVER)
    assert is_child(client, found["rollout"])
    assert is_child(server, client)
    assert is_child(found["environment.step"], server)
    assert is_child(found["physics"], found["environment.step"])
    assert server.attributes is not None
    assert server.attributes["openenv.environment"] == environment.__name__
    assert server.attributes["openenv.session_id"]


@pytest.mark.parametrize("environment", [Counter, AsyncCounter])
def test_a_failure_marks_every_span_and_tells_no_text(
    serve: Serve,
    exported: InMemorySpanExporter,
    environment: type[Environment[Any, Any, Any]],
) -> None:
    with episode(serve, exported, environment) as env:
        with pytest.raises(ExecutionFailed) as caught:
            env.step(Do(what="raise"))
        spans(exported, 3)
        found = ours(exported)
    assert {span.status.status_code for span in found} == {StatusCode.ERROR}
    [server] = [span for span in found if span.kind is SpanKind.SERVER]
    assert server.attributes is not None
    assert server.attributes["openenv.incident"] == caught.value.incident
    assert "kaboom" not in "".join(span.to_json() for span in found)


def test_a_header_carries_a_trace_over_http(serve: Serve, exported: InMemorySpanExporter) -> None:
    url = serve(create_app(Counter))
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    httpx.post(f"{url}/reset", headers={"traceparent": parent})
    found = spans(exported, 2)
    server = found["openenv.reset"]
    assert server.context is not None
    assert server.context.trace_id == 0x0AF7651916CD43DD8448EB211C80319C
    assert is_child(found["environment.reset"], server)


@pytest.mark.parametrize("where", ["header", "meta"])
def test_a_call_of_a_tool_by_mcp_carries_a_trace(
    serve: Serve, exported: InMemorySpanExporter, where: str
) -> None:
    url, parent = serve(create_app(Counter)), f"00-{'ab' * 16}-{'cd' * 8}-01"
    meta: dict[str, Any] = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "a", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "do",
    }
    if where == "header":
        headers["traceparent"] = parent
    else:
        meta["traceparent"] = parent
    params = {"name": "do", "arguments": {}, "_meta": meta}
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = httpx.post(f"{url}/mcp", json=request, headers=headers, timeout=30).json()
    assert answer["result"]["isError"] is False
    of_ours = [s for s in exported.get_finished_spans() if s.context.trace_id == int("ab" * 16, 16)]
    assert {"openenv.tools", "environment.step"} <= {span.name for span in of_ours}


def test_version_0_carries_nothing(
    serve: Serve, exported: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENENV_PROTOCOL", "0")
    with CounterEnv(base_url=serve(create_app(Counter))) as env:
        env.reset()
        env.state()
    assert {span.kind for span in ours(exported)} == {SpanKind.CLIENT}


def test_a_step_in_a_worker_process_is_traced_up_to_the_server(
    serve: Serve, exported: InMemorySpanExporter
) -> None:
    with CounterEnv(base_url=serve(create_app(Counter, workers=1))) as env:
        env.reset()
        spans(exported, 2)
        client, server = sorted(ours(exported), key=lambda span: span.kind is SpanKind.SERVER)
        assert is_child(server, client)


@pytest.mark.slow
def test_a_trace_goes_on_in_a_worker_process_that_traces_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPANS", str(tmp_path))
    command = ("serve", "support.traced_app:Traced", "--workers=1", "--port=0", "--json")
    with openenv_running(*command, cwd=TESTS, log=tmp_path / "log") as server:
        parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        url = server.first_line()["url"]
        httpx.post(f"{url}/reset", headers={"traceparent": parent}).raise_for_status()
        wait_until(lambda: len(written(tmp_path)) == 2)
        serving, making = written(tmp_path).values()
    assert (serving["name"], making["name"]) == ("openenv.reset", "environment.reset")
    assert making["parent_id"] == serving["context"]["span_id"]
    assert making["context"]["trace_id"] == "0x0af7651916cd43dd8448eb211c80319c"


def written(directory: Path) -> dict[str, Any]:
    """The spans that processes have written of our own, the server's first, by the process."""
    found = {
        file.name: span
        for file in directory.iterdir()
        if file.name.isdigit()
        for span in map(json.loads, file.read_text().splitlines())
        if span["name"].startswith(("openenv.", "environment."))
    }
    return dict(sorted(found.items(), key=lambda item: item[1]["name"], reverse=True))


def test_it_can_be_turned_off(
    serve: Serve, exported: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENENV_OTEL", "0")
    with CounterEnv(base_url=serve(create_app(Counter))) as env:
        env.reset()
        assert ours(exported) == []


def test_a_trace_that_is_none_harms_nobody(serve: Serve, exported: InMemorySpanExporter) -> None:
    with CounterEnv(base_url=serve(create_app(Counter))) as env:
        env._session._tracer = None  # so that what is sent is ours
        request = Request("reset", trace="nonsense \x00")
        env.connect()
        from openenv.client import background

        background.run(env._session.request(request))
        [server] = [s for s in ours(exported) if s.kind is SpanKind.SERVER]
        assert server.parent is None


def test_a_request_without_a_trace_is_what_it_was() -> None:
    codec = codec_named("openenv.v1.json")
    assert json.loads(codec.encode_requests([Request("state", id=1)])) == {"type": "state", "id": 1}


@pytest.mark.slow
def test_nothing_of_it_is_imported_where_nobody_traces() -> None:
    code = """
import sys
from openenv import Action, EnvClient, Environment, Observation, State

class Still(Environment[Action, Observation, State]):
    state = State()
    def reset(self): return Observation()
    def step(self, action): return Observation()

class StillEnv(EnvClient[Action, Observation, State]): ...

with StillEnv.local(Still) as env:
    env.reset()
    env.step(Action())
assert not any(name.startswith("opentelemetry") for name in sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
