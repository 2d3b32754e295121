"""Environments of Gymnasium."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from wrappers.driving import driving, refusal
from wrappers.games import Corridor, Steering

from openenv import GenericEnvClient, create_app
from openenv.errors import NotSupported, Refused
from openenv.reward import REWARD_INFO
from openenv.server.loading import load_target
from openenv.server.workers import managers_of, spec_source
from openenv.spaces import space_of
from openenv.testing import check_environment
from openenv.wrappers import AdapterError, MissingPackage, from_gymnasium

CORRIDOR = "python:wrappers.games:Corridor"


def test_steps_are_those_of_gymnasium() -> None:
    theirs = gymnasium.make("CartPole-v1")
    seen, _ = theirs.reset(seed=7)
    with driving("gymnasium:CartPole-v1") as env:
        ours = env.reset(seed=7)
        assert np.array_equal(ours.observation["observation"], seen)
        assert ours.observation["observation"].dtype == np.float32
        for number in range(200):
            seen, reward, terminated, truncated, _ = theirs.step(number % 2)
            ours = env.step({"action": number % 2})
            assert np.array_equal(ours.observation["observation"], seen)
            assert (ours.reward, ours.done) == (reward, terminated or truncated)
            if ours.done:
                break
        assert ours.done
        assert not ours.truncated
        assert env.state()["step_count"] == number + 1


def test_a_limit_on_steps_truncates() -> None:
    with driving("gymnasium:CartPole-v1?max_episode_steps=3") as env:
        env.reset(seed=0)
        results = [env.step({"action": number % 2}) for number in range(3)]
    assert [one.done for one in results] == [False, False, True]
    assert results[-1].truncated


def test_what_is_terminated_and_truncated_at_once_is_terminated() -> None:
    with driving("python:wrappers.games:Steering") as env:
        env.reset()
        result = env.step({"action": [0.5, -0.5]})
    assert result.done
    assert not result.truncated


def test_the_contract_is_kept() -> None:
    CartPole: Any = from_gymnasium("CartPole-v1", max_episode_steps=20)
    left, right = CartPole.ACTION(action=0), CartPole.ACTION(action=1)
    check_environment(CartPole, actions=[left, right])
    Walk: Any = from_gymnasium(Corridor)
    check_environment(Walk, actions=[Walk.ACTION(action=2)])


def test_the_schema_tells_the_spaces_and_what_actions_are_called() -> None:
    Walk: Any = from_gymnasium(Corridor, length=4)
    action = Walk.ACTION.model_json_schema()["properties"]["action"]
    assert action["names"] == ["STAY", "GO"]
    assert "1 STAY, 2 GO" in action["description"]
    schema = Walk.OBSERVATION.model_json_schema()
    whole = {**schema["properties"]["observation"], "$defs": schema["$defs"]}
    assert space_of(whole) == Corridor(4).observation_space


def test_a_dict_space_stays_within_its_field_and_is_not_written_again() -> None:
    Walk: Any = from_gymnasium(Corridor)
    env = Walk()
    first = env.reset(seed=1)
    second = env.step(Walk.ACTION(action=2))
    assert int(first.observation["place"][0]) == 0
    assert int(second.observation["place"][0]) == 1


def test_info_is_the_metadata_as_far_as_json_can_carry_it() -> None:
    with driving(CORRIDOR) as env:
        assert env.reset(seed=1).observation["metadata"] == {"told": [0, 1]}
        assert env.step({"action": 2}).observation["metadata"] == {"n": 7}


def test_options_of_reset_are_passed() -> None:
    with driving(CORRIDOR) as env:
        result = env.reset(seed=1, options={"place": 2})
        assert result.observation["observation"]["place"].tolist() == [2]
        assert env.step({"action": 2}).done


def test_an_action_outside_the_space_is_refused_and_changes_nothing() -> None:
    with driving(CORRIDOR) as env:
        env.reset()
        assert "action" in refusal(env, {"action": 3})
        assert "action" in refusal(env, {"action": 0})
        assert env.state()["step_count"] == 0
        assert env.step({"action": 2}).observation["observation"]["place"].tolist() == [1]
    with driving("python:wrappers.games:Steering") as env:
        env.reset()
        assert "Box(-1.0, 1.0, (2,), float32)" in refusal(env, {"action": [3, 0]})
        assert "(2,)" in refusal(env, {"action": [1, 0, 0]})
        assert env.state()["step_count"] == 0


def test_a_step_before_reset_or_after_the_end_is_refused() -> None:
    Steer: Any = from_gymnasium(Steering)
    env, action = Steer(), Steer.ACTION(action=[0, 0])
    with pytest.raises(Refused, match="before reset"):
        env.step(action)
    env.reset()
    env.step(action)
    with pytest.raises(Refused, match="after done"):
        env.step(action)
    assert env.state.step_count == 1


def test_a_negative_seed_is_refused() -> None:
    Steer: Any = from_gymnasium(Steering)
    with pytest.raises(Refused, match="seed is -1"):
        Steer().reset(seed=-1)


def test_a_reward_that_is_no_number_is_none_with_the_reason() -> None:
    Steer: Any = from_gymnasium(Steering, reward=float("nan"))
    env = Steer()
    env.reset()
    seen = env.step(Steer.ACTION(action=[0, 0]))
    assert seen.reward is None
    assert "nan" in seen.metadata[REWARD_INFO]["unscored"]


def test_render_is_by_the_render_mode() -> None:
    with driving(f"{CORRIDOR}?render_mode=ansi") as env:
        with pytest.raises(RuntimeError):
            env.render()
        env.reset(seed=1)
        env.step({"action": 2})
        assert env.render() == "."
    with driving(f"{CORRIDOR}?render_mode=rgb_array") as env:
        env.reset()
        assert env.render().shape == (2, 2, 3)
    Walk: Any = from_gymnasium(Corridor)
    env = Walk()
    env.reset()
    with pytest.raises(NotSupported, match="render_mode=ansi"):
        env.render()


def test_an_unknown_id_is_told_the_nearest() -> None:
    with pytest.raises(AdapterError, match="CartPole"):
        from_gymnasium("CartPol-v1")


@pytest.mark.parametrize(
    "target",
    ["CartPole-v77", "no_module_here:Some-v0", "nowhere/Some-v0", "CartPole-v1?wheels=5"],
)
def test_what_gymnasium_cannot_make_is_an_error_of_the_target(target: str) -> None:
    from openenv.server.loading import TargetError

    with pytest.raises(TargetError, match=r"^gymnasium:"):
        load_target(f"gymnasium:{target}")


def test_a_missing_package_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(*args: Any, **kwargs: Any) -> Any:
        raise gymnasium.error.DependencyNotInstalled("run `pip install a-b`")

    monkeypatch.setattr(gymnasium, "make", make)
    with pytest.raises(MissingPackage, match="pip install a-b"):
        from_gymnasium("CartPole-v1")


def test_a_space_without_a_form_on_the_wire_is_an_error_of_the_adapter() -> None:
    class Strange(Steering):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space: Any = spaces.Dict({1: spaces.Discrete(2)})  # type: ignore[dict-item]

    with pytest.raises(AdapterError, match="observation"):
        from_gymnasium(Strange)


def test_what_leaves_its_own_space_is_no_observation() -> None:
    class Broken(Steering):
        def reset(self, **kwargs: Any) -> Any:
            return np.zeros(3), {}

    with (
        GenericEnvClient.local(from_gymnasium(Broken)).sync() as env,
        pytest.raises(RuntimeError, match="broke its own space"),
    ):
        env.reset()


def test_another_process_makes_the_same_class() -> None:
    app = create_app(from_gymnasium("CartPole-v1", max_episode_steps=3))
    spec = managers_of(app)[0].spec
    again = pickle.loads(pickle.dumps(spec_source(spec)))()
    assert again.factory is not spec.factory
    assert again.action_cls is again.factory.ACTION
    assert again.observation_cls is again.factory.OBSERVATION
    assert again.action_schema() == spec.action_schema()


def test_only_what_is_known_to_be_quick_runs_on_the_event_loop() -> None:
    assert from_gymnasium("CartPole-v1").NEVER_BLOCKS
    assert not from_gymnasium(Corridor).NEVER_BLOCKS


def test_it_says_what_it_is() -> None:
    described = from_gymnasium("CartPole-v1")().get_metadata()
    assert described.name == "CartPole-v1"
    assert described.version == "1"
    assert "pole" in described.description
