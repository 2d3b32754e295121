"""Conversion between episodes and the conversations that most libraries score.

An action becomes an assistant message; an observation becomes a user message or a tool message.
Most bridges accept a replacement for `as_messages` as ``messages=``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field

from openenv.errors import Unscored
from openenv.rewards.delayed import Trajectory
from openenv.rewards.external.fields import Fields
from openenv.rewards.external.scorers import to_json_value
from openenv.types import Action, Observation

Message = dict[str, Any]
"""A message in the form of OpenAI's chat completions: ``role``, ``content``, ``tool_calls`` etc."""

ASSISTANT = "assistant"

# Fields of an observation that are not shown to the agent.
NOT_SHOWN = ("done", "truncated", "reward", "reward_info", "metadata", "info")


class ChatAction(Action):
    """A message of the assistant, as the action of an episode made from a conversation."""

    content: str = Field(default="", description="The text.")
    tool_calls: list[dict[str, Any]] = Field(
        default_factory=list, description="The tool calls, in the form of chat completions."
    )


class ChatObservation(Observation):
    """The messages before or after a message of the assistant."""

    messages: list[dict[str, Any]] = Field(
        default_factory=list, description="The messages since the assistant's last message."
    )

    @property
    def text(self) -> str:
        """Return the texts of all messages, separated by empty lines."""
        return "\n\n".join(filter(None, map(message_text, self.messages)))


# ------------------------------------------------------------------ an episode as a conversation


def as_messages(trajectory: Trajectory[Any, Any]) -> list[Message]:
    """Convert an episode to a conversation.

    The prompt of the task comes first, if the task has a prompt, then the observation of `reset`.
    The fields of an action decide its message:

    - a tool call becomes a message with ``tool_calls``;
    - ``content`` and ``tool_calls`` are copied into the message;
    - a single text field becomes the content if all other fields are booleans or empty;
    - other actions become JSON.

    An observation's ``messages`` are appended without a beginning that repeats the conversation. A
    tool result becomes a message with the role ``tool``. A field ``text``, or a single text field,
    becomes the content. Other observations become JSON, without rewards and annotations.
    """
    messages: list[Message] = []
    _add(messages, _prompt(trajectory.task))
    _add(messages, _to_messages(trajectory.first, ""))
    for number, (action, observation) in enumerate(trajectory):
        call = f"call_{number}"
        messages.append(_to_assistant_message(action, call))
        _add(messages, _to_messages(observation, call))
    return messages


def split_prompt(messages: Sequence[Message]) -> tuple[list[Message], list[Message]]:
    """Split a conversation into the prompt and the completion.

    The completion starts with the assistant's first message and ends with the assistant's last
    message. Later messages are in neither part.
    """
    spoken = [at for at, message in enumerate(messages) if message.get("role") == ASSISTANT]
    if not spoken:
        return list(messages), []
    return list(messages[: spoken[0]]), list(messages[spoken[0] : spoken[-1] + 1])


def as_text(messages: Sequence[Message]) -> str:
    """Return the texts of the assistant's messages, separated by empty lines."""
    said = [message_text(message) for message in messages if message.get("role") == ASSISTANT]
    return "\n\n".join(filter(None, said))


def last_text(messages: Sequence[Message]) -> str:
    """Return the text of the assistant's last message.

    Raises:
        Unscored: The conversation has no assistant message.
    """
    for message in reversed(messages):
        if message.get("role") == ASSISTANT:
            return message_text(message)
    raise Unscored("the agent has no message")


def message_text(message: Mapping[str, Any]) -> str:
    """Return the text of a message, without images."""
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def task_of(trajectory: Trajectory[Any, Any]) -> dict[str, Any]:
    """Return the task's fields, overridden by the task's metadata and then by the criteria.

    Functions that score by columns of a dataset get these values in place of the columns.
    """
    task = _fields(trajectory.task)
    if task is None:
        return {}
    inner = [_fields(task.get(name)) or {} for name in ("metadata", "criteria")]
    return {**task, **inner[0], **inner[1]}


def _add(messages: list[Message], new: list[Message]) -> None:
    """Append messages, without a beginning that repeats the conversation so far."""
    before = [(one.get("role"), one.get("content")) for one in messages]
    again = [(one.get("role"), one.get("content")) for one in new[: len(before)]]
    messages += new[len(before) :] if before and before == again else new


def _prompt(task: Any) -> list[Message]:
    prompt = (_fields(task) or {}).get("prompt")
    if isinstance(prompt, str):
        return [_user(prompt)] if prompt else []
    return _messages(prompt) or []


