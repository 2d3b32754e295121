"""Checks that a model's server returns the data that training needs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from openenv.capture.completions import extract_tokens
from openenv.capture.dialects.base import first_choice, list_calls
from openenv.capture.export import TOKENS_REMEDY
from openenv.capture.sessions import rollout_type_for
from openenv.capture.upstream import InferenceClient, UpstreamError

__all__ = ["LLMReport", "list_models", "require_llm", "validate_llm"]

ResultT = TypeVar("ResultT")
_TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look into a directory.",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}},
            "required": ["path"],
        },
    },
}


@dataclass
class LLMReport:
    """The result of probing a model's server.

    Attributes:
        ok: True if the server answers requests to the model.
        llm_url: Base URL of the API.
        model: The model's name on the server.
        findings: Observations, as sentences.
        n_prompt_ids: Number of prompt tokens that the server returned.
        n_completion_ids: Number of completion tokens that the server returned.
        served_models: The models that the server lists.
        capture_level: The level that the server supports: ``tokens``, ``logprobs`` or ``text``;
            empty if it does not answer.
        reachable: True if the server answers.
        param_fixes: Request parameters that the server refused.
        tool_support: ``ok`` if the model calls a tool when told to, ``text`` if it answers in words
            instead, ``refused``, or empty if not checked.
        logprobs_mode: ``processed`` if log-probabilities are those of the sampled distribution;
            ``raw`` if they are the model's own at temperature 1; ``unknown`` if neither; empty if
            not checked.
    """

    ok: bool
    llm_url: str
    model: str
    findings: list[str] = field(default_factory=list)
    n_prompt_ids: int = 0
    n_completion_ids: int = 0
    served_models: list[str] = field(default_factory=list)
    capture_level: str = ""
    reachable: bool = False
    param_fixes: list[str] = field(default_factory=list)
    tool_support: str = ""
    logprobs_mode: str = ""

    @property
    def trainable(self) -> bool:
        """True if the server returns tokens with log-probabilities."""
        return self.ok and self.capture_level == "tokens"

    @property
    def rollout_type(self) -> str:
        """Return ``train`` or ``eval``: the use that the server's answers allow."""
        return rollout_type_for("auto", self.capture_level)

    def summary(self) -> str:
        """Return the report in a few lines."""
        if not self.reachable:
            return "\n".join([f"{self.llm_url} gave no answer", *self.findings])
        head = f"{self.model} at {self.llm_url}: it returns {self.capture_level or 'nothing'}"
        return "\n".join([head, *self.findings])


def validate_llm(
    llm_url: str,
    model: str,
    *,
    provider: str = "openai",
    timeout: float = 120.0,
    api_key: str | None = None,
    auth_header: str = "Authorization",
    check_logprobs_mode: bool = True,
    check_tools: bool = True,
) -> LLMReport:
    """Probe a model's server with a few short questions. Failures are reported, not raised.

    Args:
        llm_url: Base URL of the API.
        model: The model's name on the server.
        provider: ``openai`` or ``anthropic``, whose API returns text only.
        timeout: Time limit for each answer, in seconds.
        api_key: The API key.
        auth_header: The HTTP header that carries the key.
        check_logprobs_mode: Check which log-probabilities the server returns.
        check_tools: Check whether the model calls tools.

    Raises:
        ValueError: `llm_url` is not a URL, or `provider` is unknown.
    """
    client = InferenceClient(
        llm_url,
        served_model=model,
        api_key=api_key,
        auth_header=auth_header,
        provider=provider,
        timeout_s=timeout,
    )
    report = LLMReport(False, llm_url, model)
    _run(_probe(client, report, check_logprobs_mode, check_tools))
    return report


def require_llm(
    llm_url: str,
    model: str,
    *,
    timeout: float = 120.0,
    api_key: str | None = None,
    auth_header: str = "Authorization",
    require_tokens: bool = False,
) -> LLMReport:
    """Probe a model's server and raise if it cannot be used.

    Raises:
        RuntimeError: The model does not answer. With `require_tokens` also: its server returns no
            tokens for training.
    """
    report = validate_llm(
        llm_url,
        model,
        timeout=timeout,
        api_key=api_key,
        auth_header=auth_header,
        check_logprobs_mode=False,
        check_tools=False,
    )
    if not report.ok:
        raise RuntimeError(report.summary())
    if require_tokens and not report.trainable:
        raise RuntimeError(f"{report.summary()}\n{TOKENS_REMEDY}")
    return report


