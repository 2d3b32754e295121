"""A policy that is a language model in this process, by `transformers`.

The tokens that it read and wrote, and the log probability of each that it wrote, are in the record
of each step: `prompt_token_ids`, `completion_token_ids` and `logprobs`.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from openenv._internal.packages import needs
from openenv.rollouts.policies.base import EpisodeOpening, PolicyPlayer, PolicyTurn
from openenv.rollouts.policies.conversations import ModelConversation, ModelReply, checked_act_by
from openenv.rollouts.replies import ActBy

COMMAND = "pip install torch transformers"


class TransformersPolicy:
    """A causal language model that acts by generated text.

    It writes one reply at a time. What it samples is decided by the seed of the rollout, so that
    the same rollout of the same run comes out the same.

    Args:
        model: A folder, or the name of a model of the hub; or a model.
        tokenizer: Its tokenizer; by default that of the folder.
        name: The name in records.
        revision: The commit of a model of the Hub; by default the newest.
        system_prompt: The first message of every conversation.
        act_by: The way in which the model acts: ``auto``, ``json`` or ``text``.
        temperature: Sampling temperature; 0 takes the likeliest token each time.
        top_p: Nucleus sampling threshold.
        max_tokens: The most that a reply may have.
        device: The device; by default the model's, or a GPU if there is one.

    Raises:
        MissingPackage: torch or transformers is not installed.
        PolicyError: There is no such way to act.
    """

    needs_interface = True
    wants_refusals = True

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        *,
        name: str | None = None,
        revision: str = "main",
        system_prompt: str | None = None,
        act_by: str = "auto",
        temperature: float = 1.0,
        top_p: float = 1.0,
        max_tokens: int = 256,
        device: str | None = None,
    ) -> None:
        with needs("TransformersPolicy", COMMAND):
            import torch  # pyright: ignore[reportMissingImports]
            import transformers  # pyright: ignore[reportMissingImports]
        named = model if isinstance(model, str) else getattr(model.config, "name_or_path", "model")
        self.name = name or f"transformers:{named}"
        self.system_prompt = system_prompt
        self.act_by: ActBy = checked_act_by(act_by)
        if isinstance(model, str):
            tokenizer = tokenizer or transformers.AutoTokenizer.from_pretrained(
                model, revision=revision
            )
            model = transformers.AutoModelForCausalLM.from_pretrained(model, revision=revision)
            device = device or ("cuda" if torch.cuda.is_available() else None)
        if tokenizer is None:
            raise TypeError("a model that is no folder needs its tokenizer too")
        self.model = model if device is None else model.to(device)
        self.model.eval()
        self.tokenizer = tokenizer
        self.temperature = temperature
        self.top_p = top_p
        self.max_tokens = max_tokens
        self._torch = torch
        self._thread = ThreadPoolExecutor(1, "openenv-policy")

    def begin(self, opening: EpisodeOpening) -> PolicyPlayer:
        return _LocalConversation(opening, self)

    async def aclose(self) -> None:
        """Do nothing: the only thread ends with the program."""

    async def reply(self, messages: list[dict[str, Any]], seed: int, max_tokens: int) -> ModelReply:
        """Generate the next message of a conversation.

        Args:
            messages: The conversation in the form of OpenAI's API.
            seed: Decides what is sampled.
            max_tokens: The most that the reply may have.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._reply, messages, seed, max_tokens)

    def _reply(self, messages: list[dict[str, Any]], seed: int, max_tokens: int) -> ModelReply:
        torch, prompt = self._torch, self._prompt(messages)
        given = torch.tensor([prompt], device=self.model.device)
        is_sampled = self.temperature > 0
        how = {"temperature": self.temperature, "top_p": self.top_p} if is_sampled else {}
        padding = self.tokenizer.pad_token_id
        with torch.random.fork_rng(), torch.inference_mode():
            torch.manual_seed(seed)
            made = self.model.generate(
                given,
                attention_mask=torch.ones_like(given),
                do_sample=is_sampled,
                max_new_tokens=max_tokens,
                pad_token_id=self.tokenizer.eos_token_id if padding is None else padding,
                return_dict_in_generate=True,
                output_logits=True,
                **how,
            )
        written = made.sequences[0, len(prompt) :].tolist()
        logprobs = [
            float(torch.log_softmax(logits[0].float(), -1)[token])
            for logits, token in zip(made.logits, written, strict=True)
        ]
        ends = self.model.generation_config.eos_token_id
        ends = {ends} if isinstance(ends, int) else {self.tokenizer.eos_token_id, *(ends or ())}
        return ModelReply(
            self.tokenizer.decode(written, skip_special_tokens=True),
            record={
                "prompt_token_ids": prompt,
                "completion_token_ids": written,
                "logprobs": logprobs,
            },
            prompt_tokens=len(prompt),
            completion_tokens=len(written),
            is_cut=len(written) >= max_tokens and written[-1] not in ends,
            written=self.tokenizer.decode(written, skip_special_tokens=False),
            specials=self.tokenizer.all_special_tokens,
        )

    def _prompt(self, messages: list[dict[str, Any]]) -> list[int]:
        """Return the tokens of a conversation, by the chat template or line by line."""
        if self.tokenizer.chat_template is not None:
            text = self.tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, tokenize=False
            )
            found = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        else:
            lines = [f"{one['role']}: {one['content']}" for one in messages]
            found = self.tokenizer("\n".join([*lines, "assistant:"]))["input_ids"]
        return [int(token) for token in found]


class _LocalConversation(ModelConversation):
    def __init__(self, opening: EpisodeOpening, policy: TransformersPolicy) -> None:
        super().__init__(
            opening,
            system_prompt=policy.system_prompt,
            act_by=policy.act_by,
            describes_tools=True,
        )
        self._policy = policy
        self._replies = 0

    async def _ask(self, turn: PolicyTurn) -> ModelReply:
        left = turn.tokens_left
        most = self._policy.max_tokens if left is None else min(left, self._policy.max_tokens)
        self._replies += 1
        return await self._policy.reply(self.messages, self._opening.seed + self._replies, most)
