"""The model APIs of agents, each with conversions to and from chat completions.

Read `base.py` (the interface) first, then `openai_chat.py` (the simplest dialect).
"""

from __future__ import annotations

from openenv.capture.detection import APIType
from openenv.capture.dialects.anthropic import Anthropic
from openenv.capture.dialects.base import Dialect
from openenv.capture.dialects.google import Google
from openenv.capture.dialects.openai_chat import OpenAIChat
from openenv.capture.dialects.openai_responses import OpenAIResponses

__all__ = ["DIALECTS"]

DIALECTS: dict[APIType, Dialect] = {
    APIType.OPENAI_CHAT: OpenAIChat(),
    APIType.OPENAI_RESPONSES: OpenAIResponses(),
    APIType.ANTHROPIC: Anthropic(),
    APIType.GOOGLE: Google(),
}
