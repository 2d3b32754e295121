"""What the proxy needs of an API: requests and answers, to and from chat completions."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic_core import to_json

from openenv._internal.json import read_json
from openenv.errors import OpenEnvError

__all__ = [
    "Dialect",
    "EventStream",
    "Unsupported",
    "arguments_of",
    "calls_of",
    "content_of",
    "first_choice",
    "sse",
    "text_of",
]

Earlier = Callable[[str], Sequence[Mapping[str, Any]]]


class Unsupported(OpenEnvError, ValueError):
    """A call asks for what chat completions cannot give, or is malformed."""


class EventStream(ABC):
    """One answer, as the events of an API: made of the chunks of a chat completion.

    Attributes:
        answer_id: The id by which the agent may refer to the answer later, if it may.
    """

    answer_id: str | None = None

    @abstractmethod
    def chunk(self, chunk: Mapping[str, Any]) -> str:
        """The events of one chunk; empty where it makes none."""

    @abstractmethod
    def end(self, completion: Mapping[str, Any]) -> str:
        """The events after the last; `completion` is the whole."""

    @abstractmethod
    def error(self, message: str) -> str:
        """The event that tells the agent that no more comes, and why."""


class Dialect(ABC):
    """One API."""

    @abstractmethod
    def to_chat(self, body: Mapping[str, Any], earlier: Earlier) -> dict[str, Any]:
        """The chat request that a call amounts to.

        Args:
            body: The call's.
            earlier: Gives the messages up to and with an answer of this session, by its id, but
                for the instructions of its call.

        Raises:
            Unsupported: There is none.
        """

    @abstractmethod
    def from_chat(self, completion: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a call, of the chat completion of its request."""

    @abstractmethod
    def stream(self, asked: Mapping[str, Any]) -> EventStream:
        """What makes the events of an answer."""

    @abstractmethod
    def error(self, status: int, message: str, body: Any = None) -> dict[str, Any]:
        """An error as this API has it; `body` is what an upstream said."""

    def wants_stream(self, path: str, body: Mapping[str, Any]) -> bool:
        """Whether a call wants its answer in parts."""
        del path
        return bool(body.get("stream"))

    def response_id(self, answer: Mapping[str, Any]) -> str | None:
        """The id by which the agent may refer to an answer later."""
        del answer
        return None


def sse(data: Mapping[str, Any], event: str | None = None) -> str:
    """One server-sent event."""
    head = "" if event is None else f"event: {event}\n"
    try:
        told = to_json(data).decode()
    except ValueError:  # half a pair of surrogates
        told = json.dumps(data)
    return f"{head}data: {told}\n\n"


def first_choice(completion: Mapping[str, Any]) -> dict[str, Any]:
    """The first choice of a completion or chunk; empty where there is none."""
    choices = completion.get("choices") or [{}]
    choice: dict[str, Any] = choices[0]
    return choice


def calls_of(message: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The calls of tools in a message: id, name, arguments as text."""
    return [
        (call.get("id") or "", call["function"]["name"], call["function"].get("arguments") or "")
        for call in message.get("tool_calls") or ()
    ]


def arguments_of(text: str) -> dict[str, Any]:
    """The arguments of a call, for an API that has them as an object.

    A model may have written what is none: the agent then finds it, whole, as ``invalid_json``.
    """
    try:
        value = read_json(text or "{}")
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"invalid_json": text}


def text_of(content: Any) -> str:
    """The text of a content: as it is, or of its blocks."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return "\n".join(text for text in texts if isinstance(text, str))
    return ""


def content_of(parts: Sequence[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """The content of a chat message: a text where there is nothing else, as templates expect."""
    if all(part.get("type") == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return list(parts)
