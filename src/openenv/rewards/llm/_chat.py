"""The base class of the clients that use a provider's SDK."""

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
    join_url,
)

NO_KEY = "not-needed"

Messages = Sequence[Mapping[str, Any]]


class ChatClient(LLMClient):
    """A client of a chat model that holds an SDK client per event loop.

    Raises:
        ValueError: `endpoint` is not a valid URL, `port` is not a valid port, or the two differ.
    """

    def __init__(
        self,
        endpoint: str,
        port: int | None,
        model: str,
        api_key: str | None = None,
        system_prompt: str | None = None,
        temperature: float | None = 0.0,
        max_tokens: int = 256,
        *,
        timeout_s: float = 600.0,
        max_retries: int = 2,
    ) -> None:
        join_url(endpoint, port)
        super().__init__(endpoint, port)
        self.model = model
        self.system_prompt = system_prompt
        self.temperature = temperature
        self.max_tokens = max_tokens
        self.timeout_s = timeout_s
        self.max_retries = max_retries
        self._api_key = api_key or NO_KEY
        self._sdk = self._import_sdk()
        self._clients: PerLoop[Any] = PerLoop(self._connect)

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
        except self._sdk.APIError as error:  # both SDKs name their error classes alike
            kind = LLMUnreachable if isinstance(error, self._sdk.APIConnectionError) else LLMError
            if isinstance(error, self._sdk.APITimeoutError):
                kind = LLMTimeout
            cause = error.__cause__
            why = f"{error}" if cause is None else f"{error} ({type(cause).__name__}: {cause})"
            status = getattr(error, "status_code", None)
            raise kind(self._describe(why), status=status) from error

    def _with_system(self, messages: Messages) -> list[dict[str, Any]]:
        """Put the system prompt first, unless the conversation has a system message."""
        given = [dict(message) for message in messages]
        if self.system_prompt is None or any(is_system(message) for message in given):
            return given
        return [{"role": "system", "content": self.system_prompt}, *given]

    def _describe(self, why: str) -> str:
        return f"{self.model!r} at {self.base_url}: {why}"

    def _unusable(self, why: str) -> LLMError:
        return LLMError(self._describe(why))

    @abstractmethod
    def _import_sdk(self) -> ModuleType: ...

    @abstractmethod
    def _connect(self) -> Any: ...

    def _direct(self) -> dict[str, Any]:
        """Return SDK options that bypass proxies, for a server that must not be proxied."""
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


def is_system(message: Mapping[str, Any]) -> bool:
    """Return whether a message has the role ``system`` or ``developer``."""
    return message.get("role") in ("system", "developer")


def merge_options(client: ChatClient, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a request: the client's settings, overridden by those of the call.

    Options that are None are left out, for models that do not accept them.
    """
    chosen = {"temperature": client.temperature, "max_tokens": client.max_tokens, **options}
    return {name: value for name, value in chosen.items() if value is not None}


def read_tool(tool: Mapping[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """Return a tool's name, description and argument schema, from MCP's or OpenAI's form.

    Raises:
        ValueError: The tool has no name.
    """
    described = tool.get("function", tool)
    if not described.get("name"):
        raise ValueError(f"a tool without a name: {tool!r:.200}")
    forms = ("inputSchema", "input_schema", "parameters")
    schema = next((described[form] for form in forms if described.get(form)), None)
    whole = {"type": "object", "properties": {}, **(schema or {})}
    return described["name"], described.get("description") or "", whole
