"""The interface of a model API: conversion of requests and answers to and from chat completions."""

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
    "UnsupportedRequest",
    "parse_arguments",
    "list_calls",
    "build_content",
    "first_choice",
    "encode_event",
    "extract_text",
]

Earlier = Callable[[str], Sequence[Mapping[str, Any]]]


class UnsupportedRequest(OpenEnvError, ValueError):
    """A request that is malformed, or that chat completions cannot express."""


class EventStream(ABC):
    """Converts the chunks of a chat completion to the events of an API.

    Attributes:
        answer_id: The id by which the agent may refer to the answer later; None if the API has no
            such ids.
    """

    answer_id: str | None = None

    @abstractmethod
    def chunk(self, chunk: Mapping[str, Any]) -> str:
        """Return the events for a chunk; "" if there are none."""

    @abstractmethod
    def end(self, completion: Mapping[str, Any]) -> str:
        """Return the final events; `completion` is the whole answer."""

    @abstractmethod
    def error(self, message: str) -> str:
        """Return the event that tells the agent why the stream ends early."""


class Dialect(ABC):
    """Conversions between a model API and chat completions."""

    @abstractmethod
    def to_chat(self, body: Mapping[str, Any], earlier: Earlier) -> dict[str, Any]:
        """Convert a request to a chat request.

        Args:
            body: The body of the request.
            earlier: Takes the id of an earlier answer of the session; returns the messages up to
                and including that answer, without the instructions of its call.

        Raises:
            UnsupportedRequest: There is no equivalent chat request.
        """

    @abstractmethod
    def from_chat(self, completion: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
        """Convert a chat completion to the answer of the API."""

    @abstractmethod
    def stream(self, asked: Mapping[str, Any]) -> EventStream:
        """Return a converter of chunks to events."""

    @abstractmethod
    def error(self, status: int, message: str, body: Any = None) -> dict[str, Any]:
        """Return an error in the format of the API; `body` is the upstream's error, if any."""

    def wants_stream(self, path: str, body: Mapping[str, Any]) -> bool:
        """Return whether a request asks for a streamed answer."""
        del path
        return bool(body.get("stream"))

    def response_id(self, answer: Mapping[str, Any]) -> str | None:
        """Return the id by which the agent may refer to an answer later, or None."""
        del answer
        return None


def encode_event(data: Mapping[str, Any], event: str | None = None) -> str:
    """Encode a server-sent event."""
    head = "" if event is None else f"event: {event}\n"
    try:
        told = to_json(data).decode()
    except ValueError:  # a lone surrogate
        told = json.dumps(data)
    return f"{head}data: {told}\n\n"


def first_choice(completion: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first choice of a completion or chunk, or an empty dictionary."""
    choices = completion.get("choices") or [{}]
    choice: dict[str, Any] = choices[0]
    return choice


def list_calls(message: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return the tool calls of a message: id, name, arguments as text."""
    return [
        (call.get("id") or "", call["function"]["name"], call["function"].get("arguments") or "")
        for call in message.get("tool_calls") or ()
    ]


def parse_arguments(text: str) -> dict[str, Any]:
    """Parse the arguments of a tool call.

    A model may write invalid JSON. The agent then gets the whole text as ``invalid_json``.
    """
    try:
        value = read_json(text or "{}")
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"invalid_json": text}


def extract_text(content: Any) -> str:
    """Return the text of a message's content, joined if it is a list of blocks."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return "\n".join(text for text in texts if isinstance(text, str))
    return ""


def text_part(text: str) -> dict[str, Any]:
    """Return a text part of a chat message's content."""
    return {"type": "text", "text": text}


def image_part(url: Any) -> dict[str, Any]:
    """Return an image part of a chat message's content."""
    return {"type": "image_url", "image_url": {"url": url}}


def build_call(number: Any, name: Any, arguments: str) -> dict[str, Any]:
    """Return a tool call of a chat message."""
    return {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}


def build_tool(name: Any, parameters: Any, description: Any) -> dict[str, Any]:
    """Return a tool in the format of chat completions."""
    described = {"description": description} if description else {}
    return {"type": "function", "function": {"name": name, "parameters": parameters, **described}}


def build_content(parts: Sequence[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Return the content of a chat message; a string if all parts are text, as templates expect."""
    if all(part.get("type") == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return list(parts)
