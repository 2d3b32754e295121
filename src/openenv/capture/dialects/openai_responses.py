"""OpenAI's Responses API."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from openenv.capture.dialects import base
from openenv.capture.dialects.anthropic import extract_reasoning
from openenv.capture.dialects.base import Dialect, Earlier, EventStream, UnsupportedRequest
from openenv.capture.dialects.openai_chat import OpenAIChat

__all__ = ["OpenAIResponses"]

_SAME = ("model", "temperature", "top_p", "parallel_tool_calls", "user", "seed")
_ECHOED: dict[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "truncation": "disabled",
}
_CUT_OFF = {"length": "max_output_tokens", "content_filter": "content_filter"}


class OpenAIResponses(Dialect):
    """``POST /v1/responses``."""

    def to_chat(self, body: Mapping[str, Any], earlier: Earlier) -> dict[str, Any]:
        chat = {name: body[name] for name in _SAME if body.get(name) is not None}
        messages: list[dict[str, Any]] = []
        if previous := body.get("previous_response_id"):
            messages += [dict(one) for one in earlier(previous)]
        messages += _messages(body.get("input"))
        if body.get("instructions"):
            messages.insert(0, {"role": "system", "content": body["instructions"]})
        chat["messages"] = messages
        if body.get("max_output_tokens") is not None:
            chat["max_tokens"] = body["max_output_tokens"]
        if body.get("tools"):
            chat["tools"] = [_tool(tool) for tool in body["tools"]]
            choice = body.get("tool_choice") or "auto"
            if isinstance(choice, Mapping):
                choice = {"type": "function", "function": {"name": choice.get("name")}}
            chat["tool_choice"] = choice
        if (effort := (body.get("reasoning") or {}).get("effort")) is not None:
            chat["reasoning_effort"] = effort
        form = (body.get("text") or {}).get("format") or {}
        if form.get("type") == "json_schema":
            schema = {name: value for name, value in form.items() if name != "type"}
            chat["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif form.get("type") not in (None, "text"):
            chat["response_format"] = dict(form)
        return chat

    def from_chat(self, completion: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
        choice = base.first_choice(completion)
        output = list(_items(choice.get("message") or {}))
        return _response(_id(completion), completion, asked, output)

    def stream(self, asked: Mapping[str, Any]) -> EventStream:
        return ResponsesEvents(asked)

    def error(self, status: int, message: str, body: Any = None) -> dict[str, Any]:
        return OpenAIChat().error(status, message, body)

    def response_id(self, answer: Mapping[str, Any]) -> str | None:
        return answer.get("id")


# ------------------------------------------------------------------ requests


def _messages(given: Any) -> list[dict[str, Any]]:
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if not isinstance(given, list):
        raise UnsupportedRequest("input: expected a text or a list")
    messages: list[dict[str, Any]] = []
    for item in given:
        kind = item.get("type", "message")
        if kind == "message" and item.get("role") == "assistant":
            _assistant_message(messages)["content"] = _text(item.get("content"))
        elif kind == "message":
            role = item.get("role", "user")  # few chat templates have the role developer
            role = "system" if role == "developer" else role
            content = item.get("content")
            told = content if isinstance(content, str) else _content(list(content))
            messages.append({"role": role, "content": told})
        elif kind == "function_call":
            call = base.build_call(item["call_id"], item["name"], item.get("arguments") or "")
            _assistant_message(messages, calling=True).setdefault("tool_calls", []).append(call)
        elif kind == "function_call_output":
            told = _content(item.get("output"))
            messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": told})
        elif kind == "reasoning":
            if thought := base.extract_text(item.get("content")) or base.extract_text(
                item.get("summary")
            ):
                _assistant_message(messages, anew=True)["reasoning_content"] = thought
        else:
            raise UnsupportedRequest(
                f"an item of type {kind!r} cannot be converted to chat completions"
            )
    return messages


def _assistant_message(
    messages: list[dict[str, Any]], *, calling: bool = False, anew: bool = False
) -> dict[str, Any]:
    """Return the assistant message that an item belongs to.

    Reasoning, text and tool calls of the same turn are separate items.
    """
    last = messages[-1] if messages else {}
    goes_on = last.get("role") == "assistant" and not anew
    if not goes_on or (not calling and (last.get("content") or last.get("tool_calls"))):
        last = {"role": "assistant", "content": None}
        messages.append(last)
    return last


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part.get("text") or part.get("refusal") or "" for part in content)
    return content or ""


def _content(content: Any) -> Any:
    return base.build_content(list(map(_part, content))) if isinstance(content, list) else content


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    kind = part.get("type")
    if kind in ("input_text", "output_text", "text"):
        return base.text_part(part.get("text") or "")
    if kind == "input_image" and part.get("image_url"):
        return base.image_part(part["image_url"])
    raise UnsupportedRequest(f"a content of type {kind!r} cannot be converted to chat completions")


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    if tool.get("type") != "function":
        raise UnsupportedRequest(
            f"the tool of type {tool.get('type')!r} runs on OpenAI's servers: take "
            f"it out of the agent's tools"
        )
    names = ("name", "description", "parameters", "strict")
    function = {name: tool[name] for name in names if tool.get(name) is not None}
    return {"type": "function", "function": function}


# ------------------------------------------------------------------ answers


def _id(completion: Mapping[str, Any]) -> str:
    number = str(completion.get("id") or uuid.uuid4().hex)
    return number if number.startswith("resp_") else f"resp_{number}"


def _new(kind: str) -> str:
    return f"{kind}_{uuid.uuid4().hex[:24]}"


def _items(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if thought := extract_reasoning(message):
        yield _reasoning(_new("rs"), thought)
    if message.get("content"):
        yield _message(_new("msg"), message["content"])
    for number, name, arguments in base.list_calls(message):
        yield _call(_new("fc"), number, name, arguments)


def _reasoning(number: str, thought: str | None) -> dict[str, Any]:
    content = [] if thought is None else [{"type": "reasoning_text", "text": thought}]
    return {"id": number, "type": "reasoning", "summary": [], "content": content}


def _message(number: str, text: str | None) -> dict[str, Any]:
    status = "in_progress" if text is None else "completed"
    content = [] if text is None else [_output_text(text)]
    item = {"id": number, "type": "message", "role": "assistant"}
    return {**item, "status": status, "content": content}


def _output_text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _call(number: str, call: str, name: str, arguments: str | None) -> dict[str, Any]:
    status = "in_progress" if arguments is None else "completed"
    item = {"id": number, "type": "function_call", "call_id": call, "name": name}
    return {**item, "arguments": arguments or "", "status": status}


def _response(
    number: str,
    completion: Mapping[str, Any],
    asked: Mapping[str, Any],
    output: list[dict[str, Any]],
    status: str | None = None,
) -> dict[str, Any]:
    cut_off = _CUT_OFF.get(base.first_choice(completion).get("finish_reason") or "")
    echoed = {n: default if asked.get(n) is None else asked[n] for n, default in _ECHOED.items()}
    return {
        "id": number,
        "object": "response",
        "created_at": completion.get("created") or int(time.time()),
        "status": status or ("incomplete" if cut_off else "completed"),
        "error": None,
        "incomplete_details": {"reason": cut_off} if cut_off else None,
        "model": asked.get("model") or completion.get("model"),
        "output": output,
        "usage": _usage(completion),
        **echoed,
    }


def _usage(completion: Mapping[str, Any]) -> dict[str, Any] | None:
    usage = completion.get("usage")
    if not usage:
        return None
    read, written = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    thought = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": thought},
        "total_tokens": read + written,
    }


class ResponsesEvents(EventStream):
    """The event stream of a response: output items in sequence."""

    def __init__(self, asked: Mapping[str, Any]) -> None:
        self.asked = asked
        self.number = 0
        self.id = ""
        self.done: list[dict[str, Any]] = []
        self.open: dict[str, Any] | None = None
        self.of_call = -1
        self.text = ""

    def chunk(self, chunk: Mapping[str, Any]) -> str:
        events = "" if self.id else self._begin(chunk)
        delta = base.first_choice(chunk).get("delta") or {}
        if thought := extract_reasoning(delta):
            events += self._item(_reasoning(_new("rs"), None), -1)
            events += self._delta("response.reasoning_text.delta", thought)
        if delta.get("content"):
            events += self._item(_message(_new("msg"), None), -1)
            events += self._delta("response.output_text.delta", delta["content"])
        for call in delta.get("tool_calls") or ():
            function = call.get("function") or {}
            if call.get("id") or function.get("name"):
                item = _call(_new("fc"), call.get("id") or "", function.get("name") or "", None)
                events += self._item(item, call.get("index", 0))
            if function.get("arguments"):
                kind = "response.function_call_arguments.delta"
                events += self._delta(kind, function["arguments"])
        return events

    def end(self, completion: Mapping[str, Any]) -> str:
        events = ("" if self.id else self._begin(completion)) + self._close()
        response = _response(self.id, completion, self.asked, self.done)
        return events + self._event(f"response.{response['status']}", response=response)

    def error(self, message: str) -> str:
        told = {"code": "server_error", "message": message, "param": None}
        return self._event("error", error=told, **told)  # for this type the SDK raises

    def _begin(self, chunk: Mapping[str, Any]) -> str:
        self.id = self.answer_id = _id(chunk)
        head = {name: value for name, value in chunk.items() if name != "choices"}
        response = _response(self.id, head, self.asked, [], "in_progress")
        created = self._event("response.created", response=response)
        return created + self._event("response.in_progress", response=response)

    def _item(self, item: dict[str, Any], call: int) -> str:
        """Start an item, unless the open item is the same one."""
        if self.open is not None and (self.open["type"], self.of_call) == (item["type"], call):
            return ""
        events = self._close()
        self.open, self.of_call, self.text = item, call, ""
        events += self._event("response.output_item.added", item=item)
        if item["type"] == "message":
            part = _output_text("")
            events += self._event("response.content_part.added", part=part, **self._place())
        return events

    def _delta(self, kind: str, delta: str) -> str:
        self.text += delta
        told: dict[str, Any] = {"logprobs": []} if kind == "response.output_text.delta" else {}
        return self._event(kind, delta=delta, **told, **self._place())

    def _close(self) -> str:
        if self.open is None:
            return ""
        item, place = self.open, self._place()
        events = ""
        if item["type"] == "message":
            item = _message(item["id"], self.text)
            part = item["content"][0]
            events += self._event("response.output_text.done", text=self.text, logprobs=[], **place)
            events += self._event("response.content_part.done", part=part, **place)
        elif item["type"] == "function_call":
            item = _call(item["id"], item["call_id"], item["name"], self.text)
            kind = "response.function_call_arguments.done"
            events += self._event(kind, arguments=self.text, name=item["name"], **place)
        else:
            item = _reasoning(item["id"], self.text)
            events += self._event("response.reasoning_text.done", text=self.text, **place)
        events += self._event("response.output_item.done", item=item)
        self.done.append(item)
        self.open = None
        return events

    def _place(self) -> dict[str, Any]:
        assert self.open is not None
        place: dict[str, Any] = {"item_id": self.open["id"]}
        return place if self.open["type"] == "function_call" else {**place, "content_index": 0}

    def _event(self, kind: str, **data: Any) -> str:
        if self.open is not None or "item" in data:
            data.setdefault("output_index", len(self.done))
        event = {"type": kind, "sequence_number": self.number, **data}
        self.number += 1
        return base.encode_event(event, kind)
