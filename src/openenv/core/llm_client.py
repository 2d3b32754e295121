"""The old path `openenv.core.llm_client`; written by scripts/mirrors.py."""

from openenv.rewards.llm.anthropic import AnthropicClient as AnthropicClient
from openenv.rewards.llm.client import LLMClient as LLMClient
from openenv.rewards.llm.client import LLMResponse as LLMResponse
from openenv.rewards.llm.client import ToolCall as ToolCall
from openenv.rewards.llm.hosted import create_llm_client as create_llm_client
from openenv.rewards.llm.openai import OpenAIClient as OpenAIClient

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
