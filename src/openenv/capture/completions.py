"""Chat completions: assembly from the chunks of a stream, and extraction of exact tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["CompletionAssembler", "ChoiceTokens", "extract_tokens", "strip_capture"]

# Rounding may turn a log-probability of 0 into a slightly positive value.
ROUNDING = 1e-6


@dataclass(frozen=True)
class ChoiceTokens:
    """The tokens that an upstream returned for a choice.

    Attributes:
        prompt_ids: The prompt's tokens; empty if unknown.
        completion_ids: The completion's tokens; empty if unknown.
        logprobs: One log-probability in nats for each completion token; None if unknown.
        lacking: The reason why the tokens cannot be used for training; None if they can.
    """

    prompt_ids: list[int] = field(default_factory=list)
    completion_ids: list[int] = field(default_factory=list)
    logprobs: list[float] | None = None
    lacking: str | None = None


def extract_tokens(completion: Mapping[str, Any], choice: Mapping[str, Any]) -> ChoiceTokens:
    """Extract the tokens of a choice.

    Servers return tokens in several ways: as ``prompt_token_ids`` and ``token_ids`` (vLLM with
    ``return_token_ids``), as ``token_id:17`` in place of a token's text (vLLM with
    ``return_tokens_as_token_ids``), or as an ``id`` beside each log-probability (llama.cpp).
    """
    prompt = _ids(choice.get("prompt_token_ids")) or _ids(completion.get("prompt_token_ids"))
    told = (choice.get("logprobs") or {}).get("content") or []
    written = _ids(choice.get("token_ids")) or _ids([_id(one) for one in told])
    logprobs = _logprobs(told)
    lacking = _find_lack(prompt, written, logprobs, completion)
    return ChoiceTokens(prompt, written, logprobs, lacking)


def _find_lack(
    prompt: list[int],
    written: list[int],
    logprobs: list[float] | None,
    completion: Mapping[str, Any],
) -> str | None:
    usage = completion.get("usage") or {}
    said, choices = usage.get("completion_tokens"), completion.get("choices") or ()
    if prompt and said == 0 and not written:
        return None
    if not prompt or not written:
        which = "of the completion" if prompt else "of the prompt" if written else "at all"
        return f"the upstream returned no tokens {which}"
    if logprobs is None:
        return "the upstream returned no valid log-probabilities"
    if len(logprobs) != len(written):
        return f"the upstream returned {len(logprobs)} log-probabilities for {len(written)} tokens"
    if isinstance(said, int) and said != len(written) and len(choices) == 1:
        return f"the upstream counts {said} sampled tokens, but returned {len(written)}"
    return None


def _ids(ids: Any) -> list[int]:
    if not isinstance(ids, list) or not all(type(one) is int and one >= 0 for one in ids):
        return []
    return list(ids)


def _id(entry: Mapping[str, Any]) -> int | None:
    token = entry.get("token")
    if isinstance(token, str) and token.startswith("token_id:") and token[9:].isdecimal():
        return int(token[9:])
    number: Any = entry.get("token_id", entry.get("id"))
    return number if isinstance(number, int) else None


def _logprobs(told: list[Mapping[str, Any]]) -> list[float] | None:
    logprobs = []
    for one in told:
        value = one.get("logprob")
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        if not math.isfinite(value) or value > ROUNDING:
            return None
        logprobs.append(min(float(value), 0.0))
    return logprobs or None


# ------------------------------------------------------------------ streams


class CompletionAssembler:
    """A completion assembled from the chunks of a stream.

    Attributes:
        is_ended: True once every choice has a finish reason.
    """

    def __init__(self) -> None:
        self._head: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}

    @property
    def is_ended(self) -> bool:
        return bool(self._choices) and all(
            choice["finish_reason"] is not None for choice in self._choices.values()
        )

    def add(self, chunk: Mapping[str, Any]) -> None:
        """Add a chunk."""
        for name, value in chunk.items():
            if name not in ("choices", "object") and value is not None:
                self._head[name] = value
        for part in chunk.get("choices") or ():
            index = part.get("index", 0)
            message = {"role": "assistant", "content": None}
            empty = {"index": index, "message": message, "finish_reason": None, "logprobs": None}
            choice = self._choices.setdefault(index, empty)
            _add_delta(choice["message"], part.get("delta") or {})
            for name in ("finish_reason", "stop_reason", "prompt_token_ids"):
                if part.get(name) is not None:
                    choice[name] = part[name]
            if part.get("token_ids"):
                choice.setdefault("token_ids", []).extend(part["token_ids"])
            told = (part.get("logprobs") or {}).get("content")
            if told:
                choice["logprobs"] = choice["logprobs"] or {"content": []}
                choice["logprobs"]["content"].extend(told)

    def completion(self) -> dict[str, Any]:
        """Return a completion of the chunks so far, as if it had not been streamed."""
        choices = [self._choices[index] for index in sorted(self._choices)]
        return {**self._head, "object": "chat.completion", "choices": choices}


def _add_delta(message: dict[str, Any], delta: Mapping[str, Any]) -> None:
    for name, value in delta.items():
        if name == "tool_calls":
            for call in value or ():
                _add_call(message.setdefault("tool_calls", []), call)
        elif name == "role":
            message["role"] = value or message["role"]
        elif isinstance(value, str):
            message[name] = (message.get(name) or "") + value
        elif value is not None:
            message[name] = value


def _add_call(calls: list[dict[str, Any]], part: Mapping[str, Any]) -> None:
    index = part.get("index", len(calls))
    while len(calls) <= index:
        calls.append({"id": None, "type": "function", "function": {"name": "", "arguments": ""}})
    call, function = calls[index], part.get("function") or {}
    call["id"] = part.get("id") or call["id"]
    call["type"] = part.get("type") or call["type"]
    call["function"]["name"] += function.get("name") or ""
    call["function"]["arguments"] += function.get("arguments") or ""


# ------------------------------------------------------------------ answers for agents


def strip_capture(body: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Remove token ids and log-probabilities that the agent did not request."""
    wants_ids = bool(asked.get("return_token_ids"))

    def strip_ids(given: Mapping[str, Any]) -> dict[str, Any]:
        kept = dict(given)
        for name in () if wants_ids else ("prompt_token_ids", "token_ids"):
            kept.pop(name, None)
        return kept

    choices = [strip_ids(choice) for choice in body.get("choices") or ()]
    for choice in choices:
        if not asked.get("logprobs") and choice.get("logprobs") is not None:
            choice["logprobs"] = None
    return {**strip_ids(body), "choices": choices}
