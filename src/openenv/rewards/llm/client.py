"""The interface of clients of language models, with responses and errors."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

from typing_extensions import Self

from openenv.errors import OpenEnvError


class LLMError(OpenEnvError, RuntimeError):
    """A request to a language model that got no usable answer; `__cause__` may have details.

    Attributes:
        status: The HTTP status of the server's answer; None if there was no answer.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        self.status = status
        super().__init__(message)


class LLMUnreachable(LLMError, ConnectionError):
    """A failure to connect to the server of a model."""


class LLMTimeout(LLMError, TimeoutError):
    """A server of a model that did not answer in time."""


class InvalidToolCall(LLMError, ValueError):
    """A tool call whose arguments are not a JSON object.

    Attributes:
        name: The name of the tool.
        arguments: The text that the model wrote.
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
        id: The id by which the result refers to the call.
        name: The name of the tool.
        args: The arguments by name.
    """

    id: str
    name: str
    args: dict[str, Any]


@dataclass(frozen=True)
class Usage:
    """The tokens that an answer used, as counted by the answering model."""

    prompt_tokens: int
    completion_tokens: int

    @property
    def total_tokens(self) -> int:
        """Return the sum of prompt and completion tokens."""
        return self.prompt_tokens + self.completion_tokens


@dataclass
class LLMResponse:
    """The answer of a language model.

    Attributes:
        content: The text; empty if the model only calls tools.
        tool_calls: The requested calls, in order.
        usage: The tokens used; None if the server did not report them. Ignored by comparisons.
        finish_reason: Why the model stopped, in the words of its API: ``length`` or ``max_tokens``
            if the answer was cut off. None if the server did not say.
    """

    content: str
    tool_calls: list[ToolCall] = field(default_factory=list)
    usage: Usage | None = field(default=None, compare=False, kw_only=True)
    finish_reason: str | None = field(default=None, compare=False, kw_only=True)

    def to_message_dict(self) -> dict[str, Any]:
        """Return the answer as a message in OpenAI's form, to continue the conversation."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.tool_calls:
            functions = [{"name": n.name, "arguments": json.dumps(n.args)} for n in self.tool_calls]
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": function}
                for call, function in zip(self.tool_calls, functions, strict=True)
            ]
        return message


class LLMClient(ABC):
    """The base class of clients of a language model behind a URL.

    Subclass it for an API that has no client here. The base class itself opens no connection.

    Args:
        endpoint: The URL of the server, http or https, with or without a path.
        port: The port; None if the URL includes the port or for the scheme's default.
    """

    def __init__(self, endpoint: str, port: int | None) -> None:
        self.endpoint = endpoint
        self.port = port

    @property
    def base_url(self) -> str:
        """Return the URL with the port and without a trailing slash.

        If endpoint and port do not form a valid URL, this is ``endpoint:port``.
        """
        try:
            return join_url(self.endpoint, self.port)
        except ValueError:
            return self.endpoint if self.port is None else f"{self.endpoint}:{self.port}"

    @abstractmethod
    async def complete(self, prompt: str, **kwargs: Any) -> str:
        """Ask a question and return the text of the answer.

        Args:
            prompt: The question, sent as a user message.
            **kwargs: Options of the request, such as `temperature`, `max_tokens` or `stop`.

        Raises:
            LLMError: The model gave no usable answer.
        """

    async def complete_with_tools(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]], **kwargs: Any
    ) -> LLMResponse:
        """Continue a conversation in which the model may call tools.

        Args:
            messages: The conversation, in the form of OpenAI's API.
            tools: The tools, as MCP lists them (``name``, ``description``, ``inputSchema``) or in
                the form of OpenAI's API; empty for an answer without tools.
            **kwargs: Options of the request, as for `complete`.

        Raises:
            InvalidToolCall: The model called a tool with invalid arguments.
            LLMError: The model gave no usable answer.
            NotImplementedError: This client does not support tools.
        """
        raise NotImplementedError(f"{type(self).__name__} does not support tool calling")

    async def aclose(self) -> None:  # noqa: B027  # nothing to do without connections
        """Close the connections opened by this event loop. The client stays usable."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()


# ------------------------------------------------------------------ URLs


def join_url(endpoint: str, port: int | None) -> str:
    """Join a URL and a port.

    Raises:
        ValueError: `endpoint` is not an http or https URL, has credentials, a query or a fragment,
            `port` is not a valid port, or the two contradict each other.
    """
    url = _parse_url(endpoint)
    if port is not None and (not isinstance(port, int) or not 1 <= port <= 65535):
        raise _invalid_endpoint(endpoint, f"port={port!r}; expected one from 1 to 65535")
    if None not in (url.port, port) and url.port != port:
        raise _invalid_endpoint(endpoint, f"its port {url.port} contradicts port={port}")
    netloc = url.netloc if port is None or url.port is not None else f"{url.netloc}:{port}"
    return urlunsplit((url.scheme, netloc, url.path.rstrip("/"), "", ""))


def _parse_url(endpoint: str) -> SplitResult:
    try:
        url = urlsplit(endpoint.strip())
        port = url.port
    except ValueError as error:
        raise _invalid_endpoint(endpoint, str(error)) from None
    if url.scheme not in ("http", "https"):
        raise _invalid_endpoint(endpoint, "expected an http:// or https:// URL")
    if "@" in url.netloc:
        raise _invalid_endpoint(endpoint, "it contains credentials; pass the key as api_key")
    if not url.hostname:
        raise _invalid_endpoint(endpoint, "it names no host")
    if url.query or url.fragment:
        raise _invalid_endpoint(endpoint, "it must have no query or fragment")
    if url.netloc.endswith(":") or port == 0:
        raise _invalid_endpoint(endpoint, "its port is empty or 0")
    return url


def _invalid_endpoint(endpoint: str, why: str) -> ValueError:
    shown = endpoint
    if "@" in endpoint:  # the part before it may be a secret
        scheme, slashes, rest = endpoint.rpartition("://")
        shown = f"{scheme}{slashes}***@{rest.rpartition('@')[2]}"
    return ValueError(f"endpoint {shown!r}: {why}")
