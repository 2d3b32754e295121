"""Reproducibility of first observations for a task and seed (RFC 013, decision D4).

An environment that takes a seed and discards it plays other episodes in each run, and what two runs
have apart may then be of these. So before a run two fresh sessions are reset alike, one after the
other, and their first observations compared. What happens later in an episode is not looked at.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from openenv.client import background
from openenv.errors import ConnectError, OpenEnvError
from openenv.rollouts.engine import LiveEpisode, reset_arguments
from openenv.rollouts.episodes import to_json_value
from openenv.rollouts.jobs import as_task, derived_seed
from openenv.rollouts.policies.views import visible_fields
from openenv.rollouts.sessions import Sessions, sessions_of
from openenv.tasks.task import Task
from openenv.tasks.taskset import Taskset

__all__ = ["Reproducibility", "check_reproducible"]

logger = logging.getLogger(__name__)

# What names the episode itself, and is another one each time.
NAMES = ("episode_id", "session_id")


@dataclass(frozen=True)
class Reproducibility:
    """The result of a reproducibility check.

    Attributes:
        is_same: Both looks were the same; None where nobody could look.
        why: What was not the same, or why nobody could look; empty where both were the same.
    """

    is_same: bool | None
    why: str = ""


def check_reproducible(env: Any, tasks: Any = None, *, seed: int = 0) -> Reproducibility:
    """Reset two new sessions alike and compare the first observations; log a warning if different.

    Args:
        env: The environment, as `openenv.rollouts.rollout` takes it.
        tasks: The tasks, of which the first one is begun; None without any.
        seed: The seed from which the episode's seed is derived.

    Raises:
        ConnectError: No server answers.
    """
    try:
        task = _first(tasks)
    except _ReadOnce:
        return Reproducibility(None, "its tasks can be read once only")
    found: Reproducibility = background.run(_looked_at(env, task, seed))
    if found.is_same is False:
        logger.warning("the environment is not reproducible: %s", found.why)
    elif found.is_same is None:
        logger.warning("whether the environment is reproducible is not known: %s", found.why)
    return found


class _ReadOnce(Exception):
    """Reading the first task would take the task from the run."""


def _first(tasks: Any) -> Task | None:
    if tasks is None:
        return None
    if isinstance(tasks, Taskset):
        return tasks.at(0)
    if isinstance(tasks, Sequence):
        return as_task(tasks[0], 1) if tasks else None
    raise _ReadOnce


async def _looked_at(env: Any, task: Task | None, seed: int) -> Reproducibility:
    sessions = await sessions_of(env, lambda _: None)
    try:
        looks = [await _look(sessions, task, seed) for _ in range(2)]
    except ConnectError:
        raise
    except OpenEnvError as error:
        return Reproducibility(None, f"an episode could not be begun: {error}")
    finally:
        await sessions.aclose()
    if looks[0] == looks[1]:
        return Reproducibility(True)
    return Reproducibility(False, _apart(*looks))


async def _look(sessions: Sessions, task: Task | None, seed: int) -> dict[str, bytes]:
    arguments = {} if task is None else reset_arguments(task, True)
    arguments.setdefault("seed", derived_seed(seed, "" if task is None else task.id))
    client = await sessions.open()
    try:
        first = await LiveEpisode(client).reset(arguments)
    finally:
        await sessions.close(client)
    shown = visible_fields(first.observation, None)
    return {
        name: to_json(to_json_value(value), inf_nan_mode="constants")
        for name, value in shown.items()
        if name not in NAMES
    }


def _apart(one: dict[str, bytes], other: dict[str, bytes]) -> str:
    names = dict.fromkeys(itertools.chain(one, other))
    unlike = [name for name in names if one.get(name) != other.get(name)]
    return (
        "two fresh sessions that were reset with the same task and seed show other values of "
        f"{', '.join(unlike)}"
    )
