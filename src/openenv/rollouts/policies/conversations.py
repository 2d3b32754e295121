"""A language model in an episode: a conversation in which replies are actions.

A model acts by calling the environment's tools. A model that is given no tools writes its calls as
text, in any format that `openenv.rollouts.formats` reads, such as JSON:
``{"name": TOOL, "arguments": {...}}``. If an action is one text and nothing else, a reply without a
call is that text. `openenv.rollouts.replies` describes how replies are read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from openenv.rollouts.interfaces import Interface
from openenv.rollouts.policies.base import (
    Decision,
    EpisodeOpening,
    InvalidReply,
    PolicyError,
    PolicyTurn,
)
from openenv.rollouts.policies.views import ObservationView, look_at, view
from openenv.rollouts.replies import (
    ActBy,
    ParsedCall,
    describe_tools,
    describe_unknown_tool,
    read_reply,
)

NOT_DONE = "not carried out, since a call before it was not"


def checked_act_by(act_by: str) -> ActBy:
    """Return `act_by` if valid."""
    if act_by not in get_args(ActBy):
        known = ", ".join(get_args(ActBy))
        raise PolicyError(f"act_by={act_by!r} of a policy; expected one of {known}")
    return act_by  # type: ignore[return-value]


@dataclass
class ModelReply:
    """A reply of a model.

    Attributes:
        message: The reply as a message of the conversation.
        is_cut: True if a limit cut the reply off; it is then not carried out.
        written: The text with special tokens, in which some models write calls; None if the same as
            `text`.
        specials: Special tokens of the tokenizer, which are removed from the text.
    """

    text: str
    calls: Sequence[ParsedCall] = ()
    message: dict[str, Any] | None = None
    record: dict[str, Any] = field(default_factory=dict)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    is_cut: bool = False
    written: str | None = None
    specials: Sequence[str] = ()


class ModelConversation(ABC):
    """Plays an episode by a conversation. Subclasses implement `_ask`.

    Args:
        opening: The beginning of the episode.
        system_prompt: The first message.
        act_by: The way in which the model acts.
        describes_tools: Describe in words how to act, for a model that is given no tools.
        sees: True if the model takes pictures. If False, an observation with a picture raises
            `NotSupported`.

    Attributes:
        messages: The conversation, in the format of OpenAI's API.
    """

    def __init__(
        self,
        opening: EpisodeOpening,
        *,
        system_prompt: str | None = None,
        act_by: ActBy = "auto",
        describes_tools: bool = False,
        sees: bool = False,
    ) -> None:
        assert opening.interface is not None
        self.messages: list[dict[str, Any]] = []
        self._opening = opening
        self._interface: Interface = opening.interface
        self._act_by: ActBy = act_by
        self._sees = sees
        self._left: deque[ParsedCall] = deque()
        self._problem: str | None = None  # with the rest of the reply, after these calls
        self._answering: ParsedCall | None = None  # the call whose result comes next
        words = describe_tools(self._interface, as_json=act_by not in ("auto", "text"))
        system = "\n\n".join(
            part for part in (system_prompt, words if describes_tools else None) if part
        )
        if system:
            self.messages.append({"role": "system", "content": system})
        self.messages += prompt_messages((opening.task or {}).get("prompt"))

    @abstractmethod
    async def _ask(self, turn: PolicyTurn) -> ModelReply:
        """Let the model reply to the messages."""

    async def act(self, turn: PolicyTurn) -> Decision:
        """Show the model the result of the last action, and return the next action."""
        self._show(turn)
        if self._left:
            call = self._left.popleft()
            return self._decided(call, Decision(None, {"call": call.name}))
        if self._problem is not None:
            why, self._problem = self._problem, None
            raise InvalidReply(why)
        reply = await self._ask(turn)
        self.messages.append(reply.message or {"role": "assistant", "content": reply.text})
        cost = Decision(
            None,
            {"text": reply.text, **reply.record},
            model_calls=1,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
        )
        calls, problem = self._read(reply)
        if not calls:
            raise InvalidReply(problem or "", cost)
        self._left, self._problem = deque(calls), problem
        return self._decided(self._left.popleft(), cost)

    def _read(self, reply: ModelReply) -> tuple[Sequence[ParsedCall], str | None]:
        """Return the calls of a reply, and the reason why the rest is not carried out."""
        if reply.calls and not reply.is_cut and self._act_by in ("auto", "tools"):
            return reply.calls, None
        parsed = read_reply(
            reply.text if reply.written is None else reply.written,
            self._interface,
            self._act_by,
            is_cut=reply.is_cut,
            specials=reply.specials,
        )
        return parsed.calls, parsed.problem

    # ------------------------------------------------------------------ messages to the model

    def _show(self, turn: PolicyTurn) -> None:
        if turn.refusal is not None:
            self._answer(f"Error: {turn.refusal}")
            for call in self._left:
                self._answering = call
                self._answer(NOT_DONE)
            self._left.clear()
            self._problem = None
        else:
            shown, visible = turn.observation, self._interface.visible
            seen = look_at(shown, visible) if self._sees else ObservationView(view(shown, visible))
            self._answer(seen.text)
            if seen.pictures:
                self._show_pictures(seen.pictures)

    def _show_pictures(self, pictures: Sequence[Mapping[str, Any]]) -> None:
        """Show pictures in a user message, since tool results are text in most APIs."""
        parts = [
            {
                "type": "image_url",
                "image_url": {"url": f"data:{one['mimeType']};base64,{one['data']}"},
            }
            for one in pictures
        ]
        last = self.messages[-1] if self.messages else {}
        if last.get("role") == "user":
            said = last["content"]
            before = [{"type": "text", "text": said}] if isinstance(said, str) else list(said)
            last["content"] = [*before, *parts]
        else:
            self.messages.append({"role": "user", "content": parts})

    def _answer(self, text: str) -> None:
        call, self._answering = self._answering, None
        if call is not None and call.id:
            self.messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
        elif text and self.messages and self.messages[-1]["role"] == "user":
            # Many chat templates expect the prompt and the first observation in one message.
            said = self.messages[-1]
            content = said["content"]
            is_text = isinstance(content, str)
            part = {"type": "text", "text": text}
            said["content"] = f"{content}\n\n{text}" if is_text else [*content, part]
        elif text:
            self.messages.append({"role": "user", "content": text})

    # ------------------------------------------------------------------ decisions of the model

    def _decided(self, call: ParsedCall, decision: Decision) -> Decision:
        """Return the decision for a call; its result comes next."""
        self._answering = call
        tool = self._interface.tool(call.name)
        if tool is None:
            raise InvalidReply(describe_unknown_tool(call.name, self._interface), decision)
        decision.action = tool.action(call.arguments)
        return decision


def prompt_messages(prompt: Any) -> list[dict[str, Any]]:
    """Return a prompt (a text or messages) as messages; an empty list for None or an empty text."""
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}] if prompt else []
    return [dict(message) for message in prompt or ()]


def opening_messages(
    messages: Sequence[Mapping[str, Any]], first: str, words: str = ""
) -> list[dict[str, Any]]:
    """Return the messages that precede a model's first reply.

    Args:
        messages: The messages before the first observation.
        first: The first observation as text; it is added to the last message if that is the user's.
        words: A description of the tools, by `openenv.rollouts.replies.describe_tools`; empty if
            the model is given the tools in another way.
    """
    said = [dict(message) for message in messages]
    if words and said and said[0]["role"] == "system":
        said[0]["content"] = f"{said[0]['content']}\n\n{words}"
    elif words:
        said.insert(0, {"role": "system", "content": words})
    if first and said and said[-1]["role"] == "user" and isinstance(said[-1]["content"], str):
        said[-1]["content"] = "\n\n".join(part for part in (said[-1]["content"], first) if part)
    elif first or not said:
        said.append({"role": "user", "content": first})
    return said
