"""Rollouts as tokens: the exact tokens of a model, and of what it was shown in between.

Trainers train on tokens. Rendering a conversation anew each turn does not reproduce the tokens that
the model wrote: templates strip and rewrite text, and a text has many tokenizations. Here a rollout
is one sequence that only grows: the model's tokens unchanged, each reply followed by the tokens
that the model is shown next.

    prompt_ids      system, tools, task, first observation
    completion_ids  reply | observation | reply | observation | reply
    mask            1 1 1   0 0 0 0 0     1 1 1   0 0 0 0 0     1 1 1
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from openenv.errors import CapacityError
from openenv.reward import Score
from openenv.rollouts.episode_sessions import (
    ActionOutcome,
    EpisodeSession,
    EpisodeStart,
    Unfinished,
)
from openenv.rollouts.failures import TaskNotTaken
from openenv.rollouts.interfaces import Interface
from openenv.rollouts.policies.conversations import opening_messages
from openenv.rollouts.replies import ActBy, ParsedReply, describe_tools, opens_thought, read_reply
from openenv.rollouts.templates import ChatTemplate, ChatTokenizer, TemplateError

__all__ = ["Chat", "TokenRollout", "ChatTokenizer"]

logger = logging.getLogger(__name__)

Told = Literal["tools", "json", "text"]

TAIL = 40  # number of tokens at the end of a prompt in which an open thought is looked for


class Chat:
    """A conversation with a model, in tokens.

    Args:
        tokenizer: The model's tokenizer; must have a chat template.
        interface: The environment's interface.
        told: How the model is told of the tools: by its template's ``tools``; in words, as
            ``json``; or not at all, by ``text``, if the task's prompt says everything. Default: if
            the environment takes one text of any kind, the description of that text in its schema;
            else ``tools`` if the template renders tools and their results exactly; else ``json``.
        ends: Tokens that end a reply, in addition to the tokenizer's ``eos_token`` and those with
            which the template closes a turn: the model's ``generation_config.eos_token_id``.
        template: Further arguments of the chat template, such as ``enable_thinking``; or
            ``chat_template`` itself.

    Attributes:
        told: The way in which the model is told of its tools.
        ends: The tokens that end a reply.
        why_not_tools: Reason why the template's tools are not used; None if they are, or if they
            were not tried.

    Raises:
        TemplateError: The tokenizer has no chat template, or the template does not render the
            model's messages exactly.
    """

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        interface: Interface,
        told: Told | None = None,
        *,
        ends: Collection[int] = (),
        **template: Any,
    ) -> None:
        self.tokenizer = tokenizer
        self._interface = interface
        self._template = ChatTemplate(tokenizer, template)
        self._functions = [tool.as_function() for tool in interface.tools]
        self._describes = told != "text"
        self.why_not_tools: str | None = None
        self.told: Told = told or self._way_to_tell()
        if told == "tools":
            self._template.check_tools(self._functions)
        own = tokenizer.eos_token_id
        self.ends = frozenset(
            [*(own if isinstance(own, list | tuple) else [own]), *ends, *self._template.ends]
        )

    def opening(self, messages: Sequence[Mapping[str, Any]], first: str) -> list[int]:
        """Return the tokens that precede the model's first reply.

        Args:
            messages: The messages of the task.
            first: The first observation as text.

        Raises:
            TemplateError: The template cannot render these messages.
        """
        words = ""
        if self.told != "tools" and self._describes:
            words = describe_tools(self._interface, as_json=self.told == "json")
        said = opening_messages(messages, first, words)
        text = self._template.opening(said, self._tools)
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def read(
        self,
        before: Sequence[int],
        reply: Sequence[int],
        *,
        is_cut: bool | None = None,
        act_by: ActBy = "auto",
    ) -> ParsedReply:
        """Read a reply.

        Args:
            before: The tokens before the reply.
            reply: The tokens of the reply, as the model wrote them.
            is_cut: True if the reply reached a limit before the model ended it. Default: True if
                its last token is not one of `ends`.
            act_by: The way in which the model acts.
        """
        if is_cut is None:
            is_cut = not reply or reply[-1] not in self.ends
        tail = str(self.tokenizer.decode(list(before[-TAIL:]), skip_special_tokens=False))
        return read_reply(
            str(self.tokenizer.decode(list(reply), skip_special_tokens=False)),
            self._interface,
            act_by,
            is_cut=is_cut,
            in_thought=opens_thought(tail),
            specials=getattr(self.tokenizer, "all_special_tokens", None)
            or [str(self.tokenizer.eos_token)],
        )

    def after(self, reply: Sequence[int], parsed: ParsedReply, answer: ActionOutcome) -> list[int]:
        """Return the tokens between a reply and the next: the end of the turn, the outcome that the
        model is shown, and the beginning of the next turn.

        Args:
            reply: The tokens of the reply, as the model wrote them.
            parsed: The parsed reply.
            answer: The outcome of the reply.

        Raises:
            TemplateError: The template does not show the outcome.
        """
        if self.told == "tools" and parsed.has_written_calls and answer.texts:
            *texts, last = answer.texts
            problem = answer.text.removeprefix("\n\n".join(answer.texts))
            behind = self._template.behind_calls(
                parsed.calls, [*texts, last + problem], self._functions
            )
        else:
            behind = self._template.behind_words(answer.text, self._tools)
        ids = self._template.encoded(behind)
        return self._template.without_end(ids, reply[-1]) if self.is_ended(reply) else ids

    def is_ended(self, reply: Sequence[int]) -> bool:
        """Return whether the model has ended a reply itself."""
        return bool(reply) and reply[-1] in self.ends

    def text(self, reply: Sequence[int]) -> str:
        """Return the text of a reply, without special tokens."""
        return str(self.tokenizer.decode(list(reply), skip_special_tokens=True))

    @property
    def _tools(self) -> list[dict[str, Any]] | None:
        return self._functions if self.told == "tools" else None

    def _way_to_tell(self) -> Told:
        if self._interface.takes_any_text:
            return "text"
        try:
            self._template.check_tools(self._functions)
        except TemplateError as error:
            self.why_not_tools = str(error)
            logger.warning("the model is told of its tools in words, as JSON, since %s", error)
            return "json"
        return "tools"


class TokenRollout:
    """A rollout as a growing sequence of tokens.

    Args:
        session: The session in which the rollout is played.
        chat: The conversation format of the model.
        max_turns: Maximum number of replies.
        max_tokens: Maximum number of tokens after the prompt; None for no limit.
        max_context: Maximum number of tokens, prompt included: the model's context length. None for
            no limit.
        unfinished: Reward of an unfinished episode; see `openenv.rollouts.episode_sessions`.

    Attributes:
        prompt_ids: The tokens before the model's first reply.
        completion_ids: The tokens from the first reply on.
        mask: For each completion token, 1 if the model wrote it, else 0.
        logprobs: For each completion token, the model's log-probability in nats; 0.0 if the model
            did not write it. None if the model returns none.
        messages: The conversation as text.
        shown_first: The first observation as text; None if the reset failed.
    """

    def __init__(
        self,
        session: EpisodeSession,
        chat: Chat,
        *,
        max_turns: int = 32,
        max_tokens: int | None = None,
        max_context: int | None = None,
        unfinished: Unfinished = "earned",
    ) -> None:
        self.prompt_ids: list[int] = []
        self.completion_ids: list[int] = []
        self.mask: list[int] = []
        self.logprobs: list[float] | None = []
        self.messages: list[dict[str, Any]] = []
        self.shown_first: str | None = None
        self.turns = 0
        self._session = session
        self._chat = chat
        self._max_turns = max_turns
        self._max_tokens = max_tokens
        self._max_context = max_context
        self._unfinished: Unfinished = unfinished
        self._settled: tuple[Score, str | None, int] | None = None

    @property
    def ids(self) -> list[int]:
        """All tokens so far: the prompt of the model's next reply."""
        return self.prompt_ids + self.completion_ids

    @property
    def score(self) -> Score:
        """The current score; unscored, with the reason, if the environment has failed."""
        return self._settled[0] if self._settled else self._session.score(self._unfinished)

    @property
    def failure(self) -> str | None:
        """Reason why the episode could not begin or broke off; None if neither."""
        return self._settled[1] if self._settled else self._session.failure

    @property
    def steps(self) -> int:
        """Number of steps of the environment."""
        return self._settled[2] if self._settled else self._session.steps

    def settle(self) -> None:
        """Store the results, since another rollout may use the session from now on."""
        self._settled = self.score, self.failure, self.steps

    async def begin(self, start: EpisodeStart) -> bool:
        """Reset the environment.

        Returns:
            True if the model is to reply; False if the episode is over, or if the environment could
            not be reset. In that case the rollout has failed and has no reward.

        Raises:
            CapacityError: The server has no room for the episode.
            TaskNotTaken: The environment has ignored an argument.
            TemplateError: The chat template cannot render the messages.
            ValueError: The first observation leaves no room for a reply.
        """
        self.messages = [dict(message) for message in start.messages]
        first = ""
        try:
            first = await self._session.begin(start)
        except Exception as error:
            if isinstance(error, CapacityError | TaskNotTaken) or self._session.failure is None:
                raise
        self.prompt_ids = self._chat.opening(start.messages, first)
        if self._session.failure is not None:
            return False
        if len(self.prompt_ids) >= (self._max_context or math.inf):
            raise ValueError(
                f"the prompt has {len(self.prompt_ids)} tokens with what the environment shows "
                f"first, and the model reads {self._max_context} at most; shorten the prompt, or "
                "show less of the observation by shows=[...]"
            )
        self.shown_first = first
        self.messages.append({"role": "user", "content": first})
        return not self._session.is_over

    async def take(
        self,
        reply: Sequence[int],
        logprobs: Sequence[float | None] | None = None,
        *,
        is_cut: bool | None = None,
    ) -> bool:
        """Act by what the model wrote.

        Args:
            reply: The tokens, including the token that ends the turn if the model wrote it.
            logprobs: The log-probability of each token, in nats.
            is_cut: True if the reply reached a limit before the model ended it; it is then not
                carried out. Default: True if its last token is not one of `Chat.ends`.

        Returns:
            True if the model is to write another reply.
        """
        parsed = self._chat.read(self.ids, reply, is_cut=is_cut)
        has_room = self._add(list(reply), logprobs)
        self.turns += 1
        self.messages.append({"role": "assistant", "content": self._chat.text(reply)})
        if not has_room:
            return False
        try:
            answer: ActionOutcome = await self._session.act_by(parsed)
        except Exception as error:
            if self._session.failure is None:
                raise
            self.messages.append({"role": "user", "content": f"Error: {error}"})
            return False
        self.messages.append({"role": "user", "content": answer.text})
        if answer.is_over or self.turns >= self._max_turns:
            return False
        told = self._chat.after(reply, parsed, answer)
        if len(told) >= self._room():
            return False  # there would be no room for the next reply
        self.completion_ids += told
        self.mask += [0] * len(told)
        if self.logprobs is not None:
            self.logprobs += [0.0] * len(told)
        return True

    def _room(self) -> float:
        behind = (self._max_tokens or math.inf) - len(self.completion_ids)
        return min(behind, (self._max_context or math.inf) - len(self.ids))

    def _add(self, reply: list[int], logprobs: Sequence[float | None] | None) -> bool:
        """Append a reply; return whether there was room for all of the tokens."""
        kept = reply[: int(min(self._room(), len(reply)))]
        self.completion_ids += kept
        self.mask += [1] * len(kept)
        if logprobs is None or None in logprobs:
            self.logprobs = None  # a trainer then computes them for all tokens
        elif self.logprobs is not None:
            self.logprobs += [float(one) for one in logprobs[: len(kept)] if one is not None]
        return len(kept) == len(reply)
