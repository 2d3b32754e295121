"""Environments of several agents as PettingZoo's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from integrations.counters import AGENTS, Counters, Turns
from pettingzoo import AECEnv, ParallelEnv  # type: ignore[import-untyped]
from pettingzoo.test import api_test, parallel_api_test  # type: ignore[import-untyped]

from openenv.integrations.pettingzoo import (
    AtOnceEnv,
    OneAgentEnv,
    TurnsEnv,
    aec_env,
    parallel_env,
)
from openenv.providers import ProcessProvider
from openenv.wrappers import from_gymnasium, from_pettingzoo

# What PettingZoo's tests say of spaces and names that it takes all the same.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pettingzoo")

CartPole = from_gymnasium("CartPole-v1")


def turns(env: Any, seed: int) -> Iterator[tuple[Any, ...]]:
    """What every agent is shown, turn by turn, in an episode of random legal actions."""
    rng = np.random.default_rng(seed)
    env.reset(seed=seed)
    for agent in env.agent_iter():
        seen, reward, terminated, truncated, info = env.last()
        numbers = seen["observation"].tolist(), seen["action_mask"].tolist()
        yield agent, *numbers, reward, terminated, truncated, dict(info), dict(env.rewards)
        legal = np.flatnonzero(seen["action_mask"])
        env.step(None if terminated or truncated else int(rng.choice(legal)))


@pytest.mark.parametrize("seed", range(6))
def test_turns_go_as_in_pettingzoo(seed: int) -> None:
    env = aec_env(from_pettingzoo(Turns))
    assert isinstance(env, TurnsEnv)
    assert env.action_space("ann") == spaces.Discrete(3)
    assert list(turns(env, seed)) == list(turns(Turns(), seed))
    env.close()


def test_pettingzoo_finds_no_fault_in_turns() -> None:
    env = aec_env(from_pettingzoo(Turns))
    api_test(env, num_cycles=60)
    env.close()


@pytest.mark.parametrize("seed", range(3))
def test_acting_at_once_goes_as_in_pettingzoo(seed: int) -> None:
    env, own = parallel_env(from_pettingzoo(Counters)), Counters()
    assert isinstance(env, AtOnceEnv)
    rng = np.random.default_rng(seed)
    seen, wanted = env.reset(seed=seed), own.reset(seed=seed)
    assert {name: one.tolist() for name, one in seen[0].items()} == {
        name: one.tolist() for name, one in wanted[0].items()
    }
    while own.agents:
        assert env.agents == own.agents
        actions = {name: int(rng.integers(3)) for name in own.agents}
        step, wanted = env.step(actions), own.step(actions)
        assert {n: (o.tolist(), o.dtype) for n, o in step[0].items()} == {
            n: (o.tolist(), o.dtype) for n, o in wanted[0].items()
        }
        assert step[1:] == wanted[1:]
    assert env.agents == []
    env.close()


def test_pettingzoo_finds_no_fault_in_acting_at_once() -> None:
    env = parallel_env(from_pettingzoo(Counters))
    parallel_api_test(env, num_cycles=60)
    env.close()


def test_either_kind_is_made_of_the_other() -> None:
    at_once = aec_env(from_pettingzoo(Counters))
    assert isinstance(at_once, AECEnv)
    api_test(at_once, num_cycles=40)
    at_once.close()
    by_turns = parallel_env(from_pettingzoo(Turns))
    assert isinstance(by_turns, ParallelEnv)
    seen, _ = by_turns.reset(seed=0)
    assert list(seen) == AGENTS
    assert by_turns.step(dict.fromkeys(AGENTS, 1))[1]["ann"] == 1.0
    by_turns.close()


def test_one_agent_is_one_of_pettingzoos() -> None:
    env = parallel_env(CartPole)
    assert isinstance(env, OneAgentEnv)
    seen, _ = env.reset(seed=0)
    length = 0
    while env.agents:
        seen, rewards, terminated, truncated, _ = env.step({"agent_0": 0})
        length += 1
    assert 8 <= length <= 11 and terminated["agent_0"] and not truncated["agent_0"]
    assert rewards == {"agent_0": 1.0} and seen["agent_0"].shape == (4,)
    env.close()
    env = aec_env(from_gymnasium("FrozenLake-v1"))
    api_test(env, num_cycles=30)
    env.close()


def test_an_illegal_action_is_refused_and_the_turn_stays() -> None:
    env = aec_env(from_pettingzoo(Turns))
    env.reset(seed=0)
    with pytest.raises(Exception, match="action"):
        env.step(7)
    assert env.agent_selection == "ann"
    env.step(0)
    assert env.agent_selection == "bob"
    env.close()


@pytest.mark.slow
def test_agents_act_over_a_socket() -> None:
    provider = ProcessProvider("pettingzoo:integrations.counters:Turns")
    env = aec_env(provider)
    assert list(turns(env, 1)) == list(turns(Turns(), 1))
    env.close()
    assert provider.pid is None
