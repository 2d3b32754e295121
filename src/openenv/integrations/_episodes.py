"""Shared code of trainers that own the loop: sessions, reset arguments, rewards."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Hashable,
    Mapping,
    Sequence,
)
from typing import Any, TypeVar

from openenv.client import background
from openenv.errors import Unscored
from openenv.integrations.trl.environments import TASK_COLUMN, Columns, episode_arguments
from openenv.reward import Score
from openenv.rollouts.endings import NO_REWARD
from openenv.rollouts.episode_sessions import (
    EpisodeSession,
    EpisodeSessions,
    EpisodeStart,
    Unfinished,
)
from openenv.rollouts.tokens import TokenRollout

T = TypeVar("T")

OF_TRAINERS = frozenset(
    {
        "ability",
        "agent_name",
        "data_source",
        "env_class",
        "extra_info",
        "global_steps",
        "index",
        "interaction_kwargs",
        "max_turns",
        "priority",
        "prompt",
        "raw_prompt",
        "reward_model",
        "reward_spec",
        "tools_kwargs",
        "uid",
    }
)
"""Columns that belong to SkyRL and verl, not to the environment, unless ``columns`` names them."""

_sessions: dict[Hashable, EpisodeSessions] = {}
_looking = threading.Lock()


def shared_sessions(
    environment: Hashable, retries: int, equal_beginnings: bool = True
) -> EpisodeSessions:
    """Return this process's sessions in an environment, on the shared loop; opened once.

    Args:
        equal_beginnings: Require that episodes with the same reset arguments, including a seed,
            begin alike; see `EpisodeSessions.of`.
    """
    key = os.getpid(), environment, retries, equal_beginnings
    with _looking:
        found = _sessions.get(key)
        if found is None:
            found = _sessions[key] = background.run(
                EpisodeSessions.of(environment, retries=retries, equal_beginnings=equal_beginnings)
            )
        return found


@contextlib.asynccontextmanager
async def session_in(
    environment: Hashable, retries: int, equal_beginnings: bool
) -> AsyncIterator[EpisodeSession]:
    """Take one of this process's sessions in an environment, and close it at the end."""
    sessions = await asyncio.to_thread(shared_sessions, environment, retries, equal_beginnings)
    session = await run_on_shared_loop(sessions.take())
    try:
        yield session
    finally:
        await run_on_shared_loop(session.close())


async def run_on_shared_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the shared loop, where sessions live; can be awaited on any loop."""
    return await background.submit(work).awaited()


def row_arguments(
    row: Mapping[str, Any], columns: Columns | None
) -> tuple[dict[str, Any], frozenset[str]]:
    """Return the reset arguments of a row whose columns are mostly the trainer's.

    Args:
        columns: The columns to use. Default: all texts, numbers and booleans, except those of the
            trainer (`OF_TRAINERS`). The environment may ignore these, except ``seed`` and
            ``task_id``. A task in the row is always used.

    Returns:
        The arguments, and those of them that the environment may ignore.

    Raises:
        KeyError: The row lacks one of the columns.
        ValueError: The row's task is invalid.
    """
    if columns is not None:
        return episode_arguments(row, columns)
    kept = {
        name: value
        for name, value in row.items()
        if name == TASK_COLUMN
        or (name not in OF_TRAINERS and isinstance(value, bool | int | float | str))
    }
    arguments, may_ignore = episode_arguments(kept, None)
    return arguments, may_ignore | (kept.keys() - {"seed", "task_id"})


def session_reward(session: EpisodeSession, unfinished: Unfinished) -> Score:
    """Return the score of an episode.

    Raises:
        Unscored: The environment has failed, or gave no reward.
    """
    return check_scored(session.score(unfinished))


Generate = Callable[
    [list[int]], Awaitable[tuple[Sequence[int], "Sequence[float | None] | None", "bool | None"]]
]
"""Asks a model to continue a sequence of tokens. Returns the tokens of the reply; their
log-probabilities, or None; and whether a limit cut the reply off. If that is None, the last token
decides."""


async def play(
    rollout: TokenRollout,
    generate: Generate,
    start: EpisodeStart,
    max_prompt: int | None = None,
) -> Score:
    """Play an episode to the end; the model is called on the running loop.

    Args:
        max_prompt: Maximum number of tokens before the first reply. Default: no limit.

    Raises:
        OpenEnvError: The episode could not begin.
        Unscored: The episode has failed, or has no reward.
        ValueError: The prompt, including the first observation, is longer than `max_prompt`.
    """
    goes_on = await run_on_shared_loop(rollout.begin(start))
    if max_prompt is not None and len(rollout.prompt_ids) > max_prompt:
        raise ValueError(
            f"the prompt has {len(rollout.prompt_ids)} tokens with what the environment shows "
            f"first and how one acts, and {max_prompt} is the most; make that more"
        )
    while goes_on:
        reply, logprobs, is_cut = await generate(rollout.ids)
        goes_on = await run_on_shared_loop(rollout.take(reply, logprobs, is_cut=is_cut))
    return check_scored(rollout.score)


def check_scored(score: Score) -> Score:
    """Return a score that has a value.

    Raises:
        Unscored: The score has no value: the environment has failed, or gave no reward.
    """
    if score.value is None:
        raise Unscored(f"the episode has no reward: {score.unscored or NO_REWARD}")
    return score
