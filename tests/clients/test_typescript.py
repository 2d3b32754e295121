"""The client in TypeScript, beyond the suite of behaviour: what breaks, waits or is refused."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections import Counter as Counted
from collections.abc import Callable, Iterator
from typing import Annotated, Any, ClassVar

import numpy as np
import pytest
from support.dice import StoredDice
from support.environments import Counter, Do, Log, Progress, Seen
from support.probe import ProbeEnvironment
from support.relay import Relay
from support.servers import serving
from support.stuck import Alone, Stuck
from support.typescript import PACKAGE, Driver, TypeScriptEnv, built, run
from support.waiting import eventually, wait_until
from support.workshop import Workshop

from openenv import Action, Environment, Observation, State, create_app
from openenv.arrays import Array
from openenv.errors import (
    AuthenticationError,
    CapacityError,
    ConnectError,
    ExecutionFailed,
    MessageTooLarge,
    NotSupported,
    PermissionRefused,
    ResponseTimeout,
    SessionBusy,
    SessionFailed,
    SessionLost,
    StepTimeout,
    ToolFailed,
)
from openenv.execution.limits import Limits
from openenv.execution.principal import Role
from openenv.server import Key
from openenv.tools import MCPEnvironment, tool

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(240)]

CODECS = ("msgpack", "json")  # of version 1
ALL = (*CODECS, "none")

Serve = Callable[[Any], str]
Client = Callable[..., TypeScriptEnv]


@pytest.fixture(params=ALL)
def codec(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def client(driver: Driver, codec: str) -> Client:
    return lambda url, **options: TypeScriptEnv(driver, url, codec, options)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    log = Log()
    monkeypatch.setattr(Counter, "log", log)
    return log


@pytest.fixture
def relay(serve: Serve) -> Iterator[Relay]:
    relay = Relay(serve(create_app(Counter, Do, Seen, state_cls=Progress)))
    yield relay
    relay.close()


v1 = pytest.mark.parametrize("codec", CODECS, indirect=True)
v0 = pytest.mark.parametrize("codec", ["none"], indirect=True)


# ------------------------------------------------------------------ sockets that are silent


class QuietRelay(Relay):
    """A relay that can drop what comes by the connections that there are, and keeps them open."""

    def __init__(self, url: str) -> None:
        self._stopped: list[threading.Event] = []
        super().__init__(url)

    def silence(self) -> None:
        """Pass nothing on any more; connections that come later are not concerned."""
        stopped = [self._down, self._up]
        self._down, self._up = threading.Event(), threading.Event()
        self.release()
        for flows in stopped:
            flows.clear()
        self._stopped += stopped

    def close(self) -> None:
        for flows in self._stopped:
            flows.set()
        super().close()


@pytest.fixture
def quiet(serve: Serve) -> Iterator[QuietRelay]:
    relay = QuietRelay(serve(create_app(Counter, Do, Seen, state_cls=Progress)))
    yield relay
    relay.close()


@v1
async def test_a_silent_connection_is_resumed_and_its_step_taken_once(
    quiet: QuietRelay, client: Client, log: Log
) -> None:
    """It used to be silent for ever: one call after the other timed out."""
    async with client(quiet.url, silenceTimeoutS=0.6) as env:
        await env.reset()
        for number in range(1, 4):
            quiet.silence()
            assert (await env.step(Do())).observation.text == f"step {number}"
        assert (await env.state()).step_count == 3
    assert (log.count("init"), log.count("step"), quiet.connections) == (1, 3, 4)


@v1
async def test_an_answer_that_a_silent_connection_has_lost_comes_by_the_next(
    quiet: QuietRelay, client: Client, log: Log
) -> None:
    async with client(quiet.url, silenceTimeoutS=0.6) as env:
        other = await env.new_session()
        await env.reset()
        await other.reset()
        asyncio.get_running_loop().call_later(0.2, quiet.silence)
        slow, quick = await asyncio.gather(env.step(Do(what="sleep", value=0.5)), other.step(Do()))
        assert (slow.observation.text, quick.observation.text) == ("step 1", "step 1")
        assert (await env.step(Do())).observation.text == "step 2"
        await other.close()
    assert log.count("step") == 3


@v1
async def test_silence_of_one_way_ends_when_the_network_is_there_again(
    relay: Relay, client: Client, log: Log
) -> None:
    """Attempts to resume hang as well, until then; none of them ends the sessions."""
    async with client(relay.url, silenceTimeoutS=0.6, connectTimeoutS=0.5) as env:
        await env.reset()
        relay.hold()
        asyncio.get_running_loop().call_later(2.5, relay.release)
        assert (await env.step(Do())).observation.text == "step 1"
    assert log.count("step") == 1 and relay.connections > 2


@v1
async def test_calls_that_timed_out_go_on_once_silence_is_noticed(
    quiet: QuietRelay, client: Client, log: Log
) -> None:
    async with client(quiet.url, silenceTimeoutS=1.2, messageTimeoutS=0.4) as env:
        await env.reset()
        quiet.silence()
        with pytest.raises(ResponseTimeout):
            await env.step(Do())
        await eventually(lambda: quiet.connections == 2)
        assert (await env.reset()).observation.text == "ready"
        assert (await env.step(Do())).observation.text == "step 1"
    assert log.count("step") == 2


async def test_a_long_step_is_no_silence(quiet: QuietRelay, client: Client, log: Log) -> None:
    async with client(quiet.url, silenceTimeoutS=0.5) as env:
        await env.reset()
        slow = await env.step(Do(what="sleep", value=2.0))
        assert slow.observation.text == "step 1"
        await asyncio.sleep(1.0)  # silence is none where nothing is awaited
        assert (await env.step(Do())).observation.text == "step 2"
    assert log.count("step") == 2


@v0
async def test_silence_loses_an_episode_of_version_0_and_a_reset_begins_another(
    relay: Relay, client: Client, log: Log
) -> None:
    async with client(relay.url, silenceTimeoutS=0.6) as env:
        await env.reset()
        relay.hold()
        with pytest.raises(SessionLost, match=r"nothing came for 0\.6 s.*reset\(\)"):
            await env.step(Do())
        relay.cut_and_release()
        assert (await env.reset()).observation.text == "ready"
        assert (await env.step(Do())).observation.text == "step 1"


@v0
async def test_a_reset_in_version_0_leaves_a_silent_connection_though_its_server_is_there(
    quiet: QuietRelay, client: Client, log: Log
) -> None:
    """Before a call is given up, nobody can tell the silence from a long step."""
    async with client(quiet.url, silenceTimeoutS=0.9, messageTimeoutS=2.5) as env:
        await env.reset()
        quiet.silence()
        with pytest.raises(ResponseTimeout):
            await env.step(Do())
        assert (await env.reset()).observation.text == "ready"
        assert (await env.step(Do())).observation.text == "step 1"


# ------------------------------------------------------------------ sockets that break


@v1
async def test_an_episode_goes_on_where_it_was(relay: Relay, client: Client, log: Log) -> None:
    async with client(relay.url) as env:
        await env.reset()
        for number in range(1, 8):
            assert (await env.step(Do())).observation.text == f"step {number}"
            relay.cut()
        assert (await env.state()).step_count == 7
    assert relay.connections > 1, "it has been cut"
    assert (log.count("init"), log.count("step")) == (1, 7)


@v1
async def test_a_step_under_way_is_taken_once_and_answered(
    relay: Relay, client: Client, log: Log
) -> None:
    async with client(relay.url) as env:
        await env.reset()
        asyncio.get_running_loop().call_later(0.15, relay.cut)
        slow = await env.step(Do(what="sleep", value=0.5))
        assert slow.observation.text == "step 1"
        assert (await env.step(Do())).observation.text == "step 2"
    assert log.count("step") == 2


@v1
@pytest.mark.parametrize("upwards", [False, True])
async def test_what_is_lost_on_the_way_is_sent_again(
    relay: Relay, client: Client, log: Log, *, upwards: bool
) -> None:
    async with client(relay.url) as env:
        await env.reset()
        relay.hold(upwards=upwards)
        loop = asyncio.get_running_loop()
        loop.call_later(0.1, relay.cut_and_release)
        steps = [env.step(Do(what="echo", value=i)) for i in range(5)]
        results = await asyncio.gather(*steps)
        assert [result.observation.value for result in results] == list(range(5))
    assert log.count("step") == 5


@pytest.mark.extended("test_schedules.py shows the same of the client in Python")
@v1
async def test_every_step_of_many_sessions_is_taken_once_whenever_it_breaks(
    relay: Relay, client: Client, log: Log
) -> None:
    chance = random.Random(20261125)
    steps, sessions = 40, 6

    async def breaking() -> None:
        while True:
            await asyncio.sleep(chance.uniform(0.0, 0.03))
            chance.choice([relay.cut, relay.cut_near])()

    async def playing(env: TypeScriptEnv) -> list[str]:
        short = Do(what="sleep", value=0.01)
        return [(await env.step(short)).observation.text for _ in range(steps)]

    async with client(relay.url) as first:
        envs = [first, *[await first.new_session() for _ in range(sessions - 1)]]
        await asyncio.gather(*(env.reset() for env in envs))
        trouble = asyncio.ensure_future(breaking())
        played = await asyncio.gather(*map(playing, envs))
        trouble.cancel()
        for texts in played:
            assert texts == [f"step {i}" for i in range(1, steps + 1)]
        await asyncio.gather(*(env.close() for env in envs))
    assert log.count("step") == steps * sessions
    assert relay.connections > 10, f"it broke {relay.connections} times"


async def test_a_session_that_is_gone_is_not_replaced_in_silence(
    relay: Relay, client: Client, serve: Serve
) -> None:
    async with client(relay.url) as env:
        await env.reset()
        relay.lead_to(serve(create_app(Counter, Do, Seen, state_cls=Progress)))
        relay.cut()
        with pytest.raises(SessionLost, match=r"reset\(\)"):
            for _ in range(100):  # version 0 may not have noticed yet
                await env.step(Do())
        with pytest.raises(SessionLost):
            await env.step(Do())
        assert (await env.reset()).observation.text == "ready"
        assert (await env.step(Do())).observation.text == "step 1"


@v1
async def test_a_client_that_comes_too_late_has_lost_its_session(client: Client) -> None:
    limits = Limits(resume_grace_s=0.5)
    with serving(create_app(Counter, Do, Seen, state_cls=Progress, limits=limits)) as url:
        relay = Relay(url)
        async with client(relay.url) as env:
            await env.reset()
            relay.refuse()
            relay.cut()
            with pytest.raises(SessionLost):
                await env.step(Do())
            relay.accept_again()
            assert (await env.reset()).observation.text == "ready"
        relay.close()


async def test_a_server_that_stops_says_so(client: Client) -> None:
    with serving(create_app(Counter, Do, Seen, state_cls=Progress)) as url:
        env = await client(url).connect()
        await env.reset()
    with pytest.raises(SessionLost, match="1012"):
        await env.step(Do())
    with pytest.raises(ConnectError):
        await env.reset()
    await env.close()


@v1
async def test_an_environment_that_crashes_ends_its_own_session_only(client: Client) -> None:
    with serving(create_app(ProbeEnvironment, workers=1)) as url:
        async with client(url) as env:
            other = await env.new_session()
            await env.call("reset", {})
            with pytest.raises(SessionFailed) as caught:
                await env.call("step", {"what": "exit", "value": 3}, {})
            assert caught.value.data["exit_code"] == 3
            with pytest.raises(SessionLost, match="ended the session"):
                await env.call("step", {"what": "length", "value": "ab"}, {})
            for one in (env, other):
                await one.call("reset", {})
                result = await one.call("step", {"what": "length", "value": "ab"}, {})
                assert result["observation"]["value"] == 2
            await other.close()


# ------------------------------------------------------------------ callers that give up

SLOW = Do(what="sleep", value=0.4)
SLOW_FIELDS = SLOW.model_dump(mode="json")


@v1
async def test_a_step_that_timed_out_is_answered_when_it_is_made_again(
    serve: Serve, client: Client, log: Log
) -> None:
    """It used to be `SessionLost`, though its answer has a number by which it is known."""
    url = serve(create_app(Counter, Do, Seen, state_cls=Progress))
    async with client(url, messageTimeoutS=0.25) as env:
        await env.reset()
        with pytest.raises(ResponseTimeout):
            await env.step(SLOW)
        assert (await env.step(SLOW)).observation.text == "step 1"
        with pytest.raises(ResponseTimeout):
            await env.step(SLOW)  # a further one
        await asyncio.sleep(0.4)  # its answer comes while nobody waits
        assert (await env.step(SLOW)).observation.text == "step 2"
        assert (await env.step(Do())).observation.text == "step 3"
    assert log.count("step") == 3


@v1
async def test_a_step_beyond_its_deadline_is_answered_when_it_is_made_again(
    serve: Serve, client: Client, log: Log
) -> None:
    async with client(serve(create_app(Counter, Do, Seen, state_cls=Progress))) as env:
        await env.reset()
        with pytest.raises(StepTimeout):
            await env.step(SLOW, timeout_s=0.05)
        with pytest.raises(StepTimeout, match="ask again with the same action"):
            await env.step(SLOW, timeout_s=0.05)
        assert (await env.step(SLOW)).observation.text == "step 1"
        assert (await env.step(Do())).observation.text == "step 2"
    assert log.count("step") == 2


@v1
async def test_a_step_that_was_aborted_is_answered_when_it_is_made_again(
    relay: Relay, client: Client, log: Log
) -> None:
    """Whatever becomes of the connection meanwhile; each session has its own answers."""
    async with client(relay.url) as env:
        other = await env.new_session()
        await asyncio.gather(env.reset(), other.reset())
        for _ in range(2):
            await env.aborted(0.05, "step", SLOW_FIELDS, {})
        relay.cut()
        assert (await other.step(SLOW)).observation.text == "step 1"
        assert (await env.step(SLOW)).observation.text == "step 1"
        await env.aborted(0.05, "step", SLOW_FIELDS, {})
        assert (await env.step(SLOW)).observation.text == "step 2"
        await other.close()
    assert log.count("step") == 3


@v1
@pytest.mark.parametrize("turns", range(4))
async def test_an_answer_that_comes_as_its_step_is_aborted_is_not_lost(
    serve: Serve, client: Client, log: Log, turns: int
) -> None:
    async with client(serve(create_app(Counter, Do, Seen, state_cls=Progress))) as env:
        await env.reset()
        done = await env.call("stepAbortedAsItComes", Do().model_dump(mode="json"), turns)
        assert done["result"]["observation"]["text"] == "step 1"
        assert done["isAborted"] or turns > 0
        assert (await env.step(Do())).observation.text == "step 2"
    assert log.count("step") == 2


@v1
async def test_another_step_instead_is_refused_and_the_error_names_the_cure(
    serve: Serve, client: Client, log: Log
) -> None:
    async with client(serve(create_app(Counter, Do, Seen, state_cls=Progress))) as env:
        await env.reset()
        await env.aborted(0.05, "step", SLOW_FIELDS, {})
        cure = r"a step was not answered.*ask again with the same action.*or call reset\(\)"
        for action in (Do(), Do(what="sleep", value=0.41)):
            with pytest.raises(SessionLost, match=cure):
                await env.step(action)
        assert (await env.step(SLOW)).observation.text == "step 1"
        await env.aborted(0.05, "step", SLOW_FIELDS, {})
        assert (await env.reset()).observation.text == "ready"
        assert (await env.step(SLOW)).observation.text == "step 1"
    assert log.count("step") == 3


@v1
async def test_a_reading_in_between_keeps_the_late_answer(
    serve: Serve, client: Client, log: Log
) -> None:
    async with client(serve(create_app(Counter, Do, Seen, state_cls=Progress))) as env:
        await env.reset()
        await env.aborted(0.05, "step", SLOW_FIELDS, {})
        await env.aborted(0.05, "state")
        assert (await env.state()).step_count == 1
        assert await env.render() == "at 1"
        assert (await env.step(SLOW)).observation.text == "step 1"
    assert log.count("step") == 1


class Failing(Counter):
    """Fails, after a while."""

    def step(self, action: Do, timeout_s: float | None = None) -> Seen:  # type: ignore[override]
        super().step(SLOW)
        raise RuntimeError("as it was asked to")


@v1
async def test_an_error_that_was_not_taken_comes_again(
    serve: Serve, client: Client, log: Log
) -> None:
    async with client(serve(create_app(Failing, Do, Seen, state_cls=Progress))) as env:
        await env.reset()
        await env.aborted(0.05, "step", Do().model_dump(mode="json"), {})
        for _ in range(2):  # the same again, and then a further one
            with pytest.raises(ExecutionFailed):
                await env.step(Do())
    assert log.count("step") == 2


class Patient(StoredDice):
    """Takes its time, and counts how often it is asked."""

    asked: ClassVar[Counted[str]] = Counted()

    def reset(self, *args: Any, **more: Any) -> Any:
        self.asked["reset"] += 1
        time.sleep(0.3)
        return super().reset(*args, **more)

    def restore(self, data: bytes) -> None:
        self.asked["restore"] += 1
        time.sleep(0.3)
        super().restore(data)


@v1
async def test_a_reset_and_a_restore_that_were_given_up_are_not_made_again(
    serve: Serve, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Patient, "asked", Counted())
    async with client(serve(create_app(Patient))) as env:
        await env.aborted(0.05, "reset", {"seed": 1})
        with pytest.raises(SessionLost, match=r"a reset was not answered.*ask again"):
            await env.call("step", {}, {})
        begun = await env.call("reset", {"seed": 1})
        stored = await env.call("snapshot")
        first = await env.call("step", {}, {})
        await env.aborted(0.05, "restore", stored)
        assert (await env.call("restore", stored))["total"] == 0
        assert (await env.call("step", {}, {}))["observation"] == first["observation"]
        await env.aborted(0.05, "reset", {"seed": 2})
        assert (await env.call("reset", {"seed": 1}))["observation"] == begun["observation"]
        assert (await env.call("step", {}, {}))["observation"] == first["observation"]
    assert Patient.asked == {"reset": 3, "restore": 1}


class SlowTool(MCPEnvironment):
    """A tool that takes its time."""

    calls: ClassVar[list[int]] = []

    @tool
    def add(self, number: int) -> int:
        """Note a number."""
        self.calls.append(number)
        time.sleep(0.3)
        return len(self.calls)


@v1
async def test_a_tool_that_was_given_up_is_not_called_again(
    serve: Serve, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SlowTool, "calls", [])
    async with client(serve(create_app(SlowTool))) as env:
        await env.call("reset", {})
        await env.aborted(0.05, "callTool", "add", {"number": 1}, {})
        assert await env.call("callTool", "add", {"number": 1}, {}) == 1
        assert await env.call("callTool", "add", {"number": 1}, {}) == 2
    assert SlowTool.calls == [1, 1]


@v1
async def test_a_close_ends_what_may_be_asked_again(serve: Serve, client: Client, log: Log) -> None:
    async with client(serve(create_app(Counter, Do, Seen, state_cls=Progress))) as env:
        await env.reset()
        await env.aborted(0.05, "step", SLOW_FIELDS, {})
        await env.close()
        with pytest.raises(SessionLost, match="the client was closed"):
            await env.step(SLOW)
        assert (await env.reset()).observation.text == "ready"
        assert (await env.step(SLOW)).observation.text == "step 1"
    assert log.count("step") == 2


@v0
async def test_version_0_has_nothing_to_ask_again_by(
    serve: Serve, client: Client, log: Log
) -> None:
    async with client(serve(create_app(Counter, Do, Seen, state_cls=Progress))) as env:
        await env.reset()
        await env.aborted(0.05, "step", SLOW_FIELDS, {})
        with pytest.raises(SessionLost, match=r"not answered.*; call reset\(\)"):
            await env.step(SLOW)
        assert (await env.reset()).observation.text == "ready"
        assert (await env.step(Do())).observation.text == "step 1"


async def test_a_call_that_is_aborted_while_it_connects_is_not_begun(
    relay: Relay, client: Client, log: Log
) -> None:
    """It used to wait for the connection, and then to go on: its signal was heard too late."""
    async with client(relay.url) as env:
        await env.reset()
        await env.close()
        relay.hold()
        await env.aborted(0.1, "reset", {})
        relay.release()
        assert (await env.reset()).observation.text == "ready"
        assert (await env.step(Do())).observation.text == "step 1"
    assert (log.count("reset"), log.count("step")) == (2, 1)


async def test_calls_of_one_turn_are_served_in_order(
    serve: Serve, client: Client, log: Log
) -> None:
    """A `reset` used to overtake the step before it."""
    async with client(serve(create_app(Counter, Do, Seen, state_cls=Progress))) as env:
        step = ["step", Do().model_dump(mode="json")]
        calls = [["reset"], step, step, ["reset"], step, ["state"]]
        done = await env.call("together", *calls)
        texts = [one["observation"]["text"] for one in done[:-1]]
        assert texts == ["ready", "step 1", "step 2", "ready", "step 1"]
        assert done[-1]["step_count"] == 1


# ------------------------------------------------------------------ waiting


@v1
async def test_a_full_server_tells_the_place_in_its_queue(
    client: Client, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Counter, "SUPPORTS_CONCURRENT_SESSIONS", False)
    with serving(create_app(Counter, Do, Seen, state_cls=Progress)) as url:
        async with client(url) as first, client(url, queueTimeoutS=20) as second:
            await first.reset()
            driver.places.clear()
            waiting = asyncio.ensure_future(second.reset())
            await asyncio.to_thread(wait_until, lambda: bool(driver.places))
            assert driver.places == [{"position": 1, "length": 1}]
            await first.close()
            assert (await waiting).observation.text == "ready"
            with pytest.raises(CapacityError):
                await client(url, queueTimeoutS=0.1).reset()


@v1
async def test_an_overdue_step_is_told_at_once_and_its_answer_comes_later(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stuck, "let_go", threading.Event())
    with serving(create_app(Alone, Do, Seen, state_cls=Progress)) as url:
        async with client(url) as env:
            await env.reset()
            with pytest.raises(StepTimeout) as caught:
                await env.step(Do(what="hang"), timeout_s=0.1)
            assert caught.value.is_running
            with pytest.raises(SessionLost, match="not answered"):
                await env.step(Do())
            with pytest.raises(SessionBusy):
                await env.state()
            number = env.driver.last
            late = asyncio.ensure_future(env.driver.call("late", client=0, args=[number - 2]))
            Stuck.let_go.set()
            assert (await late)["observation"]["text"] == "step 1"
            assert (await env.step(Do())).observation.text == "step 2"


@v1
async def test_an_overdue_step_that_a_reset_replaces_is_given_up(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stuck, "let_go", threading.Event())
    with serving(create_app(Stuck, Do, Seen, state_cls=Progress)) as url:
        async with client(url) as env:
            await env.reset()
            with pytest.raises(StepTimeout) as caught:
                await env.step(Do(what="hang"), timeout_s=0.05)
            assert caught.value.is_running
            number = env.driver.last
            late = asyncio.ensure_future(env.driver.call("late", client=0, args=[number]))
            await env.reset()
            with pytest.raises(StepTimeout, match="left for another one") as caught:
                await late
            assert not caught.value.is_running
            assert (await env.step(Do())).observation.text == "step 1"
            Stuck.let_go.set()


async def test_a_request_over_the_limit_is_refused_and_nothing_lost(client: Client) -> None:
    app = create_app(Counter, Do, Seen, state_cls=Progress, limits=Limits(max_message_bytes=4096))
    with serving(app) as url:
        async with client(url) as env:
            await env.reset()
            with pytest.raises(MessageTooLarge):
                await env.step(Do(what="large", value=9000))
            if env.version == 1:  # version 0 does not tell its limit before
                with pytest.raises(MessageTooLarge):
                    await env.step(Do(what="echo", value="x" * 9000))
            assert (await env.step(Do())).observation.text.startswith("step")


# ------------------------------------------------------------------ who is let in


async def test_a_server_with_keys_says_why_it_refuses(client: Client) -> None:
    keys = [
        Key("the-trainers-key-0123456789", name="trainer"),
        Key("the-monitors-key-0123456789", name="monitor", role=Role.OBSERVER),
    ]
    with serving(create_app(Counter, Do, Seen, state_cls=Progress, keys=keys)) as url:
        async with client(url, apiKey=keys[0].key) as env:
            assert (await env.reset()).observation.text == "ready"
        with pytest.raises(AuthenticationError, match="wants a key"):
            await client(url).connect()
        with pytest.raises(AuthenticationError, match="does not know"):
            await client(url, apiKey="another-key-0123456789").connect()
        with pytest.raises(PermissionRefused, match="'monitor' is an observer's"):
            await client(url, apiKey=keys[1].key).connect()


async def test_where_no_server_is_there_is_no_connection(client: Client) -> None:
    with serving(create_app(Counter)) as url:
        pass
    with pytest.raises(ConnectError, match="no WebSocket"):
        await client(url, connectTimeoutS=5).connect()
    with pytest.raises(ConnectError, match="no address"):
        await client("ftp://localhost").connect()


# ------------------------------------------------------------------ tools, arrays, snapshots


async def test_tools_are_listed_and_called(client: Client, serve: Serve) -> None:
    async with client(serve(create_app(Workshop, debug=True))) as env:
        tools = {tool["name"]: tool for tool in await env.call("listTools")}
        assert tools["add"]["inputSchema"]["required"] == ["a"]
        assert await env.call("callTool", "add", {"a": 1, "b": 2}, {}) == 3
        assert await env.call("callTool", "seen", {}, {}) == {
            "calls": 1,
            "cancelled": 0,
            "resets": 0,
        }
        with pytest.raises(ToolFailed, match="no such luck"):
            await env.call("callTool", "fail", {}, {})
        with pytest.raises(ToolFailed):
            await env.call("callTool", "nonsense", {}, {})


async def test_an_environment_without_tools_has_none(client: Client, serve: Serve) -> None:
    async with client(serve(create_app(Counter, Do, Seen, state_cls=Progress))) as env:
        with pytest.raises(NotSupported):
            await env.call("callTool", "add", {}, {})


SAMPLES = {
    "bool": np.array([True, False]),
    "int8": np.array([-128, 127], "int8"),
    "uint8": np.arange(6, dtype="uint8").reshape(2, 3),
    "int64": np.array([-(2**63), 2**63 - 1]),
    "uint64": np.array([2**64 - 1], "uint64"),
    "float16": np.array([0.5, np.inf], "float16"),
    "float32": np.array([[0.1], [-0.0]], "float32"),
    "float64": np.array([np.nan, 1e300, -np.inf]),
    "complex64": np.array([1 + 2j], "complex64"),
    "big-endian": np.array([1, 2], ">i4"),
    "text": np.array(["a", "déjà"]),
    "datetime64": np.array(["2026-01-02", "NaT"], "datetime64[s]"),
    "empty": np.zeros((0, 3), "float32"),
    "no axis": np.array(5, "int16"),
    "large": np.arange(100_000).reshape(10, 100, 100),
}


class Name(Action):
    what: str
    value: Annotated[Any, Array()] = None


class Shown(Observation):
    value: Annotated[Any, Array()] = None
    is_same: bool = False


class Gallery(Environment[Name, Shown, State]):
    """Shows an array, and says whether another one is the same."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    state = State()

    def reset(self) -> Shown:  # type: ignore[override]
        return Shown()

    def step(self, action: Name) -> Shown:  # type: ignore[override]
        sample = SAMPLES[action.what]
        if action.value is None:
            return Shown(value=sample)
        same = action.value.shape == sample.shape and sample.dtype.itemsize == (
            action.value.dtype.itemsize
        )
        there = action.value.astype(sample.dtype)
        return Shown(is_same=same and there.tobytes() == sample.tobytes())


