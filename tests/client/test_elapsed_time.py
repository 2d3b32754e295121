"""`State.elapsed_time`: seconds since the episode began, as a client measures it."""

from __future__ import annotations

import copy
import pickle
import time
from typing import Any

import httpx
import pytest
from support.dice import Dice, DiceEnv, Roll, StoredDice
from support.servers import serving

from openenv import EnvClient, Environment, State, create_app
from openenv.core.env_server.types import State as PublicState
from openenv.types import Observation, set_elapsed_time


class Clocked(State):
    """A state with an `elapsed_time` of its own."""

    elapsed_time: float = 0.0


class Clock(Environment[Any, Any, Any]):
    """Supplies an elapsed time of its own, by a field or by an undeclared value."""

    state_type: type[State] = Clocked

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> Observation:
        return Observation()

    def step(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        return Observation()

    @property
    def state(self) -> State:
        return self.state_type(elapsed_time=2.5)  # type: ignore[call-arg]


class OpenClock(Clock):
    state_type = State


class ClockEnv(EnvClient[Any, Observation, Clocked]): ...


class OpenClockEnv(EnvClient[Any, Observation, State]): ...


@pytest.fixture(params=["0", "1"])
def protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("OPENENV_PROTOCOL", request.param)
    return str(request.param)


def check_it_grows(env: Any) -> None:
    assert env.state().elapsed_time is None  # nothing has begun
    env.reset(seed=1)
    began = time.monotonic()
    first = env.state()
    time.sleep(0.02)
    env.step(Roll())
    second = env.state()
    assert 0 <= first.elapsed_time < second.elapsed_time
    assert second.elapsed_time - first.elapsed_time >= 0.02
    env.reset(seed=1)
    assert 0 <= env.state().elapsed_time < time.monotonic() - began


@pytest.mark.usefixtures("protocol")
def test_it_grows_over_a_websocket_and_begins_anew_with_each_reset() -> None:
    with serving(create_app(Dice)) as url, DiceEnv(base_url=url).sync() as env:
        check_it_grows(env)


@pytest.mark.usefixtures("protocol")
@pytest.mark.parametrize("source", [Dice, create_app(Dice)])
def test_it_grows_in_this_process(source: Any) -> None:
    with DiceEnv.local(source).sync() as env:
        check_it_grows(env)


@pytest.mark.usefixtures("protocol")
@pytest.mark.parametrize(("environment", "client"), [(Clock, ClockEnv), (OpenClock, OpenClockEnv)])
def test_the_environment_s_own_takes_precedence(environment: Any, client: Any) -> None:
    with client.local(environment).sync() as env:
        env.reset()
        assert env.state().elapsed_time == 2.5


def test_it_is_in_no_payload() -> None:
    with serving(create_app(StoredDice)) as url:
        assert "elapsed_time" not in httpx.get(f"{url}/state").json()
        assert "elapsed_time" not in httpx.get(f"{url}/schema").text
    state = State(step_count=1)
    set_elapsed_time(state, 3.0)
    assert state.model_dump() == {"episode_id": None, "step_count": 1}
    assert state.model_dump_json() == '{"episode_id":null,"step_count":1}'
    assert "elapsed_time" not in State.model_json_schema()["properties"]


def test_it_is_unknown_after_the_session_is_closed_or_restored() -> None:
    with DiceEnv.local(StoredDice).sync() as env:
        env.reset(seed=1)
        kept = env.snapshot()
        assert env.state().elapsed_time is not None
        assert env.restore(kept).elapsed_time is None
        assert env.state().elapsed_time is None
        env.reset(seed=1)
        env.async_client._session.lose_episode("the test ends it")
        env.reset(seed=1)
        assert env.state().elapsed_time is not None
    with DiceEnv.local(Dice, journal=True).sync() as env:
        env.reset(seed=1)
        kept = env.snapshot(replay=True)
        assert env.restore(kept).elapsed_time is None


def test_states_do_not_differ_by_it_and_copies_keep_it() -> None:
    one, other = State(episode_id="e"), State(episode_id="e")
    set_elapsed_time(one, 1.0)
    assert one == other and one != State(episode_id="f")
    assert one.elapsed_time == 1.0 and other.elapsed_time is None
    for copied in (
        copy.copy(one),
        copy.deepcopy(one),
        one.model_copy(),
        pickle.loads(pickle.dumps(one)),
    ):
        assert copied.elapsed_time == 1.0
    one.step_count = 4
    assert one.elapsed_time == 1.0 and one.model_extra == {}
    assert PublicState is State


def test_a_field_that_a_subclass_declares_is_read_and_assigned() -> None:
    class Told(Observation):
        terminated: bool = True

    assert Told().terminated is True and Told(done=True, terminated=False).terminated is False
    assert Clocked(elapsed_time=4.0).elapsed_time == 4.0
    state = Clocked()
    state.elapsed_time = 5.0
    assert state.elapsed_time == 5.0 and state.model_dump()["elapsed_time"] == 5.0
    assert State(elapsed_time=4.0).elapsed_time == 4.0  # type: ignore[call-arg]
