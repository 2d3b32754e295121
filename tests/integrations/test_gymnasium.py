"""Environments as Gymnasium's, alone and many together."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any, Literal

import gymnasium
import numpy as np
import pytest
from fastapi import FastAPI
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from openenv import (
    Action,
    EnvClient,
    Environment,
    GenericEnvClient,
    NotSupported,
    Observation,
    State,
)
from openenv.errors import ConnectError, EnvironmentsFailed, ExecutionFailed
from openenv.integrations.gymnasium import (
    ENVIRONMENT_ID,
    GymnasiumEnv,
    GymnasiumVectorEnv,
    UnscoredStep,
)
from openenv.providers import ProcessProvider
from openenv.spaces import Choice
from openenv.wrappers import from_gymnasium

# What Gymnasium's own CartPole gives cause for.
pytestmark = pytest.mark.filterwarnings("ignore:.*infinity:UserWarning")

CartPole = from_gymnasium("CartPole-v1")


class Move(Action):
    to: Literal["left", "right"]
    by: int = 1


class Place(Observation):
    at: int
    walls: list[bool]


class Walk(Environment[Move, Place, State]):
    """Ends at 3, is cut off at -3, and does not score a step of 2."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    state = State()

    def reset(  # type: ignore[override]
        self, seed: int | None = None, start: int = 0
    ) -> Place:
        self.at = start + (seed or 0) % 2
        return self._seen()

    def step(self, action: Move) -> Place:  # type: ignore[override]
        self.at += action.by if action.to == "right" else -action.by
        seen = self._seen()
        seen.reward = None if action.by == 2 else float(self.at)
        seen.metadata = {"by": action.by}
        return seen

    def _seen(self) -> Place:
        is_over = abs(self.at) >= 3
        return Place(at=self.at, walls=[self.at <= -3], done=is_over, truncated=self.at <= -3)

    def render(self) -> str:
        return f"at {self.at}"


@pytest.fixture(scope="module")
def provider() -> Iterator[ProcessProvider]:
    provider = ProcessProvider("gymnasium:CartPole-v1")
    try:
        provider.start()
        yield provider
    finally:
        provider.stop()


@pytest.fixture
def server(provider: ProcessProvider) -> str:
    return provider.base_url


# ------------------------------------------------------------------ one


@pytest.mark.filterwarnings("ignore:.*alternative render modes:UserWarning")
def test_gymnasium_finds_no_fault_in_one_over_a_socket(server: str) -> None:
    env = GymnasiumEnv(server)
    check_env(env)
    env.close()


def test_it_goes_the_way_of_gymnasiums_own(server: str) -> None:
    env, own = GymnasiumEnv(server), gymnasium.make("CartPole-v1")
    assert env.action_space == own.action_space
    assert env.observation_space == own.observation_space
    rng = np.random.default_rng(0)
    for seed in (3, None, 4):
        seen, wanted = env.reset(seed=seed), own.reset(seed=seed)
        if seed is not None:  # else the generators have gone on from the same place
            assert np.array_equal(seen[0], wanted[0])
        over = False
        while not over:
            action = rng.integers(2)
            step, wanted_step = env.step(action), own.step(action)
            assert np.array_equal(step[0], wanted_step[0])
            assert step[1:] == wanted_step[1:]
            over = step[2] or step[3]
    env.close()
    own.close()


def test_options_of_reset_reach_an_environment_of_gymnasium_as_options() -> None:
    options = {"low": 0.4, "high": 0.5}
    own = gymnasium.make("CartPole-v1").unwrapped.reset(seed=0, options=options)[0]
    env = GymnasiumEnv(from_gymnasium("CartPole-v1"))
    many = GymnasiumVectorEnv(from_gymnasium("CartPole-v1"), 2)
    try:
        assert np.allclose(env.reset(seed=0, options=options)[0], own)
        assert np.allclose(env.reset(seed=0, options={"options": options})[0], own)
        assert (many.reset(seed=0, options=options)[0] >= 0.4).all()
    finally:
        env.close()
        many.close()