def _to_assistant_message(action: Any, call: str) -> Message:
    if isinstance(action, str):
        return {"role": ASSISTANT, "content": action}
    fields = _fields(action)
    if fields is None:
        return {"role": ASSISTANT, "content": json.dumps(to_json_value(action))}
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


def _to_messages(observation: Any, call: str) -> list[Message]:
    if observation is None:
        return []
    if isinstance(observation, str):
        return [_user(observation)]
    fields = _fields(observation)
    if fields is None:
        return [_user(json.dumps(to_json_value(observation)))]
    messages = _messages(fields.get("messages"))
    if messages is not None:
        return messages
    if isinstance(fields.get("tool_name"), str) and {"result", "error"} & fields.keys():
        content = _tool_text(fields.get("result"), fields.get("error"))
        of = {"tool_call_id": call, "name": fields["tool_name"]}
        return [{"role": "tool", **of, "content": content}]
    shown = {name: value for name, value in fields.items() if name not in NOT_SHOWN}
    if isinstance(shown.get("text"), str):
        return [_user(shown["text"])] if shown["text"] else []
    return [_user(text)] if (text := _text(shown)) else []


def _text(fields: dict[str, Any]) -> str:
    """Return a single text field unchanged, other fields as JSON, or "" if all are empty."""
    given = {name: value for name, value in fields.items() if value not in (None, "", [], {})}
    alone = [value for value in given.values() if not isinstance(value, bool)]
    if not alone:
        return json.dumps(given) if given and any(given.values()) else ""
    if len(alone) == 1 and isinstance(alone[0], str):
        return alone[0]
    return json.dumps(given, ensure_ascii=False)


def _tool_text(result: Any, error: Any) -> str:
    if error is not None:
        return str((_fields(error) or {}).get("message", error))
    content = result.get("content") if isinstance(result, dict) else None
    if isinstance(content, list):
        return message_text({"content": content})
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)


def _messages(value: Any) -> list[Message] | None:
    """Return messages as dictionaries, or None if the value is not a list of messages."""
    if not isinstance(value, list) or not value:
        return [] if value == [] else None
    found = [_fields(one) for one in value]
    if all(one is not None and isinstance(one.get("role"), str) for one in found):
        return [one for one in found if one is not None]
    return None


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _fields(value: Any) -> dict[str, Any] | None:
    """Return the fields of a model or dictionary as JSON values, or None for other values."""
    if isinstance(value, BaseModel | dict) or hasattr(value, "__dataclass_fields__"):
        found = to_json_value(value)
        return found if isinstance(found, dict) else None
    return None


# ------------------------------------------------------------------ a conversation as an episode


def from_messages(
    prompt: str | Sequence[Any], completion: str | Sequence[Any], *, task: Any = None
) -> Trajectory[ChatAction, ChatObservation]:
    """Convert a conversation to an episode.

    Each assistant message is a step. The messages up to the next assistant message are that step's
    observation. The last observation has ``done=True``.

    Args:
        prompt: Text or messages before the agent's first message.
        completion: Text or messages from the agent's first message on.
        task: The task of the episode.

    Raises:
        Unscored: The completion has no assistant message, or a value is not a list of messages.
    """
    first = ChatObservation(messages=_to_message_list(prompt, "user"))
    steps: list[tuple[ChatAction, ChatObservation]] = []
    for message in _to_message_list(completion, ASSISTANT):
        if message.get("role") == ASSISTANT:
            calls = message.get("tool_calls") or []
            action = ChatAction(content=message_text(message), tool_calls=calls)
            steps.append((action, ChatObservation()))
        else:
            (steps[-1][1] if steps else first).messages.append(message)
    if not steps:
        raise Unscored("the agent has no message")
    steps[-1][1].done = True
    return Trajectory(steps, first=first, rewards=[None] * len(steps), task=task)


def _to_message_list(said: str | Sequence[Any], role: str) -> list[Message]:
    if isinstance(said, str):
        return [{"role": role, "content": said}]
    messages = _messages(list(said))
    if messages is None:
        raise Unscored(f"expected text, or messages with a role and a content, got {said!r:.100}")
    return messages


def task_from_row(prompt: Any, columns: Mapping[str, Any]) -> Fields:
    """Return a row of a dataset as a task whose criteria are the columns."""
    return Fields({"prompt": prompt, "criteria": Fields(columns), "metadata": Fields()})
