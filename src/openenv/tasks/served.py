"""The tasks of a server, and which of them a caller of `reset` means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from openenv.errors import Refused
from openenv.tasks.errors import TasksetError, did_you_mean
from openenv.tasks.load import load_splits, load_tasks
from openenv.tasks.task import Task
from openenv.tasks.taskset import Taskset

__all__ = ["ServedTasks", "merged"]

REFERENCES = frozenset({"task", "split", "index"})
CONTENT = ("prompt", "files", "state", "criteria")


class ServedTasks:
    """Tasksets by split, with the methods of a `TaskProvider`.

    Where a task stands, in `Task.split` and `Task.index`, is told as it is here.

    Args:
        tasks: A `Taskset`; a dict of them by split; or whatever `load_tasks` takes, of which every
            split is served.

    Raises:
        TasksetError: There are none, or nobody knows how many.
    """

    def __init__(self, tasks: Any) -> None:
        self._splits = _by_split(tasks)
        for split, taskset in self._splits.items():
            if not taskset.is_finite:
                why = f"split {split!r} has no known end, and a server counts tasks; give a limit"
                raise TasksetError(taskset.name, None, why)

    def __repr__(self) -> str:
        listed = ", ".join(f"{split} ({len(tasks)})" for split, tasks in self._splits.items())
        return f"<ServedTasks {listed}>"

    @property
    def tasksets(self) -> Mapping[str, Taskset]:
        """The tasksets by split."""
        return self._splits

    # ------------------------------------------------------------------ TaskProvider

    def list_splits(self) -> list[str]:
        """Name the splits."""
        return list(self._splits)

    def list_tasks(self, split: str) -> list[Task]:
        """Give every task of a split."""
        return self.get_task_range(split)

    def num_tasks(self, split: str) -> int:
        """Count the tasks of a split.

        Raises:
            Refused: There is no such split.
        """
        return len(self._of(split))

    def get_task(self, split: str, index: int) -> Task:
        """Give one task.

        Raises:
            IndexError: There is none at this index.
            Refused: There is no such split.
        """
        tasks = self._of(split)
        if not 0 <= index < len(tasks):
            raise IndexError(f"{split} has {len(tasks)} tasks, from 0 on, and none at {index}")
        return tasks[index].model_copy(update={"split": split, "index": index})

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[Task]:
        """Give the tasks from `start` to before `stop`, as a slice does.

        Raises:
            Refused: There is no such split.
        """
        return list(self.iter_tasks(split, start, stop))

    def iter_tasks(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> Iterator[Task]:
        """The same, one after the other.

        Raises:
            Refused: There is no such split.
        """
        places = range(*slice(start, stop).indices(self.num_tasks(split)))
        return (self.get_task(split, index) for index in places)

    def _of(self, split: str) -> Taskset:
        if split not in self._splits:
            listed = ", ".join(self._splits)
            hint = did_you_mean(str(split), self._splits)
            raise Refused(f"split: there is no {split!r:.200}, but {listed}{hint}")
        return self._splits[split]

    # ------------------------------------------------------------------ reset

    def chosen(self, arguments: Mapping[str, Any]) -> tuple[Task | None, dict[str, Any]]:
        """Part the arguments of a `reset` into the task that they name and the others.

        A task is named by ``task``: its id, or an object with its id, or with split and index; or
        by ``split`` and ``index``. A ``split`` alone has one of its tasks drawn, by the seed if
        there is one.

        Raises:
            Refused: There is no such task, or the arguments contradict one another or the task.
        """
        named = {name: arguments.get(name) for name in REFERENCES}
        others = {name: value for name, value in arguments.items() if name not in REFERENCES}
        given = {name: value for name, value in named.items() if value is not None}
        if not given:
            return None, others
        if "task" not in given:
            return self._at(given.get("split"), given.get("index"), others.get("seed")), others
        task, own = self._named(given["task"], given.get("split"))
        for name in ("split", "index"):
            if name in given and given[name] != getattr(task, name):
                why = f"{name}: {given[name]!r} contradicts task {task.id!r}, which is "
                raise Refused(f"{why}{getattr(task, name)!r}")
        return task, merged(own, others, "the task that was given")

    def _at(self, split: str | None, index: Any, seed: Any) -> Task:
        if split is None:
            if len(self._splits) > 1:
                raise Refused(f"split: say which, of {', '.join(self._splits)}")
            split = next(iter(self._splits))
        tasks = self._of(split)
        if index is None:
            if not len(tasks):
                raise Refused(f"split: {split!r} has no tasks")
            index = Random(seed).randrange(len(tasks))  # nosec B311  # which task, no secret
        if type(index) is not int:
            raise Refused(f"index: expected a whole number, got {index!r:.200}")
        try:
            return self.get_task(split, index)
        except IndexError as error:
            raise Refused(f"index: {error}") from None

    def _named(self, task: Any, split: str | None) -> tuple[Task, dict[str, Any]]:
        """The task that is meant, and the arguments of `reset` that came with it."""
        if isinstance(task, Task):
            task = task.as_data()
        if isinstance(task, str):
            return self._with_id(task, split), {}
        if not isinstance(task, Mapping):
            why = "expected its id, or an object with its id or with split and index"
            raise Refused(f"task: {why}; got a {type(task).__name__}")
        own = task.get("reset") or {}
        if not isinstance(own, Mapping):
            raise Refused(f"task: its reset: expected an object, got a {type(own).__name__}")
        if {"split", "index"} <= set(own):  # it only says which one it is
            own = {name: value for name, value in own.items() if name not in ("split", "index")}
        if task.get("id") is None:
            if task.get("index") is None:
                raise Refused("task: there is neither an id in it nor an index")
            return self._at(task.get("split") or split, task["index"], None), dict(own)
        found = self._with_id(str(task["id"]), split or task.get("split"))
        known = found.as_data()
        for name in CONTENT:
            if task.get(name) and task[name] != known.get(name):
                why = f"task: {found.id!r} is another one here, its {name} is not that which came"
                raise Refused(f"{why}; pass its id")
        return found, dict(own)

    def _with_id(self, task_id: str, split: str | None) -> Task:
        splits = self._splits if split is None or split not in self._splits else [split]
        places = {name: self._splits[name].place_of(task_id) for name in splits}
        found = {name: place for name, place in places.items() if place is not None}
        if not found:
            raise Refused(f"task: {self._unknown(task_id)}")
        if len(found) > 1:
            raise Refused(f"task: {task_id!r} is in {' and in '.join(found)}; say which, by split")
        ((name, place),) = found.items()
        return self.get_task(name, place)

    def _unknown(self, task_id: str) -> str:
        hints = (taskset.hint(task_id) for taskset in self._splits.values())
        return f"there is none with the id {task_id!r:.200}{next(filter(None, hints), '')}"


def _by_split(tasks: Any) -> dict[str, Taskset]:
    if isinstance(tasks, Mapping) and any(isinstance(one, Taskset | str) for one in tasks.values()):
        return {str(split): _loaded(one, str(split)) for split, one in tasks.items()}
    found = load_splits(tasks)
    if not found:
        raise TasksetError(type(tasks).__name__, None, "has no tasks")
    return found


def _loaded(tasks: Any, split: str) -> Taskset:
    return tasks if isinstance(tasks, Taskset) else load_tasks(tasks, split=split)


def merged(fixed: Mapping[str, Any], given: Mapping[str, Any], whose: str) -> dict[str, Any]:
    """Arguments of `reset` of which some are fixed.

    Args:
        fixed: Those.
        given: What the caller gives; None there is nothing.
        whose: Who fixes them, for the message.

    Raises:
        Refused: One is fixed to another value than is given.
    """
    for name in fixed:
        if given.get(name) is not None and given[name] != fixed[name]:
            raise Refused(f"{name}: {whose} says {fixed[name]!r:.200}, not {given[name]!r:.200}")
    return {**given, **fixed}
