"""Anthropic's Messages API."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from openenv.capture.dialects import base
from openenv.capture.dialects.base import Dialect, Earlier, EventStream, UnsupportedRequest

__all__ = ["Anthropic"]

_STOPPED = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_SAME = ("model", "temperature", "top_p", "top_k", "max_tokens")
_REASONING = ("reasoning_content", "reasoning")  # names of the field on various servers


class Anthropic(Dialect):
    """``POST /v1/messages``."""

    def to_chat(self, body: Mapping[str, Any], earlier: Earlier) -> dict[str, Any]:
        messages = body.get("messages")
        if not isinstance(messages, list):
            raise UnsupportedRequest("messages: expected a list")
        chat = {name: body[name] for name in _SAME if body.get(name) is not None}
        system = base.extract_text(body.get("system"))
        told: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
        for message in messages:
            told += _assistant(message) if message.get("role") == "assistant" else _user(message)
        chat["messages"] = told
        if body.get("stop_sequences"):
            chat["stop"] = body["stop_sequences"]
        if body.get("tools"):
            chat["tools"] = [_tool(tool) for tool in body["tools"]]
            chat |= _choice(body.get("tool_choice") or {"type": "auto"})
        return chat

    def from_chat(self, completion: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
        choice = base.first_choice(completion)
        return {
            "id": _id(completion),
            "type": "message",
            "role": "assistant",
            "model": asked.get("model") or completion.get("model"),
            "content": list(_blocks(choice.get("message") or {})),
            **_stop_reason(choice),
            "usage": _usage(completion),
        }

    def stream(self, asked: Mapping[str, Any]) -> EventStream:
        return AnthropicEvents(asked)

    def error(self, status: int, message: str, body: Any = None) -> dict[str, Any]:
        if isinstance(body, dict) and body.get("type") == "error":
            return body
        kind = _ERRORS.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": message}}


# ------------------------------------------------------------------ requests


def _user(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"role": message.get("role", "user"), "content": content}]
    results, parts = [], []
    for block in content or ():
        if block.get("type") == "tool_result":
            told = block.get("content")
            if isinstance(told, list):
                told = base.build_content([_part(one) for one in told])
            result = {"role": "tool", "tool_call_id": block.get("tool_use_id")}
            results.append({**result, "content": told or ""})
        else:
            parts.append(_part(block))
    role = message.get("role", "user")
    return results + ([{"role": role, "content": base.build_content(parts)}] if parts else [])


def _assistant(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"role": "assistant", "content": content}]
    told: dict[str, Any] = {"role": "assistant", "content": base.extract_text(content) or None}
    calls, thoughts = [], []
    for block in content or ():
        kind = block.get("type")
        if kind == "tool_use":
            arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
            calls.append(base.build_call(block["id"], block["name"], arguments))
        elif kind == "thinking":
            thoughts.append(block.get("thinking") or "")
        elif kind not in ("text", "redacted_thinking"):
            raise UnsupportedRequest(f"a block of type {kind!r} in a message of the assistant")
    if calls:
        told["tool_calls"] = calls
    if any(thoughts):
        told["reasoning_content"] = "\n".join(thoughts)
    return [told]


def _part(block: Mapping[str, Any]) -> dict[str, Any]:
    kind = block.get("type")
    if kind == "text":
        return base.text_part(block.get("text") or "")
    source = block.get("source") or {}
    if kind == "image" and source.get("type") == "base64":
        return base.image_part(f"data:{source.get('media_type')};base64,{source.get('data')}")
    if kind == "image" and source.get("type") == "url":
        return base.image_part(source.get("url"))
    if kind == "document" and source.get("type") == "text":
        return base.text_part(source.get("data") or "")
    raise UnsupportedRequest(f"a block of type {kind!r} cannot be converted to chat completions")


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    if tool.get("type") not in (None, "custom"):
        raise UnsupportedRequest(
            f"the tool {tool.get('name')!r} runs on Anthropic's servers "
            f"({tool['type']}): take it out of the agent's tools"
        )
    schema = tool.get("input_schema") or {}
    return base.build_tool(tool.get("name"), schema, tool.get("description"))


def _choice(choice: Mapping[str, Any]) -> dict[str, Any]:
    kind = choice.get("type")
    told: dict[str, Any] = {"tool_choice": _CHOICES.get(str(kind), "auto")}
    if kind == "tool":
        told = {"tool_choice": {"type": "function", "function": {"name": choice.get("name")}}}
    if choice.get("disable_parallel_tool_use"):
        told["parallel_tool_calls"] = False
    return told


# ------------------------------------------------------------------ answers


def extract_reasoning(message: Mapping[str, Any]) -> str:
    """Return the model's reasoning, if the server separates it from the answer."""
    return next((message[name] for name in _REASONING if message.get(name)), "")


def _blocks(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if thought := extract_reasoning(message):
        yield {"type": "thinking", "thinking": thought, "signature": ""}
    if message.get("content"):
        yield {"type": "text", "text": message["content"]}
    for number, name, arguments in base.list_calls(message):
        yield {
            "type": "tool_use",
            "id": number,
            "name": name,
            "input": base.parse_arguments(arguments),
        }


def _stop_reason(choice: Mapping[str, Any]) -> dict[str, Any]:
    at = choice.get("stop_reason")  # vLLM reports the stop string here
    if isinstance(at, str) and choice.get("finish_reason") == "stop":
        return {"stop_reason": "stop_sequence", "stop_sequence": at}
    reason = _STOPPED.get(choice.get("finish_reason") or "stop", "end_turn")
    return {"stop_reason": reason, "stop_sequence": None}


def _usage(completion: Mapping[str, Any]) -> dict[str, int]:
    usage = completion.get("usage") or {}
    read = usage.get("prompt_tokens") or len(completion.get("prompt_token_ids") or ())
    return {"input_tokens": read, "output_tokens": usage.get("completion_tokens") or 0}


def _id(completion: Mapping[str, Any]) -> str:
    number = str(completion.get("id") or "0")
    return number if number.startswith("msg_") else f"msg_{number}"


class AnthropicEvents(EventStream):
    """The event stream of a message: content blocks in sequence."""

    def __init__(self, asked: Mapping[str, Any]) -> None:
        self.asked = asked
        self.begun = False
        self.blocks = 0
        self.open: tuple[str, int] | None = None  # its type, and which call it is

    def chunk(self, chunk: Mapping[str, Any]) -> str:
        events = "" if self.begun else self._begin(chunk)
        delta = base.first_choice(chunk).get("delta") or {}
        if thought := extract_reasoning(delta):
            events += self._block("thinking", {"thinking": "", "signature": ""})
            events += self._delta({"type": "thinking_delta", "thinking": thought})
        if delta.get("content"):
            events += self._block("text", {"text": ""})
            events += self._delta({"type": "text_delta", "text": delta["content"]})
        for call in delta.get("tool_calls") or ():
            function = call.get("function") or {}
            if call.get("id") or function.get("name"):
                start = {"id": call.get("id"), "name": function.get("name"), "input": {}}
                events += self._block("tool_use", start, call.get("index", 0))
            if function.get("arguments"):
                partial = {"type": "input_json_delta", "partial_json": function["arguments"]}
                events += self._delta(partial)
        return events

    def end(self, completion: Mapping[str, Any]) -> str:
        events = ("" if self.begun else self._begin(completion)) + self._close()
        delta = _stop_reason(base.first_choice(completion))
        ending = {"type": "message_delta", "delta": delta, "usage": _usage(completion)}
        return events + _event(ending) + _event({"type": "message_stop"})

    def error(self, message: str) -> str:
        return _event({"type": "error", "error": {"type": "api_error", "message": message}})

    def _begin(self, chunk: Mapping[str, Any]) -> str:
        self.begun = True
        open_ended: dict[str, Any] = {"content": [], "stop_reason": None, "stop_sequence": None}
        message = {**Anthropic().from_chat(chunk, self.asked), **open_ended}
        return _event({"type": "message_start", "message": message})

    def _block(self, kind: str, start: Mapping[str, Any], call: int = 0) -> str:
        if self.open == (kind, call):
            return ""
        events = self._close()
        self.open = (kind, call)
        block = {"type": kind, **start}
        return events + _event(
            {"type": "content_block_start", "index": self.blocks, "content_block": block}
        )

    def _delta(self, delta: Mapping[str, Any]) -> str:
        return _event({"type": "content_block_delta", "index": self.blocks, "delta": delta})

    def _close(self) -> str:
        if self.open is None:
            return ""
        self.open = None
        self.blocks += 1
        return _event({"type": "content_block_stop", "index": self.blocks - 1})


def _event(data: Mapping[str, Any]) -> str:
    return base.encode_event(data, str(data["type"]))
