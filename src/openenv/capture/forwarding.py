"""Forwarding of Anthropic API calls to Anthropic's API, recorded as text.

Anthropic's API returns no tokens. These calls can be evaluated and read, but not trained on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from starlette.responses import JSONResponse, Response

from openenv._internal.json import read_json
from openenv._internal.net.http import StreamedAnswer
from openenv.capture.answers import EventResponse
from openenv.capture.calls import ModelCall
from openenv.capture.dialects.base import UnsupportedRequest, encode_event
from openenv.capture.upstream import (
    InferenceClient,
    UpstreamError,
    UpstreamTransportError,
    parse_object,
    read_body,
    read_events,
)

__all__ = ["forward_call"]

_PASSED_HEADERS = ("anthropic-version", "anthropic-beta")
_FINISHED = {"max_tokens": "length", "tool_use": "tool_calls", "refusal": "content_filter"}


async def forward_call(
    call: ModelCall, client: InferenceClient, given: Mapping[str, str], raw: bytes
) -> Response:
    """Answer a call with the upstream's unmodified answer.

    Args:
        call: The call.
        client: The client of the upstream.
        given: The headers of the agent's request.
        raw: The body of the agent's request.

    Raises:
        UpstreamError: The upstream does not answer.
    """
    try:
        call.read()
    except UnsupportedRequest:  # as chat; the upstream itself may support it
        call.chat = {"messages": list(call.body.get("messages") or ())}
    if client.served_model:
        raw = json.dumps({**call.body, "model": client.served_model}).encode()
    headers = {name: given[name] for name in _PASSED_HEADERS if name in given}
    async with contextlib.AsyncExitStack() as stack:
        asking = client.request("POST", "/messages", raw, headers)
        answer = await stack.enter_async_context(asking)
        if call.body.get("stream"):
            events = _events(call, answer, stack.pop_all())
            await anext(events)
            return EventResponse(events)
        message = parse_object(await read_body(answer))
    call.record_answer(_to_completion(call, message))
    return JSONResponse(message)


async def _events(
    call: ModelCall, answer: StreamedAnswer, stack: contextlib.AsyncExitStack
) -> AsyncGenerator[str, None]:
    message: dict[str, Any] = {}
    is_over = False
    try:
        async with stack:
            yield ""
            async for parts in read_events(answer):
                for event in map(parse_object, parts):
                    _apply_event(message, event)
                    is_over = event.get("type") == "message_stop"
                    if is_over:
                        call.record_answer(_to_completion(call, message))
                    if event.get("type") == "error":
                        told = f"the upstream failed during the stream: {event}"
                        raise UpstreamTransportError(told)
                    yield encode_event(event, str(event.get("type")))
        if not is_over:
            raise UpstreamTransportError("the upstream's stream ended early")
    except UpstreamError as error:
        call.record_failure("broken", None, str(error))
        yield call.dialect.stream(call.body).error(str(error))
    except (asyncio.CancelledError, GeneratorExit):
        if not is_over:
            call.record_failure("abandoned", None, "the agent disconnected during its answer")
        raise


def _apply_event(message: dict[str, Any], event: Mapping[str, Any]) -> None:
    """Apply an event of a stream to the message being assembled."""
    kind = event.get("type")
    if kind == "message_start":
        message |= event["message"]
        message["content"] = []
    elif kind == "content_block_start":
        message["content"].append({**event["content_block"], "partial_json": ""})
    elif kind == "content_block_delta":
        block, delta = message["content"][-1], event["delta"]
        for name in ("text", "thinking", "partial_json"):
            if name in delta:
                block[name] = (block.get(name) or "") + delta[name]
    elif kind == "content_block_stop":
        block = message["content"][-1]
        if written := block.pop("partial_json", ""):
            block["input"] = read_json(written)
    elif kind == "message_delta":
        message |= event["delta"]
        message["usage"] = {**(message.get("usage") or {}), **(event.get("usage") or {})}


def _to_completion(call: ModelCall, message: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a message of Anthropic's API to a chat completion."""
    spoken = {"role": "assistant", "content": message.get("content") or []}
    try:
        told = call.dialect.to_chat({"messages": [spoken]}, lambda number: ())["messages"][0]
    except UnsupportedRequest:
        told = spoken
    reason = str(message.get("stop_reason"))
    choice = {"index": 0, "message": told, "finish_reason": _FINISHED.get(reason, "stop")}
    return {"model": message.get("model"), "choices": [choice]}
