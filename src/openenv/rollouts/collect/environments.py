"""Collecting episodes of environments: a dataset is written from rollouts as the episodes end.

The rollouts are a run of `openenv.rollouts`, which handles failures, full servers and killed
programs. The run's file is the source of truth, and the dataset is derived from it. If the program
ends after a rollout is written and before its episode is, the next run writes the episode.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from openenv._internal.redaction import redacted
from openenv.client import background
from openenv.rollouts.collect.card import statistics, write_card
from openenv.rollouts.collect.interfaces import interface_from_json, interface_to_json
from openenv.rollouts.collect.records import episode_id_of, make_record
from openenv.rollouts.collect.serializer import (
    ROLLOUTS_FILENAME,
    RolloutSerializer,
    set_aside,
)
from openenv.rollouts.collect.tables import TABLE_FILENAME, write_table
from openenv.rollouts.collect.teachers import ConversingPolicy
from openenv.rollouts.files import read_rollouts
from openenv.rollouts.interfaces import Interface
from openenv.rollouts.limits import RolloutLimits
from openenv.rollouts.policies.functions import as_policy
from openenv.rollouts.records import Rollout
from openenv.rollouts.runs import rollout_async, synchronous
from openenv.rollouts.sessions import sessions_of
from openenv.rollouts.summary import RolloutProgress, Summary

logger = logging.getLogger(__name__)


@dataclass
class Collected:
    """The result of a collection.

    Attributes:
        output_dir: The folder of the dataset.
        episodes: Number of episodes in the dataset.
        new: Number of episodes that this run has added.
        dropped: Number of episodes that were not kept because the reward was below 0.
        summary: The summary of all rollouts, failed and unscored rollouts included.
        statistics: The dataset's numbers; see `openenv.rollouts.collect.card.statistics`.
    """

    output_dir: Path
    episodes: int
    new: int
    dropped: int
    summary: Summary
    statistics: dict[str, Any] = field(default_factory=dict)


async def collect_async(
    env: Any,
    policy: Any,
    output_dir: str | os.PathLike[str],
    *,
    num_episodes: int = 10,
    tasks: Iterable[Any] | None = None,
    n: int = 1,
    prefix: str = "ep",
    reset: Mapping[str, Any] | None = None,
    prompt: str | None = None,
    system_prompt: str | None = None,
    resume: bool = True,
    keep_losses: bool = False,
    table: bool = False,
    concurrency: int = 16,
    seed: int | None = None,
    limits: RolloutLimits = RolloutLimits(),  # noqa: B008  # it is frozen
    retries: int = 2,
    error_budget: float = 0.1,
    metadata: Mapping[str, Any] | None = None,
    progress: Callable[[RolloutProgress], Any] | None = None,
) -> Collected:
    """Collect episodes of an environment as a dataset, or resume a collection.

    Args:
        env: The environment; see `openenv.rollouts.rollout`.
        policy: The policy; see `openenv.rollouts.rollout`. If it holds no conversation, its actions
            are written as one.
        output_dir: The folder of the dataset.
        num_episodes: Number of episodes in the dataset, existing ones included. With `tasks`: the
            maximum number of tasks.
        tasks: The tasks. Default: episodes without tasks, with distinct seeds.
        n: Number of episodes of each task.
        prefix: Prefix of the ids of episodes without a task.
        reset: Reset arguments of episodes without a task.
        prompt: The first user message of episodes without a task.
        system_prompt: A system message, if the policy holds no conversation itself.
        resume: Keep existing episodes and play failed ones again. If False, existing files are
            renamed and kept.
        keep_losses: Keep episodes whose reward is below 0.
        table: Also write ``results.parquet``.
        concurrency: Maximum number of episodes at once.
        seed: The seed from which all seeds are derived. Default: random.
        limits: Limits that end an episode.
        retries: Further attempts after a passing failure.
        error_budget: The rollouts that may fail: a share as a float, or a number as an int.
        metadata: Further notes on the run.
        progress: Called with the progress now and then, and at the end.

    Raises:
        RolloutsFailed: More rollouts have failed than the error budget allows. Episodes written so
            far stay.
        RolloutFileError: The existing files were collected in another way or are damaged, or
            another process writes to them.
        OSError: A file cannot be written, for example on a full disk. Written episodes stay.
        ValueError: `num_episodes` is below 1.
    """
    if num_episodes < 1:
        raise ValueError(f"num_episodes={num_episodes}: expected at least 1")
    work = _DatasetBuilder(Path(output_dir), keep_losses, dict(metadata or {}))
    who = ConversingPolicy(
        as_policy(policy, concurrency=concurrency),
        system_prompt=system_prompt,
        on_interface=work.note_interface,
    )
    with work.serializer:
        work.begin(resume=resume)
        shared = {"reset": dict(reset or {}), **({} if prompt is None else {"prompt": prompt})}
        own = ({"id": f"{prefix}-{number:06d}", **shared} for number in range(num_episodes))
        run = await rollout_async(
            env,
            who,
            work.unknown(own) if tasks is None else tasks,
            n=n,
            num_tasks=num_episodes,
            concurrency=concurrency,
            output=work.rollouts,
            resume=True,
            seed=seed,
            limits=limits,
            retries=retries,
            error_budget=error_budget,
            keep=work.is_worth_it,
            on_rollout=work.add,
            progress=progress,
        )
        settings = {**run.header.settings, "environment": run.header.environment}
        return work.end(run.summary(), {**settings, "policy": run.header.policy}, table=table)


collect = synchronous(collect_async)
collect.__name__ = collect.__qualname__ = "collect"


def preview_collection(
    env: Any, policy: Any, output_dir: str | os.PathLike[str], num_episodes: int, *, resume: bool
) -> dict[str, Any]:
    """Describe what a collection would do, after asking the environment for its tools.

    Nothing is written, and no episode is begun.

    Raises:
        OpenEnvError: The environment cannot be reached, or does not describe its actions.
        RolloutFileError: A file of the folder is damaged.
    """
    there = len(RolloutSerializer(Path(output_dir)).collected_episode_ids()) if resume else 0
    name, interface = background.run(_looked_at(env))
    return {
        "environment": name,
        "policy": as_policy(policy).name,
        "tools": [tool.name for tool in interface.tools],
        "output_dir": str(output_dir),
        "there": there,
        "left": max(0, num_episodes - there),
    }


async def _looked_at(env: Any) -> tuple[str, Interface]:
    sessions = await sessions_of(env, lambda _: None)
    try:
        return sessions.name, await sessions.look_up_interface()
    finally:
        await sessions.aclose()


class _DatasetBuilder:
    """Writes a dataset from rollouts as the episodes end."""

    def __init__(self, folder: Path, keep_losses: bool, metadata: dict[str, Any]) -> None:
        self.serializer = RolloutSerializer(folder)
        self.rollouts = folder / ROLLOUTS_FILENAME
        self._keep_losses = keep_losses
        self._metadata = metadata
        self._ids: set[str] = set()
        self._foreign: set[str] = set()
        self._dropped: set[str] = set()
        self._new = 0
        self._interface: Interface | None = None

    def begin(self, *, resume: bool) -> None:
        """Read the existing files, and write the episodes that an earlier run did not write."""
        if not resume:
            self.serializer.interrupt()
            for path in (self.serializer.results_path, self.rollouts):
                aside = set_aside(path)
                if aside is not None:
                    logger.warning("%s is set aside as %s", path, aside.name)
        self.serializer.open()
        found = self.serializer.read_metadata() if resume else {}
        self._metadata = {**found, **self._metadata, "begun_at": found.get("begun_at", time.time())}
        self._interface = interface_from_json(found.get("interface"))
        self._ids = self.serializer.collected_episode_ids()
        played: set[str] = set()
        if self.rollouts.exists() and self.rollouts.stat().st_size:
            for rollout in read_rollouts(self.rollouts):
                played.add(episode_id_of(rollout.id))
                self.add(rollout)
        self._foreign = self._ids - played

    def unknown(self, tasks: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield the tasks, except those whose episode is in the dataset without a rollout."""
        return (task for task in tasks if task["id"] not in self._foreign)

    def note_interface(self, interface: Interface) -> None:
        """Write the interface to the metadata, before the first episode."""
        self._interface = interface
        self._metadata["interface"] = interface_to_json(interface)
        self.serializer.write_metadata(redacted(self._metadata))

    def is_worth_it(self, rollout: Rollout) -> bool:
        """Return whether to keep the content of a rollout; unscored rollouts are kept for
        inspection.
        """
        return self._keep_losses or rollout.reward is None or rollout.reward >= 0

    def add(self, rollout: Rollout) -> None:
        """Write an episode that belongs in the dataset and is not in it yet."""
        episode_id = episode_id_of(rollout.id)
        if not rollout.is_kept:
            self._dropped.add(episode_id)
        if not (rollout.is_scored and rollout.is_kept) or episode_id in self._ids:
            return
        self.serializer.write_episode(make_record(rollout, self._interface, episode_id))
        self._ids.add(episode_id)
        self._new += 1

    def end(self, summary: Summary, settings: dict[str, Any], *, table: bool) -> Collected:
        """Write metadata, table and card; return the result."""
        folder = self.serializer.output_dir
        told = statistics(self.serializer.records())
        played = {k: v for k, v in asdict(summary).items() if k not in ("pace", "seconds")}
        self._metadata |= {**settings, "ended_at": time.time(), "rollouts": played}
        self._metadata["statistics"] = told
        self.serializer.write_metadata(redacted(self._metadata))
        if table or (folder / TABLE_FILENAME).exists():  # an old table would be out of date
            write_table(self.serializer.results_path, folder / TABLE_FILENAME)
        write_card(folder)
        return Collected(folder, len(self._ids), self._new, len(self._dropped), summary, told)
