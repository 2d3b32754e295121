"""The methods by which an environment offers its tasks, and by which it is given one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from openenv.tasks.task import Task

__all__ = ["LoadsTasks", "TaskProvider"]


class TaskProvider(Protocol):
    """An environment that lists its tasks. Only for typing: having the methods is enough.

    Each method may also be a coroutine. A split is a name (``"train"``), or an object with a
    `name` and a `type`; a task is anything that JSON can carry, or a Pydantic model.

    The methods change nothing, and work on an instance that was never reset: a server asks one
    that it keeps for this.
    """

    def list_splits(self) -> list[Any]:
        """Name the splits."""
        ...

    def list_tasks(self, split: str) -> list[Any]:
        """Give every task of a split."""
        ...

    def num_tasks(self, split: str) -> int:
        """Count the tasks of a split."""
        ...

    def get_task(self, split: str, index: int) -> Any:
        """Give one task.

        Raises:
            IndexError: There is none at this index.
        """
        ...

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[Any]:
        """Give the tasks from `start` to before `stop`, as a slice does. May be left out."""
        ...


class LoadsTasks(Protocol):
    """An environment that is given the task of the episode to come. Only for typing.

    It is for environments whose `reset` takes no argument `task`; one that does is given the whole
    task there instead.
    """

    def load_task(self, task: Task | None) -> Any:
        """Take the task of the episode that the next `reset` begins, with its files, its state and
        its criteria; the arguments that it has for `reset` are passed to `reset` itself.

        It is called right before every `reset` on a server that has tasks, with None where the
        caller names no task; on any other server before those that are given one. It may be a
        coroutine method where `reset` is one.

        Raises:
            Refused: The task is none of this environment's; its text reaches the caller.
        """
        ...
