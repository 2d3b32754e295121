"""The plain loop: turns, calls, limits, and whose fault it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from harness.tables import Speaker, Tables, call
from rollouts.worlds import Heard, Say, Talk

from blackjack_env.server.app import app
from openenv import ExecutionFailed, GenericEnvClient, create_app
from openenv.errors import EnvironmentCrashed
from openenv.rewards.llm import LLMResponse
from openenv.rollouts.harness import (
    CLIHarnessAdapter,
    HarnessRolloutResult,
    HarnessRunLimits,
    MCPHarnessAdapter,
    ModelStepResult,
    ResourceSession,
    SessionMCPBridge,
    StepEnvSessionAdapter,
    ToolResult,
    VerifyResult,
)
from openenv.tools import Tool

Serve = Callable[[Any], str]


class Counter(ResourceSession):
    """A session in memory: ``add`` adds up, ``stop`` ends it, ``crash`` fails."""

    def __init__(self) -> None:
        self.total = 0

    def initial_messages(self) -> list[dict[str, Any]]:
        return [{"role": "user", "content": "count"}]

    def list_tools(self) -> list[Tool]:
        return [Tool(name=name, description="", input_schema={}) for name in ("add", "stop")]

    def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        if name == "crash":
            raise EnvironmentCrashed(-9)
        self.total += arguments.get("n", 0)
        return ToolResult(data=self.total, done=name == "stop", metadata={"reward": self.total})

    def verify(self, transcript: list[dict[str, Any]], final_state: Any = None) -> VerifyResult:
        return VerifyResult(env_reward=float(self.total))

    def close(self) -> None:
        pass


def run(speaker: Any, **limits: Any) -> HarnessRolloutResult:
    return MCPHarnessAdapter().run_white_box(speaker, Counter(), HarnessRunLimits(**limits))


def answers(result: HarnessRolloutResult) -> list[str]:
    """What the calls of the conversation were answered, and that each of them was."""
    asked = [one["id"] for m in result.messages for one in m.get("tool_calls", [])]
    tools = [message for message in result.messages if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in tools] == asked
    return [message["content"] for message in tools]


def test_a_hand_is_played_at_a_server(serve: Serve) -> None:
    tables = Tables(serve(app))
    session = tables.create("Play", seed=3)
    speaker = Speaker([call(action="stand")])
    result = MCPHarnessAdapter().run_white_box(speaker, session)
    verdict = session.verify(result.messages)
    session.close()
    assert result.done
    assert result.metrics == {"turns": 1, "tool_calls": 1}
    assert [message["role"] for message in result.messages] == ["user", "assistant", "tool"]
    assert result.messages[0]["content"].startswith("Play: ")
    seen = json.loads(result.messages[2]["content"])
    assert seen["observation"]["outcome"] in {"win", "lose", "draw"}
    assert verdict.env_reward == seen["reward"] == result.tool_trace[0].result.metadata["reward"]
    assert verdict.done
    assert verdict.metrics == {"step_count": 1}


def test_the_mistakes_of_a_model_are_told_to_it(serve: Serve) -> None:
    session = Tables(serve(app)).create("Play", seed=3)
    speaker = Speaker(
        [call("fold", id="a")],
        [call(id="b", action="double"), call(id="c")],
        [call(id="d", action="stand")],
    )
    result = MCPHarnessAdapter().run_white_box(speaker, session)
    session.close()
    unknown, wrong, missing, played = answers(result)
    assert unknown == "Error: Unknown tool: fold; there is play"
    assert wrong.startswith("Error: play: ValidationError")
    assert "hit" in wrong
    assert missing == "Error: play: KeyError: 'action'"
    assert json.loads(played)["done"]
    assert result.done
    assert result.metrics["tool_calls"] == 4
    assert [one.result.error is None for one in result.tool_trace] == [False, False, False, True]


def talking(serve: Serve, *turns: Any) -> HarnessRolloutResult:
    """Of a model that says words to an environment at a server."""
    session = StepEnvSessionAdapter(
        GenericEnvClient(serve(create_app(Talk, Say, Heard))),
        tool_specs=[Tool(name="say", description="Say a word.", input_schema={})],
        action_builder=lambda name, arguments: arguments,
        initial_messages_builder=lambda result, task: [{"role": "user", "content": "talk"}],
    )
    try:
        return MCPHarnessAdapter().run_white_box(Speaker(*turns), session)
    finally:
        session.close()


def test_what_an_environment_refuses_is_told_to_the_model(serve: Serve) -> None:
    result = talking(
        serve,
        [call("say", id="a", word="rude")],
        [call("say", id="b", word=3)],
        [call("say", id="c", word="over")],
    )
    refused, wrong, heard = answers(result)
    assert refused == "Error: mind your language"
    assert wrong.startswith("Error: ")
    assert "word: " in wrong
    assert json.loads(heard)["done"]
    assert result.done


def test_a_crash_of_the_environment_is_not_told_to_the_model(serve: Serve) -> None:
    with pytest.raises(ExecutionFailed) as caught:
        talking(serve, [call("say", word="crash")], "never")
    assert caught.value.incident is not None


def test_a_failure_of_the_environment_is_no_answer() -> None:
    with pytest.raises(EnvironmentCrashed, match="SIGKILL"):
        run(Speaker([call("crash")]))


def test_a_reply_without_calls_ends_it() -> None:
    result = run(Speaker([call("add", n=2)], "two"))
    assert result.done
    assert result.messages[-1] == {"role": "assistant", "content": "two"}
    assert [event.type for event in result.events] == [
        "model_response",
        "tool_call",
        "model_response",
    ]


def test_turns_are_limited() -> None:
    speaker = Speaker([call("add", n=1)])
    result = run(speaker, max_turns=3, sampling={"temperature": 0.5})
    assert not result.done
    assert result.metrics == {"turns": 3, "tool_calls": 3}
    assert speaker.sampling == [{"temperature": 0.5}] * 3


def test_no_turn_is_a_rollout_too() -> None:
    result = run(Speaker("never"), max_turns=0)
    assert not result.done
    assert result.metrics == {"turns": 0, "tool_calls": 0}
    assert (result.prompt_ids, result.completion_ids) == ([], [])


def test_calls_of_a_turn_are_limited_and_all_are_answered() -> None:
    turn = [call("add", id="a", n=1), call("add", id="b", n=10)]
    result = run(Speaker(turn, "done"), max_tool_calls_per_turn=1)
    assert answers(result) == ["1", "Error: not carried out: there may be 1 calls in a turn"]
    assert result.metrics == {"turns": 2, "tool_calls": 1}
    skipped = [event.payload for event in result.events if event.type == "tool_call_skipped"]
    assert skipped == [
        {
            "tool_name": "add",
            "arguments": {"n": 10},
            "reason": "there may be 1 calls in a turn",
        }
    ]


def test_calls_in_all_are_limited_and_all_are_answered() -> None:
    turn = [call("add", id="a", n=1), call("add", id="b", n=10)]
    result = run(Speaker(turn, "never"), max_total_tool_calls=1)
    assert answers(result) == ["1", "Error: not carried out: there may be 1 calls in all"]
    assert result.metrics == {"turns": 1, "tool_calls": 1, "truncated": True}
    assert not result.done


def test_nothing_is_called_after_the_end() -> None:
    turn = [call("stop", id="a", n=1), call("add", id="b", n=10)]
    result = run(Speaker(turn, "never"))
    assert answers(result) == ["1", "Error: not carried out: the episode is over"]
    assert result.done
    assert [entry.tool_name for entry in result.tool_trace] == ["stop"]


def test_what_a_model_reads_of_a_result() -> None:
    assert ToolResult(data="as it is").text == "as it is"
    assert ToolResult(data={"b": [1.5, "ü"], "a": None}).text == '{"a": null, "b": [1.5, "ü"]}'
    assert ToolResult(data=LLMResponse("x")).text.startswith('{"content": "x"')
    assert ToolResult().text == ""
    assert ToolResult(error="no").text == "Error: no"
    assert ToolResult(data=1, error="no").text == "Error: no\n1"


# ------------------------------------------------------------------ tokens


def joined(*turns: tuple[list[int], list[int], list[float]]) -> tuple[list[Any], ...]:
    result = HarnessRolloutResult()
    result.join([ModelStepResult(LLMResponse(""), *turn) for turn in turns])
    assert len(result.completion_ids) == len(result.logprobs) == len(result.completion_mask)
    return result.prompt_ids, result.completion_ids, result.logprobs, result.completion_mask


def test_turns_are_one_sequence_and_only_what_was_written_is_trained() -> None:
    one, two = ([1, 2], [3], [-0.1]), ([1, 2, 3, 8, 9], [4, 5], [-0.2, -0.3])
    assert joined(one, two) == (
        [1, 2],
        [3, 8, 9, 4, 5],
        [-0.1, 0.0, 0.0, -0.2, -0.3],
        [1, 0, 0, 1, 1],
    )


def test_what_a_template_wrote_otherwise_is_context() -> None:
    # The second turn read 7 where the first had written 4: 3 stays, 4 was never there.
    one, two = ([1, 2], [3, 4], [-0.1, -0.2]), ([1, 2, 3, 7, 8], [5], [-0.3])
    assert joined(one, two) == ([1, 2], [3, 7, 8, 5], [-0.1, 0.0, 0.0, -0.3], [1, 0, 0, 1])


def test_a_conversation_that_was_cut_keeps_what_is_left() -> None:
    one, two = ([1, 2], [3, 4], [-0.1, -0.2]), ([1, 6], [5], [-0.3])
    assert joined(one, two) == ([1, 6], [5], [-0.3], [1])
    shorter = ([1, 2, 3], [9], [-0.4])
    assert joined(one, shorter) == ([1, 2], [3, 9], [-0.1, -0.4], [1, 1])


def test_a_turn_without_a_prompt_goes_on_from_the_last() -> None:
    assert joined(([1], [2], [-0.1]), ([], [], [])) == ([1], [2], [-0.1], [1])
    assert joined(([1], [2], [-0.1]), ([], [3], [-0.2])) == ([1], [2, 3], [-0.1, -0.2], [1, 1])


def test_log_probabilities_belong_to_tokens() -> None:
    assert joined(([1], [2, 3], [])) == ([1], [2, 3], [0.0, 0.0], [1, 1])
    with pytest.raises(ValueError, match="turn 1 has 1 logprobs for 2 completion_ids"):
        joined(([1], [2], [-0.1]), ([1, 2], [3, 4], [-0.1]))


def test_a_rollout_has_the_tokens_of_its_turns() -> None:
    result = run(Speaker([call("add", n=1)], [call("add", n=1)], "done"))
    assert result.prompt_ids == [0]
    assert result.completion_ids == [1, 2, 3, 4, 5]
    assert result.completion_mask == [1, 0, 1, 0, 1]
    assert len(result.turns) == 3


# ------------------------------------------------------------------ black boxes


def test_a_program_runs_its_own_loop(serve: Serve) -> None:
    session = Tables(serve(app)).create("Play", seed=3)

    def runner(
        bridge: SessionMCPBridge, session: ResourceSession, limits: HarnessRunLimits
    ) -> HarnessRolloutResult:
        assert limits.max_turns == 10
        params = {"name": "play", "arguments": {"action": "stand"}}
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = bridge.handle_request(request)
        return HarnessRolloutResult(messages=[answer], done=answer["result"]["done"])

    result = CLIHarnessAdapter(runner).run_black_box(session)
    session.close()
    assert result.done
    assert result.messages[0]["result"]["data"]["observation"]["outcome"]


def test_each_adapter_says_which_it_is() -> None:
    with pytest.raises(NotImplementedError, match="CLIHarnessAdapter"):
        MCPHarnessAdapter().run_black_box(Counter())
    with pytest.raises(NotImplementedError, match="MCPHarnessAdapter"):
        CLIHarnessAdapter(lambda *_: HarnessRolloutResult()).run_white_box(
            Speaker("never"), Counter()
        )
