"""Sessions in an environment: episodes that somebody else's loop plays."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import Field
from rollouts.worlds import Nan, PerStep, Say, Slow, Talk, Terminal
from support.relay import Relay
from support.servers import serving
from support.waiting import eventually

from openenv import Environment, EnvPool, GenericEnvClient, Limits, Observation, State, create_app
from openenv.errors import CapacityError, ConnectError, ExecutionFailed, OpenEnvError
from openenv.reward import RewardSpec
from openenv.rollouts.episode_sessions import EpisodeSession, EpisodeSessions, NoActiveEpisode
from openenv.rollouts.failures import TaskNotTaken
from openenv.rollouts.meter import Meter, MeterReading
from openenv.server.workers import managers_of


@contextlib.asynccontextmanager
async def sitting(
    environment: Any, **options: Any
) -> AsyncIterator[tuple[EpisodeSessions, EpisodeSession]]:
    sessions = await EpisodeSessions.of(environment, **options)
    try:
        yield sessions, await sessions.take()
    finally:
        await sessions.aclose()


@pytest.mark.anyio
async def test_an_episode_by_calls_is_worth_what_its_environment_declares() -> None:
    async with sitting(PerStep) as (sessions, session):
        first = await session.reset(seed=1, start="hello")
        assert first.observation["words"] == ["hello"]
        assert [one.name for one in sessions.interface.tools] == ["say"]
        answer = await session.call("say", {"word": "you"})
        assert (answer.is_refused, answer.is_over) == (False, False)
        assert '"you"' in answer.text
        answer = await session.reply("over")
        assert answer.is_over
        assert answer.text.endswith("\n(the episode is over)")
        score = session.score()
        assert score.value == len("you") + len("over") + 1
        assert score.components == {"length": 7, "style": 1.0}
        late = await session.call("say", {"word": "more"})
        assert (late.is_refused, late.is_over) == (True, True)
        assert session.steps == 2


@pytest.mark.anyio
async def test_words_may_be_a_call_as_json() -> None:
    async with sitting(Talk) as (_, session):
        await session.reset()
        answer = await session.reply('I say {"name": "say", "arguments": {"word": "hi"}}')
        assert answer.result is not None
        assert answer.result.observation["words"] == ["hi"]


class Board(Observation):
    text: str = "a board"
    cells: list[int] = Field(default_factory=lambda: [0] * 16)
    turn: int = 1


class OnBoard(Environment[Say, Board, State]):
    def reset(self) -> Board:  # type: ignore[override]
        return Board()

    def step(self, action: Say) -> Board:  # type: ignore[override]
        return Board(turn=2, done=action.word == "over")

    @property
    def state(self) -> State:
        return State()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("shows", "seen"),
    [
        (["text"], "a board"),
        (("turn", "text"), '{"turn": 2, "text": "a board"}'),
        (None, f'{{"text": "a board", "cells": {[0] * 16}, "turn": 2}}'),
    ],
)
@pytest.mark.parametrize("by", ["local", "server"])
async def test_the_one_who_acts_is_shown_what_was_chosen(by: str, shows: Any, seen: str) -> None:
    with contextlib.ExitStack() as served:
        environment = (
            OnBoard if by == "local" else served.enter_context(serving(create_app(OnBoard)))
        )
        async with sitting(environment, shows=shows) as (_, session):
            first = session.seen(await session.reset())
            assert first == seen.replace("2", "1") if shows else "a board" in first
            assert (await session.reply("go")).text == seen
            over = await session.reply("over")
            assert over.text == f"{seen}\n(the episode is over)"
            assert over.result is not None
            assert len(dict(over.result.observation)["cells"]) == 16, "the trainer has it all"


@pytest.mark.anyio
@pytest.mark.parametrize("shows", [["text", "colour"], ["reward"], []])
async def test_to_show_what_observations_do_not_have_is_an_error_at_once(shows: list[str]) -> None:
    with serving(create_app(OnBoard)) as url:
        with pytest.raises(
            ValueError, match=r"\]; expected one or more of \['cells', 'text', 'turn'\]"
        ):
            await EpisodeSessions.of(url, shows=shows)
        with pytest.raises(TypeError, match=r"shows='text'; expected a list of names"):
            await EpisodeSessions.of(url, shows="text")


@pytest.mark.anyio
async def test_what_is_not_taken_is_an_answer_and_the_episode_goes_on() -> None:
    async with sitting(Terminal) as (sessions, session):
        await session.reset()
        unknown = await session.call("sai", {"word": "hi"})
        assert unknown.is_refused
        assert "did you mean 'say'" in unknown.text
        invalid = await session.call("say", {"word": 3})
        assert "word: Input should be a valid string" in invalid.text
        rude = await session.call("say", {"word": "rude"})
        assert rude.text == "Error: mind your language"
        assert (await session.call("say", {"word": "over"})).is_over
        assert session.score().value == 1.0
        assert sessions.meter.read().refusals == 3
        assert sessions.meter.read().steps == 1


@pytest.mark.anyio
async def test_before_an_episode_there_is_nothing_to_act_in_and_no_score() -> None:
    async with sitting(Talk) as (sessions, session):
        with pytest.raises(NoActiveEpisode, match="call reset first"):
            await session.call("say", {"word": "hi"})
        with pytest.raises(NoActiveEpisode, match="call reset first"):
            session.score()
    with pytest.raises(NoActiveEpisode, match="are closed"):
        await sessions.take()


@pytest.mark.anyio
async def test_an_episode_that_was_not_ended_is_worth_what_was_agreed() -> None:
    async with sitting(Terminal) as (_, session):
        await session.reset()
        await session.call("say", {"word": "hi"})
        assert session.score().value is None
        assert session.score().unscored == (
            "it ended before the episode was over, and had no reward by then"
        )
        unknown = session.score("earned")
        assert unknown.value is None, "0 may be more than losing pays"
        assert "declares no range of rewards: declare one (REWARD = " in str(unknown.unscored)
        assert "unfinished=-1.0" in str(unknown.unscored)
        assert session.score(-3).value == -3.0
    async with sitting(PerStep) as (_, session):
        await session.reset()
        assert session.score("earned").value is None
        await session.call("say", {"word": "hi"})
        assert session.score("earned").value == session.score().value == 2.5
        assert session.score(None).unscored == "it ended before the episode was over"


@pytest.mark.anyio
async def test_of_what_was_not_ended_the_lowest_reward_is_earned() -> None:
    class Losing(Terminal):
        REWARD = RewardSpec("terminal", range=(-2.0, 1.0))

    async with sitting(Losing) as (_, session):
        await session.reset()
        assert session.score("earned").value == -2.0


@pytest.mark.anyio
async def test_what_giving_up_costs_is_added_to_what_was_earned() -> None:
    class Game(PerStep):
        REWARD = RewardSpec("per_step", (-4.0, 9.0), ("length", "style"), unfinished=-3.0)

    async with sitting(Game) as (_, session):
        await session.reset()
        assert session.score("earned").value == -3.0
        await session.call("say", {"word": "hi"})
        left = session.score("earned")
        assert (left.value, left.components["unfinished"], left.step_rewards) == (-0.5, -3, [-0.5])
        assert session.score("known").value == 2.5
        await session.call("say", {"word": "over"})
        assert session.score("earned").value == 7.0


@pytest.mark.anyio
async def test_an_episode_that_broke_off_has_no_score_and_the_next_one_another_session() -> None:
    async with sitting(Talk) as (sessions, session):
        await session.reset()
        await session.call("say", {"word": "hi"})
        with pytest.raises(ExecutionFailed):
            await session.call("say", {"word": "crash"})
        score = session.score("earned")
        assert score.value is None
        assert str(score.unscored).startswith("the episode broke off: ExecutionFailed: ")
        with pytest.raises(NoActiveEpisode, match="the episode broke off"):
            await session.call("say", {"word": "hi"})
        await session.reset()
        await session.call("say", {"word": "over"})
        assert session.score().value == 4.0
        found = sessions.meter.read()
        assert (found.sessions, found.episodes, found.failures, found.steps) == (2, 2, 1, 2)


@pytest.mark.anyio
async def test_a_reward_that_is_no_number_is_none() -> None:
    async with sitting(Nan) as (_, session):
        await session.reset()
        await session.call("say", {"word": "hi"})
        assert session.score("earned").unscored == "the reward is nan"


@pytest.mark.anyio
@pytest.mark.filterwarnings("ignore::openenv.errors.IgnoredArgumentWarning")
async def test_an_argument_that_the_environment_ignores_is_another_episode() -> None:
    async with sitting(Talk) as (_, session):
        with pytest.raises(TaskNotTaken, match="takes no 'level', of which this episode consists"):
            await session.reset(level=3)
        assert session.failure is not None
        first = await session.reset(level=3, may_ignore=frozenset({"level"}))
        assert not first.done


@pytest.mark.anyio
@pytest.mark.slow
async def test_a_server_that_is_full_is_told_with_its_cure() -> None:
    app = create_app(Talk, max_concurrent_envs=2)
    with serving(app) as url:
        client = GenericEnvClient(url, queue_timeout_s=0.2)
        async with sitting(client, retries=1) as (sessions, first):
            second, third = await sessions.take(), await sessions.take()
            await first.reset()
            await second.reset()
            with pytest.raises(CapacityError, match="MAX_CONCURRENT_ENVS"):
                await third.reset()
            assert third.score().value is None
            await second.close()
            await third.reset()


class Alone(Talk):
    SUPPORTS_CONCURRENT_SESSIONS = False


@pytest.mark.anyio
@pytest.mark.parametrize("by", ["server", "client", "application", "class", "one session"])
async def test_too_few_places_are_told_before_anybody_waits_for_one(by: str) -> None:
    room = 1 if by == "one session" else 64 if by == "class" else 3
    with contextlib.ExitStack() as served:
        app = create_app(Talk, max_concurrent_envs=3)
        given: Any = {"class": Talk, "one session": Alone, "application": app}.get(by)
        if given is None:
            url = served.enter_context(serving(app))
            given = url if by == "server" else GenericEnvClient(url)
        async with sitting(given) as (sessions, _):
            sessions.check_room(room)
            with pytest.raises(CapacityError, match=rf"holds {room} session.*MAX_CONCURRENT_ENVS"):
                sessions.check_room(room + 1)


@pytest.mark.anyio
@pytest.mark.parametrize("who", ["version 0", "a function", "a pool", "workers"])
async def test_who_does_not_tell_how_many_places_there_are_is_not_refused(
    who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if who == "version 0":
        monkeypatch.setenv("OPENENV_PROTOCOL", "0")
    app = create_app(Talk, max_concurrent_envs=3)
    with serving(app) as url, contextlib.ExitStack() as entered:
        given: Any = url
        if who == "workers":  # each holds as many, and a session sees one of them
            managers_of(app)[0].has_siblings = True
        elif who == "a function":  # each client may have a server of its own
            given = lambda: GenericEnvClient(url)  # noqa: E731
        elif who == "a pool":  # of which each session sees one server of several
            given = entered.enter_context(EnvPool(url, client=GenericEnvClient))
        async with sitting(given) as (sessions, session):
            await session.reset()
            sessions.check_room(1000)


@pytest.mark.anyio
@pytest.mark.slow
async def test_a_session_that_is_lost_between_episodes_is_replaced() -> None:
    app = create_app(Talk, max_concurrent_envs=8, limits=Limits(resume_grace_s=0.3))
    with serving(app) as url:
        relay = Relay(url)
        async with sitting(relay.url) as (sessions, session):
            await session.reset()
            relay.refuse()
            relay.cut()
            with pytest.raises(OpenEnvError):
                await session.call("say", {"word": "hi"})
            relay.accept_again()
            first = await session.reset(start="again")
            assert first.observation["words"] == ["again"]
            assert sessions.meter.read().failures == 1
        relay.close()


@pytest.mark.anyio
async def test_what_is_not_there_is_said() -> None:
    with pytest.raises(ConnectError):
        await EpisodeSessions.of("http://127.0.0.1:9", retries=0)
    with pytest.raises(TypeError, match="is no environment"):
        await EpisodeSessions.of(3)


@pytest.mark.anyio
async def test_calls_of_a_seat_come_one_after_the_other() -> None:
    async with sitting(PerStep) as (_, session):
        await session.reset()
        answers = await asyncio.gather(*(session.call("say", {"word": w}) for w in "abc"))
        seen = [answer.result.observation["words"] for answer in answers if answer.result]
        assert seen == [["a"], ["a", "b"], ["a", "b", "c"]]


@pytest.mark.anyio
async def test_a_call_that_was_cancelled_leaves_no_episode() -> None:
    Slow.free.clear()
    Slow.entered.clear()
    async with sitting(Slow) as (_, session):
        await session.reset()
        call = asyncio.ensure_future(session.act(Say(word="slow")))
        await eventually(Slow.entered.is_set)
        call.cancel()
        Slow.free.set()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert session.score().unscored == "the episode was broken off"


# ------------------------------------------------------------------ what they cost


def test_waits_that_overlap_count_once_and_each() -> None:
    meter = Meter()
    gone, both = threading.Event(), threading.Barrier(2)

    def wait() -> None:
        with meter.waiting():
            both.wait()
            gone.wait()

    threads = [threading.Thread(target=wait) for _ in range(2)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    while meter.read().waited_s == 0.0:
        time.sleep(0.001)
    before = meter.read()
    gone.set()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    found = meter.read()
    assert 0 < before.waited_s <= found.waited_s <= took
    assert found.waited_s <= found.summed_s <= 2 * took
    assert meter.read() == found
    meter.count(steps=2, failures=1)
    assert meter.read() - found == MeterReading(steps=2, failures=1)
