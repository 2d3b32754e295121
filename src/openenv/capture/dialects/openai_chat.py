"""OpenAI's Chat Completions API, which the upstream uses too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openenv.capture.completions import strip_capture
from openenv.capture.dialects import base
from openenv.capture.dialects.base import Dialect, Earlier, EventStream, UnsupportedRequest

__all__ = ["OpenAIChat"]

_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


class OpenAIChat(Dialect):
    """``POST /v1/chat/completions``."""

    def to_chat(self, body: Mapping[str, Any], earlier: Earlier) -> dict[str, Any]:
        messages = body.get("messages")
        if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
            raise UnsupportedRequest("messages: expected a list of objects")
        return {name: value for name, value in body.items() if name != "stream"}

    def from_chat(self, completion: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
        return strip_capture(completion, asked)

    def stream(self, asked: Mapping[str, Any]) -> EventStream:
        return ChatEvents(asked)

    def error(self, status: int, message: str, body: Any = None) -> dict[str, Any]:
        if isinstance(body, dict) and "error" in body:
            return body
        kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
        return {"error": {"message": message, "type": kind, "param": None, "code": None}}


class ChatEvents(EventStream):
    def __init__(self, asked: Mapping[str, Any]) -> None:
        self.asked = asked
        self.wants_usage = bool((asked.get("stream_options") or {}).get("include_usage"))

    def chunk(self, chunk: Mapping[str, Any]) -> str:
        if not chunk.get("choices") and not self.wants_usage:
            return ""
        told = strip_capture(chunk, self.asked)
        if not self.wants_usage:
            told.pop("usage", None)
        return base.encode_event(told)

    def end(self, completion: Mapping[str, Any]) -> str:
        return "data: [DONE]\n\n"

    def error(self, message: str) -> str:
        return base.encode_event(
            {"error": {"message": message, "type": "api_error", "param": None, "code": None}}
        )
