"""Environments of dm_env."""

from __future__ import annotations

from typing import Any

import pytest
from wrappers.driving import driving, refusal
from wrappers.games import Catch, falling

from openenv.errors import IgnoredArgumentWarning
from openenv.testing import check_environment
from openenv.wrappers import AdapterError, MissingPackage, from_dm_env


def test_an_episode_ends_by_a_discount_of_0() -> None:
    with driving("dm_env:wrappers.games:Catch?rows=2") as env:
        first = env.reset(seed=3)
        assert first.reward is None
        assert first.observation["discount"] is None
        column = int(first.observation["observation"]["ball"][1])
        assert env.step({"action": column}).observation["discount"] == 1.0
        last = env.step({"action": column})
        assert (last.reward, last.done, last.truncated) == (1.0, True, False)
        assert last.observation["observation"]["word"] == "fall"
        assert "after done" in refusal(env, {"action": 0})


def test_a_last_step_with_a_discount_is_a_truncation() -> None:
    with driving("dm_env:wrappers.games:Catch?limit=1") as env:
        env.reset(seed=0)
        result = env.step({"action": 0})
        assert result.done
        assert result.truncated


def test_an_action_outside_the_spec_is_refused() -> None:
    with driving("dm_env:wrappers.games:Catch") as env:
        env.reset(seed=0)
        assert "action" in refusal(env, {"action": 3})
        assert env.state()["step_count"] == 0


def columns(target: str, seeds: list[int]) -> list[int]:
    with driving(target) as env:
        return [int(env.reset(seed=s).observation["observation"]["ball"][1]) for s in seeds]


def test_a_seed_goes_to_the_argument_that_is_named() -> None:
    seeds = list(range(8))
    plain = columns("dm_env:wrappers.games:Catch", seeds)
    nested = columns("dm_env:wrappers.games:falling?seed_argument=task.random", seeds)
    assert plain == nested
    assert len(set(plain)) > 1


def test_a_seed_is_not_accepted_where_nothing_takes_one() -> None:
    with driving("dm_env:wrappers.games:falling") as env, pytest.warns(IgnoredArgumentWarning):
        env.reset(seed=1)


def test_the_contract_is_kept() -> None:
    Caught: Any = from_dm_env(Catch)
    check_environment(Caught, actions=[Caught.ACTION(action=1)])


def test_what_cannot_be_made_is_an_error_of_the_adapter() -> None:
    with pytest.raises(AdapterError, match="colums"):
        from_dm_env(Catch, colums=3)
    with pytest.raises(AdapterError, match="module:factory"):
        from_dm_env("wrappers.games")
    with pytest.raises(AdapterError, match="nothing_here"):
        from_dm_env("wrappers.games:nothing_here")
    with pytest.raises(AdapterError, match=r"dm_env\.Environment"):
        from_dm_env(dict)
    with pytest.raises(MissingPackage, match="no_module_here"):
        from_dm_env("no_module_here:load")
    assert from_dm_env(falling).__name__ == "falling"
