"""One suite of behaviour: over every transport, for every form of environment."""

from __future__ import annotations

import asyncio
import math
import warnings
from collections.abc import AsyncIterator, Callable
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy
import pytest
from pydantic import ConfigDict, Field
from support.environments import KINDS, Counter, CounterEnv, Do, Hold, Log, Progress, Seen
from support.waiting import eventually

from openenv import (
    Action,
    CapacityError,
    EnvClient,
    Environment,
    ExecutionFailed,
    IgnoredArgumentWarning,
    NotSupported,
    Observation,
    ResponseTimeout,
    SessionLost,
    State,
    ValidationFailed,
    create_app,
)
from openenv.environment import termination
from openenv.errors import FactoryFailed

pytestmark = pytest.mark.anyio

Connect = Callable[..., CounterEnv]


@pytest.fixture(params=KINDS)
def environment(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> type[Environment[Any, Any, Any]]:
    cls = KINDS[request.param]
    monkeypatch.setattr(cls, "log", Log())
    return cls


@pytest.fixture
async def env(
    connect: Connect, environment: type[Environment[Any, Any, Any]]
) -> AsyncIterator[CounterEnv]:
    async with connect(environment) as client:
        yield client


async def test_an_episode_is_played(env: CounterEnv) -> None:
    first = await env.reset(seed=3, episode_id="e", size=2)
    assert first.observation == Seen(text="ready", arguments={"seed": 3, "size": 2})
    assert (first.reward, first.done, first.truncated) == (None, False, False)
    second = await env.step(Do())
    assert (second.observation.text, second.reward, second.done) == ("step 1", 1.0, False)
    assert await env.state() == Progress(episode_id="e", step_count=1, board=[0, 0])
    last = await env.step(Do(what="done"))
    assert last.done and last.terminated and not last.truncated and last.reward == 1.0


async def test_people_see_where_it_stands(env: CounterEnv, version: int) -> None:
    await env.reset()
    await env.step(Do())
    if version == 0:
        with pytest.raises(NotSupported):
            await env.render()
    else:
        assert await env.render() == "at 1"
    assert (await env.step(Do())).observation.text == "step 2", "nothing has changed"


async def test_truncation_is_told_from_termination(env: CounterEnv) -> None:
    await env.reset()
    result = await env.step(Do(what="truncate"))
    assert result.done and result.truncated and not result.terminated
    assert result.observation.truncated
    assert result.observation.text == "cut" and result.reward == 0.5


@pytest.mark.parametrize("reward", [None, True, 1, 0.25, -1e300])
async def test_a_reward_arrives_as_it_is(env: CounterEnv, reward: Any) -> None:
    await env.reset()
    result = await env.step(Do(what="reward", value=reward))
    assert result.reward == reward and type(result.reward) is type(reward)


async def test_metadata_arrive_beside_the_observation_and_in_it(env: CounterEnv) -> None:
    await env.reset()
    result = await env.step(Do(what="annotate"))
    assert result.metadata == {"k": [1, {"a": None}]}
    assert result.observation.metadata == {"k": [1, {"a": None}]}


@pytest.mark.parametrize(
    "value",
    ["é ☃ 🤖 \u2028 \x00 \t", 2**80, [1.5, None, {"a": []}], "x" * 200_000, -0.0],
    ids=["unicode", "big integer", "nested", "long", "negative zero"],
)
async def test_values_survive_the_way_there_and_back(env: CounterEnv, value: Any) -> None:
    await env.reset()
    result = await env.step(Do(what="echo", value=value))
    assert result.observation.value == value


async def test_an_argument_that_nobody_takes_is_reported(env: CounterEnv) -> None:
    with pytest.warns(IgnoredArgumentWarning, match="'sized'"):
        result = await env.reset(size=1, sized=2)
    assert result.metadata == {"ignored_arguments": ["sized"]}
    assert result.observation.arguments["size"] == 1


async def test_an_argument_that_a_step_cannot_carry_is_reported(env: CounterEnv) -> None:
    await env.reset()
    with pytest.warns(IgnoredArgumentWarning, match="'hurry'"):
        result = await env.step(Do(), hurry=True)
    assert result.metadata == {"ignored_arguments": ["hurry"]}


async def test_arguments_that_are_taken_bring_no_warning(env: CounterEnv) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = await env.reset(seed=1, episode_id="x", size=3)
    assert result.metadata is None


async def test_an_exception_of_the_environment_reaches_the_caller(env: CounterEnv) -> None:
    await env.reset()
    with pytest.raises(ExecutionFailed) as caught:
        await env.step(Do(what="raise"))
    assert caught.value.code == "EXECUTION_ERROR"
    assert caught.value.message == "kaboom"
    assert (await env.step(Do())).observation.text == "step 2", "the session goes on"


async def test_an_environment_that_exits_does_not_take_the_server_along(env: CounterEnv) -> None:
    await env.reset()
    with pytest.raises(ExecutionFailed, match="SystemExit"):
        await env.step(Do(what="exit"))
    assert (await env.step(Do())).observation.text == "step 2"


async def test_a_wrong_action_is_refused_field_by_field(env: CounterEnv) -> None:
    await env.reset()
    with pytest.raises(ValidationFailed) as caught:
        await env.step({"what": 3, "whta": "x"})  # type: ignore[arg-type]
    assert {tuple(error["loc"]) for error in caught.value.errors} == {("what",), ("whta",)}
    assert (await env.state()).step_count == 0, "the environment never saw it"


async def test_returning_nothing_is_an_error_that_says_so(env: CounterEnv) -> None:
    await env.reset()
    with pytest.raises(ExecutionFailed, match="return"):
        await env.step(Do(what="nothing"))


@pytest.mark.parametrize("what", ["unencodable", "badbytes"])
async def test_a_value_that_cannot_be_sent_is_named(env: CounterEnv, what: str) -> None:
    await env.reset()
    with pytest.raises(ExecutionFailed, match=r"Seen\.value"):
        await env.step(Do(what=what))
    assert (await env.step(Do())).observation.text == "step 2"


async def test_concurrent_calls_are_not_mixed_up(env: CounterEnv) -> None:
    await env.reset()
    echoes = [env.step(Do(what="echo", value=i)) for i in range(20)]
    answers: list[Any] = await asyncio.gather(*echoes, env.state())
    assert [answer.observation.value for answer in answers[:20]] == list(range(20))
    assert isinstance(answers[20], Progress)


async def test_sessions_are_apart(env: CounterEnv) -> None:
    other = await env.new_session()
    await env.reset()
    await other.reset()
    for _ in range(3):
        await env.step(Do())
    assert (await env.state()).step_count == 3
    assert (await other.state()).step_count == 0


@pytest.mark.slow
async def test_a_late_answer_is_never_taken_for_another(env: CounterEnv) -> None:
    await env.reset()
    with pytest.raises(ResponseTimeout):
        await env.step(Do(what="sleep", value=0.3), timeout_s=0.05)
    assert (await env.reset(size=5)).observation.arguments["size"] == 5
    assert (await env.step(Do())).observation.text == "step 1"


async def test_a_cancelled_step_leaves_the_episode_unknown(env: CounterEnv) -> None:
    await env.reset()
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(_step(env, Do(what="sleep", value=0.2)), 0.05)
    with pytest.raises(SessionLost):
        await env.step(Do())
    assert (await env.reset()).observation.text == "ready"


async def _step(env: CounterEnv, action: Do) -> Any:
    return await env.step(action)


async def test_leaving_closes_the_environment_once(
    connect: Connect, environment: type[Environment[Any, Any, Any]]
) -> None:
    log: Log = environment.log  # type: ignore[attr-defined]
    async with connect(environment) as env:
        await env.reset()
        await env.step(Do())
    await eventually(lambda: log.count("close") == 1)
    assert log.count("init") == 1


async def test_a_synchronous_environment_sees_one_thread_only(
    connect: Connect, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cls = KINDS["sync"]
    log = Log()
    monkeypatch.setattr(cls, "log", log)
    async with connect(cls) as env:
        await env.reset()
        await env.step(Do())
        await env.state()
        if version == 1:
            await env.render()
    await eventually(lambda: log.count("close") == 1)
    assert len(log.threads) == 1


async def test_a_slow_step_holds_up_no_other_session(env: CounterEnv, tmp_path: Path) -> None:
    other = await env.new_session()
    await env.reset()
    await other.reset()
    hold = Hold(tmp_path)
    slow = asyncio.ensure_future(_step(env, hold.action))
    await hold.begun()
    for _ in range(5):
        await other.step(Do())
    assert not slow.done()
    hold.release()
    await slow


async def test_a_full_server_says_so(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    cls = KINDS["sync"]
    monkeypatch.setattr(cls, "SUPPORTS_CONCURRENT_SESSIONS", False)
    async with connect(cls) as first:
        await first.reset()
        monkeypatch.setenv("OPENENV_QUEUE_TIMEOUT_S", "0")
        second = connect(cls)
        with pytest.raises(CapacityError, match="CAPACITY_REACHED") as caught:
            await second.reset()
        assert caught.value.data["max_sessions"] == 1
        assert isinstance(caught.value, RuntimeError)
    await eventually_resets(connect(cls))


async def eventually_resets(client: CounterEnv) -> None:
    for _ in range(100):
        try:
            assert (await client.reset()).observation.text == "ready"
            break
        except CapacityError:
            await asyncio.sleep(0.02)
    else:
        raise AssertionError("the slot never came free")
    await client.close()


class Unmakeable(Counter):
    def __init__(self) -> None:
        raise OSError("no display")


async def test_a_factory_that_fails_is_named(connect: Connect) -> None:
    client = connect(Unmakeable)
    with pytest.raises(FactoryFailed, match="Unmakeable"):
        await client.reset()
    await client.close()


class Cut(Observation):
    """Its own field says that the output was cut, and nothing of the episode."""

    truncated: bool = False
    numbers: list[float | None] = []  # noqa: RUF012 - Pydantic copies it


class Push(Action):
    kind: Literal["push"] = "push"
    force: float | None = None


class Wait(Action):
    kind: Literal["wait"] = "wait"


Choice = Annotated[Push | Wait, Field(discriminator="kind")]


class Shape(Enum):
    ROUND = "round"


class Strict(Observation):
    model_config = ConfigDict(strict=True)

    shape: Shape = Shape.ROUND
    pair: tuple[int, ...] = (1, 2)


class Liberal(Environment[Any, Observation, State]):
    """Does what models of the boundary case ask for."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    state = State()

    def reset(self) -> Observation:  # type: ignore[override]
        return Cut(truncated=True)

    def step(self, action: Any) -> Observation:  # type: ignore[override]
        if isinstance(action, Wait):
            return termination(Observation(), reward=numpy.float32(0.5))
        if action.force is None:
            raise ZeroDivisionError
        return Cut(truncated=True, numbers=[math.copysign(1, action.force), math.inf])


class LiberalEnv(EnvClient[Any, Cut | Observation, State]):
    """Reads whatever it sends."""


async def test_what_a_model_may_say_in_its_own_way(
    transport: str, version: int, serve: Any
) -> None:
    app = create_app(Liberal, Choice, Cut, state_cls=State)
    made = LiberalEnv(serve(app)) if transport == "server" else LiberalEnv.local(app)
    async with made as env:
        first = await env.reset()
        assert (first.done, first.truncated, first.observation.truncated) == (False, False, True)
        pushed = await env.step(Push(force=-math.inf))
        assert isinstance(pushed.observation, Cut)
        assert (pushed.done, pushed.truncated) == (False, False)
        # JSON has no infinity, but our client asks a server of version 0 to name it.
        assert pushed.observation.numbers == [-1.0, math.inf]
        with pytest.raises(ExecutionFailed, match="ZeroDivisionError"):
            await env.step(Push())
        over = await env.step(Wait())
        assert (over.reward, type(over.reward), over.done) == (0.5, float, True)


async def test_a_strict_observation_is_read_as_json() -> None:
    class Sees(Environment[Action, Strict, State]):
        state = State()

        def reset(self) -> Strict:  # type: ignore[override]
            return Strict()

        def step(self, action: Action) -> Strict:  # type: ignore[override]
            return Strict(reward=1.0)

    class SeesEnv(EnvClient[Action, Strict, State]): ...

    async with SeesEnv.local(Sees) as env:
        assert (await env.reset()).observation == Strict()


async def test_metadata_that_say_truncated_end_no_episode(connect: Connect) -> None:
    class Noting(Counter):
        def step(self, action: Do, timeout_s: float | None = None) -> Seen:  # type: ignore[override]
            return Seen(metadata={"truncated": True})

    async with connect(Noting) as env:
        await env.reset()
        result = await env.step(Do())
        assert (result.done, result.truncated) == (False, False)
        assert result.metadata == {"truncated": True}
