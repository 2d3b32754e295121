"""Protocols of environments that offer tasks or load them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from openenv.tasks.task import Task


class TaskProvider(Protocol):
    """An environment that lists tasks. For typing only; an environment need not inherit from it.

    Each method may be ``async def``. A split is a name (``"train"``), or an object with a `name`
    and a `type`. A task is any JSON value, or a Pydantic model.

    The methods must not change the environment. A server calls the methods on a separate instance
    that is never reset.
    """

    def list_splits(self) -> list[Any]:
        """Return the splits."""
        ...

    def list_tasks(self, split: str) -> list[Any]:
        """Return every task of a split."""
        ...

    def num_tasks(self, split: str) -> int:
        """Count the tasks of a split."""
        ...

    def get_task(self, split: str, index: int) -> Any:
        """Return the task at an index of a split.

        Raises:
            IndexError: The split has no task at this index.
        """
        ...

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[Any]:
        """Return the tasks from `start` up to but not including `stop`. Optional."""
        ...


class LoadsTasks(Protocol):
    """An environment that loads a task before the episode begins. For typing only.

    The protocol is for environments whose `reset` has no parameter `task`. A `reset` with this
    parameter receives the whole task instead.
    """

    def load_task(self, task: Task | None) -> Any:
        """Load the task of the next episode, with its files, state and criteria.

        The task's arguments for `reset` are passed to `reset` itself. On a server that has tasks,
        `load_task` is called right before every `reset`, with None if the caller names no task. On
        other servers `load_task` is called only before a `reset` that names a task. The method may
        be ``async def`` if `reset` is.

        Raises:
            Refused: The task does not belong to this environment. The message reaches the caller.
        """
        ...
