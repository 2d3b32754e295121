"""The task set: the instances of each kind, and their splits."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from openenv.errors import Refused

from ..models import BrowserTask
from .tasks import Task

__all__ = ["SPLITS", "TaskSet"]

# The numbers of each kind's instances. The splits do not overlap, and the number alone determines
# an instance.
SPLITS: dict[str, range] = {
    "train": range(0, 100),
    "validation": range(100, 120),
    "test": range(120, 140),
}


class TaskSet:
    """Tasks by kind; each instance has a number, and an id such as ``login/7``.

    Args:
        kinds: The tasks' classes.

    Raises:
        ValueError: Two kinds have the same name.
    """

    def __init__(self, kinds: Sequence[type[Task]]) -> None:
        self.kinds = {task.kind: task for task in kinds}
        if len(self.kinds) != len(kinds):
            raise ValueError("two kinds of tasks have the same name")

    def make(self, task_id: str) -> Task:
        """Make an instance."""
        kind, _, number = task_id.partition("/")
        return self.kinds[kind](Random(f"{kind}/{number}"))  # nosec B311  # no secrets

    def id_of(self, task: str | Mapping[str, Any], rng: Random) -> str:
        """Return the id of a requested instance.

        Args:
            task: A kind, of which `rng` draws an instance of the train split; an id; or a task as
                the task set lists it.
            rng: Draws the instance.

        Raises:
            Refused: The task is unknown, or differs from the one in the task set.
        """
        if isinstance(task, Mapping):
            return self._id_of_listed(task)
        if not isinstance(task, str):
            raise Refused(f"task is a {type(task).__name__}; expected an id, a kind or a task")
        kind, slash, number = task.partition("/")
        if kind not in self.kinds:
            raise Refused(f"there is no task {task[:100]!r}{_hint(kind, list(self.kinds))}")
        if not slash:
            return f"{kind}/{rng.choice(SPLITS['train'])}"
        if not _is_number(number) or split_of(int(number)) is None:
            last = max(max(numbers) for numbers in SPLITS.values())
            raise Refused(f"there is no task {task[:100]!r}; instances of {kind} are 0 to {last}")
        return task

    def _id_of_listed(self, task: Mapping[str, Any]) -> str:
        named = task.get("id")
        if not isinstance(named, str) or "/" not in named:
            raise Refused(f"task has the id {named!r:.100}; expected one such as click-button/7")
        known = self.describe(self.id_of(named, Random())).model_dump()  # nosec B311
        for name, value in task.items():
            if name not in known or known[name] != value:
                raise Refused(f"the task {named!r} has no {name} {value!r:.100}")
        return named

    def describe(self, task_id: str) -> BrowserTask:
        """Return a task as the task set lists it."""
        kind, _, number = task_id.partition("/")
        split = split_of(int(number))
        assert split is not None
        return BrowserTask(
            id=task_id,
            kind=kind,
            instance=int(number),
            split=split,
            goal=self.make(task_id).goal,
            max_steps=self.kinds[kind].max_steps,
        )

    def ids(self, split: str) -> list[str]:
        """Return the ids of a split: the first instance of each kind, then the second, and so on.

        Raises:
            Refused: The split is unknown.
        """
        if split not in SPLITS:
            raise Refused(f"there is no split {split[:100]!r}{_hint(split, list(SPLITS))}")
        return [f"{kind}/{number}" for number in SPLITS[split] for kind in self.kinds]


def split_of(number: int) -> str | None:
    """Return the split of an instance, or None if there is no such instance."""
    return next((name for name, numbers in SPLITS.items() if number in numbers), None)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and str(int(text[:9])) == text


def _hint(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else f"; there are {', '.join(known)}"
