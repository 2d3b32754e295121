"""Episodes as conversations, which most libraries score, and conversations as episodes.

In an episode the agent acts and the environment shows something. In a conversation that is what the
assistant says, and what the user, or a tool, answers. `as_messages` turns the one into the other;
every bridge takes a function in place of it, as ``messages=``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field

from openenv.errors import Unscored
from openenv.rewards.delayed import Trajectory
from openenv.rewards.external.fields import Fields
from openenv.rewards.external.scorers import plain
from openenv.types import Action, Observation

__all__ = [
    "ChatAction",
    "ChatObservation",
    "Message",
    "as_messages",
    "as_text",
    "from_messages",
    "last_text",
    "row_task",
    "split",
    "task_of",
    "text_of",
]

Message = dict[str, Any]
"""A message in the form of OpenAI's chat completions: ``role``, ``content``, ``tool_calls``, ..."""

ASSISTANT = "assistant"

# What an observation holds beside what is shown.
NOT_SHOWN = ("done", "truncated", "reward", "reward_info", "metadata", "info")


class ChatAction(Action):
    """What the assistant says, where an episode is made of a conversation."""

    content: str = Field(default="", description="The text.")
    tool_calls: list[dict[str, Any]] = Field(
        default_factory=list, description="The calls of tools, as chat completions have them."
    )


class ChatObservation(Observation):
    """What is said before the assistant speaks, or after."""

    messages: list[dict[str, Any]] = Field(
        default_factory=list, description="Those since the assistant last spoke."
    )

    @property
    def text(self) -> str:
        """What they say."""
        return "\n\n".join(filter(None, map(text_of, self.messages)))


# ------------------------------------------------------------------ an episode as a conversation


def as_messages(trajectory: Trajectory[Any, Any]) -> list[Message]:
    """Write an episode as a conversation.

    The prompt of the task comes first, where there is one, and then what `reset` showed. Of an
    action

    - the call of a tool is a message with ``tool_calls``,
    - ``content`` and ``tool_calls`` are those of the message,
    - one field of text, with nothing but switches beside it, is what is said,
    - anything else is said as JSON.

    Of an observation ``messages`` are taken as they are, those that were seen before left out; what
    a tool returned is a message of the role ``tool``; a field ``text`` is what is said, and so is
    one that is alone; anything else is JSON, without reward and annotations.
    """
    messages: list[Message] = []
    _add(messages, _prompt(trajectory.task))
    _add(messages, _seen(trajectory.first, ""))
    for number, (action, observation) in enumerate(trajectory):
        call = f"call_{number}"
        messages.append(_said(action, call))
        _add(messages, _seen(observation, call))
    return messages


def split(messages: Sequence[Message]) -> tuple[list[Message], list[Message]]:
    """Part a conversation into the prompt, before the assistant first speaks, and the completion.

    What comes after the assistant's last words is in neither.
    """
    spoken = [at for at, message in enumerate(messages) if message.get("role") == ASSISTANT]
    if not spoken:
        return list(messages), []
    return list(messages[: spoken[0]]), list(messages[spoken[0] : spoken[-1] + 1])


def as_text(messages: Sequence[Message]) -> str:
    """What the assistant said, as one text: its messages, an empty line between two."""
    said = [text_of(message) for message in messages if message.get("role") == ASSISTANT]
    return "\n\n".join(filter(None, said))


