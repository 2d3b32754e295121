"""Blackjack as a session of tools, and models that play it by rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from blackjack_env import BlackjackAction, BlackjackEnv
from openenv.rewards.llm import LLMResponse, ToolCall
from openenv.rollouts.harness import (
    Message,
    ModelStepResult,
    ResourceSessionFactory,
    StepEnvSessionAdapter,
)
from openenv.tools import Tool
from openenv.types import StepResult

SCHEMA = {"type": "object", "properties": {"action": {"enum": ["hit", "stand"]}}}
TOOLS = [Tool(name="play", description="Take a card, or none.", input_schema=SCHEMA)]


def began(result: StepResult[Any], task: Any) -> list[Message]:
    return [{"role": "user", "content": f"{task}: {result.observation.text}"}]


def action(name: str, arguments: dict[str, Any]) -> BlackjackAction:
    return BlackjackAction(action=arguments["action"])


class Tables(ResourceSessionFactory[StepEnvSessionAdapter]):
    """A table for each rollout, at one server; keeps those that it gave out."""

    def __init__(self, url: str, **options: Any) -> None:
        self.url = url
        self.options = options
        self.clients: list[BlackjackEnv] = []

    def create(
        self, task: Any, seed: int | None = None, episode_id: str | None = None
    ) -> StepEnvSessionAdapter:
        client = BlackjackEnv(base_url=self.url)
        self.clients.append(client)
        return StepEnvSessionAdapter(
            client,
            task=task,
            seed=seed,
            episode_id=episode_id,
            tool_specs=TOOLS,
            action_builder=action,
            initial_messages_builder=began,
            **self.options,
        )


def call(name: str = "play", /, *, id: str = "1", **arguments: Any) -> ToolCall:
    return ToolCall(id, name, arguments)


class Speaker:
    """A model that says what it was told to, turn by turn, and keeps what it was asked.

    Its tokens are those of a template that adds to what it has read: 1 for each message.
    """

    def __init__(self, *turns: Sequence[ToolCall] | str) -> None:
        self.turns = list(turns)
        self.asked: list[list[Message]] = []
        self.sampling: list[dict[str, Any]] = []

    def __call__(
        self, messages: list[Message], tools: list[Tool], sampling: dict[str, Any]
    ) -> ModelStepResult:
        self.asked.append([dict(message) for message in messages])
        self.sampling.append(sampling)
        said = self.turns[min(len(self.asked), len(self.turns)) - 1]
        reply = LLMResponse(said, []) if isinstance(said, str) else LLMResponse("", list(said))
        return ModelStepResult(reply, list(range(len(messages))), [len(messages)], [-0.5])


def standing(trainer: Any, session: Any) -> Callable[..., ModelStepResult]:
    """A model step that stands at once."""
    return Speaker([call(action="stand")])