def list_models(
    llm_url: str,
    timeout: float = 30.0,
    api_key: str | None = None,
    auth_header: str = "Authorization",
) -> list[str]:
    """Return the models that a server lists.

    Raises:
        UpstreamError: The server does not answer, or lists no models.
    """

    async def asked() -> list[str]:
        client = InferenceClient(
            llm_url, api_key=api_key, auth_header=auth_header, timeout_s=timeout
        )
        try:
            return _names(await client.list_models())
        finally:
            await client.aclose()

    return _run(asked())


async def _probe(
    client: InferenceClient, report: LLMReport, check_logprobs_mode: bool, check_tools: bool
) -> None:
    try:
        with contextlib.suppress(UpstreamError):
            report.served_models = _names(await client.list_models())
            report.reachable = True
        if client.provider == "anthropic":
            await _look_at_anthropic(client, report)
            return
        await _look_at_tokens(client, report)
        if check_tools:
            await _look_at_tools(client, report)
        if check_logprobs_mode and report.capture_level != "text":
            await _look_at_logprobs(client, report)
    except UpstreamError as error:
        report.findings.append(str(error))
        models = report.served_models
        if models and report.model not in models:
            report.findings.append(f"it serves {', '.join(models)}, not {report.model}")
    finally:
        report.param_fixes = sorted(client.refused)
        await client.aclose()


async def _look_at_anthropic(client: InferenceClient, report: LLMReport) -> None:
    asked = {**_question("Say: ok", 8), "model": report.model}
    await client.post("/messages", asked)
    report.ok = report.reachable = True
    report.capture_level = "text"
    report.findings.append("Anthropic's API returns no tokens: its answers can only be evaluated")


async def _look_at_tokens(client: InferenceClient, report: LLMReport) -> None:
    completion = await client.completion(_question("Say: ok", 8))
    report.ok = report.reachable = True
    tokens = extract_tokens(completion, first_choice(completion))
    report.n_prompt_ids = len(tokens.prompt_ids)
    report.n_completion_ids = len(tokens.completion_ids)
    if tokens.lacking is None:
        report.capture_level = "tokens"
        return
    report.capture_level = "text" if tokens.logprobs is None else "logprobs"
    report.findings.append(tokens.lacking)


async def _look_at_tools(client: InferenceClient, report: LLMReport) -> None:
    asked = {**_question("Look into the directory /tmp.", 256), "tools": [_TOOL]}
    try:
        completion = await client.completion(asked)
    except UpstreamError as error:
        report.tool_support = "refused"
        report.findings.append(f"it refuses tools: {error}")
        return
    called = list_calls(first_choice(completion).get("message") or {})
    report.tool_support = "ok" if called else "text"
    if not called:
        report.findings.append(
            "told to call a tool, it answered in words: vLLM needs --enable-auto-tool-choice and "
            "--tool-call-parser, or the model is not up to it"
        )


async def _look_at_logprobs(client: InferenceClient, report: LLMReport) -> None:
    """Find out which log-probabilities the server returns.

    At half the temperature, the log-probabilities of two tokens are twice as far apart if they are
    those of the distribution that the server samples from.
    """
    apart = []
    for temperature in (1.0, 0.5):
        asked = {**_question("Name a colour.", 1), "temperature": temperature, "top_logprobs": 5}
        apart.append(_gap(await client.completion({**asked, "logprobs": True})))
    report.logprobs_mode = "unknown"
    if None in apart or not apart[0] or not apart[1]:
        return
    ratio = apart[1] / apart[0]
    if math.isclose(ratio, 2.0, rel_tol=0.1):
        report.logprobs_mode = "processed"
    elif math.isclose(ratio, 1.0, rel_tol=0.1):
        report.logprobs_mode = "raw"
        report.findings.append(
            "its log-probabilities are those at temperature 1: at another, sample with vLLM's "
            "--logprobs-mode processed_logprobs"
        )


def _gap(completion: Mapping[str, Any]) -> float | None:
    """Return the difference between the two most likely first tokens, in nats."""
    told = (first_choice(completion).get("logprobs") or {}).get("content") or [{}]
    logprobs = sorted((one["logprob"] for one in told[0].get("top_logprobs") or ()), reverse=True)
    return logprobs[0] - logprobs[1] if len(logprobs) > 1 else None


def _question(text: str, tokens: int) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": tokens}


def _names(models: Mapping[str, Any]) -> list[str]:
    listed = models.get("data")
    if not isinstance(listed, list):
        raise UpstreamError(f"the upstream lists no models: {json.dumps(models)[:200]}")
    return [str(one.get("id")) for one in listed]


def _run(asking: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Run a coroutine in a new thread, so that callers may have a running event loop."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, asking).result()