def last_text(messages: Sequence[Message]) -> str:
    """What the assistant said last.

    Raises:
        Unscored: It said nothing at all.
    """
    for message in reversed(messages):
        if message.get("role") == ASSISTANT:
            return text_of(message)
    raise Unscored("the agent has not said anything")


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a message, without its pictures."""
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def task_of(trajectory: Trajectory[Any, Any]) -> dict[str, Any]:
    """What is known of the task, by name: its fields, and over them its metadata and its criteria.

    That is what the columns of a dataset are to those who score by them.
    """
    task = _fields(trajectory.task)
    if task is None:
        return {}
    inner = [_fields(task.get(name)) or {} for name in ("metadata", "criteria")]
    return {**task, **inner[0], **inner[1]}


def _add(messages: list[Message], new: list[Message]) -> None:
    """Append messages; where they repeat all that there are, only what is new."""
    before = [(one.get("role"), one.get("content")) for one in messages]
    again = [(one.get("role"), one.get("content")) for one in new[: len(before)]]
    messages += new[len(before) :] if before and before == again else new


def _prompt(task: Any) -> list[Message]:
    prompt = (_fields(task) or {}).get("prompt")
    if isinstance(prompt, str):
        return [_user(prompt)] if prompt else []
    return _messages(prompt) or []


def _said(action: Any, call: str) -> Message:
    if isinstance(action, str):
        return {"role": ASSISTANT, "content": action}
    fields = _fields(action)
    if fields is None:
        return {"role": ASSISTANT, "content": json.dumps(plain(action))}
    if isinstance(fields.get("tool_name"), str) and "arguments" in fields:
        arguments = json.dumps(fields["arguments"] or {})
        function = {"name": fields["tool_name"], "arguments": arguments}
        calls = [{"id": call, "type": "function", "function": function}]
        return {"role": ASSISTANT, "content": "", "tool_calls": calls}
    given = {name: value for name, value in fields.items() if value is not None}
    given.pop("metadata", None)
    if given.get("tool_calls"):
        content = given.get("content") or ""
        return {"role": ASSISTANT, "content": content, "tool_calls": given["tool_calls"]}
    return {"role": ASSISTANT, "content": _text(given)}


def _seen(observation: Any, call: str) -> list[Message]:
    if observation is None:
        return []
    if isinstance(observation, str):
        return [_user(observation)]
    fields = _fields(observation)
    if fields is None:
        return [_user(json.dumps(plain(observation)))]
    messages = _messages(fields.get("messages"))
    if messages is not None:
        return messages
    if isinstance(fields.get("tool_name"), str) and {"result", "error"} & fields.keys():
        content = _returned(fields.get("result"), fields.get("error"))
        of = {"tool_call_id": call, "name": fields["tool_name"]}
        return [{"role": "tool", **of, "content": content}]
    shown = {name: value for name, value in fields.items() if name not in NOT_SHOWN}
    if isinstance(shown.get("text"), str):
        return [_user(shown["text"])] if shown["text"] else []
    return [_user(text)] if (text := _text(shown)) else []


def _text(fields: dict[str, Any]) -> str:
    """The only field, if it is text; or else all of them as JSON. Nothing, if all are empty."""
    given = {name: value for name, value in fields.items() if value not in (None, "", [], {})}
    alone = [value for value in given.values() if not isinstance(value, bool)]
    if not alone:
        return json.dumps(given) if given and any(given.values()) else ""
    if len(alone) == 1 and isinstance(alone[0], str):
        return alone[0]
    return json.dumps(given, ensure_ascii=False)


def _returned(result: Any, error: Any) -> str:
    """What a tool gave, as text."""
    if error is not None:
        return str((_fields(error) or {}).get("message", error))
    content = result.get("content") if isinstance(result, dict) else None
    if isinstance(content, list):
        return text_of({"content": content})
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)


def _messages(value: Any) -> list[Message] | None:
    """Messages as dictionaries; None if it is no list of messages."""
    if not isinstance(value, list) or not value:
        return [] if value == [] else None
    found = [_fields(one) for one in value]
    if all(one is not None and isinstance(one.get("role"), str) for one in found):
        return [one for one in found if one is not None]
    return None


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _fields(value: Any) -> dict[str, Any] | None:
    """The fields of a model, or of a dictionary, as JSON has them; None if it has none."""
    if isinstance(value, BaseModel | dict) or hasattr(value, "__dataclass_fields__"):
        found = plain(value)
        return found if isinstance(found, dict) else None
    return None


# ------------------------------------------------------------------ a conversation as an episode


def from_messages(
    prompt: str | Sequence[Any], completion: str | Sequence[Any], *, task: Any = None
) -> Trajectory[ChatAction, ChatObservation]:
    """Make an episode of a conversation.

    Each message of the assistant is a step; what is said until it speaks again, the observation
    of that step. The last observation is done.

    Args:
        prompt: What was said before: text, or messages.
        completion: What the agent brought about, with its first message: likewise.
        task: The task.

    Raises:
        Unscored: The assistant said nothing.
    """
    first = ChatObservation(messages=_listed(prompt, "user"))
    steps: list[tuple[ChatAction, ChatObservation]] = []
    for message in _listed(completion, ASSISTANT):
        if message.get("role") == ASSISTANT:
            calls = message.get("tool_calls") or []
            action = ChatAction(content=text_of(message), tool_calls=calls)
            steps.append((action, ChatObservation()))
        else:
            (steps[-1][1] if steps else first).messages.append(message)
    if not steps:
        raise Unscored("the agent has not said anything")
    steps[-1][1].done = True
    return Trajectory(steps, first=first, rewards=[None] * len(steps), task=task)


def _listed(said: str | Sequence[Any], role: str) -> list[Message]:
    if isinstance(said, str):
        return [{"role": role, "content": said}]
    messages = _messages(list(said))
    if messages is None:
        raise Unscored(f"expected text, or messages with a role and a content, got {said!r:.100}")
    return messages


def row_task(prompt: Any, columns: Mapping[str, Any]) -> Fields:
    """The task that a row of a dataset is: its columns are what it is scored by."""
    return Fields({"prompt": prompt, "criteria": Fields(columns), "metadata": Fields()})
