"""Has a tiny model play, and checks what is kept of its tokens: ``local_play.py FOLDER``."""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from typing import Any

import torch
import transformers
from rollouts.worlds import Talk
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
)

from openenv.rollouts import RolloutLimits, rollout
from openenv.rollouts.batched import BatchPlayer
from openenv.rollouts.episode_sessions import EpisodeStart
from openenv.rollouts.tokens import Chat
from openenv.tasks import Task

TEMPLATE = (
    "{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def save_model(folder: str) -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<end>": 0} | {letter: number for number, letter in enumerate(alphabet, 1)}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=2048,
        eos_token_id=list(range(32)),  # a reply of a random model ends after a few letters
        bos_token_id=None,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def play(folder: str) -> list[dict[str, Any]]:
    run = rollout(
        Talk,
        f"transformers:{folder}",
        [Task(id="t", prompt="Say something.")],
        n=3,
        seed=4,
        limits=RolloutLimits(steps=2, tokens=300),
        token_credit="last",
    )
    return sorted((one.model_dump() for one in run), key=lambda one: one["sample"])


def grows(one: dict[str, Any]) -> bool:
    """Whether each prompt begins with all that was read and written before."""
    told = [step["policy"] for step in one["steps"]]
    return len(told) > 1 and all(
        after["prompt_token_ids"][: len(so_far)] == so_far
        for before, after in itertools.pairwise(told)
        for so_far in [before["prompt_token_ids"] + before["completion_token_ids"]]
    )


def is_as_trained(folder: str, one: dict[str, Any]) -> bool:
    """Whether the first prompt is that of a trainer's rollout of the same episode."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with contextlib.closing(BatchPlayer(Talk, max_turns=1)) as player:
        chat = Chat(tokenizer, player.sessions.interface)
        start = EpisodeStart([{"role": "user", "content": "Say something."}], {})
        (trained,) = player.play(chat, [start], lambda prompts: ([[0] for _ in prompts], None))
    first: list[int] = one["steps"][0]["policy"]["prompt_token_ids"]
    return trained.prompt_ids == first


def main(folder: str) -> None:
    save_model(folder)
    first, again = play(folder), play(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    furthest = 0.0
    for one in first:
        for step in one["steps"]:
            told = step["policy"]
            prompt, written = told["prompt_token_ids"], told["completion_token_ids"]
            with torch.inference_mode():
                logits = model(torch.tensor([prompt + written])).logits[0]
            probabilities = torch.log_softmax(logits.float(), -1)
            for at, (token, logprob) in enumerate(zip(written, told["logprobs"], strict=True)):
                real = float(probabilities[len(prompt) - 1 + at, token])
                furthest = max(furthest, abs(real - logprob))
    texts = [[step["policy"]["text"] for step in one["steps"]] for one in first]
    same = [[step["policy"]["text"] for step in one["steps"]] for one in again]
    sys.stdout.write(
        json.dumps(
            {
                "furthest": furthest,
                "grows": all(map(grows, first)),
                "is_as_trained": is_as_trained(folder, first[0]),
                "is_same": texts == same,
                "differ": len({json.dumps(one) for one in texts}),
                "said": all(
                    step["action"]["word"].strip() == step["policy"]["text"].strip()
                    for one in first
                    for step in one["steps"]
                ),
                "tokens": [one["usage"]["completion_tokens"] for one in first],
                "counted": [
                    sum(len(step["policy"]["completion_token_ids"]) for step in one["steps"])
                    for one in first
                ],
                "token_rewards": [
                    [len(tokens) for tokens in one["token_rewards"]] for one in first
                ],
                "written": [
                    [len(step["policy"]["completion_token_ids"]) for step in one["steps"]]
                    for one in first
                ],
                "outcomes": [one["outcome"] for one in first],
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
