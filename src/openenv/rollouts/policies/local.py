"""A policy that is a language model in this process, run with `transformers`.

The record of each step has the tokens that the model read and wrote, and the log-probability of
each token that it wrote: `prompt_token_ids`, `completion_token_ids` and `logprobs`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from openenv._internal.packages import needs
from openenv.rollouts.episode_sessions import ActionOutcome
from openenv.rollouts.interfaces import Interface
from openenv.rollouts.policies.base import EpisodeOpening, PolicyPlayer, PolicyTurn
from openenv.rollouts.policies.conversations import (
    NOT_DONE,
    ModelConversation,
    ModelReply,
    checked_act_by,
)
from openenv.rollouts.replies import ActBy, ParsedCall, ParsedReply
from openenv.rollouts.tokens import Chat

COMMAND = "pip install torch transformers"


class TransformersPolicy:
    """A causal language model that acts by generated text.

    The model writes one reply at a time. Sampling is seeded by the rollout's seed, so that the same
    rollout of the same run has the same result.

    Args:
        model: A directory, the name of a model on the Hub, or a model.
        tokenizer: The model's tokenizer. Default: the one stored with the model.
        name: The name in records.
        revision: The revision of a model on the Hub. Default: ``main``.
        system_prompt: The first message of every conversation.
        act_by: The way in which the model acts: ``auto``, ``tools``, ``json`` or ``text``. ``auto``
            tells the model of its tools as trainers do; see `openenv.rollouts.tokens.Chat`.
        temperature: Sampling temperature; 0 takes the most likely token each time.
        top_p: Nucleus sampling threshold.
        max_tokens: Maximum number of tokens of a reply.
        device: The device. Default: a GPU if there is one, for a named model; else the model's.

    Raises:
        MissingPackage: torch or transformers is not installed.
        PolicyError: `act_by` is unknown.
        TypeError: `model` is an object, and no tokenizer was given.
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
        self._chats: dict[str, Chat] = {}
        self._thread = ThreadPoolExecutor(1, "openenv-policy")

    def begin(self, opening: EpisodeOpening) -> PolicyPlayer:
        return _LocalConversation(opening, self)

    def chat(self, interface: Interface) -> Chat | None:
        """Return the conversation format for an environment; None without a chat template.

        Raises:
            TemplateError: The template cannot render the model's messages exactly.
        """
        if self.tokenizer.chat_template is None:
            return None
        key = json.dumps([tool.as_function() for tool in interface.tools], sort_keys=True)
        if key not in self._chats:  # probing a template takes a moment
            told = None if self.act_by == "auto" else self.act_by
            self._chats[key] = Chat(self.tokenizer, interface, told, ends=self.own_ends)
        return self._chats[key]

    @property
    def own_ends(self) -> list[int]:
        """The tokens with which the model ends a reply."""
        found = self.model.generation_config.eos_token_id
        if found is None:
            found = self.tokenizer.eos_token_id
        return [] if found is None else [found] if isinstance(found, int) else list(found)

    async def aclose(self) -> None:
        """Do nothing: the only thread ends with the program."""

    async def reply(
        self, prompt: list[int], seed: int, max_tokens: int, ends: Collection[int]
    ) -> ModelReply:
        """Generate a reply to a prompt.

        Args:
            prompt: The tokens of the conversation so far.
            seed: Seed of the sampling.
            max_tokens: Maximum number of tokens of the reply.
            ends: Tokens that end the reply.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._thread, self._reply, prompt, seed, max_tokens, frozenset(ends)
        )

    def _reply(
        self, prompt: list[int], seed: int, max_tokens: int, ends: frozenset[int]
    ) -> ModelReply:
        torch = self._torch
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
                eos_token_id=sorted(ends) or None,
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

    def prompt_without_template(self, messages: list[dict[str, Any]]) -> list[int]:
        """Return the tokens of a conversation, one message per line, without a chat template."""
        lines = [f"{one['role']}: {one['content']}" for one in messages]
        found = self.tokenizer("\n".join([*lines, "assistant:"]))["input_ids"]
        return [int(token) for token in found]


class _LocalConversation(ModelConversation):
    """A conversation as a growing sequence of tokens, as `openenv.rollouts.tokens` plays it.

    A trained model is therefore evaluated with exactly the prompts that it was trained on.
    """

    def __init__(self, opening: EpisodeOpening, policy: TransformersPolicy) -> None:
        assert opening.interface is not None
        self._chat = policy.chat(opening.interface)
        super().__init__(
            opening,
            system_prompt=policy.system_prompt,
            act_by=policy.act_by,
            describes_tools=self._chat is None or policy.act_by == "text",
        )
        self._policy = policy
        self._replies = 0
        self._ids: list[int] = []
        self._reply_ids: list[int] = []
        self._parsed: ParsedReply | None = None
        self._texts: list[str] = []  # what the model was told since its last reply

    def _answer(self, text: str) -> None:
        told = f"Error: {text}" if text == NOT_DONE else text  # as in trainers' rollouts
        self._texts.append(told)
        super()._answer(told)

    async def _ask(self, turn: PolicyTurn) -> ModelReply:
        left, chat = turn.tokens_left, self._chat
        most = self._policy.max_tokens if left is None else min(left, self._policy.max_tokens)
        self._replies += 1
        if chat is None:
            self._ids = self._policy.prompt_without_template(self.messages)
        elif self._parsed is None:
            self._ids = chat.opening(self.messages, "")
        else:
            texts, calls = self._texts, len(self._parsed.calls)
            told = ActionOutcome("\n\n".join(texts), None, False, tuple(texts[:calls]))
            between = chat.after(self._reply_ids, self._parsed, told)
            self._ids = self._ids + self._reply_ids + between
        self._texts = []
        seed = self._opening.seed + self._replies
        ends = self._policy.own_ends if chat is None else chat.ends
        reply = await self._policy.reply(self._ids, seed, most, ends)
        self._reply_ids = reply.record["completion_token_ids"]
        return reply

    def _read(self, reply: ModelReply) -> tuple[Sequence[ParsedCall], str | None]:
        if self._chat is None:
            return super()._read(reply)
        parsed = self._chat.read(
            self._ids, self._reply_ids, is_cut=reply.is_cut, act_by=self._act_by
        )
        self._parsed = parsed
        return parsed.calls, parsed.problem
