"""What every client of a language model is, and what it gives back."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

from typing_extensions import Self

from openenv.errors import OpenEnvError

__all__ = [
    "InvalidToolCall",
    "LLMClient",
    "LLMError",
    "LLMResponse",
    "LLMTimeout",
    "LLMUnreachable",
    "ToolCall",
    "Usage",
    "url_of",
]


class LLMError(OpenEnvError, RuntimeError):
    """A language model gave no answer, or none that can be used; `__cause__` may say more.

    Attributes:
        status: The HTTP status of the server's answer; None where there was no answer.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        self.status = status
        super().__init__(message)


class LLMUnreachable(LLMError, ConnectionError):
    """The server of a model cannot be reached, or broke the connection."""


class LLMTimeout(LLMError, TimeoutError):
    """The server of a model did not answer in time."""


class InvalidToolCall(LLMError, ValueError):
    """A model called a tool with arguments that are no JSON object.

    Attributes:
        name: The tool.
        arguments: What the model wrote.
    """

    def __init__(self, name: str, arguments: str) -> None:
        self.name = name
        self.arguments = arguments
        super().__init__(f"the arguments of a call of {name!r} are no object: {arguments!r:.200}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, self.arguments)


@dataclass
class ToolCall:
    """A model's request to call a tool.

    Attributes:
        id: What the result of the call refers to.
        name: The tool.
        args: Its arguments.
    """

    id: str
    name: str
    args: dict[str, Any]


@dataclass(frozen=True)
class Usage:
    """What an answer has cost, in tokens of the model that gave it."""

    prompt_tokens: int
    completion_tokens: int

    @property
    def total_tokens(self) -> int:
        """Both together."""
        return self.prompt_tokens + self.completion_tokens


@dataclass
class LLMResponse:
    """What a model has answered.

    Attributes:
        content: Its text; empty where it only calls tools.
        tool_calls: The calls that it asks for, in its order.
        usage: What it has cost; None where the server did not say. Two answers that differ in
            nothing else are equal.
        finish_reason: Why the model stopped, in the words of its API: ``length`` or
            ``max_tokens`` where it was cut off. None where the server did not say.
    """

    content: str
    tool_calls: list[ToolCall] = field(default_factory=list)
    usage: Usage | None = field(default=None, compare=False, kw_only=True)
    finish_reason: str | None = field(default=None, compare=False, kw_only=True)

    def to_message_dict(self) -> dict[str, Any]:
        """The answer as a message, in the form of OpenAI's API, to go on with the conversation."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.tool_calls:
            message["tool_calls"] = [_as_call(call) for call in self.tool_calls]
        return message


def _as_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": json.dumps(call.args)}
    return {"id": call.id, "type": "function", "function": function}


class LLMClient(ABC):
    """Asks one language model, behind one URL. Subclass it for an API that has no client here.

    This class connects to nothing, so a subclass that asks no server may give what it likes.

    Args:
        endpoint: The URL of the server, http or https, with or without a path.
        port: Its port; None where the URL says it, or where it is that of the scheme.
    """

    def __init__(self, endpoint: str, port: int | None) -> None:
        self.endpoint = endpoint
        self.port = port

    @property
    def base_url(self) -> str:
        """The URL with its port, without a slash at its end; ``endpoint:port`` where they make no
        URL.
        """
        try:
            return url_of(self.endpoint, self.port)
        except ValueError:
            return self.endpoint if self.port is None else f"{self.endpoint}:{self.port}"

    @abstractmethod
    async def complete(self, prompt: str, **kwargs: Any) -> str:
        """Ask one question, and give the text of the answer.

        Args:
            prompt: The question, as a message of the user.
            **kwargs: What goes with the request, such as `temperature`, `max_tokens`, `stop`.

        Raises:
            LLMError: There is no answer.
        """

    async def complete_with_tools(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]], **kwargs: Any
    ) -> LLMResponse:
        """Go on with a conversation, in which the model may call tools.

        Args:
            messages: The conversation, in the form of OpenAI's API.
            tools: The tools, as MCP lists them (``name``, ``description``, ``inputSchema``), or in
                the form of OpenAI's API; none, for an answer without.
            **kwargs: As for `complete`.

        Raises:
            InvalidToolCall: The model called a tool, but not with arguments.
            LLMError: There is no answer.
            NotImplementedError: This client does not know of tools.
        """
        raise NotImplementedError(f"{type(self).__name__} does not support tool calling")

    async def aclose(self) -> None:  # noqa: B027  # one without connections has nothing to do
        """Close the connections that this event loop has opened. It may be used again after."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()


# ------------------------------------------------------------------ URLs


def url_of(endpoint: str, port: int | None) -> str:
    """Put a URL and a port together.

    Raises:
        ValueError: `endpoint` is no such URL, or `port` none, or they contradict each other.
    """
    url = _read(endpoint)
    if port is not None and (not isinstance(port, int) or not 1 <= port <= 65535):
        raise _invalid(endpoint, f"port={port!r}; expected one from 1 to 65535")
    if None not in (url.port, port) and url.port != port:
        raise _invalid(endpoint, f"it says port {url.port}, and port={port} contradicts it")
    netloc = url.netloc if port is None or url.port is not None else f"{url.netloc}:{port}"
    return urlunsplit((url.scheme, netloc, url.path.rstrip("/"), "", ""))


def _read(endpoint: str) -> SplitResult:
    try:
        url = urlsplit(endpoint.strip())
        port = url.port
    except ValueError as error:
        raise _invalid(endpoint, str(error)) from None
    if url.scheme not in ("http", "https"):
        raise _invalid(endpoint, "expected an http:// or https:// URL")
    if "@" in url.netloc:
        raise _invalid(endpoint, "it holds credentials; give the key as api_key")
    if not url.hostname:
        raise _invalid(endpoint, "it names no host")
    if url.query or url.fragment:
        raise _invalid(endpoint, "a query or a fragment means nothing here")
    if url.netloc.endswith(":") or port == 0:
        raise _invalid(endpoint, "its port is empty, or 0")
    return url


def _invalid(endpoint: str, why: str) -> ValueError:
    shown = endpoint
    if "@" in endpoint:  # whatever stands before it may be a secret
        scheme, slashes, rest = endpoint.rpartition("://")
        shown = f"{scheme}{slashes}***@{rest.rpartition('@')[2]}"
    return ValueError(f"endpoint {shown!r}: {why}")
