"""Storing, restoring and forking episodes: over every transport, in every lane."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, cast

import msgspec
import pytest
from support import dice
from support.dice import (
    AnyThreadStoredDice,
    AsyncStoredDice,
    Camera,
    CameraEnv,
    Dice,
    DiceEnv,
    DriftingDice,
    FinallyStoredDice,
    InlineStoredDice,
    NoBytes,
    Roll,
    StoredDice,
    Total,
)
from support.servers import serving

from openenv import (
    CapacityError,
    ConcurrencyConfig,
    ExecutionFailed,
    InvalidSnapshot,
    NotSupported,
    ReplayDiverged,
    ServerError,
    SessionLost,
    ValidationFailed,
    create_app,
)
from openenv.execution.manager import SessionManager
from openenv.protocol.messages import Request
from openenv.protocol.snapshots import JOURNAL, NATIVE, JournalEntry, frame_of, wrap
from openenv.protocol.v1.codec import codec_named

pytestmark = pytest.mark.anyio

TRANSPORTS = ["memory", "asgi", "server", "workers"]
STORED = [StoredDice, AsyncStoredDice, AnyThreadStoredDice, InlineStoredDice]

Connect = Callable[..., DiceEnv]


@pytest.fixture
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Make clients of an environment, over the transport that the test is about."""
    transport = getattr(request, "param", "memory")
    with contextlib.ExitStack() as stack:

        def connect(cls: Any, client: Any = DiceEnv, **options: Any) -> Any:
            if transport == "memory" and not options:
                return client.local(cls)
            app = create_app(cls, workers=2 if transport == "workers" else None, **options)
            if transport == "asgi":
                return client.local(app)
            return client(stack.enter_context(serving(app)))

        yield connect


async def rolls(env: Any, count: int = 3) -> list[int]:
    return [(await env.step(Roll(sides=1000))).observation.number for _ in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("connect", TRANSPORTS, indirect=True)
@pytest.mark.parametrize("cls", STORED)
async def test_an_episode_is_stored_and_restored(connect: Connect, cls: Any) -> None:
    async with connect(cls) as env:
        await env.reset(seed=1, episode_id="e")
        await rolls(env)
        state, stored = await env.state(), await env.snapshot()
        onward = await rolls(env)
        assert await env.restore(stored) == state
        assert (state.episode_id, state.step_count) == ("e", 3)
        assert await rolls(env) == onward
        other = await env.new_session()
        assert isinstance(await other.restore(stored), Total)  # before any reset
        assert await rolls(other) == onward


@pytest.mark.slow
@pytest.mark.parametrize("connect", TRANSPORTS, indirect=True)
async def test_forks_go_their_own_ways_from_the_same_place(connect: Connect) -> None:
    async with connect(StoredDice) as env:
        await env.reset(seed=2)
        await rolls(env)
        one, two = await env.fork(2)
        assert await one.state() == await two.state() == await env.state()
        await one.step(Roll(what="stop"))
        assert await rolls(two) == await rolls(env)
        assert (await one.state()).step_count == 4
        assert await env.fork(0) == []
        many: Any = 2.5
        for count in (-1, many):
            with pytest.raises(ValueError, match=f"n={count}"):
                await env.fork(count)


@pytest.mark.parametrize("connect", TRANSPORTS, indirect=True)
async def test_an_environment_without_snapshots_says_so(connect: Connect) -> None:
    async with connect(Dice) as env:
        await env.reset(seed=1)
        first = await rolls(env, 1)
        with pytest.raises(NotSupported, match=r"Dice has no method 'snapshot'.*replay=True") as no:
            await env.snapshot()
        assert isinstance(no.value, ServerError)
        assert (no.value.code, no.value.feature) == ("NOT_SUPPORTED", "snapshot")
        with pytest.raises(NotSupported):
            await env.fork(2)
        await env.reset(seed=1)
        assert await rolls(env, 1) == first  # the session goes on


async def test_an_episode_may_have_none_yet(connect: Connect) -> None:
    async with connect(FinallyStoredDice) as env:
        await env.reset(seed=1)
        with pytest.raises(NotSupported, match="roll first"):
            await env.snapshot()
        await rolls(env)
        assert await env.snapshot()


async def test_a_snapshot_has_to_be_bytes(connect: Connect) -> None:
    async with connect(NoBytes) as env:
        await env.reset(seed=1)
        with pytest.raises(ExecutionFailed, match="it must return bytes"):
            await env.snapshot()


class Unstored(StoredDice):
    def snapshot(self) -> bytes:
        raise OSError


@pytest.mark.parametrize("connect", ["server"], indirect=True)
async def test_an_incident_names_the_method(connect: Connect) -> None:
    async with connect(Unstored) as env:
        await env.reset(seed=1)
        with pytest.raises(ExecutionFailed, match="OSError in snapshot;"):
            await env.snapshot()


@pytest.mark.parametrize("connect", TRANSPORTS, indirect=True)
async def test_what_the_environment_refuses_harms_nothing(connect: Connect) -> None:
    async with connect(StoredDice) as env:
        await env.reset(seed=1)
        stored = await env.snapshot()
        with pytest.raises(ExecutionFailed):
            await env.restore(wrap(NATIVE, b"no dice"))
        assert (await env.state()).step_count == 0
        onward = await rolls(env)
        await env.restore(stored)
        assert await rolls(env) == onward


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda data: b"", "no snapshot"),
        (lambda data: b"x" + data, "no snapshot"),
        (lambda data: data[:10], "cut off"),
        (lambda data: data[:-1], "damaged"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "damaged"),
        (lambda data: data[:8] + b"\x02" + data[9:], "later version"),
        (lambda data: data[:9] + b"X" + data[10:], "later version"),
    ],
)
async def test_foreign_bytes_never_reach_the_server(
    connect: Connect, change: Callable[[bytes], bytes], why: str
) -> None:
    async with connect(StoredDice) as env:
        await env.reset(seed=1)
        stored = await env.snapshot()
        with pytest.raises(InvalidSnapshot, match=why):
            await env.restore(change(stored))
        with pytest.raises(TypeError, match="bytes, not str"):
            await env.restore("text")  # type: ignore[arg-type]
        await rolls(env)


