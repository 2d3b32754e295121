"""Sources of a run's tasks, and exact resumption of samplers that learn.

A sampler's choices depend on its arguments and on the results reported to it. Therefore all its
choices and all reports are written to a file beside that of the rollouts, ``x.jsonl.sampler``:

    {"format": "openenv-sampler", "version": 1, "state": {...}}    the initial state
    {"drew": "train/3"}                                            written before anything is played
    {"told": "train/3", "rewards": [1.0, 0.0], "costs": null}      once all of a group is written

A resumed run repeats these events. Afterwards it reports the groups that are complete in the file
of the rollouts, but were not reported before the earlier run ended.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic_core import from_json, to_json

from openenv._internal.quoting import closest
from openenv._internal.replacing import replacing
from openenv.rewards.external.names import import_named
from openenv.rollouts.jobs import SampleGroup, SeedFeed, TaskFeed
from openenv.rollouts.lines import LineFile, RolloutFileError, whole_lines
from openenv.tasks.curriculum import CurriculumSampler
from openenv.tasks.load import load_tasks
from openenv.tasks.samplers import (
    Sampler,
    SequentialSampler,
    ShuffledSampler,
    TaskSampler,
    WeightedSampler,
)
from openenv.tasks.task import Task, TasksetError
from openenv.tasks.taskset import Taskset

FORMAT, FORMAT_VERSION = "openenv-sampler", 1
SUFFIX = ".sampler"

Rewards = list[float | None]
Costs = list[float] | None


def feed_of(tasks: Any, seeds: int, lines: Path | None) -> TaskFeed:
    """Return the feed of a run's tasks.

    Args:
        tasks: The argument `tasks` of a run; None for episodes without tasks.
        seeds: Number of episodes if there are no tasks.
        lines: The file of the rollouts; None if there is none.

    Raises:
        TasksetError: The source holds no tasks.
    """
    if tasks is None:
        return SeedFeed(seeds)
    if hasattr(tasks, "sample") and hasattr(tasks, "update"):
        return SamplerFeed(tasks, lines)
    if isinstance(tasks, Iterator):
        return TaskFeed(tasks)
    taskset = tasks if isinstance(tasks, Taskset) else load_tasks(tasks)
    feed = TaskFeed(taskset)
    feed.has_unique_ids = taskset.is_finite  # the taskset has checked this
    if lines is not None:  # computing the fingerprint of many tasks takes a while
        feed.settings = {"tasks": taskset.fingerprint}
    return feed


# The names that `sampler_named` takes.
SAMPLERS = ("sequential", "shuffled", "weighted:FIELD", "curriculum")
FIELDS = ("difficulty",)  # numeric fields of a task; other names are looked up in its metadata


def sampler_named(
    name: str, tasks: Taskset, *, group_size: int = 1, seed: int = 0, num_tasks: int | None = None
) -> Sampler:
    """Create a sampler from a name.

    Args:
        name: ``sequential``: the tasks in order, once. ``shuffled``: in a random order, once, or
            reshuffled each epoch if `num_tasks` is given. ``weighted:FIELD``: drawn at random with
            the weight of each task, its `difficulty` or a number in its metadata;
            ``weighted:module:function`` computes the weight. ``curriculum`` or ``curriculum:KEY``:
            see `openenv.tasks.CurriculumSampler`.
        tasks: The tasks.
        group_size: Number of rollouts of each task; ``curriculum`` needs at least 2.
        seed: The seed of the random order or draws.
        num_tasks: Number of tasks to play; None for all. Required for ``weighted`` and
            ``curriculum``, which never end.

    Raises:
        TasksetError: There are no tasks, or a task lacks the number that it is weighted by.
        ValueError: The sampler is unknown, or needs `num_tasks` or a larger `group_size`.
    """
    kind, _, what = name.partition(":")
    if kind in ("weighted", "curriculum") and num_tasks is None:
        raise ValueError(f"the sampler {name!r} never ends: say how many tasks are wanted")
    if name == "sequential":
        return SequentialSampler(tasks)
    if name == "shuffled":
        return ShuffledSampler(tasks, seed, epochs=1 if num_tasks is None else None)
    if kind == "weighted" and what:
        return WeightedSampler(tasks, _weight_of(tasks, what), seed)
    if kind == "curriculum":
        if group_size < 2:
            raise ValueError(f"the sampler {name!r} needs groups: at least 2 rollouts of each task")
        key = import_named(what) if ":" in what else what or None
        return CurriculumSampler(tasks, group_size, key, seed=seed)
    forms = {form.partition(":")[0]: form for form in SAMPLERS}
    close = closest(kind, forms)
    hint = f"; did you mean {forms[close]!r}?" if close else ""
    raise ValueError(f"there is no sampler {name!r}, but {', '.join(SAMPLERS)}{hint}")


def _weight_of(tasks: Taskset, what: str) -> Callable[[Task], float]:
    if ":" in what:
        function: Callable[[Task], float] = import_named(what)
        return function

    def weight(task: Task) -> float:
        value = getattr(task, what) if what in FIELDS else task.metadata.get(what)
        if isinstance(value, bool) or not isinstance(value, int | float):
            why = f"task {task.id!r} has no number {what!r} to be weighted by, but {value!r:.100}"
            raise TasksetError(tasks.name, None, why)
        return float(value)

    return weight


class SamplerFeed(TaskFeed):
    """Supplies tasks from a sampler, and reports the rewards of each group to the sampler.

    Args:
        sampler: The sampler. On resumption, its initial state is loaded from the file.
        lines: The file of the rollouts; None if there is none.
    """

    def __init__(self, sampler: TaskSampler, lines: Path | None) -> None:
        super().__init__(())
        self._sampler = sampler
        self._path = None if lines is None else lines.with_name(lines.name + SUFFIX)
        self._file: LineFile | None = None
        self._groups: dict[str, Task] = {}  # groups not yet reported to the sampler
        self._told: set[str] = set()
        self._untold: dict[str, tuple[Rewards, Costs]] = {}
        self._past: Iterator[dict[str, Any]] = iter(())
        self._is_past = True
        if self._path is not None:
            state = sampler.state_dict()
            self.settings = {
                "sampler": {name: state.get(name) for name in ("sampler", "taskset", "settings")}
            }

    def open(self, *, is_resumed: bool) -> None:
        if self._path is None:
            return
        if is_resumed:
            self._go_on(self._path)
            return
        header = {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "state": self._sampler.state_dict(),
        }
        with replacing(self._path) as partial:
            partial.write_bytes(to_json(header) + b"\n")
        self._file = LineFile(self._path)
        self._file.sync_directory()

    def take(self) -> Task | None:
        for event in self._past:
            if "drew" in event:
                return self._drawn_again(event["drew"])
            self._tell(event["told"], event["rewards"], event["costs"])
        self._catch_up()
        drawn = self._sampler.sample(1)
        if not drawn:
            return None
        self._write({"drew": drawn[0].id})
        return drawn[0]

    def settle(self) -> None:
        for event in self._past:
            if "drew" in event:  # fewer tasks are wanted than before
                return
            self._tell(event["told"], event["rewards"], event["costs"])
        self._catch_up()

    def _catch_up(self) -> None:
        """Report the groups that were not reported to the sampler before the resumption."""
        self._is_past = False
        for key in [key for key in self._untold if key in self._groups]:
            self._learn(key, *self._untold.pop(key))

    def began(self, group: SampleGroup) -> None:
        assert group.task is not None
        self._groups[group.key] = group.task

    def found_group(self, key: str, rewards: Rewards, costs: Costs) -> None:
        self._untold[key] = rewards, costs

    def ended(self, group: SampleGroup, rewards: Rewards, costs: Costs) -> None:
        if group.key in self._told:  # before a failed rollout of the group was played again
            return
        if self._is_past:
            self._untold[group.key] = rewards, costs
        else:
            self._learn(group.key, rewards, costs)

    def close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None

    def _learn(self, key: str, rewards: Rewards, costs: Costs) -> None:
        self._tell(key, rewards, costs)
        self._write({"told": key, "rewards": rewards, "costs": costs})

    def _tell(self, key: str, rewards: Rewards, costs: Costs) -> None:
        self._sampler.update(self._groups.pop(key), rewards, costs)

    # ------------------------------------------------------------------ the sampler's file

    def _go_on(self, path: Path) -> None:
        try:
            events = [_event(path, number, line) for number, line in whole_lines(path)]
        except FileNotFoundError:
            why = "it is needed to go on: what the sampler was told is in it"
            raise RolloutFileError(str(path), None, why) from None
        if not events or events[0].get("format") != FORMAT:
            raise RolloutFileError(str(path), None, "this tells nothing of a sampler")
        if events[0]["version"] > FORMAT_VERSION:
            raise RolloutFileError(str(path), 1, "it was written by a later version of openenv")
        self._sampler.load_state_dict(events[0]["state"])
        self._told = {event["told"] for event in events if "told" in event}
        self._untold = {key: v for key, v in self._untold.items() if key not in self._told}
        self._past = iter(events[1:])
        self._file = LineFile(path)
        self._file.cut_torn_line()

    def _drawn_again(self, task_id: str) -> Task:
        drawn = self._sampler.sample(1)
        if not drawn or drawn[0].id != task_id:
            given = repr(drawn[0].id) if drawn else "none"
            why = f"the sampler gave task {task_id!r} before, and gives {given} now"
            raise RolloutFileError(str(self._path), None, why)
        return drawn[0]

    def _write(self, event: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.append(to_json(event) + b"\n")


def _event(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        found: dict[str, Any] = from_json(line)
        return found
    except ValueError as error:
        raise RolloutFileError(str(path), number, f"it is damaged: {error}") from error
