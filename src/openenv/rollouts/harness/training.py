"""Captured turns for training: exact tokens, log-probabilities, loss masks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, TypeGuard

from pydantic import BaseModel, ConfigDict, Field, model_validator
from typing_extensions import Self


class TrainingTurn(BaseModel):
    """A model call.

    Attributes:
        node_id: The call's id in its graph of calls; unique in a trace.
        prompt_token_ids: The P tokens that the model read, at least one.
        completion_token_ids: The C tokens that the model wrote.
        per_token_logps: The log-probability of each completion token: C numbers in nats, none
            above 0.
        loss_mask: P + C values, 1 for tokens to train on, else 0; always 0 for prompt tokens.
        request: The request, as the agent made it.
        response: The response, as the agent received it.
        metadata: Any other data.

    Raises:
        ValueError: The lengths do not match, or a value is impossible.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    node_id: Annotated[str, Field(min_length=1)]
    prompt_token_ids: list[int]
    completion_token_ids: list[int]
    per_token_logps: list[float]
    loss_mask: list[int]
    request: dict[str, Any] = Field(default_factory=dict)
    response: dict[str, Any] = Field(default_factory=dict)
    metadata: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def validate_capture(self) -> Self:
        """Check that lengths match and values are possible."""
        read, written = len(self.prompt_token_ids), len(self.completion_token_ids)
        if not read:
            raise ValueError(
                "prompt_token_ids is empty: the server of the model did not return the tokens "
                "of the prompt (vLLM does with return_token_ids)"
            )
        for name in ("prompt_token_ids", "completion_token_ids"):
            if min(getattr(self, name), default=0) < 0:
                raise ValueError(f"{name} has a negative number, which is no token")
        if len(self.per_token_logps) != written:
            raise ValueError(
                f"per_token_logps has {len(self.per_token_logps)} numbers for {written} "
                f"completion_token_ids; expected one for each"
            )
        if not all(-math.inf < logprob <= 0 for logprob in self.per_token_logps):
            raise ValueError(
                "per_token_logps has what is no log-probability: expected <= 0, finite"
            )
        if len(self.loss_mask) != read + written:
            raise ValueError(
                f"loss_mask has {len(self.loss_mask)} entries for {read} tokens of the prompt "
                f"and {written} of the completion; expected one for each"
            )
        if not set(self.loss_mask) <= {0, 1}:
            raise ValueError("loss_mask has what is neither 0 nor 1")
        if any(self.loss_mask[:read]):
            raise ValueError("loss_mask is 1 in the prompt, which is context and never trained on")
        return self


class TrainingTrace(BaseModel):
    """The model calls of a rollout.

    Attributes:
        schema_version: The version of this schema, 1.
        turns: The calls, in the order in which they were made.
    """

    model_config = ConfigDict(extra="forbid")

    schema_version: Literal[1] = 1
    turns: list[TrainingTurn]

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        seen: set[str] = set()
        for turn in self.turns:
            if turn.node_id in seen:
                raise ValueError(f"two turns have the node_id {turn.node_id!r}")
            seen.add(turn.node_id)
        return self

    def unique_calls(self) -> TrainingTrace:
        """Return the trace with each call once, even if several branches contain it.

        Two calls with the same tokens are two samples, and both stay.

        Raises:
            ValueError: Two turns have the same `node_id`.
        """
        return TrainingTrace(turns=self.turns)

    @classmethod
    def from_entries(cls, entries: Iterable[Mapping[str, Any]]) -> TrainingTrace:
        """Build a trace from entries in the format of `to_trace_entries`.

        Raises:
            ValueError: An entry lacks a field, or its values do not match.
        """
        return cls(turns=[_turn(number, entry) for number, entry in enumerate(entries)])

    def to_trace_entries(self) -> list[dict[str, Any]]:
        """Return the turns as plain dicts for trainers; `node_id` is in the metadata."""
        names = ("request", "response", *_TOKENS)
        return [
            {
                **{name: getattr(turn, name) for name in names},
                "metadata": {**turn.metadata, "node_id": turn.node_id},
            }
            for turn in self.turns
        ]


_TOKENS = ("prompt_token_ids", "completion_token_ids", "per_token_logps", "loss_mask")


def _turn(number: int, entry: Mapping[str, Any]) -> TrainingTurn:
    metadata = dict(entry.get("metadata") or {})
    lacking = [name for name in _TOKENS if name not in entry]
    if "node_id" not in metadata:
        lacking.append("metadata.node_id")
    if lacking:
        raise ValueError(f"entry {number} has no {', '.join(lacking)}")
    return TrainingTurn(
        node_id=metadata.pop("node_id"),
        request=entry.get("request") or {},
        response=entry.get("response") or {},
        metadata=metadata,
        **{name: entry[name] for name in _TOKENS},
    )


# Sampler settings that change the model's own distribution, with the values that leave it as it is.
_NEUTRAL: dict[str, float] = {
    "top_p": 1.0,
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}


def training_sampling(sampling: Mapping[str, Any] | None) -> dict[str, float | int]:
    """Return sampler settings under which log-probabilities are the policy's own.

    A trainer compares the captured log-probabilities with the model's own distribution at
    `temperature`. Any setting that cuts or distorts that distribution would make the two disagree.

    Args:
        sampling: ``temperature`` (required, above 0), and any of ``top_p``, ``top_k``, ``min_p``,
            ``repetition_penalty``, ``presence_penalty``, ``frequency_penalty`` at the value that
            changes nothing (``top_k`` may be 0 or -1). The result names them all; for None it is
            empty.

    Raises:
        ValueError: A setting would distort the distribution, is not a number, or is unknown.
    """
    if sampling is None:
        return {}
    unknown = sorted(sampling.keys() - _NEUTRAL.keys() - {"temperature"})
    if unknown:
        raise ValueError(f"sampling: {', '.join(unknown)}: unsupported in training")
    temperature = sampling.get("temperature")
    if not _is_number(temperature) or not 0 < temperature < math.inf:
        raise ValueError(f"temperature={temperature!r}: training expects a finite number above 0")
    for name, neutral in _NEUTRAL.items():
        value = sampling.get(name, neutral)
        if not _is_number(value):
            raise ValueError(f"{name}={value!r}: expected a number")
        if value != neutral and (name, value) != ("top_k", 0):
            raise ValueError(
                f"{name}={value!r}: training expects {neutral}, since any other value samples "
                f"from another distribution than the one that is trained"
            )
    return {"temperature": float(temperature), **_NEUTRAL}


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