@pytest.mark.parametrize("subprotocol", ["openenv.v1.msgpack", "openenv.v1.json"])
async def test_bytes_cross_either_encoding(subprotocol: str) -> None:
    with serving(create_app(StoredDice)) as url:
        env = DiceEnv(url)
        env._websocket = dataclasses.replace(env._websocket, subprotocols=(subprotocol,))
        async with env:
            await env.reset(seed=1)
            stored = await env.snapshot()
            onward = await rolls(env)
            await env.restore(stored)
            assert await rolls(env) == onward
            for data in ({}, {"snapshot": 3}, {"snapshot": "no base64!"}):
                with pytest.raises(ValidationFailed):
                    await env._request(Request("restore", data))
            await rolls(env)


async def test_version_0_has_none(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENENV_PROTOCOL", "0")
    with serving(create_app(StoredDice)) as url:
        async with DiceEnv(url, journal=True) as env:
            await env.reset(seed=1)
            for call in (env.snapshot, lambda: env.fork(1)):
                with pytest.raises(NotSupported, match="version 0"):
                    await call()
            await rolls(env)
            (fork,) = await env.fork(1, replay=True)  # which needs no more than reset and step
            assert await rolls(fork) == await rolls(env)


async def test_a_restore_ends_a_loss(connect: Connect) -> None:
    async with connect(StoredDice) as env:
        await env.reset(seed=1)
        stored = await env.snapshot()
        onward = await rolls(env)
        await env.disconnect()
        with pytest.raises(SessionLost):
            await env.snapshot()
        assert (await env.restore(stored)).step_count == 0
        assert await rolls(env) == onward


async def test_a_fork_that_fails_half_way_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENENV_QUEUE_TIMEOUT_S", "0")
    app = create_app(StoredDice, concurrency_config=ConcurrencyConfig(max_concurrent_envs=3))
    manager: SessionManager = app.state.openenv_managers[0]
    async with DiceEnv.local(app) as env:
        await env.reset(seed=1)
        with pytest.raises(CapacityError):
            await env.fork(5)
        assert manager.active_sessions == 1
        assert len(await env.fork(2)) == 2
        assert manager.active_sessions == 3
    assert manager.active_sessions == 0


def test_the_synchronous_face_has_them_too() -> None:
    with serving(create_app(StoredDice)) as url, DiceEnv(url).sync() as env:
        env.reset(seed=1)
        stored = env.snapshot()
        one, two = env.fork(2)
        assert one.step(Roll()).observation == two.step(Roll()).observation
        assert one.restore(stored).step_count == 0


def test_a_bare_client_has_them_too() -> None:
    with DiceEnv.local(StoredDice) as env:
        _ = env.reset(seed=1).observation
        stored: Any = env.snapshot()
        forks: Any = env.fork(2)  # where no loop runs, it is a list at once
        one, two = forks
        assert one.step(Roll()).observation == two.step(Roll()).observation
        assert env.restore(stored).step_count == 0


# ------------------------------------------------------------------ by a journal


@pytest.mark.slow
@pytest.mark.parametrize("connect", TRANSPORTS, indirect=True)
async def test_a_journal_is_replayed(connect: Connect) -> None:
    env = connect(Dice)
    env.keep_journal()
    async with env:
        await env.reset(seed=1, episode_id="e")
        await rolls(env)
        with pytest.raises(ExecutionFailed):
            await env.step(Roll(what="raise"))
        with pytest.raises(ValidationFailed):
            await env.step(cast(Any, {"sides": "many"}))
        one, two = await env.fork(2, replay=True)
        assert await one.state() == await two.state() == await env.state()
        onward = await rolls(env)
        assert await rolls(one) == onward
        (third,) = await one.fork(1, replay=True)  # forks keep journals too
        assert await third.state() == await one.state()
        stored = await env.snapshot(replay=True)
        state = await env.state()
        await env.reset(seed=99)
        assert await env.restore(stored) == state
        assert await rolls(env) == await rolls(third)


async def test_arrays_are_replayed(connect: Connect) -> None:
    env: Any = connect(Camera, CameraEnv)
    env.keep_journal()
    async with env:
        await env.reset(seed=1)
        await env.step(Roll())
        (fork,) = await env.fork(1, replay=True)
        seen, again = (await env.step(Roll())).observation, (await fork.step(Roll())).observation
        assert (seen.frame == again.frame).all() and (seen.depth == again.depth).all()


async def test_a_journal_holds_actions_as_they_were(connect: Connect) -> None:
    env = connect(Dice)
    env.keep_journal()
    async with env:
        action: Any = {"what": "tell", "extra": [1]}
        await env.reset(seed=1)
        await env.step(action)
        action["extra"][0] = 2
        (fork,) = await env.fork(1, replay=True)
        assert await rolls(env) == await rolls(fork)


async def test_a_replay_that_goes_another_way_is_noticed(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dice.DriftingDice, "made", 0)
    env = connect(DriftingDice)
    env.keep_journal()
    async with env:
        await env.reset(seed=1)
        await rolls(env, 1)
        await env.fork(1, replay=True)  # they agree so far
        await rolls(env, 3)
        stored = await env.snapshot(replay=True)
        with pytest.raises(ReplayDiverged, match="the observation of step 2") as diverged:
            await env.fork(2, replay=True)
        assert (diverged.value.step, diverged.value.what) == (2, "observation")
        other = await env.new_session()
        with pytest.raises(ReplayDiverged):
            await other.restore(stored)
        with pytest.raises(SessionLost, match="went another way; call reset"):
            await other.step(Roll())
        await other.reset(seed=1)
        assert (await other.state()).step_count == 0
        await rolls(env)  # it has gone on
        with pytest.raises(ReplayDiverged):
            await other.restore(stored)
        with pytest.raises(NotSupported, match="did not come to its end"):
            await other.snapshot(replay=True)  # not what it had before


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [JournalEntry(b"junk")],
        [JournalEntry(b"")],
        [JournalEntry(frame_of(Request("reset"))), JournalEntry(frame_of(Request("state")))],
        [JournalEntry(frame_of(Request("reset"))), JournalEntry(frame_of(Request("mcp")))],
        [JournalEntry(codec_named("openenv.v1.msgpack").encode_requests([Request("reset")] * 2))],
    ],
)
async def test_a_journal_of_other_requests_is_refused(
    connect: Connect, entries: list[JournalEntry]
) -> None:
    body = msgspec.msgpack.encode({"protocol": 1, "entries": entries})
    env = connect(Dice)
    env.keep_journal()
    async with env:
        await env.reset(seed=1)
        await rolls(env)
        for data in (body, body[:-1], b""):
            with pytest.raises(InvalidSnapshot):
                await env.restore(wrap(JOURNAL, data))
        (fork,) = await env.fork(1, replay=True)  # nothing was done
        assert await rolls(fork) == await rolls(env)


