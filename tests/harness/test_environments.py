"""Sessions for harnesses in any environment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from rollouts.worlds import PerStep, Terminal

from openenv.rewards.llm.client import LLMResponse, ToolCall
from openenv.rollouts.harness import (
    EnvironmentSessions,
    MCPHarnessAdapter,
    Message,
    ModelStep,
    ModelStepResult,
    UnknownSessionTool,
    build_harness_rollout_func,
)
from openenv.tasks.task import Task


@contextmanager
def sessions(environment: Any, **options: Any) -> Iterator[EnvironmentSessions]:
    found = EnvironmentSessions(environment, **options)
    try:
        yield found
    finally:
        found.close()


def saying(*words: str) -> ModelStep:
    """A model that says these words, one a turn, by the tool."""
    left = list(words)

    def step(messages: list[Message], tools: Any, sampling: Any) -> ModelStepResult:
        calls = [ToolCall(id=f"c{len(left)}", name="say", args={"word": left.pop(0)})]
        reply = LLMResponse(content="", tool_calls=calls)
        return ModelStepResult(reply, prompt_ids=[1, 2], completion_ids=[3], logprobs=[-0.5])

    return step


def test_a_task_is_played_and_its_verdict_is_what_the_environment_declares() -> None:
    task = Task(id="t", prompt="Say it.", reset={"start": "so"})
    with sessions(PerStep, system_prompt="Be brief.") as factory:
        session = factory.create(task, seed=3)
        assert session.initial_messages() == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": 'Say it.\n\n{"words": ["so"]}'},
        ]
        (tool,) = session.list_tools()
        assert tool.name == "say"
        assert tool.input_schema["properties"]["word"]["type"] == "string"
        found = MCPHarnessAdapter().run_white_box(saying("hi", "over"), session)
        assert found.done
        verdict = session.verify(found.messages)
        assert (verdict.env_reward, verdict.done) == (2 + 4 + 1.0, True)
        assert verdict.metrics == {"steps": 2, "length": 6.0, "style": 1.0}
        session.close()
        session.close()


def test_a_mistake_of_the_model_is_told_to_it() -> None:
    with sessions(Terminal) as factory:
        session = factory.create("Say it.")
        assert session.call_tool("say", {"word": "rude"}).text == "Error: mind your language"
        assert "word" in str(session.call_tool("say", {}).error)
        with pytest.raises(UnknownSessionTool, match="did you mean 'say'"):
            session.call_tool("sai", {})
        assert not session.call_tool("say", {"word": "hi"}).done
        verified = session.verify([])
        assert verified.env_reward is None
        assert "range" in verified.artifacts["unscored"]


def test_a_rollout_whose_environment_fails_has_no_reward_and_ends() -> None:
    with sessions(PerStep) as factory:
        step = saying("hi", "crash", "more")
        rollouts = build_harness_rollout_func(
            session_factory=factory,
            harness_adapter=MCPHarnessAdapter(),
            model_step_builder=lambda _trainer, _session: step,
        )
        found = rollouts(["Say it."], None)
        assert found["env_reward"] == [None]
        assert len(found["completion_ids"]) == 1
        session = factory.create("Say it.")
        session.call_tool("say", {"word": "hi"})
        failed = session.call_tool("say", {"word": "crash"})
        assert failed.done
        verdict = session.verify([])
        assert verdict.env_reward is None
        assert verdict.artifacts["unscored"] == failed.error
