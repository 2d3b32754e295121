"""A language model in one episode: a conversation in which each of its replies is an action.

A model acts by calling the environment's tools. One that does not call any may write the action as
JSON: ``{"name": TOOL, "arguments": {...}}``, or the arguments alone where there is one tool only.
Where that tool takes nothing but a text, any other reply is that text as a whole.
"""

from __future__ import annotations

import difflib
import json
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from openenv.rollouts.interfaces import ActionTool, Interface
from openenv.rollouts.policies.base import Decision, InvalidReply, Opening, PolicyError, Turn
from openenv.rollouts.policies.views import view

__all__ = [
    "ActBy",
    "Call",
    "Conversation",
    "Reply",
    "action_in",
    "checked_act_by",
    "described",
    "no_action",
    "no_such_tool",
    "opening",
]

ActBy = Literal["auto", "tools", "json", "text"]
"""How a model acts: only by ``tools``, by ``json``, or by ``text``; or by whichever it uses."""

NAMES, ARGUMENTS = ("name", "tool", "tool_name"), ("arguments", "args", "parameters")
NOT_DONE = "not carried out, since a call before it was not"


def checked_act_by(act_by: str) -> ActBy:
    """One of the ways to act.

    Raises:
        PolicyError: It is none.
    """
    if act_by not in get_args(ActBy):
        known = ", ".join(get_args(ActBy))
        raise PolicyError(f"act_by={act_by!r} of a policy; expected one of {known}")
    return act_by  # type: ignore[return-value]


