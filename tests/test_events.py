from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import Field
from support.servers import serving
from support.waiting import wait_until

from openenv import Action, Environment, NotSupported, Observation, State, create_app
from openenv.client.generic import GenericEnvClient
from openenv.events import MAX_WAITING, Event, EventQueue
from openenv.tools import MCPEnvironment, tool

# ------------------------------------------------------------------ the queue


def kinds(queue: EventQueue) -> list[str]:
    return [event.kind for event in queue.due()]


def test_a_static_world_has_none() -> None:
    queue = EventQueue()
    queue.advance()
    assert queue.due() == []
    assert len(queue) == 0


def test_what_is_scheduled_comes_in_the_order_of_its_time() -> None:
    queue = EventQueue()
    queue.schedule("late", after=2)
    queue.schedule("early", {"n": 1}, after=1)
    queue.push("now")
    assert kinds(queue) == ["now"]
    queue.advance(0.5)
    assert kinds(queue) == []
    queue.advance(5)
    assert queue.due() == [Event(kind="early", data={"n": 1}, at=1), Event(kind="late", at=2)]


@pytest.mark.parametrize("after", [-1, float("nan"), float("inf")])
def test_a_time_that_is_none_is_refused(after: float) -> None:
    with pytest.raises(ValueError, match=r"after=.*units of time from 0"):
        EventQueue().schedule("x", after=after)


def drawn(seed: int | None) -> list[Event]:
    queue = EventQueue()
    queue.begin(seed)
    queue.arrivals("mail", per_unit=0.5, data=lambda drawn: {"size": drawn.randrange(1000)})
    queue.arrivals("rain", per_unit=0.1)
    found: list[Event] = []
    for _ in range(100):
        queue.advance()
        found += queue.due()
    return found


def test_arrivals_are_those_of_the_seed() -> None:
    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)
    assert drawn(None) != drawn(None)
    mail = [event for event in drawn(7) if event.kind == "mail"]
    assert 30 <= len(mail) <= 75  # 50 on average
    assert [event.at for event in drawn(7)] == sorted(event.at for event in drawn(7))


def test_a_rate_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"per_unit=0; it must be a positive number"):
        EventQueue().arrivals("x", per_unit=0)


def test_a_new_episode_begins_with_nothing() -> None:
    queue = EventQueue()
    queue.schedule("old", after=1)
    queue.arrivals("old", per_unit=1)
    queue.advance(0.5)
    queue.begin(0)
    assert (queue.now, len(queue)) == (0.0, 0)


def test_real_time_goes_by_itself_and_knows_no_episodes() -> None:
    queue = EventQueue()
    queue.use_real_time()
    began = time.monotonic()
    queue.schedule("soon", after=0.02)
    queue.begin(0)
    assert heard_first(lambda: kinds(queue)) == ["soon"]
    assert time.monotonic() - began >= 0.02


def heard_first(ask: Callable[[], list[str]]) -> list[str]:
    """Ask until something is heard; return it."""
    heard: list[str] = []

    def is_heard() -> bool:
        heard.extend(ask())
        return bool(heard)

    wait_until(is_heard)
    return heard


