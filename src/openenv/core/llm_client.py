"""The old path `openenv.core.llm_client`; written by scripts/mirrors.py."""

from openenv.llm.anthropic import AnthropicClient as AnthropicClient
from openenv.llm.client import LLMClient as LLMClient
from openenv.llm.client import LLMResponse as LLMResponse
from openenv.llm.client import ToolCall as ToolCall
from openenv.llm.hosted import create_llm_client as create_llm_client
from openenv.llm.openai import OpenAIClient as OpenAIClient

__all__ = [
    "AnthropicClient",
    "LLMClient",
    "LLMResponse",
    "OpenAIClient",
    "ToolCall",
    "create_llm_client",
]
