"""The ``generateContent`` methods of Google's Gemini API."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from openenv.capture.dialects import base
from openenv.capture.dialects.anthropic import extract_reasoning
from openenv.capture.dialects.base import Dialect, Earlier, EventStream, UnsupportedRequest

__all__ = ["Google"]

_CONFIG = {
    "temperature": "temperature",
    "topP": "top_p",
    "topK": "top_k",
    "maxOutputTokens": "max_tokens",
    "stopSequences": "stop",
    "seed": "seed",
    "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty",
}
_MODES = {"AUTO": "auto", "ANY": "required", "NONE": "none"}
_STOPPED = {"length": "MAX_TOKENS", "content_filter": "SAFETY"}
_ERRORS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class Google(Dialect):
    """The Gemini API: ``POST /v1beta/models/NAME:generateContent`` and ``:streamGenerateContent``.

    Clients may omit the ids of calls; ids are then derived from the positions of the calls.
    """

    def to_chat(self, body: Mapping[str, Any], earlier: Earlier) -> dict[str, Any]:
        contents = body.get("contents")
        if not isinstance(contents, list):
            raise UnsupportedRequest("contents: expected a list")
        messages: list[dict[str, Any]] = []
        system = body.get("systemInstruction") or body.get("system_instruction") or {}
        if parts := system.get("parts"):
            messages.append({"role": "system", "content": _content(parts)})
        open_calls: list[tuple[str, str]] = []  # name and id of unanswered calls
        for content in contents:
            messages += _to_messages(content, open_calls)
        config = body.get("generationConfig") or {}
        chat: dict[str, Any] = {
            to: config[name] for name, to in _CONFIG.items() if config.get(name) is not None
        }
        chat["messages"] = messages
        tools = [tool for given in body.get("tools") or () for tool in _tools(given)]
        if tools:
            chat["tools"] = tools
            calling = (body.get("toolConfig") or {}).get("functionCallingConfig") or {}
            chat["tool_choice"] = _MODES.get(calling.get("mode", "AUTO"), "auto")
        if schema := config.get("responseJsonSchema") or config.get("responseSchema"):
            form = {"name": "answer", "schema": _schema(schema)}
            chat["response_format"] = {"type": "json_schema", "json_schema": form}
        elif config.get("responseMimeType") == "application/json":
            chat["response_format"] = {"type": "json_object"}
        return chat

    def from_chat(self, completion: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
        choice = base.first_choice(completion)
        parts = list(_to_parts(choice.get("message") or {}))
        return _answer(completion, parts, choice.get("finish_reason") or "stop")

    def stream(self, asked: Mapping[str, Any]) -> EventStream:
        return GoogleEvents()

    def error(self, status: int, message: str, body: Any = None) -> dict[str, Any]:
        name = _ERRORS.get(status, "INTERNAL" if status >= 500 else "INVALID_ARGUMENT")
        return {"error": {"code": status, "message": message, "status": name}}

    def wants_stream(self, path: str, body: Mapping[str, Any]) -> bool:
        return ":streamgeneratecontent" in path.lower()


# ------------------------------------------------------------------ requests


def _to_messages(
    content: Mapping[str, Any], open_calls: list[tuple[str, str]]
) -> Iterator[dict[str, Any]]:
    parts: Sequence[Mapping[str, Any]] = content.get("parts") or ()
    rest = [p for p in parts if "functionCall" not in p and "functionResponse" not in p]
    for part in parts:
        if "functionResponse" in part:
            given = part["functionResponse"]
            number = given.get("id") or _take_call_id(given.get("name"), open_calls)
            text = json.dumps(given.get("response"), ensure_ascii=False)
            yield {"role": "tool", "tool_call_id": number, "content": text}
    if content.get("role") != "model":
        if rest:
            yield {"role": "user", "content": _content(rest)}
        return
    said = _content([part for part in rest if not part.get("thought")])
    message: dict[str, Any] = {"role": "assistant", "content": said or None}
    for part in parts:
        if "functionCall" in part:
            given = part["functionCall"]
            number = given.get("id") or f"call_{len(open_calls)}"
            open_calls.append((given.get("name") or "", number))
            arguments = json.dumps(given.get("args") or {}, ensure_ascii=False)
            call = base.build_call(number, given.get("name"), arguments)
            message.setdefault("tool_calls", []).append(call)
    yield message


def _take_call_id(name: str | None, open_calls: list[tuple[str, str]]) -> str:
    for at, (called, number) in enumerate(open_calls):
        if called == name:
            open_calls[at] = ("", number)
            return number
    raise UnsupportedRequest(f"a functionResponse of {name!r}, which was not called")


def _content(parts: Sequence[Mapping[str, Any]]) -> str | list[dict[str, Any]]:
    return base.build_content([_part(part) for part in parts])


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    if "text" in part:
        return base.text_part(part["text"])
    data = part.get("inlineData") or {}
    if str(data.get("mimeType", "")).startswith("image/"):
        return base.image_part(f"data:{data['mimeType']};base64,{data.get('data')}")
    named = ", ".join(part)
    raise UnsupportedRequest(f"a part with {named} cannot be converted to chat completions")


def _tools(given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    declared = given.get("functionDeclarations") or given.get("function_declarations")
    if declared is None:
        raise UnsupportedRequest(f"the tool {', '.join(given)} runs on Google's servers")
    for one in declared:
        schema = one.get("parametersJsonSchema") or one.get("parameters") or {"type": "object"}
        yield base.build_tool(one.get("name"), _schema(schema), one.get("description"))


def _schema(schema: Any) -> Any:
    """Convert a schema to JSON Schema, with lower-case types."""
    if isinstance(schema, Mapping):
        return {
            name: value.lower() if name == "type" and isinstance(value, str) else _schema(value)
            for name, value in schema.items()
        }
    return [_schema(one) for one in schema] if isinstance(schema, list) else schema


# ------------------------------------------------------------------ answers


def _to_parts(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if thought := extract_reasoning(message):
        yield {"text": thought, "thought": True}
    if message.get("content"):
        yield {"text": message["content"]}
    for number, name, arguments in base.list_calls(message):
        yield {
            "functionCall": {"id": number, "name": name, "args": base.parse_arguments(arguments)}
        }


def _answer(
    completion: Mapping[str, Any], parts: list[dict[str, Any]], finish: str | None
) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = _STOPPED.get(finish, "STOP")
    answer: dict[str, Any] = {
        "candidates": [candidate],
        "modelVersion": completion.get("model"),
        "responseId": str(completion.get("id") or uuid.uuid4().hex),
    }
    if usage := completion.get("usage"):
        read, written = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
        counts = {"promptTokenCount": read, "candidatesTokenCount": written}
        answer["usageMetadata"] = {**counts, "totalTokenCount": read + written}
    return answer


class GoogleEvents(EventStream):
    """The event stream of an answer: text as soon as received, tool calls once complete.

    The API has no partial tool calls.
    """

    def chunk(self, chunk: Mapping[str, Any]) -> str:
        delta = base.first_choice(chunk).get("delta") or {}
        said = {name: value for name, value in delta.items() if name != "tool_calls"}
        parts = list(_to_parts(said))
        return base.encode_event(_answer({**chunk, "usage": None}, parts, None)) if parts else ""

    def end(self, completion: Mapping[str, Any]) -> str:
        choice = base.first_choice(completion)
        message = choice.get("message") or {}
        calls = list(_to_parts({"tool_calls": message.get("tool_calls")}))
        return base.encode_event(_answer(completion, calls, choice.get("finish_reason") or "stop"))

    def error(self, message: str) -> str:
        return base.encode_event({"error": {"code": 500, "message": message, "status": "INTERNAL"}})