@v1
async def test_arrays_survive_the_way_there_and_back(client: Client, serve: Serve) -> None:
    async with client(serve(create_app(Gallery, Name, Shown))) as env:
        await env.call("reset", {})
        for what in SAMPLES:
            result = await env.call("bounce", {"what": what}, {"what": what})
            assert result["observation"]["is_same"], what


@v1
async def test_an_episode_goes_back_to_a_snapshot(client: Client, serve: Serve) -> None:
    async with client(serve(create_app(StoredDice))) as env:
        await env.call("reset", {"seed": 1})
        first, state, again = await env.call("restored", {})
        assert first["observation"] == again["observation"]
        assert state["total"] == 0


@v0
async def test_version_0_has_no_snapshots(client: Client, serve: Serve) -> None:
    async with client(serve(create_app(StoredDice))) as env:
        with pytest.raises(NotSupported, match="version 0"):
            await env.call("snapshot")


# ------------------------------------------------------------------ the package


def test_its_own_tests_pass() -> None:
    run(built(), "npm", "test")


def test_its_types_and_its_form_are_right() -> None:
    run(built(), "npm", "run", "check")


def test_the_package_holds_what_it_says() -> None:
    (packed,) = json.loads(run(built(), "npm", "pack", "--dry-run", "--json", "--ignore-scripts"))
    files = {file["path"] for file in packed["files"]}
    source = PACKAGE / "src"
    sources = {file.relative_to(source).with_suffix("") for file in source.rglob("*.ts")}
    expected = {f"dist/{name}{end}" for name in sources for end in (".js", ".d.ts")}
    assert files == {"package.json", "README.md", "LICENSE", *expected}


def test_it_takes_no_other_package() -> None:
    described = json.loads((PACKAGE / "package.json").read_text(encoding="utf-8"))
    assert "dependencies" not in described
    sources = (PACKAGE / "src").rglob("*.ts")
    importing = [file.name for file in sources if "@msgpack" in file.read_text("utf-8")]
    assert importing == ["msgpack.ts"]
