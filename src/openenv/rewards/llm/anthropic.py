"""A client of Anthropic's API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from openenv._internal.json import read_json
from openenv._internal.packages import needs
from openenv.errors import NotSupported
from openenv.rewards.llm._chat import ChatClient, Messages, is_system, merge_options, read_tool
from openenv.rewards.llm.client import LLMResponse, ToolCall, Usage


class AnthropicClient(ChatClient):
    """A client of a model behind Anthropic's Messages API.

    Conversations in the form of OpenAI's API are translated. `stop` becomes ``stop_sequences``. The
    API has no seed: a call with `seed` raises `NotSupported`.

    The arguments are those of `OpenAIClient` without `use_max_completion_tokens`. No path is added
    to `endpoint`. Some models require `temperature=None`.

    Raises:
        MissingPackage: The package ``anthropic`` is not installed.
        ValueError: `endpoint` is not a valid URL, `port` is not a valid port, or the two differ.
    """

    def _import_sdk(self) -> ModuleType:
        with needs("AnthropicClient", "pip install 'openenv[llm]'"):
            import anthropic
        return anthropic

    def _connect(self) -> Any:
        return self._sdk.AsyncAnthropic(
            base_url=self.base_url,
            api_key=self._api_key,
            max_retries=self.max_retries,
            **self._direct(),
        )

    def _request(
        self, messages: list[dict[str, Any]], tools: Messages, options: dict[str, Any]
    ) -> dict[str, Any]:
        body = merge_options(self, options)
        if "seed" in body:
            raise NotSupported("Anthropic's API takes no seed", feature="seed")
        if "stop" in body:
            stop = body.pop("stop")
            body["stop_sequences"] = [stop] if isinstance(stop, str) else list(stop)
        system = [str(message["content"]) for message in messages if is_system(message)]
        if system:
            body["system"] = "\n\n".join(system)
        if tools:
            names = ("name", "description", "input_schema")
            body["tools"] = [dict(zip(names, read_tool(tool), strict=True)) for tool in tools]
        request = {"model": self.model, "messages": _as_messages(messages)}
        return {**request, "max_tokens": body.pop("max_tokens"), "extra_body": body}

    async def _send(self, client: Any, request: dict[str, Any]) -> Any:
        return await client.messages.create(**request)

    def _read(self, answer: Any) -> LLMResponse:
        if not isinstance(getattr(answer, "content", None), list):
            raise self._unusable(f"an answer without content: {answer!r:.200}")
        blocks = answer.content
        return LLMResponse(
            "".join(block.text for block in blocks if block.type == "text"),
            [
                ToolCall(block.id, block.name, dict(block.input))
                for block in blocks
                if block.type == "tool_use"
            ],
            usage=answer.usage and _as_usage(answer.usage),
            finish_reason=answer.stop_reason,
        )


def _as_usage(usage: Any) -> Usage:
    """Convert the usage, adding cached prompt tokens, which Anthropic's API counts separately."""
    read, written = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
    return Usage(usage.input_tokens + (read or 0) + (written or 0), usage.output_tokens)


def _as_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Translate a conversation; consecutive tool results become a single message."""
    translated: list[dict[str, Any]] = []
    answering: list[dict[str, Any]] = []
    for message in messages:
        if is_system(message):
            continue
        if message["role"] == "tool":
            if not answering:
                translated.append({"role": "user", "content": answering})
            named = {"type": "tool_result", "tool_use_id": message["tool_call_id"]}
            answering.append({**named, "content": message["content"]})
            continue
        answering = []
        if content := _as_content(message):  # the API rejects empty messages
            translated.append({"role": message["role"], "content": content})
    return translated


def _as_content(message: Mapping[str, Any]) -> Any:
    content, calls = message.get("content"), message.get("tool_calls") or ()
    if isinstance(content, list):
        content = [_as_part(part) for part in content]
    if not calls:
        return content or ""
    text = [{"type": "text", "text": content}] if isinstance(content, str) and content else []
    text = content if isinstance(content, list) else text
    return [*text, *(_as_use(call) for call in calls)]


def _as_part(part: Mapping[str, Any]) -> dict[str, Any]:
    """Translate a part of a message. OpenAI's image URLs become image blocks."""
    if part.get("type") != "image_url":
        return dict(part)
    url = str(part["image_url"]["url"])
    kind, mark, data = url.removeprefix("data:").partition(";base64,")
    if not mark:
        return {"type": "image", "source": {"type": "url", "url": url}}
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}


def _as_use(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = read_json(function["arguments"] or "{}")
    return {"type": "tool_use", "id": call["id"], "name": function["name"], "input": arguments}