@dataclass
class Call:
    """A model's call of a tool."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass
class Reply:
    """What a model has said.

    Attributes:
        text: Its words.
        calls: Its calls of tools.
        message: It, as the conversation keeps it.
        record: What is kept of it beside its text.
        prompt_tokens: That it read.
        completion_tokens: That it wrote.
    """

    text: str
    calls: Sequence[Call] = ()
    message: dict[str, Any] | None = None
    record: dict[str, Any] = field(default_factory=dict)
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Conversation(ABC):
    """Plays an episode by talking. Subclass it and write `_ask`.

    Args:
        opening: The episode.
        system_prompt: What comes first, if anything.
        act_by: How the model acts.
        describes_tools: Tell the model in words how to act, since it is not told otherwise.

    Attributes:
        messages: The conversation, in the form of OpenAI's API.
    """

    def __init__(
        self,
        opening: Opening,
        *,
        system_prompt: str | None = None,
        act_by: ActBy = "auto",
        describes_tools: bool = False,
    ) -> None:
        assert opening.interface is not None
        self.messages: list[dict[str, Any]] = []
        self._opening = opening
        self._interface: Interface = opening.interface
        self._act_by: ActBy = act_by
        self._left: deque[Call] = deque()
        self._answering: Call | None = None  # what the next observation is the result of
        told = [system_prompt] if system_prompt else []
        if describes_tools and not (self._interface.text_field and act_by in ("auto", "text")):
            told.append(described(self._interface))
        if told:
            self.messages.append({"role": "system", "content": "\n\n".join(told)})
        self.messages += _prompt(opening.task)

    @abstractmethod
    async def _ask(self, turn: Turn) -> Reply:
        """Have the model reply to the messages.

        Raises:
            InvalidReply: It said nothing that can be read.
        """

    async def act(self, turn: Turn) -> Decision:
        """Show the model what has come of its last action, and have it act again."""
        self._show(turn)
        if self._left:
            call = self._left.popleft()
            return self._decided(call, Decision(None, {"call": call.name}))
        reply = await self._ask(turn)
        self.messages.append(reply.message or {"role": "assistant", "content": reply.text})
        cost = Decision(
            None,
            {"text": reply.text, **reply.record},
            model_calls=1,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
        )
        calls = reply.calls if self._act_by in ("auto", "tools") else ()
        if calls:
            self._left = deque(calls)
            return self._decided(self._left.popleft(), cost)
        return self._of_text(reply.text, cost)

    # ------------------------------------------------------------------ what it is shown

    def _show(self, turn: Turn) -> None:
        if turn.refusal is not None:
            self._answer(f"Error: {turn.refusal}")
            for call in self._left:
                self._answering = call
                self._answer(NOT_DONE)
            self._left.clear()
        else:
            self._answer(view(turn.observation, self._interface.visible))

    def _answer(self, text: str) -> None:
        call, self._answering = self._answering, None
        if call is not None:
            self.messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
        elif text and self.messages and self.messages[-1]["role"] == "user":
            # Of the prompt and the first observation, which many chat templates want as one.
            said = self.messages[-1]
            said["content"] = _joined(said["content"], text)
        elif text:
            self.messages.append({"role": "user", "content": text})

    # ------------------------------------------------------------------ what it says

    def _decided(self, call: Call, decision: Decision) -> Decision:
        """The action of a call; it is the one whose result comes next."""
        self._answering = call
        tool = self._interface.tool(call.name)
        if tool is None:
            raise InvalidReply(no_such_tool(call.name, self._interface), decision)
        decision.action = tool.action(call.arguments)
        return decision

    def _of_text(self, text: str, decision: Decision) -> Decision:
        decision.action = action_in(text, self._interface, self._act_by)
        if decision.action is None:
            raise InvalidReply(no_action(self._interface, self._act_by), decision)
        return decision


def _prompt(task: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    prompt = (task or {}).get("prompt")
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    return [dict(message) for message in prompt or ()]


def _joined(content: Any, text: str) -> Any:
    if isinstance(content, str):
        return f"{content}\n\n{text}"
    return [*content, {"type": "text", "text": text}]


def action_in(text: str, interface: Interface, act_by: ActBy = "auto") -> dict[str, Any] | None:
    """The action that a model's words are, as its fields; None where they are none.

    Args:
        text: What it has said.
        interface: How one acts.
        act_by: Which of the ways count: a call as ``json``, or the ``text`` as a whole, where the
            only tool takes nothing else.
    """
    if act_by in ("auto", "json"):
        found = _called(text, interface)
        if found is not None:
            tool, arguments = found
            return tool.action(arguments)
    field = interface.text_field
    if field is not None and act_by in ("auto", "text") and text.strip():
        return interface.tools[0].action({field: text})
    return None


def no_action(interface: Interface, act_by: ActBy = "auto") -> str:
    """What a model is told whose words are no action."""
    names = ", ".join(tool.name for tool in interface.tools)
    if act_by == "json":
        return f'the reply holds no JSON object {{"name": ..., "arguments": ...}} of {names}'
    return f"the reply is no action; call one of these tools: {names}"


def no_such_tool(name: str, interface: Interface) -> str:
    """What a model is told that calls a tool that there is not."""
    known = [tool.name for tool in interface.tools]
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"there is no tool {name!r}; there are {', '.join(known)}{hint}"


def opening(
    messages: Sequence[Mapping[str, Any]], first: str, interface: Interface | None = None
) -> list[dict[str, Any]]:
    """The messages that a model's first reply comes behind.

    Args:
        messages: The task.
        first: What the environment shows first; it comes behind the user's last words.
        interface: What the model is told in words how to act by; None where it is told otherwise.
    """
    said = [dict(message) for message in messages]
    if interface is not None:
        words = described(interface)
        if said and said[0]["role"] == "system":
            said[0]["content"] = f"{said[0]['content']}\n\n{words}"
        else:
            said.insert(0, {"role": "system", "content": words})
    if first and said and said[-1]["role"] == "user" and isinstance(said[-1]["content"], str):
        said[-1]["content"] = "\n\n".join(part for part in (said[-1]["content"], first) if part)
    elif first or not said:
        said.append({"role": "user", "content": first})
    return said


def described(interface: Interface) -> str:
    """How to act by JSON, in words."""
    tools = "\n".join(
        f"- {tool.name}: {tool.description}\n  arguments: {json.dumps(tool.input_schema)}"
        for tool in interface.tools
    )
    return (
        f"You act by one of these tools:\n{tools}\n"
        'Answer with one JSON object and nothing else: {"name": TOOL, "arguments": {...}}'
    )


def _called(text: str, interface: Interface) -> tuple[ActionTool, Mapping[str, Any]] | None:
    """The call that a text holds as JSON; the last one that is one, since models think aloud."""
    found = None
    for value in _objects(text):
        name = next((value[key] for key in NAMES if isinstance(value.get(key), str)), None)
        arguments: Any = next((value[key] for key in ARGUMENTS if key in value), {})
        tool = None if name is None else interface.tool(name)
        if tool is not None and isinstance(arguments, Mapping):
            found = tool, arguments
        elif len(interface.tools) == 1 and _fits(value, interface.tools[0]):
            found = interface.tools[0], value
    return found


def _fits(value: Mapping[str, Any], tool: ActionTool) -> bool:
    properties = tool.input_schema.get("properties", {})
    required = set(tool.input_schema.get("required", ()))
    return bool(value) and required <= value.keys() <= set(properties)


def _objects(text: str) -> list[dict[str, Any]]:
    """The JSON objects in a text, outermost ones only."""
    decoder, found, at = json.JSONDecoder(), [], text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            found.append(value)
        at = text.find("{", end)
    return found
