"""Environments of PettingZoo, by turns and at once."""

from __future__ import annotations

from typing import Any

import pytest
from wrappers.driving import driving, refusal
from wrappers.games import Guess, Nim

from openenv.server.loading import TargetError, load_target
from openenv.testing import check_environment
from openenv.wrappers import AdapterError, MissingPackage, from_pettingzoo

TURNS = "pettingzoo:wrappers.games"
AT_ONCE = "pettingzoo:wrappers.games?parallel=true"


def test_agents_take_turns_to_the_end() -> None:
    with driving(TURNS) as env:
        seen = env.reset().observation
        assert seen["agent"] == "first"
        assert seen["observations"]["second"]["observation"].tolist() == [5]
        assert seen["action_masks"] == {"first": [1, 1], "second": [1, 1]}
        assert env.step({"action": 1}).observation["agent"] == "second"
        assert env.step({"action": 0, "agent": "second"}).observation["agent"] == "first"
        last = env.step({"action": 1})
        assert (last.reward, last.done, last.truncated) == (1.0, True, False)
        assert last.observation["agent"] is None
        assert last.observation["rewards"] == {"first": 1.0, "second": -1.0}
        assert last.observation["terminations"] == {"first": True, "second": True}
        assert set(last.observation["observations"]) == {"first", "second"}
        assert "after done" in refusal(env, {"action": 0})
        assert env.reset().observation["agent"] == "first"


def test_the_reward_is_that_of_the_agent_who_was_chosen() -> None:
    with driving(f"{TURNS}?agent=second&sticks=1") as env:
        env.reset()
        assert env.step({"action": 0}).reward == -1.0


def test_a_step_out_of_turn_is_refused_and_changes_nothing() -> None:
    with driving(TURNS) as env:
        env.reset()
        assert "'first'" in refusal(env, {"action": 1, "agent": "second"})
        assert "action" in refusal(env, {"action": 2})
        assert env.state()["step_count"] == 0
        assert env.step({"action": 1, "agent": "first"}).observation["agent"] == "second"


def test_agents_act_at_once_until_nobody_is_left() -> None:
    with driving(f"{AT_ONCE}&agent=b") as env:
        seen = env.reset().observation
        assert seen["agents"] == ["a", "b"]
        one = env.step({"actions": {"a": 2, "b": [0.5, 0.25]}})
        assert one.reward == 0.75
        assert one.observation["rewards"] == {"a": 2.0, "b": 0.75}
        assert one.observation["action_masks"] == {"a": [1, 1, 1]}
        two = env.step({"actions": {"a": 2, "b": [0.5, 0.25]}})
        assert two.observation["agents"] == ["a"]
        assert two.observation["terminations"] == {"a": False, "b": True}
        assert not two.done
        three = env.step({"actions": {"a": 1}})
        assert (three.done, three.truncated, three.reward) == (True, True, None)
        assert three.observation["rewards"] == {"a": 1.0}


@pytest.mark.parametrize(
    ("actions", "named"),
    [
        ({"a": 1}, "b"),
        ({"a": 1, "b": [2, 0]}, "actions.b"),
        ({"a": 5, "b": [0, 0]}, "actions.a"),
        ({"a": 1, "b": [0, 0], "c": 1}, "c"),
    ],
)
def test_actions_at_once_are_refused_by_name(actions: dict[str, Any], named: str) -> None:
    with driving(AT_ONCE) as env:
        env.reset()
        assert named in refusal(env, {"actions": actions})
        assert env.state()["step_count"] == 0


def test_an_action_of_one_who_is_out_is_refused() -> None:
    with driving(AT_ONCE) as env:
        env.reset()
        for _ in range(2):
            env.step({"actions": {"a": 0, "b": [0, 0]}})
        assert "'b' is not in" in refusal(env, {"actions": {"a": 0, "b": [0, 0]}})


@pytest.mark.filterwarnings("ignore:The base environment:UserWarning")
def test_agents_with_different_spaces_take_turns() -> None:
    with driving("pettingzoo:wrappers.games:parallel_env?parallel=false") as env:
        assert env.reset().observation["agent"] == "a"
        assert "action" in refusal(env, {"action": [0, 0]})
        assert env.step({"action": 1}).observation["agent"] == "b"
        assert "(2,)" in refusal(env, {"action": 1})
        assert env.step({"action": [0, 1]}).observation["rewards"] == {"a": 1.0, "b": 1.0}


def test_render_is_by_the_render_mode() -> None:
    with driving("pettingzoo:wrappers.games:Nim?render_mode=ansi") as env:
        env.reset()
        env.step({"action": 1})
        assert env.render() == "|||"


def test_the_contract_is_kept() -> None:
    Turns: Any = from_pettingzoo(Nim)
    check_environment(Turns, actions=[Turns.ACTION(action=0)])
    Together: Any = from_pettingzoo(Guess)

    def act(observation: Any) -> Any:
        actions = {"a": 1, "b": [0.0, 0.0]}
        return Together.ACTION(actions={one: actions[one] for one in observation.agents})

    check_environment(Together, actions=act)


def test_names_that_are_none_are_told_the_nearest() -> None:
    with pytest.raises(TargetError, match="tictactoe_v3"):
        load_target("pettingzoo:classic/tictacto_v3")
    with pytest.raises(AdapterError, match="'first'"):
        from_pettingzoo(Nim, agent="frist")
    with pytest.raises(AdapterError, match="stick"):
        from_pettingzoo(Nim, stick=3)
    with pytest.raises(AdapterError, match="no such module"):
        from_pettingzoo("nowhere/some_v0")


def test_a_missing_package_is_named_with_its_command() -> None:
    try:
        import pygame  # type: ignore[import-not-found] # noqa: F401
    except ImportError:
        with pytest.raises(MissingPackage, match=r"pip install 'pettingzoo\[classic\]'"):
            from_pettingzoo("classic/tictactoe_v3")