def test_a_truncated_episode_is_not_terminated() -> None:
    env = GymnasiumEnv(Walk, unscored_reward=0.0)
    env.reset(options={"start": -2})
    _, reward, terminated, truncated, info = env.step({"to": 0, "by": np.array(1)})
    assert (reward, terminated, truncated, info) == (-3.0, False, True, {"by": 1})
    env.reset(options={"start": 2})
    assert env.step({"to": np.int64(1), "by": np.array(1)})[2:4] == (True, False)
    env.close()


def test_spaces_are_those_of_the_schema() -> None:
    env = GymnasiumEnv(Walk)
    assert isinstance(env.action_space, spaces.Dict)
    assert env.action_space["to"].values == ("left", "right")  # type: ignore[attr-defined]
    assert isinstance(env.observation_space, spaces.Dict)
    assert list(env.observation_space) == ["at", "walls"]
    seen, _ = env.reset()
    assert seen["walls"] == (0,)
    assert env.observation_space.contains(seen)
    env.close()


def test_spaces_and_fields_can_be_given() -> None:
    env = GymnasiumEnv(
        Walk,
        action_field="to",
        observation_space=spaces.Box(-9, 9, (), np.float32),
        observation_field="at",
    )
    assert env.action_space == Choice(["left", "right"])
    seen, _ = env.reset(seed=1)
    assert seen == np.float32(1) and seen.dtype == np.float32
    assert env.step(1)[0] == 2
    env.close()


def test_a_space_may_leave_fields_out() -> None:
    env = GymnasiumEnv(
        Walk,
        action_space=spaces.Discrete(2),  # of the only field that has to be there
        observation_space=spaces.Dict(at=spaces.Box(-9, 9, (), np.int64)),
    )
    seen, _ = env.reset(seed=1)
    assert list(seen) == ["at"]
    env.close()


def test_a_field_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match="did you mean 'walls'"):
        GymnasiumEnv(Walk, observation_field="wall")
    with pytest.raises(ValueError, match="observation_field="):
        GymnasiumEnv(Walk, observation_space=spaces.Discrete(2))


def test_a_step_that_was_not_scored_raises_unless_told_what_it_counts() -> None:
    env = GymnasiumEnv(Walk)
    env.reset()
    with pytest.raises(UnscoredStep, match="unscored_reward") as caught:
        env.step({"to": 1, "by": np.array(2)})
    assert caught.value.result.observation["at"] == 2
    env.close()
    env = GymnasiumEnv(Walk, unscored_reward=-0.5)
    env.reset()
    assert env.step({"to": 1, "by": np.array(2)})[1] == -0.5
    env.close()


def test_what_is_no_action_is_refused_and_the_episode_goes_on() -> None:
    env = GymnasiumEnv(CartPole)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="action: expected Discrete"):
        env.step("left")
    with pytest.raises(Exception, match="action"):
        env.step(7)
    assert env.step(1)[1] == 1.0
    env.close()


def test_a_step_after_the_end_is_refused() -> None:
    env = GymnasiumEnv(CartPole)
    env.reset(seed=0)
    while not env.step(0)[2]:
        pass
    with pytest.raises(ExecutionFailed, match="after done"):
        env.step(0)
    env.close()


def test_a_typed_client_is_driven_too() -> None:
    class WalkEnv(EnvClient[Move, Place, State]): ...

    env = GymnasiumEnv(WalkEnv.local(Walk))
    seen, _ = env.reset(seed=1)
    assert seen["at"] == 1
    env.close()


