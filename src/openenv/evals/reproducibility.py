"""Reproducibility of first observations for a task and seed (RFC 013, decision D4).

An environment that ignores its seed plays different episodes in each run, so the differences of two
runs may come from the episodes. Therefore, before a run, two new sessions are reset with the same
arguments, one after the other, and their first observations are compared. Later steps of an episode
are not compared.
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

# Fields that identify the episode, and so always differ.
NAMES = ("episode_id", "session_id")


@dataclass(frozen=True)
class Reproducibility:
    """The result of a reproducibility check.

    Attributes:
        is_same: True if both observations are equal; None if the check was not possible.
        why: What differs, or why the check was not possible; "" if both are equal.
    """

    is_same: bool | None
    why: str = ""


def check_reproducible(env: Any, tasks: Any = None, *, seed: int = 0) -> Reproducibility:
    """Reset two new sessions alike and compare the first observations.

    The function logs a warning unless they are equal.

    Args:
        env: The environment; see `openenv.rollouts.rollout`.
        tasks: The tasks, of which the first is used; None to reset without a task.
        seed: Seed from which the episode's seed is derived.

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
    """Tasks that can be read only once, so that reading the first would take it from the run."""


def _first(tasks: Any) -> Task | None:
    if tasks is None:
        return None
    if isinstance(tasks, Taskset):
        return tasks.at(0)
    if isinstance(tasks, Sequence) and not isinstance(tasks, str):
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