class Louder(Dice):
    """The second instance raises where the first did not, and is rewarded otherwise."""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        Louder.made += 1
        self.is_second = Louder.made > 1

    def step(self, action: Roll) -> Any:  # type: ignore[override]
        rolled = super().step(action)
        if self.is_second and action.what == "later an error":
            raise ValueError
        if self.is_second and action.what == "later more":
            rolled.reward = 9.0
        if self.is_second and action.what == "later over":
            rolled.done = True
        return rolled


@pytest.mark.parametrize(
    ("word", "what"),
    [("later an error", "error"), ("later more", "reward"), ("later over", "done")],
)
async def test_whatever_differs_is_named(
    connect: Connect, word: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Louder, "made", 0)
    env = connect(Louder)
    env.keep_journal()
    async with env:
        await env.reset(seed=1)
        await env.step(Roll(what=word))
        with pytest.raises(ReplayDiverged) as diverged:
            await env.fork(1, replay=True)
        assert (diverged.value.step, diverged.value.what) == (1, what)


async def test_what_cannot_be_replayed_says_why(connect: Connect) -> None:
    async with connect(StoredDice) as env:
        with pytest.raises(NotSupported, match="keeps no journal"):
            await env.snapshot(replay=True)
        await env.reset(seed=1)
        env.keep_journal(max_steps=3)
        with pytest.raises(NotSupported, match="no episode has begun"):
            await env.snapshot(replay=True)
        await env.reset()
        with pytest.raises(NotSupported, match="begun without a seed"):
            await env.snapshot(replay=True)
        await env.reset(seed=1)
        await rolls(env, 3)
        assert await env.snapshot(replay=True)
        await rolls(env, 1)
        with pytest.raises(NotSupported, match=r"more than 3 steps.*max_steps"):
            await env.snapshot(replay=True)
        await env.reset(seed=1)
        await env.restore(await env.snapshot())
        with pytest.raises(NotSupported, match="restored from a snapshot"):
            await env.snapshot(replay=True)
        with pytest.raises(ValueError, match="max_steps=0"):
            env.keep_journal(max_steps=0)


async def test_a_step_that_was_not_answered_ends_the_journal(connect: Connect) -> None:
    env = connect(Dice)
    env.keep_journal()
    async with env:
        await env.reset(seed=1)
        await env.disconnect()
        with pytest.raises(SessionLost):
            await env.step(Roll())
        with pytest.raises(NotSupported, match="a step was not answered"):
            await env.snapshot(replay=True)


async def test_a_journal_waits_for_what_is_under_way(connect: Connect) -> None:
    env = connect(Dice)
    env.keep_journal()
    async with env:
        await env.reset(seed=1)
        step = asyncio.ensure_future(env.step(Roll(sides=1000)))
        await asyncio.sleep(0)
        (fork,) = await env.fork(1, replay=True)
        await step
        assert (await fork.state()).step_count == 1