def test_what_has_no_space_is_named_with_the_way_out() -> None:
    class Free(Action):
        params: dict[str, Any]

    class Hall(Environment[Free, Place, State]):
        state = State()

        def reset(self) -> Place:  # type: ignore[override]
            return Place(at=0, walls=[])

        def step(self, action: Free) -> Place:  # type: ignore[override]
            return Place(at=len(action.params), walls=[])

    with pytest.raises(ValueError, match=r"action\.params.*action_space="):
        GymnasiumEnv(Hall)


def test_nobody_at_an_address_is_a_connect_error() -> None:
    with pytest.raises(ConnectError):
        GymnasiumEnv("http://127.0.0.1:9")


def test_a_server_without_schemas_is_a_connect_error(serve: Callable[[Any], str]) -> None:
    app = FastAPI()
    app.get("/schema")(lambda: {"action": {"type": "object"}})
    with pytest.raises(ConnectError, match="no schema of the observation"):
        GymnasiumEnv(serve(app))


def test_gymnasium_makes_them_by_id(server: str) -> None:
    env = gymnasium.make(ENVIRONMENT_ID, source=server, max_episode_steps=3)
    env.reset(seed=0)
    assert [env.step(1)[3] for _ in range(3)] == [False, False, True]
    env.close()
    envs = gymnasium.make_vec(ENVIRONMENT_ID, num_envs=2, source=server)
    assert isinstance(envs.unwrapped, GymnasiumVectorEnv)
    assert envs.reset(seed=0)[0].shape == (2, 4)
    envs.close()


def test_a_pickle_holds_what_it_was_made_of(server: str) -> None:
    env = GymnasiumEnv(server)
    again = pickle.loads(pickle.dumps(env))
    env.close()
    assert np.array_equal(again.reset(seed=5)[0], gymnasium.make("CartPole-v1").reset(seed=5)[0])
    again.close()


@pytest.mark.slow
def test_gymnasiums_own_vectors_hold_them_in_other_processes(provider: ProcessProvider) -> None:
    url, key = provider.base_url, provider.api_key
    envs = gymnasium.vector.AsyncVectorEnv(
        [lambda: GymnasiumEnv(url, api_key=key)] * 2, context="spawn"
    )
    own = gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
    assert np.array_equal(envs.reset(seed=2)[0], own.reset(seed=2)[0])
    assert np.array_equal(envs.step(np.array([0, 1]))[0], own.step(np.array([0, 1]))[0])
    envs.close()
    own.close()


def test_text_is_rendered_as_text() -> None:
    env = GymnasiumEnv(Walk, render_mode="ansi")
    env.reset(seed=1)
    assert env.render() == "at 1"
    env.close()
    env = GymnasiumEnv(Walk, render_mode="rgb_array")
    env.reset()
    with pytest.raises(NotSupported, match="ansi"):
        env.render()
    env.close()
    with pytest.raises(ValueError, match="render_mode"):
        GymnasiumEnv(Walk, render_mode="human")  # type: ignore[arg-type]


# ------------------------------------------------------------------ many


def pair(name: str, count: int, mode: AutoresetMode, source: Any) -> tuple[Any, Any]:
    envs = GymnasiumVectorEnv(source, count, autoreset_mode=mode)
    own = gymnasium.make_vec(
        name,
        num_envs=count,
        vectorization_mode="async",
        vector_kwargs={"autoreset_mode": mode},
    )
    return envs, own


def same(one: Any, other: Any) -> bool:
    """Whether two infos, or parts of them, are equal."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, np.ndarray) and one.dtype == object:
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return bool(one == other)


def told(infos: Any) -> Any:
    """Infos but for FrozenLake's `prob`, of which Gymnasium makes integers when the first is 1."""
    if not isinstance(infos, dict):
        return infos
    return {key: told(value) for key, value in infos.items() if key not in ("prob", "_prob")}


