"""The APIs that agents call models by, each to and from chat completions."""

from __future__ import annotations

from openenv.harness.capture.detection import APIType
from openenv.harness.capture.dialects.anthropic import Anthropic
from openenv.harness.capture.dialects.base import Dialect
from openenv.harness.capture.dialects.google import Google
from openenv.harness.capture.dialects.openai_chat import OpenAIChat
from openenv.harness.capture.dialects.openai_responses import OpenAIResponses

__all__ = ["DIALECTS"]

DIALECTS: dict[APIType, Dialect] = {
    APIType.OPENAI_CHAT: OpenAIChat(),
    APIType.OPENAI_RESPONSES: OpenAIResponses(),
    APIType.ANTHROPIC: Anthropic(),
    APIType.GOOGLE: Google(),
}
