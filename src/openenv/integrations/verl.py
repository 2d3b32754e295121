"""Environments for verl (0.9) as an agent loop with exact tokens and masks.

    # agent_loops.yaml, the rollout's agent.agent_loop_config_path
    - name: blackjack
      _target_: openenv.integrations.verl.OpenEnvAgentLoop
      environment: http://localhost:8000
      max_turns: 8

Rows of the dataset with ``agent_name: blackjack`` are then episodes of this environment.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from openenv._internal.packages import needs
from openenv.errors import CapacityError, OpenEnvError
from openenv.integrations._episodes import (
    play,
    row_arguments,
    session_in,
    shared_sessions,
)
from openenv.integrations.trl.environments import Columns
from openenv.reward import Score
from openenv.rollouts.episode_sessions import EpisodeStart, Unfinished
from openenv.rollouts.tokens import Chat, TokenRollout, Told

with needs("openenv.integrations.verl", "pip install verl"):
    from verl.experimental.agent_loop.agent_loop import (  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports]
        AgentLoopBase,
        AgentLoopMetrics,
        AgentLoopOutput,
        register,
    )

__all__ = ["OpenEnvAgentLoop"]


@register("openenv")
class OpenEnvAgentLoop(AgentLoopBase):  # type: ignore[misc]
    """An agent loop of verl that plays an episode.

    verl cannot leave a rollout out. A rollout that fails, or that has no reward, is played again in
    another episode. If all `attempts` fail, the exception is raised, which ends verl's step.

    Args:
        *args: Arguments of verl's `AgentLoopBase`.
        environment: An address, the name of an installed environment, or another target of
            ``openenv serve``. Each rollout has a session of its own.
        columns: The columns of the row, or of its ``extra_info``, that are arguments of the
            environment's reset, or a mapping from columns to arguments. Default: all texts and
            numbers that are not verl's own. A task that `openenv.integrations.trl.task_dataset` has
            put in the row is always used.
        max_turns: Maximum number of replies. Default: the rollout's
            ``multi_turn.max_assistant_turns``, or 32 without it.
        unfinished: Reward of an episode that the model has not finished by then.
        told: How the model is told how to act: ``tools``, ``json`` or ``text``; see
            `openenv.rollouts.tokens.Chat`.
        retries: Further attempts at a reset after a passing failure.
        attempts: Maximum number of episodes to play until one succeeds; at least 1.
        equal_beginnings: Raise `UnequalBeginnings` if two episodes of one row with a seed begin
            differently: their rewards cannot be compared.
        **kwargs: Keyword arguments of verl's `AgentLoopBase`.

    Raises:
        ValueError: `environment` is missing, or `attempts` is less than 1.
    """

    def __init__(
        self,
        *args: Any,
        environment: Hashable = None,
        columns: Columns | None = None,
        max_turns: int | None = None,
        unfinished: Unfinished = "earned",
        told: Told | None = None,
        retries: int = 2,
        attempts: int = 3,
        equal_beginnings: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        if environment is None:
            raise ValueError(
                "environment=None; expected an address or the name of an environment, beside "
                "_target_ in the file that agent_loop_config_path names"
            )
        if attempts < 1:
            raise ValueError(f"attempts={attempts}; expected at least 1")
        turns = self.rollout_config.multi_turn.max_assistant_turns
        self._environment = environment
        self._columns = columns
        self._max_turns = max_turns or turns or 32
        self._unfinished: Unfinished = unfinished
        self._told: Told | None = told
        self._retries = retries
        self._attempts = attempts
        self._equal_beginnings = equal_beginnings

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        """Play an episode.

        Args:
            sampling_params: Sampling parameters of the model.
            **kwargs: The row's columns.

        Raises:
            CapacityError: The server has no slot for the episode.
            OpenEnvError: The episode could not be played.
            Unscored: The episode has no reward.
            ValueError: The prompt is too long.
        """
        # An environment that is missing, or refuses the key, is an error at once: another attempt
        # would not help.
        await asyncio.to_thread(
            shared_sessions, self._environment, self._retries, self._equal_beginnings
        )
        for left in range(self._attempts - 1, -1, -1):
            try:
                return await self._played(sampling_params, kwargs)
            except OpenEnvError as error:  # noqa: PERF203 - of few episodes
                if isinstance(error, CapacityError) or not left:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _played(
        self, sampling_params: dict[str, Any], row: Mapping[str, Any]
    ) -> AgentLoopOutput:
        columns = {  # Python values in place of numpy scalars
            name: one.item() if getattr(one, "ndim", None) == 0 else one
            for name, one in {**(row.get("extra_info") or {}), **row}.items()
        }
        start = EpisodeStart(
            [dict(message) for message in row["raw_prompt"]],
            *row_arguments(columns, self._columns),
        )
        config = self.rollout_config
        async with session_in(self._environment, self._retries, self._equal_beginnings) as session:
            template = dict(self.apply_chat_template_kwargs)
            chat = Chat(self.tokenizer, session.interface, self._told, **template)
            rollout = TokenRollout(
                session,
                chat,
                max_turns=self._max_turns,
                max_tokens=config.response_length,
                unfinished=self._unfinished,
            )
            model = _VerlModel(self.server_manager, sampling_params, int(row.get("priority", 0)))
            began = time.monotonic()
            score = await play(rollout, model.generate, start, config.prompt_length)
            elsewhere = time.monotonic() - began - model.seconds
        return self._output(rollout, score, model, elsewhere)

    def _output(
        self, rollout: TokenRollout, score: Score, model: _VerlModel, elsewhere: float
    ) -> AgentLoopOutput:
        is_empty = not rollout.completion_ids  # then send one token that is masked out
        logprobs = [0.0] if is_empty and rollout.logprobs is not None else rollout.logprobs
        return AgentLoopOutput(
            prompt_ids=rollout.prompt_ids,
            response_ids=[self.tokenizer.eos_token_id] if is_empty else rollout.completion_ids,
            response_mask=[0] if is_empty else rollout.mask,
            response_logprobs=logprobs,
            reward_score=score.value,
            num_turns=len(rollout.messages),
            metrics=AgentLoopMetrics(generate_sequences=model.seconds, tool_calls=elsewhere),
            extra_fields={
                **model.extra_fields,
                "turn_scores": [],
                "tool_rewards": [],
                "reward_extra_info": {"env_steps": rollout.steps},
            },
        )


@dataclass
class _VerlModel:
    """A client of verl's model server for one rollout; its `request_id` keeps requests on the
    replica that has the prefix cached.
    """

    server: Any
    sampling_params: dict[str, Any]
    priority: int
    request_id: str = field(default_factory=lambda: uuid4().hex)
    seconds: float = 0.0
    extra_fields: dict[str, Any] = field(default_factory=dict)

    async def generate(
        self, ids: list[int]
    ) -> tuple[Sequence[int], Sequence[float] | None, bool | None]:
        began = time.monotonic()
        output = await self.server.generate(
            request_id=self.request_id,
            prompt_ids=ids,
            sampling_params=self.sampling_params,
            priority=self.priority,
        )
        self.seconds += time.monotonic() - began
        # Keep the version of the weights that wrote the first reply, if the server reports it.
        first = {k: v for k, v in self.extra_fields.items() if k == "min_global_steps"}
        self.extra_fields = {**output.extra_fields, **first}
        return output.token_ids, output.log_probs or None, None
