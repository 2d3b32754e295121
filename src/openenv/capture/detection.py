"""Detection of a request's model API from its path, headers and body."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

__all__ = ["APIType", "detect", "extract_model"]


class APIType(str, Enum):
    """The model APIs that agents may use."""

    ANTHROPIC = "anthropic"
    OPENAI_CHAT = "openai_chat"
    OPENAI_RESPONSES = "openai_responses"
    GOOGLE = "google"


def detect(path: str, headers: Mapping[str, str], body: Mapping[str, Any]) -> APIType:
    """Return the API of a request, judged by the path, then the headers, then the body."""
    path = path.lower().partition("?")[0].rstrip("/")
    if path.endswith((":generatecontent", ":streamgeneratecontent")):
        return APIType.GOOGLE
    if path.endswith("/chat/completions"):
        return APIType.OPENAI_CHAT
    if path.endswith("/responses"):
        return APIType.OPENAI_RESPONSES
    if path.endswith("/messages"):
        return APIType.ANTHROPIC
    names = {name.lower() for name in headers}
    if "anthropic-version" in names:
        return APIType.ANTHROPIC
    if "x-goog-api-key" in names or "contents" in body:
        return APIType.GOOGLE
    if "input" in body and "messages" not in body:
        return APIType.OPENAI_RESPONSES
    return APIType.OPENAI_CHAT


def extract_model(api_type: APIType, body: Mapping[str, Any]) -> str:
    """Return the model that a request names, or ""."""
    del api_type  # the same field in all APIs
    return str(body.get("model") or "")
