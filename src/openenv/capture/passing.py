"""Calls of Anthropic's API to Anthropic's API: passed on as they are, taken down as text.

That API tells no tokens, so nothing of it can be trained on; it can be evaluated and looked at.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

from starlette.responses import JSONResponse, Response

from openenv._internal.json import read_json
from openenv._internal.net.http import StreamedAnswer
from openenv.capture.answers import EventResponse
from openenv.capture.calls import Call
from openenv.capture.dialects.base import Unsupported, sse
from openenv.capture.upstream import (
    InferenceClient,
    UpstreamError,
    UpstreamTransportError,
    events_of,
    object_of,
    whole_body,
)

__all__ = ["pass_on"]

_PASSED_HEADERS = ("anthropic-version", "anthropic-beta")
_FINISHED = {"max_tokens": "length", "tool_use": "tool_calls", "refusal": "content_filter"}


async def pass_on(
    call: Call, client: InferenceClient, given: Mapping[str, str], raw: bytes
) -> Response:
    """Answer a call by what the upstream answers to it.

    Args:
        call: The call.
        client: Asks the upstream.
        given: The headers that it came with.
        raw: Its body.

    Raises:
        UpstreamError: The upstream does not answer.
    """
    try:
        call.read()
    except Unsupported:  # by chat; the upstream itself may well do it
        call.chat = {"messages": list(call.body.get("messages") or ())}
    if client.served_model:
        raw = json.dumps({**call.body, "model": client.served_model}).encode()
    headers = {name: given[name] for name in _PASSED_HEADERS if name in given}
    async with contextlib.AsyncExitStack() as stack:
        answer = await stack.enter_async_context(client.passed("/messages", raw, headers))
        if call.body.get("stream"):
            events = _events(call, answer, stack.pop_all())
            await anext(events)
            return EventResponse(events)
        message = object_of(await whole_body(answer))
    call.answered(_completion(call, message))
    return JSONResponse(message)


async def _events(
    call: Call, answer: StreamedAnswer, stack: contextlib.AsyncExitStack
) -> AsyncGenerator[str, None]:
    message: dict[str, Any] = {}
    is_over = False
    try:
        async with stack:
            yield ""
            async for event in _each(answer):
                _add(message, event)
                is_over = event.get("type") == "message_stop"
                if is_over:
                    call.answered(_completion(call, message))
                if event.get("type") == "error":
                    raise UpstreamTransportError(f"the upstream failed amid the stream: {event}")
                yield sse(event, str(event.get("type")))
        if not is_over:
            raise UpstreamTransportError("the upstream's stream ended before its time")
    except UpstreamError as error:
        call.failed("broken", None, str(error))
        yield call.dialect.stream(call.body).error(str(error))
    except (asyncio.CancelledError, GeneratorExit):
        if not is_over:
            call.failed("abandoned", None, "the agent hung up amid its answer")
        raise


async def _each(answer: StreamedAnswer) -> AsyncIterator[dict[str, Any]]:
    async for events in events_of(answer):
        for data in events:
            yield object_of(data)


def _add(message: dict[str, Any], event: Mapping[str, Any]) -> None:
    """Take an event of a stream into the message that it is of."""
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


def _completion(call: Call, message: Mapping[str, Any]) -> dict[str, Any]:
    """A message of Anthropic's API as the chat completion that it amounts to."""
    spoken = {"role": "assistant", "content": message.get("content") or []}
    try:
        told = call.dialect.to_chat({"messages": [spoken]}, lambda number: ())["messages"][0]
    except Unsupported:
        told = spoken
    reason = str(message.get("stop_reason"))
    choice = {"index": 0, "message": told, "finish_reason": _FINISHED.get(reason, "stop")}
    return {"model": message.get("model"), "choices": [choice]}
