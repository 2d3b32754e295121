"""Clients of language models: OpenAI's API, compatible servers, and Anthropic's API.

    async with OpenAIClient("http://localhost", 8000, "Qwen/Qwen3-4B") as client:
        text = await client.complete("What is 2 + 2?", temperature=0.7, seed=1)

The SDKs are imported when a client is created; install them with ``pip install 'openenv[llm]'``.
Read `client.py` (the interface) first.
"""

from __future__ import annotations

from openenv.rewards.llm.anthropic import AnthropicClient
from openenv.rewards.llm.client import (
    InvalidToolCall,
    LLMClient,
    LLMError,
    LLMResponse,
    LLMTimeout,
    LLMUnreachable,
    ToolCall,
    Usage,
)
from openenv.rewards.llm.hosted import create_llm_client
from openenv.rewards.llm.openai import OpenAIClient

__all__ = [
    "AnthropicClient",
    "InvalidToolCall",
    "LLMClient",
    "LLMError",
    "LLMResponse",
    "LLMTimeout",
    "LLMUnreachable",
    "OpenAIClient",
    "ToolCall",
    "Usage",
    "create_llm_client",
]
