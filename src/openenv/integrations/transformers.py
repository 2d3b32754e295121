"""Sampling from transformers models (https://huggingface.co/docs/transformers) for rollouts.

player = BatchPlayer("blackjack")
chat = Chat(tokenizer, player.sessions.interface)
rollouts = player.play(chat, starts, sampler(model, tokenizer))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from openenv._internal.packages import needs
from openenv.rollouts.batched import Generate

with needs("openenv.integrations.transformers", "pip install torch transformers"):
    import torch  # pyright: ignore[reportMissingImports]

__all__ = ["end_tokens", "sampler"]


def end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """Return the tokens that end a model's reply, including those of its ``generation_config``.

    Args:
        model: A causal language model.
        tokenizer: The model's tokenizer.
    """
    config = getattr(model, "generation_config", None)
    told = getattr(config, "eos_token_id", None)
    own = told if isinstance(told, list | tuple) else [told]
    return sorted({int(one) for one in (*own, tokenizer.eos_token_id) if one is not None})


def sampler(
    model: Any,
    tokenizer: Any,
    *,
    max_tokens: int = 256,
    temperature: float = 1.0,
    batch: int | None = None,
) -> Generate:
    """Make a function that samples replies from the model's own distribution at a temperature.

    ``top_p``, penalties and similar settings of the model's ``generation_config`` are ignored: the
    policy gradient needs the distribution that was sampled from.

    Args:
        model: A causal language model.
        tokenizer: The model's tokenizer. A reply ends with its ``eos_token``, or with one of the
            end tokens of the model's ``generation_config``.
        max_tokens: Maximum number of tokens in a reply; at least 1.
        temperature: Sampling temperature, greater than 0. Logits are divided by it.
        batch: Number of sequences per call of the model; at least 1. Default: all.

    Returns:
        The `generate` function for `openenv.rollouts.batched.BatchPlayer.play`. It returns no
        log-probabilities: those of the trainer's own forward pass are exact.

    Raises:
        ValueError: An argument is out of range.
    """
    if temperature <= 0:
        raise ValueError(f"temperature={temperature}; expected more than 0")
    if max_tokens < 1:
        raise ValueError(f"max_tokens={max_tokens}; expected at least 1")
    if batch is not None and batch < 1:
        raise ValueError(f"batch={batch}; expected at least 1")
    ends = end_tokens(model, tokenizer)
    pad = ends[0] if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    options = {
        "do_sample": True,
        "temperature": temperature,
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
        "typical_p": 1.0,
        "repetition_penalty": 1.0,
        "no_repeat_ngram_size": 0,
        "max_new_tokens": max_tokens,
        "eos_token_id": ends,
        "pad_token_id": pad,
    }

    def generate(sequences: list[list[int]]) -> tuple[Sequence[Sequence[int]], None]:
        was_training = model.training
        model.eval()
        try:
            at_once = batch or len(sequences)
            replies: list[list[int]] = []
            for at in range(0, len(sequences), at_once):
                ids, mask = _padded_left(sequences[at : at + at_once], pad, model.device)
                with torch.no_grad():
                    written = model.generate(ids, attention_mask=mask, **options)
                replies += [_ended(one, ends) for one in written[:, ids.shape[1] :].tolist()]
        finally:
            model.train(was_training)
        return replies, None

    return generate


def _padded_left(sequences: Sequence[Sequence[int]], pad: int, device: Any) -> tuple[Any, Any]:
    """Return sequences as a tensor (sequences, longest), and the mask, which is 0 for padding."""
    longest = max(map(len, sequences))
    ids = torch.full((len(sequences), longest), pad)
    mask = torch.zeros_like(ids)
    for row, one in enumerate(sequences):
        ids[row, longest - len(one) :] = torch.tensor(one)
        mask[row, longest - len(one) :] = 1
    return ids.to(device), mask.to(device)


def _ended(reply: list[int], ends: Sequence[int]) -> list[int]:
    """Return a reply without the padding after the end token."""
    places = [reply.index(end) for end in ends if end in reply]
    return reply[: min(places) + 1] if places else reply
