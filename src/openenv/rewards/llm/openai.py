"""A client of OpenAI's API, which vLLM, SGLang, Ollama, llama.cpp and many others speak too."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from openenv._internal.json import read_json
from openenv._internal.packages import needs
from openenv.rewards.llm._chat import ChatClient, Messages, options_of, tool_of
from openenv.rewards.llm.client import InvalidToolCall, LLMResponse, ToolCall, Usage

__all__ = ["OpenAIClient"]


class OpenAIClient(ChatClient):
    """Asks a model by OpenAI's API of chat completions.

    What a call passes beside `temperature`, `max_tokens`, `stop`, `seed` and `timeout_s` goes into
    the request as it is: ``top_p``, or a server's own, such as ``guided_json``.

    Args:
        endpoint: The URL of the server. ``/v1`` is added where it has no path.
        port: Its port; None where the URL says it, or where it is that of the scheme.
        model: The model's name there.
        api_key: The key; for a server without keys, none.
        system_prompt: The first message of every conversation that does not have one of its kind.
        temperature: Of sampling; None leaves it to the server.
        max_tokens: The most that an answer may have.
        use_max_completion_tokens: Whether the model wants that number under the name of
            ``max_completion_tokens``, and no temperature but what a call itself passes, as
            OpenAI's reasoning models do.
        timeout_s: Seconds that the server has for one answer.
        max_retries: How often the SDK asks again, after a while that grows, where the server
            cannot be reached, or answers that it has too much to do (429) or has failed (5xx).

    Raises:
        MissingPackage: The package ``openai`` is not installed.
        ValueError: `endpoint` is no URL, or `port` none, or they contradict each other.
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
        use_max_completion_tokens: bool = False,
        *,
        timeout_s: float = 600.0,
        max_retries: int = 2,
    ) -> None:
        self.use_max_completion_tokens = use_max_completion_tokens
        super().__init__(
            endpoint,
            port,
            model,
            api_key,
            system_prompt,
            temperature,
            max_tokens,
            timeout_s=timeout_s,
            max_retries=max_retries,
        )

    def _imported(self) -> ModuleType:
        with needs("OpenAIClient", "pip install 'openenv[llm]'"):
            import openai
        return openai

    def _connected(self) -> Any:
        base_url = self.base_url if urlsplit(self.base_url).path else f"{self.base_url}/v1"
        return self._sdk.AsyncOpenAI(
            base_url=base_url, api_key=self._api_key, max_retries=self.max_retries, **self._direct()
        )

    def _request(
        self, messages: list[dict[str, Any]], tools: Messages, options: dict[str, Any]
    ) -> dict[str, Any]:
        body = options_of(self, options)
        if self.use_max_completion_tokens:
            body.pop("temperature", None)
            body = {"max_completion_tokens": body.pop("max_tokens", None), **body}
            body |= {"temperature": options["temperature"]} if "temperature" in options else {}
        if tools:
            body["tools"] = [_as_function(tool) for tool in tools]
        return {"model": self.model, "messages": messages, "extra_body": body}

    async def _send(self, client: Any, request: dict[str, Any]) -> Any:
        return await client.chat.completions.create(**request)

    def _read(self, answer: Any) -> LLMResponse:
        if not getattr(answer, "choices", None):
            raise self._unusable(f"an answer without choices: {answer!r:.200}")
        choice, usage = answer.choices[0], answer.usage
        calls = [_as_tool_call(call) for call in choice.message.tool_calls or ()]
        return LLMResponse(
            choice.message.content or "",
            calls,
            usage=usage and Usage(usage.prompt_tokens, usage.completion_tokens),
            finish_reason=choice.finish_reason,
        )


def _as_function(tool: Mapping[str, Any]) -> dict[str, Any]:
    name, description, schema = tool_of(tool)
    function = {"name": name, "description": description, "parameters": schema}
    return {"type": "function", "function": function}


def _as_tool_call(call: Any) -> ToolCall:
    name, written = call.function.name, call.function.arguments
    try:
        arguments = read_json(written or "{}")
    except ValueError:
        raise InvalidToolCall(name, written) from None
    if not isinstance(arguments, dict):
        raise InvalidToolCall(name, written)
    return ToolCall(call.id, name, arguments)
