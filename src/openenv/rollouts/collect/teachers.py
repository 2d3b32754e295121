"""Teachers for datasets: a model behind an API, or any policy with a conversation."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

from openenv.client import background
from openenv.rewards.llm.client import LLMClient
from openenv.rollouts.collect.interfaces import call_of
from openenv.rollouts.harness.results import Message, ModelStep, ModelStepResult
from openenv.rollouts.interfaces import Interface
from openenv.rollouts.policies.base import (
    Decision,
    EpisodeOpening,
    Policy,
    PolicyPlayer,
    PolicyTurn,
)
from openenv.rollouts.policies.conversations import ModelConversation, ModelReply
from openenv.rollouts.replies import ParsedCall
from openenv.tools.types import Tool


def build_model_step(llm_client: LLMClient, *, system_prompt: str | None = None) -> ModelStep:
    """Build a model step that calls a language model over an API, from any thread.

    Args:
        llm_client: The client of the model. It is used on the event loop that all synchronous
            wrappers share; close it there: ``openenv.client.background.run(llm_client.aclose())``.
        system_prompt: The first message, unless the conversation begins with a system message.
    """

    def model_step(
        messages: list[Message], tools: list[Tool], sampling: dict[str, Any]
    ) -> ModelStepResult:
        told: list[Message] = [dict(message) for message in messages]
        if system_prompt and not (told and told[0].get("role") == "system"):
            told.insert(0, {"role": "system", "content": system_prompt})
        listed = [tool.model_dump(by_alias=True, exclude_none=True) for tool in tools]
        asked = llm_client.complete_with_tools(told, listed, **sampling)
        return ModelStepResult(background.run(asked))

    return model_step


class ConversingPolicy:
    """A policy with a conversation for each episode, like that of a model.

    A language model holds a conversation itself. For any other policy, one is written: its
    observations become messages of the user or of a tool, and its actions become tool calls.

    Args:
        policy: The policy that plays.
        system_prompt: The first message of a written conversation.
        on_interface: Called once with the interface, before the first episode begins.
    """

    needs_interface = True

    def __init__(
        self,
        policy: Policy,
        *,
        system_prompt: str | None = None,
        on_interface: Callable[[Interface], object] | None = None,
    ) -> None:
        self.name = policy.name
        self.wants_refusals = policy.wants_refusals
        self._policy = policy
        self._system_prompt = system_prompt
        self._on_interface = on_interface
        most = getattr(policy, "max_concurrency", None)
        if most is not None:
            self.max_concurrency = most

    async def begin(self, opening: EpisodeOpening) -> PolicyPlayer:
        """Begin an episode."""
        told, self._on_interface = self._on_interface, None
        if told is not None and opening.interface is not None:
            told(opening.interface)
        begun = self._policy.begin(opening)
        player = await begun if inspect.isawaitable(begun) else begun
        return _ToldPlayer(player, _ToldConversation(opening, system_prompt=self._system_prompt))

    async def aclose(self) -> None:
        """Release the resources of the policy."""
        await self._policy.aclose()


class _ToldPlayer:
    """A player that also holds a conversation."""

    def __init__(self, player: PolicyPlayer, telling: _ToldConversation) -> None:
        self._player = player
        self._telling = telling

    @property
    def messages(self) -> list[dict[str, Any]]:
        return list(getattr(self._player, "messages", None) or self._telling.messages)

    async def act(self, turn: PolicyTurn) -> Decision:
        self._telling.show(turn)
        acting = self._player.act(turn)
        decision = await acting if inspect.isawaitable(acting) else acting
        self._telling.say(decision)
        return decision


class _ToldConversation(ModelConversation):
    """A conversation written from the turns and decisions of another player."""

    _said = 0

    async def _ask(self, turn: PolicyTurn) -> ModelReply:
        raise NotImplementedError("it is told what was done, and asks nobody")

    def show(self, turn: PolicyTurn) -> None:
        self._show(turn)

    def say(self, decision: Decision) -> None:
        """Add a decision as the model's message."""
        text = decision.record.get("text")
        content = text if isinstance(text, str) else ""
        name, arguments = call_of(decision.action, self._interface)
        if self._interface.tool(name) is None:
            said = content or json.dumps(arguments, ensure_ascii=False)
            self.messages.append({"role": "assistant", "content": said})
            return
        self._answering = ParsedCall(f"call_{self._said}", name, arguments)
        self._said += 1
        function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
        call = {"id": self._answering.id, "type": "function", "function": function}
        self.messages.append({"role": "assistant", "content": content, "tool_calls": [call]})
