"""Rollouts of any environment for torchforge: many turns, a single sequence of tokens.

    rollouts = await asyncio.gather(
        *(rollout(generator, tokenizer, address, reset={"seed": seed}) for _ in range(8)),
        return_exceptions=True,
    )

A rollout that raises has no reward: leave it out of its group.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from openenv.integrations._episodes import play, session_in
from openenv.rollouts.episode_sessions import EpisodeStart, Unfinished
from openenv.rollouts.tokens import Chat, ChatTokenizer, TokenRollout, Told

__all__ = ["ForgeRollout", "rollout"]


@dataclass(frozen=True)
class ForgeRollout:
    """An episode as tokens.

    Attributes:
        prompt_ids: The tokens before the model's first reply.
        completion_ids: The tokens from the first reply on.
        mask: For each token of `completion_ids`, 1 if the model wrote the token, else 0.
        logprobs: Log-probability of each token of `completion_ids`, 0.0 for tokens that the model
            did not write; None if the generator returns none.
        reward: The episode's reward.
        components: The reward's components by name.
        steps: Number of steps of the environment.
        messages: The conversation.
        generator_version: Oldest version of the weights that wrote a reply; None if unknown.
        is_exact: Whether the model read exactly these tokens. The generator takes a text and
            tokenizes it again, which may give other tokens than those that were written. Such a
            rollout is not quite on policy.
    """

    prompt_ids: list[int]
    completion_ids: list[int]
    mask: list[int]
    logprobs: list[float] | None
    reward: float
    components: Mapping[str, float] = field(default_factory=dict)
    steps: int = 0
    messages: Sequence[Mapping[str, Any]] = ()
    generator_version: int | None = None
    is_exact: bool = True


async def rollout(
    generator: Any,
    tokenizer: ChatTokenizer,
    environment: Hashable,
    *,
    messages: Sequence[Mapping[str, Any]] = (),
    reset: Mapping[str, Any] | None = None,
    max_turns: int = 32,
    max_tokens: int | None = None,
    unfinished: Unfinished = "earned",
    told: Told | None = None,
    retries: int = 2,
    template: Mapping[str, Any] | None = None,
    request: Mapping[str, Any] | None = None,
    equal_beginnings: bool = True,
) -> ForgeRollout:
    """Play an episode.

    Args:
        generator: A torchforge generator; ``generator.generate.route`` is called once per turn.
        tokenizer: The tokenizer of the generator's model.
        environment: An address, the name of an installed environment, another target of ``openenv
            serve``, an environment class, or an `EnvPool`. Each rollout has its own session.
        messages: Messages that describe the task.
        reset: Arguments of the environment's reset.
        max_turns: Maximum number of replies.
        max_tokens: Maximum number of tokens after the prompt. Default: no limit.
        unfinished: Reward of an episode that the model has not finished by then.
        told: How the model is told how to act; see `openenv.rollouts.tokens.Chat`.
        retries: Further attempts at a reset after a passing failure.
        template: Arguments of the chat template, such as ``enable_thinking``.
        request: Further arguments of ``generate``, such as ``sampling_params``.
        equal_beginnings: Raise `UnequalBeginnings` if an episode begins differently from an earlier
            one with the same seed and arguments: their rewards cannot be compared.

    Raises:
        CapacityError: The server has no slot for the episode.
        OpenEnvError: The environment could not be reached.
        Unscored: The environment has failed, or the episode has no reward.
    """
    async with session_in(environment, retries, equal_beginnings) as session:
        chat = Chat(tokenizer, session.interface, told, **(template or {}))
        played = TokenRollout(
            session, chat, max_turns=max_turns, max_tokens=max_tokens, unfinished=unfinished
        )
        model = _Generator(generator, tokenizer, request or {})
        score = await play(played, model.generate, EpisodeStart(messages, reset or {}))
    assert score.value is not None
    return ForgeRollout(
        played.prompt_ids,
        played.completion_ids,
        played.mask,
        played.logprobs,
        score.value,
        score.components,
        played.steps,
        played.messages,
        min(model.versions, default=None),
        model.is_exact,
    )


@dataclass
class _Generator:
    """A client of torchforge's generator, which takes the prompt as a text."""

    generator: Any
    tokenizer: ChatTokenizer
    request: Mapping[str, Any]
    versions: list[int] = field(default_factory=list)
    is_exact: bool = True

    async def generate(
        self, ids: list[int]
    ) -> tuple[Sequence[int], Sequence[float] | None, bool | None]:
        prompt = self.tokenizer.decode(ids, skip_special_tokens=False)
        (written, *_) = await self.generator.generate.route(prompt, **self.request)
        self.is_exact &= [int(one) for one in written.prompt_ids] == ids
        if written.generator_version is not None:
            self.versions.append(written.generator_version)
        logprobs = None
        if written.logprobs is not None:
            logprobs = [float(one) for one in written.logprobs]
        reason = getattr(written, "stop_reason", None)
        is_cut = None if reason is None else reason == "length"
        return [int(one) for one in written.token_ids], logprobs, is_cut
