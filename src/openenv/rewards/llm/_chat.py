"""What the clients of the two APIs have in common: each asks by the SDK of whoever made the API."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from openenv._internal.net.proxies import direct_mounts
from openenv.rewards.llm._per_loop import PerLoop
from openenv.rewards.llm.client import (
    LLMClient,
    LLMError,
    LLMResponse,
    LLMTimeout,
    LLMUnreachable,
    url_of,
)

__all__ = ["NO_KEY", "ChatClient", "options_of", "tool_of"]

NO_KEY = "not-needed"

Messages = Sequence[Mapping[str, Any]]


class ChatClient(LLMClient):
    """Asks a chat model by an SDK, of which it has one client for each event loop.

    Raises:
        ValueError: `endpoint` is no URL, or `port` no port, or they contradict each other.
    """

    def __init__(
        self,
        endpoint: str,
        port: int | None,
        model: str,
        api_key: str | None,
        system_prompt: str | None,
        temperature: float | None,
        max_tokens: int,
        *,
        timeout_s: float,
        max_retries: int,
    ) -> None:
        url_of(endpoint, port)
        super().__init__(endpoint, port)
        self.model = model
        self.system_prompt = system_prompt
        self.temperature = temperature
        self.max_tokens = max_tokens
        self.timeout_s = timeout_s
        self.max_retries = max_retries
        self._api_key = api_key or NO_KEY
        self._sdk = self._imported()
        self._clients: PerLoop[Any] = PerLoop(self._connected)

    async def complete(self, prompt: str, **kwargs: Any) -> str:
        response = await self._answer([{"role": "user", "content": prompt}], (), kwargs)
        return response.content

    async def complete_with_tools(
        self, messages: Messages, tools: Messages, **kwargs: Any
    ) -> LLMResponse:
        return await self._answer(messages, tools, kwargs)

    async def aclose(self) -> None:
        client = self._clients.pop()
        if client is not None:
            await client.close()

    async def _answer(
        self, messages: Messages, tools: Messages, options: Mapping[str, Any]
    ) -> LLMResponse:
        options = dict(options)
        timeout = options.pop("timeout_s", self.timeout_s)
        request = self._request(self._with_system(messages), tools, options)
        try:
            return self._read(
                await self._send(self._clients.get(), {**request, "timeout": timeout})
            )
        except self._sdk.APIError as error:
            status = getattr(error, "status_code", None)
            raise self._kind(error)(self._told(_words(error)), status=status) from error

    def _with_system(self, messages: Messages) -> list[dict[str, Any]]:
        """Put the system prompt first, where the conversation has none of its own."""
        given = [dict(message) for message in messages]
        if self.system_prompt is None or any(is_system(message) for message in given):
            return given
        return [{"role": "system", "content": self.system_prompt}, *given]

    def _kind(self, error: Exception) -> type[LLMError]:
        """Whether there was an answer, as the two SDKs tell alike."""
        if isinstance(error, self._sdk.APITimeoutError):
            return LLMTimeout
        return LLMUnreachable if isinstance(error, self._sdk.APIConnectionError) else LLMError

    def _told(self, why: str) -> str:
        return f"{self.model!r} at {self.base_url}: {why}"

    def _unusable(self, why: str) -> LLMError:
        return LLMError(self._told(why))

    @abstractmethod
    def _imported(self) -> ModuleType: ...

    @abstractmethod
    def _connected(self) -> Any: ...

    def _direct(self) -> dict[str, Any]:
        """Options of the SDK's client for a server that no proxy leads to."""
        mounts = direct_mounts(self.base_url)
        return {"http_client": self._sdk.DefaultAsyncHttpxClient(**mounts)} if mounts else {}

    @abstractmethod
    def _request(
        self, messages: list[dict[str, Any]], tools: Messages, options: dict[str, Any]
    ) -> dict[str, Any]: ...

    @abstractmethod
    async def _send(self, client: Any, request: dict[str, Any]) -> Any: ...

    @abstractmethod
    def _read(self, answer: Any) -> LLMResponse: ...


def _words(error: Any) -> str:
    """The words of an error of an SDK, with those of its cause, where it says why."""
    cause = error.__cause__
    return f"{error}" if cause is None else f"{error} ({type(cause).__name__}: {cause})"


def is_system(message: Mapping[str, Any]) -> bool:
    """Whether a message instructs the model for the whole conversation."""
    return message.get("role") in ("system", "developer")


def options_of(client: ChatClient, options: Mapping[str, Any]) -> dict[str, Any]:
    """What goes with a request: the client's own settings, and over them what the call says.

    What is None is left out, for models that do not take it.
    """
    chosen = {"temperature": client.temperature, "max_tokens": client.max_tokens, **options}
    return {name: value for name, value in chosen.items() if value is not None}


def tool_of(tool: Mapping[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """A tool's name, description and schema of its arguments, of either form.

    Raises:
        ValueError: It has no name.
    """
    described = tool.get("function", tool)
    if not described.get("name"):
        raise ValueError(f"a tool without a name: {tool!r:.200}")
    forms = ("inputSchema", "input_schema", "parameters")
    schema = next((described[form] for form in forms if described.get(form)), None)
    whole = {"type": "object", "properties": {}, **(schema or {})}
    return described["name"], described.get("description") or "", whole
