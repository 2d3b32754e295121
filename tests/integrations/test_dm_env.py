"""Environments as dm_env's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dm_env  # type: ignore[import-untyped]
import gymnasium
import numpy as np
import pytest
from absl.testing import absltest
from dm_env import specs, test_utils
from gymnasium import spaces

from openenv.integrations.dm_env import DmEnv, spec_of
from openenv.integrations.gymnasium import UnscoredStep
from openenv.spaces import AnyOf, Choice
from openenv.wrappers import from_gymnasium

CartPole = from_gymnasium("CartPole-v1", max_episode_steps=9)


class TestCartPole(test_utils.EnvironmentTestMixin, absltest.TestCase):  # type: ignore[misc]
    """dm_env's own checks."""

    def make_object_under_test(self) -> DmEnv:
        return DmEnv(CartPole, seed=0)

    def make_action_sequence(self) -> Iterator[Any]:
        for number in range(40):
            yield np.int64(number % 2)


class TestBlackjack(test_utils.EnvironmentTestMixin, absltest.TestCase):  # type: ignore[misc]
    """The same, with observations that are a tuple of numbers."""

    def make_object_under_test(self) -> DmEnv:
        return DmEnv(from_gymnasium("Blackjack-v1"), seed=0)


def test_the_last_step_tells_how_the_episode_ended() -> None:
    env = DmEnv(CartPole)
    assert env.step(0).first(), "a step of a fresh environment begins an episode"
    lasts = []
    for action in (0, 1):
        env.reset()
        step = env.step(action)
        while not step.last():
            step = env.step(action if action == 0 else 1 - int(step.observation[3] < 0))
        lasts.append((step.discount, step.reward))
    env.close()
    assert (0.0, 1.0) in lasts or (1.0, 1.0) in lasts
    assert env.reward_spec().shape == ()


def test_a_truncated_episode_has_the_discount_one() -> None:
    env = DmEnv(from_gymnasium("CartPole-v1", max_episode_steps=3))
    env.reset()
    steps = [env.step(1) for _ in range(3)]
    assert [(step.step_type, step.discount) for step in steps] == [
        (dm_env.StepType.MID, 1.0),
        (dm_env.StepType.MID, 1.0),
        (dm_env.StepType.LAST, 1.0),
    ]
    assert env.step(1).first()
    env.close()


def test_a_terminated_episode_has_the_discount_zero() -> None:
    env = DmEnv(from_gymnasium("CartPole-v1"))
    env.reset()
    step = env.step(1)
    while not step.last():
        step = env.step(1)
    assert step.discount == 0.0
    env.close()


def test_the_same_seed_gives_the_same_episodes() -> None:
    one, other = DmEnv(CartPole, seed=5), DmEnv(CartPole, seed=5)
    firsts = [(env.reset().observation, env.reset().observation) for env in (one, other)]
    assert np.array_equal(firsts[0], firsts[1])
    assert not np.array_equal(*firsts[0])
    one.close()
    other.close()


def test_specs_are_those_of_the_spaces() -> None:
    space = spaces.Dict(
        at=spaces.Box(-1, 1, (2,), np.float32),
        which=spaces.Tuple([spaces.MultiBinary(2), spaces.MultiDiscrete([3, 4])]),
        name=spaces.Text(5),
        to=Choice(["left", "right"]),
    )
    spec = spec_of(space, "seen")
    assert isinstance(spec["at"], specs.BoundedArray) and spec["at"].maximum.tolist() == [1, 1]
    assert spec["which"][1].maximum.tolist() == [2, 3]
    assert isinstance(spec["name"], specs.StringArray)
    assert spec["to"].num_values == 2 and spec["to"].name == "to (left, right)"
    with pytest.raises(ValueError, match="seen: dm_env has no spec"):
        spec_of(AnyOf([Choice([None]), spaces.Discrete(2)]), "seen")


def test_discrete_elements_are_counted_from_zero() -> None:
    class Shifted(gymnasium.Env[Any, Any]):
        action_space = spaces.Discrete(3, start=5)
        observation_space = spaces.Discrete(3, start=-1)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return -1, {}

        def step(self, action: Any) -> Any:
            return action - 6, float("nan") if action == 6 else float(action), False, False, {}

    env = DmEnv(from_gymnasium(Shifted))
    assert env.reset().observation == 0
    step = env.step(2)
    assert (step.observation, step.reward) == (2, 7.0)
    with pytest.raises(UnscoredStep):
        env.step(1)
    env.close()
