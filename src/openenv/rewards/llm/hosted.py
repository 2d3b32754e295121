"""Clients of hosted models by the name of the provider."""

from __future__ import annotations

from openenv._internal.quoting import did_you_mean
from openenv.rewards.llm.anthropic import AnthropicClient
from openenv.rewards.llm.client import LLMClient
from openenv.rewards.llm.openai import OpenAIClient

ENDPOINTS = {"anthropic": "https://api.anthropic.com", "openai": "https://api.openai.com"}

# Prefixes of the names of OpenAI's models that refuse ``max_tokens`` and a temperature.
REASONING_MODELS = ("gpt-5-mini", "o1", "o3", "o4-mini")


def create_llm_client(
    provider: str,
    model: str,
    api_key: str,
    *,
    system_prompt: str | None = None,
    temperature: float = 0.0,
    max_tokens: int = 4096,
) -> LLMClient:
    """Make a client of a model that OpenAI or Anthropic hosts.

    Args:
        provider: ``openai`` or ``anthropic``.
        model: The model's name.
        api_key: The API key of the provider.
        system_prompt: System message for every conversation that has none.
        temperature: Sampling temperature; not sent to OpenAI's reasoning models. Default: 0.0.
        max_tokens: Maximum number of tokens in an answer. Default: 4096.

    Raises:
        ValueError: The provider is unknown.
        MissingPackage: The provider's package is not installed.
    """
    name = provider.lower()
    if name not in ENDPOINTS:
        hint = did_you_mean(name, ENDPOINTS)
        raise ValueError(f"provider={provider!r}; expected one of {', '.join(ENDPOINTS)}{hint}")
    settings = (ENDPOINTS[name], 443, model, api_key, system_prompt, temperature, max_tokens)
    if name == "anthropic":
        return AnthropicClient(*settings)
    return OpenAIClient(*settings, model.startswith(REASONING_MODELS))
