"""Protocols of environments that offer tasks or load them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from openenv.tasks.task import Task


class TaskProvider(Protocol):
    """An environment that lists tasks. For typing only: having the methods is enough.

    Each method may also be a coroutine. A split is a name (``"train"``), or an object with a
    `name` and a `type`. A task is any JSON value, or a Pydantic model.

    The methods must not change the environment. A server calls them on a separate instance that is
    never reset.
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
        """Return the tasks from `start` to before `stop`, as a slice does. Optional."""
        ...


class LoadsTasks(Protocol):
    """An environment that loads a task before the episode begins. For typing only.

    It is for environments whose `reset` has no argument `task`. An environment that has this
    argument receives the whole task there instead.
    """

    def load_task(self, task: Task | None) -> Any:
        """Load the task of the episode that the next `reset` begins, with files, state and
        criteria.

        The task's arguments for `reset` are passed to `reset` itself. On a server that has tasks,
        this is called right before every `reset`, with None if the caller names no task. On other
        servers it is called only before a `reset` that names a task. It may be a coroutine method
        if `reset` is one.

        Raises:
            Refused: The task does not belong to this environment; the text reaches the caller.
        """
        ...
