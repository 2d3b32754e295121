from __future__ import annotations

from typing import Any

import pytest

from openenv.errors import ExecutionFailed
from openenv.reward import REWARD_INFO
from openenv.testing import check_environment
from openenv.types import Action

from .. import CallToolAction, EchoAction, EchoEnv, ListToolsAction
from ..server.echo_environment import EchoEnvironment


def test_it_keeps_the_contract() -> None:
    check_environment(EchoEnvironment, actions=[EchoAction(message="hello")])


def test_it_repeats_the_message_and_pays_a_tenth_a_character() -> None:
    with EchoEnv.local(EchoEnvironment) as env:
        assert env.reset().observation.echoed_message == "Echo environment ready!"
        result = env.step(EchoAction(message="Hello, World!"))
    assert result.observation.echoed_message == "Hello, World!"
    assert result.observation.message_length == 13
    assert result.reward == 1.3
    assert result.components == {"length": 1.3}


def test_saying_the_word_of_a_task_earns_1_and_ends_the_episode() -> None:
    with EchoEnv.local(EchoEnvironment).sync() as env:
        shown = env.reset(task={"id": "say-hello", "prompt": "..."})
        assert shown.observation.echoed_message == "Say 'hello'."
        wrong = env.step(EchoAction(message="hello and more"))
        assert (wrong.reward, wrong.done) == (0.0, False)
        (fork,) = env.fork(1)
        for one in (env, fork):
            right = one.step(EchoAction(message="hello"))
            assert (right.reward, right.components, right.done) == (1.0, {"said": 1.0}, True)
            for action in (EchoAction(message="hello"), ListToolsAction()):
                with pytest.raises(ExecutionFailed, match="call reset"):
                    one.step(action)
        with pytest.raises(ExecutionFailed, match="say-goodbye"):
            env.reset(task="say-what")
        env.reset()
        assert env.step(EchoAction(message="hello")).reward == 0.5


@pytest.mark.parametrize("tool", ["echo_message", "echo_with_length"])
def test_the_word_of_a_task_may_be_said_by_a_tool(tool: str) -> None:
    """Agents that act by tool calls could not earn a reward before."""
    with EchoEnv.local(EchoEnvironment).sync() as env:
        env.reset(task="say-hello")
        for arguments in ({"message": "hi"}, {"words": "hello"}):
            wrong = env.step(CallToolAction(tool_name=tool, arguments=arguments))
            assert not wrong.reward and not wrong.done
        right = env.step(CallToolAction(tool_name=tool, arguments={"message": "hello"}))
        assert (right.reward, right.components, right.done) == (1.0, {"said": 1.0}, True)
        assert "hello" in str(right.observation.result)
        with pytest.raises(ExecutionFailed, match="call reset"):
            env.step(CallToolAction(tool_name=tool, arguments={"message": "hello"}))


def test_rewards_reach_both_ends_of_the_range_that_is_declared() -> None:
    with EchoEnv.local(EchoEnvironment).sync() as env:
        env.reset()
        assert env.reward_spec is not None and env.reward_spec.range == (0.0, 100_000.0)
        said = ("", "a" * 1_000_000, "a" * 1_000_001)
        paid = [env.step(EchoAction(message=message)).reward for message in said]
        assert paid == [0.0, 100_000.0, 100_000.0]
        env.reset(task="say-a")
        assert env.reward_spec.range == (0.0, 1.0) and env.reward_spec.components == ("said",)


def test_its_tools_are_listed_and_called() -> None:
    with EchoEnv.local(EchoEnvironment) as env:
        tools = env.step(ListToolsAction()).observation.tools
        assert [tool.name for tool in tools] == ["echo_message", "echo_with_length"]
        call = CallToolAction(tool_name="echo_with_length", arguments={"message": "abc"})
        result = env.step(call)
        assert result.observation.result["data"] == {"message": "abc", "length": 3}
        assert result.reward is None
        assert env.state().step_count == 2


def test_a_tool_is_called_without_a_step() -> None:
    with EchoEnv.local(EchoEnvironment).sync() as env:
        env.reset()
        assert env.call_tool("echo_message", message="hi") == "hi"
        assert env.call_tool("echo_with_length", message="abc") == {"message": "abc", "length": 3}
        assert env.state().step_count == 0


def test_an_action_that_it_does_not_know_is_not_scored_and_told_so() -> None:
    observation = EchoEnvironment().step(Action())
    assert observation.reward is None
    assert "Action" in observation.metadata[REWARD_INFO]["unscored"]


def test_its_own_step_counts_as_one_that_is_served() -> None:
    environment = EchoEnvironment()
    environment.reset(episode_id="e")
    assert environment.step(EchoAction(message="hi")).echoed_message == "hi"
    call = CallToolAction(tool_name="echo_message", arguments={"message": "hi"})
    assert environment.step(call).result["data"] == "hi"
    assert environment.state.step_count == 2
    environment.close()


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (CallToolAction(tool_name="nope"), "tool_not_found"),
        (CallToolAction(tool_name="echo_message"), "invalid_args"),
        (CallToolAction(tool_name="echo_message", arguments={"message": 3}), "invalid_args"),
        (
            CallToolAction(tool_name="echo_message", arguments={"message": "a", "loud": True}),
            "invalid_args",
        ),
    ],
)
def test_a_wrong_call_is_an_error_of_its_kind(call: CallToolAction, error: str) -> None:
    with EchoEnv.local(EchoEnvironment) as env:
        observation = env.step(call).observation
    assert observation.error is not None
    assert observation.error.error_type.value == error
    assert observation.result is None


def test_an_action_of_either_writing_is_made_by_one_name() -> None:
    action: Any = EchoAction(tool_name="echo_message", arguments={"message": "hi"})  # type: ignore[call-arg]
    assert action == CallToolAction(tool_name="echo_message", arguments={"message": "hi"})
    assert EchoAction.model_validate({"message": "hi"}) == EchoAction(message="hi")


def test_its_episodes_can_be_stored_and_forked() -> None:
    with EchoEnv.local(EchoEnvironment).sync() as env:
        env.reset(episode_id="e")
        env.step(EchoAction(message="hello"))
        (fork,) = env.fork(1)
        assert fork.state() == env.state()
        assert env.state().step_count == 1
