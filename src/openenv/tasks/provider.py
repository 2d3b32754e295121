"""The methods by which an environment offers its tasks."""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["TaskProvider"]


class TaskProvider(Protocol):
    """An environment that lists its tasks. Only for typing: having the methods is enough.

    Each method may also be a coroutine. A split is a name (``"train"``), or an object with a
    `name` and a `type`; a task is anything that JSON can carry, or a Pydantic model.
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
