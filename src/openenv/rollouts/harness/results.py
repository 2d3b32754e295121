"""Values of harness rollouts: tool results, sampled turns, verdicts, records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from pydantic_core import to_jsonable_python

from openenv.rewards.llm.client import LLMResponse
from openenv.tools.types import Tool

Message: TypeAlias = dict[str, Any]
"""A message of a conversation, in the format of OpenAI's chat completions."""


@dataclass
class ToolResult:
    """The result of a tool call.

    Attributes:
        data: The result of the tool, with JSON types.
        done: True if the episode is over.
        metadata: Data hidden from the model: the step's ``reward`` and the ``state``.
        error: Reason why the call failed or was not carried out, in words for the model; None if it
            was carried out.
    """

    data: Any = None
    done: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)
    error: str | None = None

    @property
    def text(self) -> str:
        """The text that the model reads: text unchanged, other data as JSON with sorted keys."""
        parts = [] if self.error is None else [f"Error: {self.error}"]
        if isinstance(self.data, str):
            parts.append(self.data)
        elif self.data is not None:
            plain = to_jsonable_python(self.data, bytes_mode="base64", fallback=str)
            parts.append(json.dumps(plain, sort_keys=True, ensure_ascii=False))
        return "\n".join(parts)


@dataclass
class VerifyResult:
    """The verdict on a whole rollout.

    Attributes:
        env_reward: The environment's reward; None if the rollout is unscored.
        done: True if the episode came to its end.
        metrics: Numbers worth keeping, by name.
        artifacts: Any other data worth keeping.
    """

    env_reward: float | None = None
    done: bool = False
    metrics: dict[str, Any] = field(default_factory=dict)
    artifacts: dict[str, Any] = field(default_factory=dict)


@dataclass
class RolloutEvent:
    """An event in a rollout.

    Attributes:
        type: ``model_response``, ``tool_call``, or a name that a black-box harness chooses.
        payload: The details of the event.
    """

    type: str
    payload: dict[str, Any] = field(default_factory=dict)


@dataclass
class ToolTraceEntry:
    """A tool call with the result."""

    tool_name: str
    arguments: dict[str, Any]
    result: ToolResult


@dataclass
class ModelStepResult:
    """A turn of the model, with the tokens if known.

    Attributes:
        response: The model's response.
        prompt_ids: Tokens of everything that the model read.
        completion_ids: Tokens that the model wrote.
        logprobs: The log-probability of each completion token, in nats.
    """

    response: LLMResponse
    prompt_ids: list[int] = field(default_factory=list)
    completion_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


class ModelStep(Protocol):
    """A function that samples a turn of the model."""

    def __call__(
        self, messages: list[Message], tools: list[Tool], sampling: dict[str, Any]
    ) -> ModelStepResult:
        """Sample the model's next turn.

        Args:
            messages: The conversation so far.
            tools: The tools that the model may call.
            sampling: Settings of the sampler (``temperature``, ``max_tokens``, ...).
        """
        ...


@dataclass
class HarnessRolloutResult:
    """A whole rollout.

    The tokens of all turns are one sequence: what the last turn read and wrote. A turn's tokens
    stay trainable (a mask of 1) as long as later turns have read exactly these tokens. If a chat
    template has rendered an earlier turn differently, that turn is context (a mask of 0).

    Attributes:
        messages: The conversation.
        tool_trace: The tool calls, in order.
        events: The events, in order.
        done: True if the rollout came to its end: the model was done, or the episode was over.
        metrics: ``turns`` and ``tool_calls``; ``truncated`` if the limit of calls ended it.
        prompt_ids: The tokens before the first token that the model wrote.
        completion_ids: All later tokens: the model's, and the tools' answers in between.
        logprobs: One value for each of `completion_ids`, in nats; 0.0 for other tokens than the
            model's.
        completion_mask: 1 for each of `completion_ids` that the model wrote, else 0.
        turns: The turns of the model, as they were sampled.
    """

    messages: list[Message] = field(default_factory=list)
    tool_trace: list[ToolTraceEntry] = field(default_factory=list)
    events: list[RolloutEvent] = field(default_factory=list)
    done: bool = False
    metrics: dict[str, Any] = field(default_factory=dict)
    prompt_ids: list[int] = field(default_factory=list)
    completion_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    completion_mask: list[int] = field(default_factory=list)
    turns: list[ModelStepResult] = field(default_factory=list)

    def join(self, turns: Sequence[ModelStepResult]) -> None:
        """Store the turns of the model, and join their tokens into one sequence.

        A turn without `prompt_ids` counts as having read the sequence so far.

        Raises:
            ValueError: A turn does not have one log-probability for each of its tokens.
        """
        self.turns = list(turns)
        tokens: list[int] = []
        logprobs: list[float] = []
        mask: list[int] = []
        for number, turn in enumerate(self.turns):
            if turn.logprobs and len(turn.logprobs) != len(turn.completion_ids):
                raise ValueError(
                    f"turn {number} has {len(turn.logprobs)} logprobs for "
                    f"{len(turn.completion_ids)} completion_ids; expected one for each"
                )
            written = turn.logprobs or [0.0] * len(turn.completion_ids)
            prompt = turn.prompt_ids or tokens
            same = _common(tokens, prompt)
            read = len(prompt) - same
            tokens = [*prompt, *turn.completion_ids]
            logprobs = [*logprobs[:same], *[0.0] * read, *written]
            mask = [*mask[:same], *[0] * read, *[1] * len(written)]
        start = mask.index(1) if 1 in mask else len(mask)
        self.prompt_ids, self.completion_ids = tokens[:start], tokens[start:]
        self.logprobs, self.completion_mask = logprobs[start:], mask[start:]


@dataclass
class HarnessRunLimits:
    """Limits that end a rollout.

    Attributes:
        max_turns: Maximum number of model turns.
        max_tool_calls_per_turn: Maximum number of calls in one turn; further calls are not carried
            out, and the model is told so. None for no limit.
        max_total_tool_calls: Maximum number of calls; a further call ends the rollout. None for no
            limit.
        sampling: Settings of the sampler, passed to the model step.
    """

    max_turns: int = 10
    max_tool_calls_per_turn: int | None = None
    max_total_tool_calls: int | None = None
    sampling: dict[str, Any] = field(default_factory=dict)


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the length of the longest common prefix of two token sequences."""
    if one == other[: len(one)]:  # nearly always, and fast
        return len(one)
    return next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )
