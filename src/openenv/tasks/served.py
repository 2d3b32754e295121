"""The tasks that a server serves, and their selection by the arguments of `reset`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from openenv._internal.quoting import did_you_mean
from openenv.errors import Refused
from openenv.tasks.load import load_splits, load_tasks
from openenv.tasks.task import Task, TasksetError
from openenv.tasks.taskset import Taskset

REFERENCES = frozenset({"task", "split", "index"})
CONTENT = ("prompt", "files", "state", "criteria")


class ServedTasks:
    """Tasksets by split, with the methods of a `TaskProvider`.

    `Task.split` and `Task.index` are set to the task's position on this server.

    Args:
        tasks: A `Taskset`, a dict of tasksets by split, or any source that `load_tasks` accepts;
            every split of the source is served.

    Attributes:
        tasksets: The tasksets by split.

    Raises:
        TasksetError: There are no splits, or a split has no known length.
    """

    def __init__(self, tasks: Any) -> None:
        self.tasksets = _load_by_split(tasks)
        for split, taskset in self.tasksets.items():
            if not taskset.is_finite:
                why = f"split {split!r} has no known length, which a server needs; pass a limit"
                raise TasksetError(taskset.name, None, why)

    def __repr__(self) -> str:
        listed = ", ".join(f"{split} ({len(tasks)})" for split, tasks in self.tasksets.items())
        return f"<ServedTasks {listed}>"

    # ------------------------------------------------------------------ TaskProvider

    def list_splits(self) -> list[str]:
        """Return the names of the splits."""
        return list(self.tasksets)

    def list_tasks(self, split: str) -> list[Task]:
        """Return every task of a split."""
        return self.get_task_range(split)

    def num_tasks(self, split: str) -> int:
        """Count the tasks of a split.

        Raises:
            Refused: There is no such split.
        """
        return len(self._of(split))

    def get_task(self, split: str, index: int) -> Task:
        """Return the task at an index of a split.

        Raises:
            IndexError: The split has no task at this index.
            Refused: There is no such split.
        """
        tasks = self._of(split)
        if not 0 <= index < len(tasks):
            raise IndexError(f"{split} has {len(tasks)} tasks; index {index} is out of range")
        return tasks[index].model_copy(update={"split": split, "index": index})

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[Task]:
        """Return the tasks from `start` up to but not including `stop`, like a slice.

        Raises:
            Refused: There is no such split.
        """
        return list(self.iter_tasks(split, start, stop))

    def iter_tasks(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> Iterator[Task]:
        """Iterate over the tasks from `start` up to but not including `stop`.

        Raises:
            Refused: There is no such split.
        """
        places = range(*slice(start, stop).indices(self.num_tasks(split)))
        return (self.get_task(split, index) for index in places)

    def _of(self, split: str) -> Taskset:
        if not isinstance(split, str) or split not in self.tasksets:
            listed = ", ".join(self.tasksets)
            hint = did_you_mean(str(split), self.tasksets)
            raise Refused(f"split: unknown split {split!r:.200}; expected one of {listed}{hint}")
        return self.tasksets[split]

    # ------------------------------------------------------------------ reset

    def resolve(self, arguments: Mapping[str, Any]) -> tuple[Task | None, dict[str, Any]]:
        """Split the arguments of a `reset` into the task that they name and the other arguments.

        ``task`` is a task's id, or an object with an id, or with a split and an index. Without
        ``task``, the arguments ``split`` and ``index`` name a task. A ``split`` without an
        ``index`` draws a random task of the split, using the argument ``seed`` if there is one.

        Raises:
            Refused: The task does not exist, or the arguments contradict each other or the task.
        """
        named = {name: arguments.get(name) for name in REFERENCES}
        others = {name: value for name, value in arguments.items() if name not in REFERENCES}
        given = {name: value for name, value in named.items() if value is not None}
        if not given:
            return None, others
        if "task" not in given:
            return self._task_at(given.get("split"), given.get("index"), others.get("seed")), others
        task, own = self._find_task(given["task"], given.get("split"))
        for name in ("split", "index"):
            if name in given and given[name] != getattr(task, name):
                why = f"{name}: {given[name]!r} contradicts task {task.id!r}, which is "
                raise Refused(f"{why}{getattr(task, name)!r}")
        return task, merge_reset_arguments(own, others, "the given task")

    def _task_at(self, split: str | None, index: Any, seed: Any) -> Task:
        if split is None:
            if len(self.tasksets) > 1:
                raise Refused(f"split: expected one of {', '.join(self.tasksets)}")
            split = next(iter(self.tasksets))
        tasks = self._of(split)
        if index is None:
            if not len(tasks):
                raise Refused(f"split: {split!r} has no tasks")
            try:
                index = Random(seed).randrange(len(tasks))  # nosec B311  # which task, no secret
            except TypeError:
                raise Refused(f"seed: expected a whole number, got {seed!r:.200}") from None
        if type(index) is not int:
            raise Refused(f"index: expected a whole number, got {index!r:.200}")
        try:
            return self.get_task(split, index)
        except IndexError as error:
            raise Refused(f"index: {error}") from None

    def _find_task(self, task: Any, split: str | None) -> tuple[Task, dict[str, Any]]:
        """Return the task that an argument ``task`` names, and the argument's `reset` arguments."""
        if isinstance(task, Task):
            task = task.as_data()
        if isinstance(task, str):
            return self._find_by_id(task, split), {}
        if not isinstance(task, Mapping):
            why = "expected its id, or an object with its id or with split and index"
            raise Refused(f"task: {why}; got a {type(task).__name__}")
        own = task.get("reset") or {}
        if not isinstance(own, Mapping):
            raise Refused(f"task.reset: expected an object, got a {type(own).__name__}")
        if {"split", "index"} <= set(own):  # a reference to a task
            own = {name: value for name, value in own.items() if name not in ("split", "index")}
        if task.get("id") is None:
            if task.get("index") is None:
                raise Refused("task: expected an id or an index")
            return self._task_at(task.get("split") or split, task["index"], None), dict(own)
        found = self._find_by_id(str(task["id"]), split or task.get("split"))
        known = found.as_data()
        for name in CONTENT:
            if task.get(name) and task[name] != known.get(name):
                why = f"task: {found.id!r} has a different {name} on this server"
                raise Refused(f"{why}; pass only the id")
        return found, dict(own)

    def _find_by_id(self, task_id: str, split: str | None) -> Task:
        splits = self.tasksets if split is None or split not in self.tasksets else [split]
        places = {name: self.tasksets[name].position_of(task_id) for name in splits}
        found = {name: place for name, place in places.items() if place is not None}
        if not found:
            raise Refused(f"task: {self._describe_unknown(task_id)}")
        if len(found) > 1:
            raise Refused(f"task: {task_id!r} is in the splits {' and '.join(found)}; pass split")
        ((name, place),) = found.items()
        return self.get_task(name, place)

    def _describe_unknown(self, task_id: str) -> str:
        hints = (taskset.hint(task_id) for taskset in self.tasksets.values())
        return f"no task has the id {task_id!r:.200}{next(filter(None, hints), '')}"


def _load_by_split(tasks: Any) -> dict[str, Taskset]:
    if isinstance(tasks, Mapping) and any(isinstance(one, Taskset | str) for one in tasks.values()):
        return {
            str(split): one if isinstance(one, Taskset) else load_tasks(one, split=str(split))
            for split, one in tasks.items()
        }
    found = load_splits(tasks)
    if not found:
        raise TasksetError(type(tasks).__name__, None, "has no tasks")
    return found


def merge_reset_arguments(
    fixed: Mapping[str, Any], given: Mapping[str, Any], whose: str
) -> dict[str, Any]:
    """Merge the arguments of `reset` that a task fixes with those that the caller passes.

    Args:
        fixed: The fixed arguments.
        given: The caller's arguments. A value of None may be replaced by a fixed value.
        whose: What fixes the arguments, for the error message.

    Raises:
        Refused: The caller passes another value for a fixed argument.
    """
    for name in fixed:
        if given.get(name) is not None and given[name] != fixed[name]:
            raise Refused(
                f"{name}: {whose} requires {fixed[name]!r:.200}, got {given[name]!r:.200}"
            )
    return {**given, **fixed}