def test_pushes_of_many_threads_all_arrive() -> None:
    queue = EventQueue()

    def push() -> None:
        for _ in range(500):
            queue.push("x")

    threads = [threading.Thread(target=push) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(queue.due()) == 4000


@pytest.mark.slow
def test_a_queue_that_nobody_empties_refuses_more() -> None:
    queue = EventQueue()
    for _ in range(MAX_WAITING):
        queue.push("x")
    with pytest.raises(OverflowError, match="does the environment take steps"):
        queue.push("x")


# ------------------------------------------------------------------ delivery


class Letters(Observation):
    letters: list[int] = Field(default_factory=list)


class Inbox(Environment[Action, Letters, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._letters: list[int] = []

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> Letters:
        self._letters = []
        self.events.arrivals("mail", per_unit=0.5, data=lambda r: {"size": r.randrange(1000)})
        return Letters()

    def on_event(self, event: Event) -> None:
        self._letters.append(event.data["size"])

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Letters:
        return Letters(letters=list(self._letters))

    @property
    def state(self) -> State:
        return State()


class AsyncInbox(Inbox):
    async def on_event(self, event: Event) -> None:  # type: ignore[override]
        super().on_event(event)

    async def step_async(
        self, action: Action, timeout_s: float | None = None, **kwargs: Any
    ) -> Letters:
        return self.step(action)


class TornInbox(Inbox):
    async def on_event(self, event: Event) -> None:  # type: ignore[override]
        super().on_event(event)


def play(factory: Any, seed: int) -> list[list[int]]:
    with GenericEnvClient.local(factory).sync() as env:
        env.reset(seed=seed)
        return [env.step({}).observation["letters"] for _ in range(20)]


@pytest.mark.parametrize("factory", [Inbox, AsyncInbox])
def test_events_come_between_steps_and_are_those_of_the_seed(factory: Any) -> None:
    first = play(factory, 3)
    assert first == play(factory, 3) != play(factory, 4)
    assert len(first[-1]) >= 3
    assert [len(seen) for seen in first] == sorted(len(seen) for seen in first)


def test_who_drives_the_episode_is_told_of_them() -> None:
    with GenericEnvClient.local(Inbox).sync() as env:
        env.reset(seed=3)
        told = [env.step({}).info for _ in range(10)]
    events = [event for info in told if info for event in info["events"]]
    assert events
    assert {event["kind"] for event in events} == {"mail"}


def test_a_coroutine_that_hears_needs_one_that_steps() -> None:
    with (
        GenericEnvClient.local(TornInbox).sync() as env,
        pytest.raises(RuntimeError, match="on_event is a coroutine method, and step is none"),
    ):
        env.reset()


class StoredInbox(Inbox):
    def snapshot(self) -> bytes:
        return bytes(self._letters)

    def restore(self, snapshot: bytes) -> None:
        self._letters = list(snapshot)


def test_an_episode_with_events_is_replayed_and_not_stored() -> None:
    with GenericEnvClient.local(StoredInbox, journal=True).sync() as env:
        env.reset(seed=3)
        shown = [env.step({}).observation for _ in range(5)]
        with pytest.raises(NotSupported, match=r"has events to come.*snapshot\(replay=True\)"):
            env.snapshot()
        taken = env.snapshot(replay=True)
        shown += [env.step({}).observation for _ in range(5)]
        env.restore(taken)
        assert [env.step({}).observation for _ in range(5)] == shown[5:]


class Machine(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._heard: list[str] = []

    def on_event(self, event: Event) -> None:
        self._heard.append(event.kind)

    @tool
    def alarm(self, after: float) -> float:
        """Ring later."""
        self.events.schedule("ring", after=after)
        return self.events.now

    @tool
    def heard(self) -> list[str]:
        """What was heard."""
        return self._heard


@pytest.mark.slow
def test_calls_of_tools_hear_events_too_and_production_runs_in_real_time() -> None:
    def call(env: Any, name: str, **arguments: Any) -> Any:
        action = {"type": "call_tool", "tool_name": name, "arguments": arguments}
        return env.step(action).observation["result"]["data"]

    with GenericEnvClient.local(Machine).sync() as env:
        env.reset()
        assert call(env, "alarm", after=2) == 1.0
        assert call(env, "heard") == []
        assert call(env, "heard") == ["ring"]
    import httpx

    def post(url: str, session: str, name: str, **arguments: Any) -> Any:
        params = {"session_id": session, "name": name, "arguments": arguments}
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        return httpx.post(f"{url}/mcp", json=request).json()["result"]["data"]

    with serving(create_app(Machine, mode="production")) as url:
        create = {"jsonrpc": "2.0", "id": 1, "method": "openenv/session/create"}
        session = httpx.post(f"{url}/mcp", json=create).json()["result"]["session_id"]
        began = time.monotonic()
        assert 0 < post(url, session, "alarm", after=0.2) < 60
        assert heard_first(lambda: post(url, session, "heard")) == ["ring"]
        assert time.monotonic() - began >= 0.2
