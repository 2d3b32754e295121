"""Applications that are called from several event loops, as test clients do: which one the
sessions live on.
"""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import textwrap
import threading
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.testclient import TestClient
from support.servers import serving
from support.shown import Say, Talker
from support.waiting import wait_until

from openenv import Environment, Observation, State, create_app
from openenv.protocol.http import SESSION_HEADER
from openenv.server.workers import managers_of

HOME = "openenv-home"
STREAM = "application/json, text/event-stream"


class Where(Observation):
    """The number of the step, and the thread that took it."""

    steps: int
    thread: str


class Waiting(Environment[Say, Where, State]):
    """Waits on the event loop in each call, for something that was made in another."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    closed: int = 0

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    async def reset_async(self, **_: Any) -> Where:  # type: ignore[override]
        self.lock, self.steps = asyncio.Lock(), 0
        return await self._where()

    async def step_async(self, action: Say, **_: Any) -> Where:  # type: ignore[override]
        self.steps += 1
        return await self._where()

    async def _where(self) -> Where:
        async with self.lock:
            await asyncio.sleep(0)
        return Where(steps=self.steps, thread=threading.current_thread().name)

    def reset(self, **_: Any) -> Where:  # type: ignore[override]
        raise NotImplementedError

    def step(self, action: Say, **_: Any) -> Where:  # type: ignore[override]
        raise NotImplementedError

    @property
    def state(self) -> State:
        return State(step_count=self.steps)

    def close(self) -> None:
        type(self).closed += 1


def home_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == HOME]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Any:
    yield
    gc.collect()
    wait_until(lambda: not home_threads())


@pytest.mark.parametrize("workers", [None, 1], ids=["here", "workers"])
def test_a_test_client_without_with_plays_an_episode(workers: int | None) -> None:
    client = TestClient(create_app(Talker, max_concurrent_envs=1, workers=workers))
    sessions = set()
    for _ in range(2):
        assert client.post("/reset", json={"words": ["so"]}).status_code == 200
        step = client.post("/step", json={"action": {"word": "hi"}})
        assert step.json()["observation"]["words"] == ["so", "hi"]
        assert client.get("/state").json()["step_count"] == 2
        assert client.post("/step", json={"action": {}}).status_code == 422
        sessions.add(step.headers[SESSION_HEADER])
    assert len(sessions) == 1
    assert client.get("/health").json() == {"status": "healthy"}
    assert client.delete("/session").json()["closed"]
    if workers:  # which end with the application
        del client
        gc.collect()


def test_its_page_and_its_sockets_are_served_too() -> None:
    client = TestClient(create_app(Talker, web=True))
    for words in (["so"], ["well"]):
        assert client.post("/web/reset", json={"words": words}).status_code == 200
        step = client.post("/web/step", json={"action": {"word": "hi"}}).json()
        assert step["observation"]["words"] == [*words, "hi"]
        assert client.get("/web/state").json()["step_count"] == 2
    with client.websocket_connect("/ws/ui") as told, client.websocket_connect("/ws") as socket:
        assert told.receive_json()["episode_state"]["step_count"] == 1
        client.post("/web/step", json={"action": {"word": "ho"}})
        assert told.receive_json()["episode_state"]["step_count"] == 2
        socket.send_json({"type": "reset", "data": {}})
        assert socket.receive_json()["type"] == "observation"
        socket.send_json({"type": "step", "data": {"word": "hi"}})
        assert socket.receive_json()["data"]["observation"]["words"] == ["hi"]
        (session,) = [s for s in managers_of(client.app)[0].sessions() if s.attachments]
    wait_until(lambda: session not in managers_of(client.app)[0].sessions())
    assert client.get("/web/about").status_code == 200


def test_mcp_is_served_too() -> None:
    client = TestClient(create_app(Talker))
    greeting = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {}}
    greeting["clientInfo"] = {"name": "a test", "version": "1"}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": greeting}
    for _ in range(2):
        answer = client.post("/mcp", json=message, headers={"Accept": STREAM})
        assert answer.status_code == 200
        assert '"serverInfo"' in answer.text
        named = {"Mcp-Session-Id": answer.headers["mcp-session-id"]}
        assert client.delete("/mcp", headers=named).status_code == 200


def test_loops_that_come_and_go_share_an_asynchronous_environment() -> None:
    app = create_app(Waiting)

    async def post(path: str, body: Any, **headers: str) -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://it") as client:
            return (await client.post(path, json=body, headers=headers)).raise_for_status()

    begun = asyncio.run(post("/reset", {}))
    named = {SESSION_HEADER: begun.headers[SESSION_HEADER]}
    for number in (1, 2):
        step = asyncio.run(post("/step", {"action": {"word": "hi"}}, **named))
        assert step.json()["observation"] == {"metadata": {}, "steps": number, "thread": HOME}


def test_a_request_that_is_cancelled_ends_where_it_is_answered() -> None:
    app = create_app(Waiting)

    async def leave() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://it") as client:
            await asyncio.wait_for(client.post("/reset", json={"seed": "x" * 8}), 0)

    with pytest.raises(TimeoutError if sys.version_info >= (3, 11) else asyncio.TimeoutError):
        asyncio.run(leave())
    assert TestClient(app).post("/reset", json={}).status_code == 200


def test_with_a_lifespan_the_sessions_live_on_its_loop_also_for_others() -> None:
    app = create_app(Waiting)
    earlier = TestClient(app)
    assert earlier.post("/reset", json={}).json()["observation"]["thread"] == HOME
    with TestClient(app) as client:  # what was begun goes on, and ends with this
        step = {"action": {"word": "hi"}}
        client.cookies = earlier.cookies
        assert client.post("/step", json=step).status_code == 200
    assert not managers_of(app)[0].sessions()
    wait_until(lambda: not home_threads())
    with TestClient(app) as client:
        here = client.post("/reset", json={}).json()["observation"]["thread"]
        assert here != HOME
        other = TestClient(app)  # from another loop
        assert other.post("/reset", json={}).json()["observation"]["thread"] == here
    assert TestClient(app).post("/reset", json={}).json()["observation"]["thread"] == HOME


def test_a_server_that_mounts_an_application_keeps_it_on_its_loop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outer, threads = FastAPI(), set()

    async def passed_on(request: Any, call_next: Any) -> Any:
        threads.add(threading.current_thread().name)
        return await call_next(request)

    outer.add_middleware(BaseHTTPMiddleware, dispatch=passed_on)
    outer.mount("/env", create_app(Waiting, max_concurrent_envs=1))
    with serving(outer) as url:
        told = httpx.post(f"{url}/env/reset", json={}).json()
        assert {told["observation"]["thread"]} == threads != {HOME}
    # That server has ended, and could not shut down what is mounted: its session takes no slot.
    inside = TestClient(outer)
    for _ in range(2):
        began = inside.post("/env/reset", json={})
        assert began.json()["observation"]["thread"] == HOME
        assert SESSION_HEADER in began.headers
        inside.cookies.clear()
    assert "1 sessions are given up" in caplog.text


def test_what_a_user_has_added_runs_where_it_is_called() -> None:
    app = create_app(Waiting)

    @app.get("/mine")
    async def mine() -> str:
        return threading.current_thread().name

    client = TestClient(app)
    client.post("/reset", json={})
    assert client.get("/mine").json() != HOME


def test_the_environments_end_with_the_application() -> None:
    before = Waiting.closed
    client = TestClient(create_app(Waiting))
    client.post("/reset", json={})
    assert Waiting.closed == before
    del client
    gc.collect()
    wait_until(lambda: Waiting.closed == before + 1)


def test_the_environments_end_with_the_program() -> None:
    program = """
        from starlette.testclient import TestClient
        from support.shown import Talker
        from openenv import create_app

        class Closing(Talker):
            def close(self):
                print("closed")

        client = TestClient(create_app(Closing))
        client.post("/reset", json={}).raise_for_status()
    """
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(program)]
    paths = ":".join(sys.path)
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=30, env={"PYTHONPATH": paths}, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "closed\n", "")
