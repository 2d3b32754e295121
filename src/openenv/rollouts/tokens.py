"""Rollouts as tokens: what a model has written, exactly, and what it was told in between.

Trainers train on tokens. A conversation that is rendered anew each turn does not give those that
the model has written: templates strip and rewrite, and a text has many tokenizations. Here a
rollout is one sequence that only grows: the model's tokens as they came, and behind them those of
what it is told next.

    prompt_ids      system, tools, task, first observation
    completion_ids  reply | observation | reply | observation | reply
    mask            1 1 1   0 0 0 0 0     1 1 1   0 0 0 0 0     1 1 1
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from openenv.errors import CapacityError
from openenv.reward import Score
from openenv.rollouts.failures import is_passing
from openenv.rollouts.interfaces import Interface
from openenv.rollouts.policies.conversations import opening
from openenv.rollouts.seats import Answer, Seat, Unfinished

__all__ = ["Chat", "TokenRollout", "Tokenizer", "act_together"]

Told = Literal["tools", "json", "text"]

# What stands for a reply of the model where a template is asked what it puts behind one.
MARK = "REPLY_OF_THE_MODEL"


class Tokenizer(Protocol):
    """What is needed of a tokenizer of transformers."""

    eos_token: Any
    eos_token_id: Any
    chat_template: Any

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any:
        """Render a conversation."""
        ...

    def encode(self, text: str, **options: Any) -> list[int]:
        """Tokens of a text."""
        ...

    def decode(self, token_ids: Any, **options: Any) -> Any:
        """The text of tokens."""
        ...


class Chat:
    """A conversation with a model, in tokens.

    Args:
        tokenizer: Of the model; it has to have a chat template.
        interface: How one acts in the environment.
        told: How the model is told of that: by its template's ``tools``; in words, as ``json``; or
            not at all, since its ``text`` is the action, or the task's prompt says all. Default:
            ``text`` where the environment takes a text of any kind and nothing else; else ``tools``
            where the template knows of them; else ``json``.
        template: Further arguments of the chat template, such as ``enable_thinking``; or
            ``chat_template`` itself.

    Raises:
        ValueError: The tokenizer has no chat template.
    """

    def __init__(
        self, tokenizer: Tokenizer, interface: Interface, told: Told | None = None, **template: Any
    ) -> None:
        written = template.get("chat_template") or tokenizer.chat_template
        if not written:
            raise ValueError(
                "the tokenizer has no chat template, so nobody knows how it is spoken to; set "
                "tokenizer.chat_template"
            )
        self.tokenizer = tokenizer
        self._interface = interface
        self._template = template
        self._told = told or _way_to_tell(interface, str(written))

    def opening(self, messages: Sequence[Mapping[str, Any]], first: str) -> list[int]:
        """The tokens that the model's first reply comes behind.

        Args:
            messages: The task.
            first: What the environment shows first.
        """
        told = self._interface if self._told == "json" else None
        said = opening(messages, first, told)
        return self._encoded(self._rendered(said, add_generation_prompt=True))

    def after(self, reply: Sequence[int], text: str) -> list[int]:
        """The tokens that come between a reply and the next: the end of its turn, what the model
        is told, and the beginning of the next turn.

        Args:
            reply: The tokens of the reply, as the model has written them.
            text: What it is told.
        """
        role = "tool" if self._told == "tools" else "user"
        before = [{"role": "user", "content": "-"}, {"role": "assistant", "content": MARK}]
        rendered = self._rendered(
            [*before, {"role": role, "content": text}], add_generation_prompt=True
        )
        behind = rendered[rendered.index(MARK) + len(MARK) :]
        if reply and reply[-1] == self.tokenizer.eos_token_id:
            behind = behind.removeprefix(str(self.tokenizer.eos_token))
        return self._encoded(behind)

    def text(self, reply: Sequence[int]) -> str:
        """The words of a reply."""
        return str(self.tokenizer.decode(list(reply), skip_special_tokens=True))

    def _rendered(self, messages: list[dict[str, Any]], **options: Any) -> str:
        tools = None
        if self._told == "tools":
            tools = [tool.as_function() for tool in self._interface.tools]
        return str(
            self.tokenizer.apply_chat_template(
                messages, tools=tools, tokenize=False, **options, **self._template
            )
        )

    def _encoded(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False))


def _way_to_tell(interface: Interface, template: str) -> Told:
    if interface.takes_any_text:
        return "text"
    return "tools" if "tools" in template and '"tool"' in template.replace("'", '"') else "json"


class TokenRollout:
    """One rollout, as a sequence that grows.

    Args:
        seat: Where it is played.
        chat: How the model is spoken to.
        max_turns: How many replies it may have.
        max_tokens: How long what comes behind the prompt may become; None leaves it to the model.
        unfinished: What it is worth if it has not come to its end.

    Attributes:
        prompt_ids: Before the model's first reply.
        completion_ids: From there on.
        mask: Of each of these, 1 if the model has written it, else 0.
        logprobs: Of each of these, the model's log-probability, and 0.0 where it has not written
            it; None if it gives none.
        messages: The conversation as text.
    """

    def __init__(
        self,
        seat: Seat,
        chat: Chat,
        *,
        max_turns: int = 32,
        max_tokens: int | None = None,
        unfinished: Unfinished = "earned",
    ) -> None:
        self.prompt_ids: list[int] = []
        self.completion_ids: list[int] = []
        self.mask: list[int] = []
        self.logprobs: list[float] | None = []
        self.messages: list[dict[str, Any]] = []
        self.turns = 0
        self._seat = seat
        self._chat = chat
        self._max_turns = max_turns
        self._max_tokens = max_tokens
        self._unfinished: Unfinished = unfinished
        self._settled: tuple[Score, str | None, int] | None = None

    @property
    def ids(self) -> list[int]:
        """All of its tokens: what the model's next reply comes behind."""
        return self.prompt_ids + self.completion_ids

    @property
    def score(self) -> Score:
        """What it is worth by now; unscored, and why, where the environment has failed."""
        return self._settled[0] if self._settled else self._seat.score(self._unfinished)

    @property
    def failure(self) -> str | None:
        """Why the episode could not begin, or broke off; None if it did not."""
        return self._settled[1] if self._settled else self._seat.failure

    @property
    def steps(self) -> int:
        """Of the environment."""
        return self._settled[2] if self._settled else self._seat.steps

    def settle(self) -> None:
        """Keep what has come of it: its seat is another rollout's from now on."""
        self._settled = self.score, self.failure, self.steps

    async def begin(
        self,
        messages: Sequence[Mapping[str, Any]],
        arguments: Mapping[str, Any],
        may_ignore: frozenset[str] = frozenset(),
    ) -> bool:
        """Reset the environment.

        Args:
            messages: The task.
            arguments: Of the environment's reset.
            may_ignore: Which of them may have no meaning to it.

        Returns:
            Whether the model is to reply: not if the environment has failed for a passing cause.

        Raises:
            CapacityError: There is no place for it.
            OpenEnvError: The environment cannot be reset so.
        """
        self.messages = [dict(message) for message in messages]
        first = ""
        try:
            result = await self._seat.reset(may_ignore=may_ignore, **arguments)
            first = self._seat.seen(result)
        except Exception as error:
            if isinstance(error, CapacityError) or not is_passing(error):
                raise
        self.prompt_ids = self._chat.opening(messages, first)
        if self._seat.failure is not None:
            return False
        self.messages.append({"role": "user", "content": first})
        return not self._seat.is_over

    async def take(self, reply: Sequence[int], logprobs: Sequence[float] | None = None) -> bool:
        """Act by what the model has written.

        Args:
            reply: Its tokens, with the one that ends its turn if it has written that.
            logprobs: Of each of them.

        Returns:
            Whether the model is to go on.
        """
        is_cut = self._add(list(reply), logprobs)
        self.turns += 1
        text = self._chat.text(reply)
        self.messages.append({"role": "assistant", "content": text})
        if is_cut:
            return False
        try:
            answer: Answer = await self._seat.reply(text)
        except Exception as error:
            if self._seat.failure is None:
                raise
            self.messages.append({"role": "user", "content": f"Error: {error}"})
            return False
        self.messages.append({"role": "user", "content": answer.text})
        if answer.is_over or self.turns >= self._max_turns:
            return False
        told = self._chat.after(reply, answer.text)
        if len(self.completion_ids) + len(told) >= (self._max_tokens or math.inf):
            return False  # there would be no room for the next reply
        self.completion_ids += told
        self.mask += [0] * len(told)
        if self.logprobs is not None:
            self.logprobs += [0.0] * len(told)
        return True

    def _add(self, reply: list[int], logprobs: Sequence[float] | None) -> bool:
        """Put a reply behind; whether there was no room for all of it."""
        room = len(reply)
        if self._max_tokens is not None:
            room = self._max_tokens - len(self.completion_ids)
        kept = reply[:room]
        self.completion_ids += kept
        self.mask += [1] * len(kept)
        if logprobs is None:
            self.logprobs = None
        elif self.logprobs is not None:
            self.logprobs += [float(one) for one in logprobs[: len(kept)]]
        return len(kept) < len(reply)


async def act_together(
    rollouts: Sequence[TokenRollout],
    replies: Sequence[Sequence[int]],
    logprobs: Sequence[Sequence[float]] | None = None,
) -> list[TokenRollout]:
    """Have each rollout act by the reply that the model has given it, all at the same time.

    Args:
        rollouts: They.
        replies: Of each, the tokens of the reply.
        logprobs: Of each of these.

    Returns:
        Those that the model is to reply to again.
    """
    of_each: Sequence[Sequence[float] | None] = logprobs or [None] * len(rollouts)
    together = zip(rollouts, replies, of_each, strict=True)
    goes_on = await asyncio.gather(*(one.take(reply, its) for one, reply, its in together))
    return [one for one, goes in zip(rollouts, goes_on, strict=True) if goes]
