"""Tiny language models that train on a CPU within minutes.

The functions train a tokenizer on the texts of a task, build a Qwen2 model from a config, and teach
it the form of replies by supervised training (`imitate`), because only pretrained models know that
form already. Reinforcement learning then teaches good replies.

Needs `torch`, `transformers` and `tokenizers`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

__all__ = ["CHATML", "imitate", "model_for", "tokenizer_for"]

END, PAD, START = "<|im_end|>", "<|endoftext|>", "<|im_start|>"
# The special tokens of Qwen2.5, whose template writes them and whose tool call parsers expect them.
SPECIAL = [PAD, START, END]
UNSPECIAL = ["<tool_call>", "</tool_call>"]
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""The simplest chat template: roles and texts, without tools."""


def tokenizer_for(
    texts: Sequence[str], chat_template: str, vocabulary: int = 2048
) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer on texts.

    Args:
        texts: The texts of the task, including all texts that the template writes.
        chat_template: `CHATML`, the template of Qwen2.5 or Qwen3, or a similar one.
        vocabulary: Maximum number of tokens.
    """
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    found = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token=END, pad_token=PAD)
    found.add_tokens(UNSPECIAL)
    found.chat_template = chat_template
    return found


def model_for(
    tokenizer: PreTrainedTokenizerFast,
    *,
    hidden: int = 96,
    layers: int = 2,
    positions: int = 2048,
    spread: float = 0.02,
    seed: int = 0,
) -> Qwen2ForCausalLM:
    """Make a Qwen2 with random weights.

    Args:
        tokenizer: The tokenizer of the model.
        hidden: The size of a hidden state, a multiple of 32.
        layers: The number of layers.
        positions: Maximum number of tokens.
        spread: The standard deviation of the weights. Qwen2's 0.02 suits wide models. In narrow
            models it makes attention so flat that learning takes thousands of steps; use
            ``hidden ** -0.5`` there.
        seed: The seed of the weights.
    """
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 32,
        num_key_value_heads=hidden // 32,
        max_position_embeddings=positions,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        tie_word_embeddings=True,
        initializer_range=spread,
    )
    model = Qwen2ForCausalLM(config)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model


def imitate(
    model: Any,
    examples: Sequence[tuple[Sequence[int], Sequence[int], Sequence[int]]],
    *,
    steps: int = 100,
    batch: int = 16,
    rate: float = 3e-3,
    seed: int = 0,
) -> list[float]:
    """Train a model to imitate examples.

    Args:
        model: The model, which is changed.
        examples: The tokens of a prompt, those of its completion, and a mask that is 1 for each
            token of the completion to learn.
        steps: The number of training steps.
        batch: Examples in a step.
        rate: The learning rate, which falls to 0 linearly.
        seed: The seed of the choice of examples.

    Returns:
        The loss of each step, in nats per token.
    """
    chance = random.Random(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, steps)
    pad, losses = model.config.pad_token_id, []
    model.train()
    for _ in range(steps):
        chosen = [chance.choice(examples) for _ in range(batch)]
        longest = max(len(prompt) + len(reply) for prompt, reply, _ in chosen)
        ids = torch.full((batch, longest), pad, device=model.device)
        labels = torch.full((batch, longest), -100, device=model.device)
        mask = torch.zeros((batch, longest), dtype=torch.long, device=model.device)
        for row, (prompt, reply, learnt) in enumerate(chosen):
            end = len(prompt) + len(reply)
            ids[row, :end] = torch.tensor([*prompt, *reply])
            told = [
                one if is_learnt else -100 for one, is_learnt in zip(reply, learnt, strict=True)
            ]
            labels[row, len(prompt) : end] = torch.tensor(told)
            mask[row, :end] = 1
        loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    model.eval()
    return losses
