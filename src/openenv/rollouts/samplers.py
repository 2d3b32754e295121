"""Sources of a run's tasks, and exact resumption of samplers that learn.

A sampler gives what its arguments, and what it was told so far, decide. So everything that it was
asked and told is written down, in a file beside that of the rollouts, ``x.jsonl.sampler``:

    {"format": "openenv-sampler", "version": 1, "state": {...}}    what it was at first
    {"drew": "train/3"}                                            written before anything is played
    {"told": "train/3", "rewards": [1.0, 0.0], "costs": null}      once all of a group is written

A run that was killed is gone on with by doing all of that again. A group whose rollouts are all in
their file, and of which the sampler was not told before the end came, is told of then.
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
        tasks: The tasks argument of a run; None for `seeds` episodes without tasks.

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
    feed.has_unique_ids = taskset.is_finite  # which it has seen to
    if lines is not None:  # of many tasks it takes a while
        feed.settings = {"tasks": taskset.fingerprint}
    return feed


# By their names, as `sampler_named` takes them.
SAMPLERS = ("sequential", "shuffled", "weighted:FIELD", "curriculum")
FIELDS = ("difficulty",)  # of a task that are numbers; others are looked up in its metadata


def sampler_named(
    name: str, tasks: Taskset, *, group_size: int = 1, seed: int = 0, num_tasks: int | None = None
) -> Sampler:
    """Make the sampler of a name.

    Args:
        name: ``sequential``: the tasks in their order, once; ``shuffled``: in one that the seed
            decides, once, or again and again where so many are wanted; ``weighted:FIELD``: by
            chance, each as likely as a number says, its `difficulty` or one in its metadata, or
            that a function of it gives, ``weighted:module:function``; ``curriculum``, or
            ``curriculum:KEY``: see `openenv.tasks.CurriculumSampler`.
        num_tasks: How many are wanted; None for all. The last two never end, so they need it.

    Raises:
        TasksetError: There are no tasks; or one has not what it is chosen by.
        ValueError: There is no such sampler, or it needs a number of tasks, or groups.
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
        sampler: The sampler. To go on, it is given the state that it had at first.
    """

    def __init__(self, sampler: TaskSampler, lines: Path | None) -> None:
        super().__init__(())
        self._sampler = sampler
        self._path = None if lines is None else lines.with_name(lines.name + SUFFIX)
        self._file: LineFile | None = None
        self._groups: dict[str, Task] = {}  # of which it was not told yet
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
        """Report the groups that the sampler was not told of before the resumption."""
        self._is_past = False
        for key in [key for key in self._untold if key in self._groups]:
            self._learn(key, *self._untold.pop(key))

    def began(self, group: SampleGroup) -> None:
        assert group.task is not None
        self._groups[group.key] = group.task

    def found_group(self, key: str, rewards: Rewards, costs: Costs) -> None:
        self._untold[key] = rewards, costs

    def ended(self, group: SampleGroup, rewards: Rewards, costs: Costs) -> None:
        if group.key in self._told:  # before a rollout of it that had failed was had again
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

    # ------------------------------------------------------------------ its file

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
