"""A policy that calls a language model over an API; see `openenv.rewards.llm`."""

from __future__ import annotations

from typing import Any

from openenv.rewards.llm.client import InvalidToolCall, LLMClient, LLMResponse
from openenv.rollouts.policies.base import (
    Decision,
    EpisodeOpening,
    InvalidReply,
    PolicyPlayer,
    PolicyTurn,
)
from openenv.rollouts.policies.conversations import ModelConversation, ModelReply, checked_act_by
from openenv.rollouts.replies import ActBy, ParsedCall

CUT_OFF = frozenset({"length", "max_tokens", "model_context_window_exceeded"})
"""Finish reasons of the APIs for a reply that has reached a limit."""


class LLMPolicy:
    """A language model that acts by calling the environment's tools.

    Args:
        client: The client of the model.
        name: The name in records. Default: the model's name.
        system_prompt: The first message of every conversation.
        act_by: The way in which the model acts: ``auto``, ``tools``, ``json`` or ``text``; see
            `openenv.rollouts.policies.conversations`.
        sees: Show the model pictures, as ``image_url`` parts. If False, an observation with a
            picture raises `NotSupported`.
        **options: Options of each request, such as ``temperature`` and ``max_tokens``.

    Raises:
        PolicyError: `act_by` is unknown.
    """

    needs_interface = True
    wants_refusals = True

    def __init__(
        self,
        client: LLMClient,
        *,
        name: str | None = None,
        system_prompt: str | None = None,
        act_by: str = "auto",
        sees: bool = True,
        **options: Any,
    ) -> None:
        self.client = client
        self.name = name or str(getattr(client, "model", type(client).__name__))
        self.system_prompt = system_prompt
        self.act_by: ActBy = checked_act_by(act_by)
        self.sees = sees
        self.options = options

    def begin(self, opening: EpisodeOpening) -> PolicyPlayer:
        return _LLMConversation(opening, self)

    async def aclose(self) -> None:
        await self.client.aclose()


class _LLMConversation(ModelConversation):
    def __init__(self, opening: EpisodeOpening, policy: LLMPolicy) -> None:
        by_tools = policy.act_by in ("auto", "tools")
        super().__init__(
            opening,
            system_prompt=policy.system_prompt,
            act_by=policy.act_by,
            describes_tools=not by_tools,
            sees=policy.sees,
        )
        self._policy = policy
        self._tools = [tool.as_tool() for tool in self._interface.tools] if by_tools else []

    async def _ask(self, turn: PolicyTurn) -> ModelReply:
        options = dict(self._policy.options)
        if turn.tokens_left is not None:
            most = options.get("max_tokens") or getattr(self._policy.client, "max_tokens", None)
            options["max_tokens"] = min(most or turn.tokens_left, turn.tokens_left)
        try:
            response = await self._policy.client.complete_with_tools(
                self.messages, self._tools, **options
            )
        except InvalidToolCall as error:
            said = f"{error.name}({error.arguments})"
            self.messages.append({"role": "assistant", "content": said})
            raise InvalidReply(str(error), Decision(None, {"text": said}, model_calls=1)) from error
        return _reply(response)


def _reply(response: LLMResponse) -> ModelReply:
    usage = response.usage
    record: dict[str, Any] = {}
    if response.finish_reason is not None:
        record["finish_reason"] = response.finish_reason
    if response.tool_calls:
        record["calls"] = [{"name": one.name, "arguments": one.args} for one in response.tool_calls]
    return ModelReply(
        response.content,
        [ParsedCall(one.id, one.name, one.args) for one in response.tool_calls],
        response.to_message_dict(),
        record,
        0 if usage is None else usage.prompt_tokens,
        0 if usage is None else usage.completion_tokens,
        response.finish_reason in CUT_OFF,
    )
