"""A client of OpenAI's API, which vLLM, SGLang, Ollama, llama.cpp and others also provide."""

from __future__ import annotations

from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from openenv._internal.json import read_json
from openenv._internal.packages import needs
from openenv.rewards.llm._chat import ChatClient, Messages, merge_options, read_tool
from openenv.rewards.llm.client import InvalidToolCall, LLMResponse, ToolCall, Usage


class OpenAIClient(ChatClient):
    """A client of a model behind OpenAI's Chat Completions API.

    Options of a call other than `temperature`, `max_tokens`, `stop`, `seed` and `timeout_s` go into
    the request unchanged, such as ``top_p`` or a server's own ``guided_json``.

    Args:
        endpoint: The URL of the server. ``/v1`` is added if the URL has no path.
        port: The port; None if the URL includes the port or for the scheme's default.
        model: The model's name on that server.
        api_key: The API key; None for a server without keys.
        system_prompt: System message for every conversation that has none.
        temperature: Sampling temperature; None for the server's default.
        max_tokens: Maximum number of tokens in an answer.
        use_max_completion_tokens: Send the maximum as ``max_completion_tokens``, and a temperature
            only if the call passes one, as OpenAI's reasoning models require.
        timeout_s: Time limit in seconds for one answer.
        max_retries: Number of retries by the SDK, with growing pauses, if the server cannot be
            reached or answers with 429 or 5xx.

    Raises:
        MissingPackage: The package ``openai`` is not installed.
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

    def _import_sdk(self) -> ModuleType:
        with needs("OpenAIClient", "pip install 'openenv[llm]'"):
            import openai
        return openai

    def _connect(self) -> Any:
        base_url = self.base_url if urlsplit(self.base_url).path else f"{self.base_url}/v1"
        return self._sdk.AsyncOpenAI(
            base_url=base_url, api_key=self._api_key, max_retries=self.max_retries, **self._direct()
        )

    def _request(
        self, messages: list[dict[str, Any]], tools: Messages, options: dict[str, Any]
    ) -> dict[str, Any]:
        body = merge_options(self, options)
        if self.use_max_completion_tokens:
            body.pop("temperature", None)
            body = {"max_completion_tokens": body.pop("max_tokens", None), **body}
            body |= {"temperature": options["temperature"]} if "temperature" in options else {}
        if tools:
            names = ("name", "description", "parameters")
            functions = [dict(zip(names, read_tool(tool), strict=True)) for tool in tools]
            body["tools"] = [{"type": "function", "function": one} for one in functions]
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


def _as_tool_call(call: Any) -> ToolCall:
    name, written = call.function.name, call.function.arguments
    try:
        arguments = read_json(written or "{}")
    except ValueError:
        raise InvalidToolCall(name, written) from None
    if not isinstance(arguments, dict):
        raise InvalidToolCall(name, written)
    return ToolCall(call.id, name, arguments)