@pytest.mark.extended("plays every kind of vector beside Gymnasium's own")
@pytest.mark.slow
@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("name", ["CartPole-v1", "FrozenLake-v1", "Blackjack-v1", "Pendulum-v1"])
def test_many_do_what_gymnasiums_do(name: str, mode: AutoresetMode) -> None:
    envs, own = pair(name, 5, mode, from_gymnasium(name))
    assert envs.metadata["autoreset_mode"] is own.metadata["autoreset_mode"]
    assert envs.action_space == own.action_space
    assert envs.observation_space == own.observation_space
    (seen, infos), (wanted_seen, wanted_infos) = envs.reset(seed=11), own.reset(seed=11)
    assert same(seen, wanted_seen) and same(told(infos), told(wanted_infos))
    own.action_space.seed(1)
    for _ in range(250 if name == "Pendulum-v1" else 60):
        actions = own.action_space.sample()
        step, wanted = envs.step(actions), own.step(actions)
        assert same(step[:4], wanted[:4])
        assert same(told(step[4]), told(wanted[4]))
        over = wanted[2] | wanted[3]
        if mode is AutoresetMode.DISABLED and over.any():
            options = {"reset_mask": over}
            assert same(envs.reset(options=dict(options))[0], own.reset(options=dict(options))[0])
    envs.close()
    own.close()


def test_many_over_a_socket_and_a_wrapper_of_gymnasium(server: str) -> None:
    envs = RecordEpisodeStatistics(GymnasiumVectorEnv(server, 4))
    envs.reset(seed=0)
    lengths: list[int] = []
    for _ in range(40):
        infos = envs.step(np.ones(4, dtype=np.int64))[4]
        if "episode" in infos:
            lengths += infos["episode"]["l"][infos["_episode"]].tolist()
    envs.close()
    assert len(lengths) >= 8
    assert set(lengths) <= set(range(8, 12))  # a pole that is pushed one way falls that soon


def test_spaces_of_several_fields_are_batched() -> None:
    envs = GymnasiumVectorEnv(Walk, 3, unscored_reward=0.0)
    seen, _ = envs.reset(seed=0)
    assert seen["at"].tolist() == [0, 1, 0]
    assert envs.observation_space.contains(seen)
    actions = {"to": np.array([1, 1, 0]), "by": np.array([1, 2, 1])}
    seen, rewards, *_ = envs.step(actions)
    assert seen["at"].tolist() == [1, 3, -1]
    assert rewards.tolist() == [1.0, 0.0, -1.0]
    envs.close()


def test_steps_that_were_not_scored_are_named() -> None:
    envs = GymnasiumVectorEnv(Walk, 2)
    envs.reset(seed=0)
    with pytest.raises(UnscoredStep, match=r"\[1\]"):
        envs.step({"to": np.array([1, 1]), "by": np.array([1, 2])})
    envs.close()


def test_environments_that_fail_are_named() -> None:
    envs = GymnasiumVectorEnv(CartPole, 3)
    envs.reset(seed=0)
    with pytest.raises(EnvironmentsFailed) as caught:
        envs.step(np.array([0, 9, 1]))
    assert list(caught.value.errors) == [1]
    envs.close()


def test_a_client_is_no_source_of_many() -> None:
    client: Any = GenericEnvClient.local(CartPole)
    with pytest.raises(TypeError, match="one session"):
        GymnasiumVectorEnv(client, 2)
    client.close()
    with pytest.raises(TypeError, match="no environment"):
        GymnasiumVectorEnv(3, 2)  # type: ignore[arg-type]


def test_closing_stops_what_was_started() -> None:
    provider = ProcessProvider("gymnasium:CartPole-v1")
    envs = GymnasiumVectorEnv(provider, 2)
    assert provider.pid is not None
    envs.close()
    envs.close()
    assert provider.pid is None


def test_a_vector_that_was_never_made_to_the_end_can_be_closed() -> None:
    # Which `__del__` of Gymnasium 1.0 does.
    made = GymnasiumVectorEnv.__new__(GymnasiumVectorEnv)
    made.close()
    assert made.closed
