"""Tasksets: the tasks of a split, in order."""

from __future__ import annotations

import bisect
import itertools
import sys
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, overload

from typing_extensions import Self

from openenv._internal.quoting import did_you_mean
from openenv.tasks.columns import RowTaskReader, TaskReader, digest_of_function
from openenv.tasks.rows import (
    IdIndex,
    ListRows,
    Rows,
    digest_of_bytes,
    digest_of_parts,
    id_hash,
)
from openenv.tasks.task import Task, TasksetError

HINTED_IDS = 2000  # number of ids that are searched for a similar id


class Taskset:
    """The tasks of a split. Use `openenv.tasks.load_tasks` to make a taskset.

    A taskset is a sequence: ``len(tasks)``, ``tasks[3]``, ``tasks[:100]``, ``for task in tasks``.
    Tasks are made on demand and not cached. Several threads may share a taskset, and a taskset can
    be pickled.

    Args:
        name: The source's name.
        rows: The rows.
        reader: Converts rows to tasks.
        split: The split; None if unknown.
        splits: All splits of the source.
        revision: The version of the source, such as the commit of a data set on a hub.

    Attributes:
        name: The source's name.
        split: The split; None if unknown.
        splits: All splits of the source.
        revision: The version of the source; None if the source has no versions.

    Example:
        >>> from openenv import Taskset, load_tasks
        >>> rows = [{"id": f"sum-{n}", "prompt": f"{n} + {n}?"} for n in range(5)]
        >>> tasks: Taskset = load_tasks(rows)
        >>> len(tasks), tasks[3].prompt, [task.id for task in tasks[:2]]
        (5, '3 + 3?', ['sum-0', 'sum-1'])
    """

    is_finite = True

    def __init__(
        self,
        name: str,
        rows: Rows,
        reader: TaskReader,
        *,
        split: str | None = None,
        splits: Sequence[str] = (),
        revision: str | None = None,
    ) -> None:
        self.name = name
        self.split = split
        self.splits = tuple(splits)
        self.revision = revision
        self._rows = rows
        self._reader = reader
        self._functions: tuple[Callable[[Task], Task], ...] = ()
        self._chosen: Sequence[int] = range(len(rows))
        self._origin: Callable[[], str] = self._digest_of_rows

    # ------------------------------------------------------------------ reading

    def __len__(self) -> int:
        return len(self._chosen)

    @overload
    def __getitem__(self, key: int) -> Task: ...

    @overload
    def __getitem__(self, key: slice) -> Taskset: ...

    def __getitem__(self, key: int | slice) -> Task | Taskset:
        if isinstance(key, slice):
            return self._select_rows(self._chosen[key], "slice")
        row = self._chosen[key]
        return self._apply_all(self._reader.make_task(self._rows[row], row))

    def at(self, position: int) -> Task | None:
        """Return the task at a position from 0, or None past the end."""
        return self[position] if position < len(self) else None

    def __iter__(self) -> Iterator[Task]:
        if isinstance(self._chosen, range) and self._chosen == range(len(self._rows)):
            for row, content in enumerate(self._rows.scan()):
                yield self._apply_all(self._reader.make_task(content, row))
            return
        for position in range(len(self)):
            yield self[position]

    def _apply_all(self, task: Task) -> Task:
        for function in self._functions:
            task = self._apply(task, function)
        return task

    def _apply(self, task: Task, function: Callable[[Task], Task]) -> Task:
        made = function(task)
        if isinstance(made, Task) and made.id == task.id:
            return made
        what = f"task {made.id!r}" if isinstance(made, Task) else f"a {type(made).__name__}"
        why = f"map turned task {task.id!r} into {what}; expected a Task of the same id"
        raise TasksetError(self.name, None, why)

    # ------------------------------------------------------------------ choosing

    def select(self, indices: Iterable[int]) -> Taskset:
        """Return a taskset of the tasks at these positions, in this order.

        Raises:
            IndexError: A position is past the end.
        """
        return self._select_rows(array("Q", (self._chosen[index] for index in indices)), "select")

    def filter(self, function: Callable[[Task], Any]) -> Taskset:
        """Return a taskset of the tasks for which `function` returns a true value.

        The function is called now, once per task.
        """
        kept = (self._chosen[at] for at, task in enumerate(self) if function(task))
        return self._select_rows(array("Q", kept), "filter")

    def map(self, function: Callable[[Task], Task]) -> Taskset:
        """Return a taskset whose tasks are transformed by `function` when they are read.

        Args:
            function: Function that returns a task with the same id, and equal tasks for equal
                arguments.
        """
        mapped = self._copy()
        mapped._functions = (*self._functions, function)
        mapped._origin = lambda: digest_of_parts(self.fingerprint, digest_of_function(function))
        return mapped

    def _select_rows(self, chosen: Sequence[int], how: str) -> Taskset:
        sifted = self._copy()
        sifted._chosen = chosen
        sifted._origin = lambda: digest_of_parts(
            self.fingerprint, how, _digest_of_positions(chosen)
        )
        return sifted

    def _copy(self) -> Self:
        copy = object.__new__(type(self))
        vars(copy).update({k: v for k, v in vars(self).items() if k not in _CACHED})
        return copy

    # ------------------------------------------------------------------ identity and ids

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the tasks and their order.

        The digest covers the content, or the name and the commit of a data set on a hub. A run that
        resumes compares fingerprints.
        """
        return self._origin()

    def _digest_of_rows(self) -> str:
        return digest_of_parts(self._rows.digest(), self._reader.digest())

    def find(self, task_id: str) -> int:
        """Return the position of the task with this id.

        Raises:
            TasksetError: No task has this id.
        """
        position = self.position_of(task_id)
        if position is None:
            why = f"there is no task {task_id!r:.200}{self.hint(task_id)}"
            raise TasksetError(self.name, None, why)
        return position

    def position_of(self, task_id: str) -> int | None:
        """Return the position of the task with this id, or None."""
        row = self._ids.find(task_id)
        return None if row is None else self._position_of_row(row)

    def hint(self, task_id: str) -> str:
        """Return a hint that names the closest of the first 2,000 ids, or "" if none is close."""
        return did_you_mean(task_id, (task.id for task in itertools.islice(self, HINTED_IDS)))

    def _position_of_row(self, row: int) -> int | None:
        """Return the position of a row among the chosen rows, or None."""
        chosen = self._chosen
        if isinstance(chosen, range):
            return chosen.index(row) if row in chosen else None
        at = bisect.bisect_left(chosen, row)
        if at < len(chosen) and chosen[at] == row:  # found, as usual, since the rows are in order
            return at
        try:
            return chosen.index(row)
        except ValueError:
            return None

    @cached_property
    def _ids(self) -> IdIndex:
        return IdIndex(array("Q", map(id_hash, self._all_ids())), self._id_of)

    def _all_ids(self) -> Iterator[str]:
        """Return the ids of all rows, including rows that are not chosen."""
        reader, rows = self._reader, self._rows
        if reader.row_id(0) is not None:
            return (self._id_of(row) for row in range(len(rows)))
        if reader.id_column is None:
            return (reader.make_task(content, row).id for row, content in enumerate(rows.scan()))
        values = rows.column(reader.id_column)
        return (str(v) if v is not None else self._id_of(row) for row, v in enumerate(values))

    def _id_of(self, row: int) -> str:
        return self._reader.row_id(row) or self._reader.make_task(self._rows[row], row).id

    def check(self) -> None:
        """Check that all ids differ.

        If the rows have no id column, the check reads every row. Ids made from row numbers differ
        anyway and are not checked.

        Raises:
            TasksetError: Two rows have the same id, or a row that was read is not a task.
        """
        if self._reader.row_id(0) is not None:
            return
        twice = self._ids.duplicates()
        if twice is not None:
            first, second = (self._rows.place(row) for row in twice)
            task_id = self._id_of(twice[0])
            raise TasksetError(self.name, second, f"has the id {task_id!r} of {first}")

    def __repr__(self) -> str:
        return f"<Taskset {self._describe()}: {len(self)} tasks>"

    def _describe(self) -> str:
        version = "" if self.revision is None else f"@{self.revision}"
        split = "" if self.split is None else f" ({self.split})"
        return f"{self.name}{version}{split}"

    def __getstate__(self) -> dict[str, Any]:
        # `_origin` may be a closure, which cannot be pickled.
        fingerprint = self.fingerprint
        return {k: v for k, v in vars(self).items() if k != "_origin"} | {
            "fingerprint": fingerprint
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._origin = lambda: state["fingerprint"]


_CACHED = frozenset({"fingerprint", "_ids"})


def _digest_of_positions(chosen: Sequence[int]) -> str:
    if isinstance(chosen, range):
        return digest_of_parts(chosen.start, chosen.stop, chosen.step)
    places = array("Q", chosen)
    if sys.byteorder == "big":
        places.byteswap()
    return digest_of_bytes(places.tobytes())


# ------------------------------------------------------------------ several splits


def ambiguous_split(name: str, splits: Sequence[str]) -> TasksetError:
    """Return the error for a source with several splits if the caller named no split."""
    listed = ", ".join(splits)
    return TasksetError(name, None, f"has the splits {listed}; say which: split={splits[0]!r}")


def unknown_split(name: str, split: str, splits: Iterable[str]) -> TasksetError:
    """Return the error for a split that the source does not have."""
    listed, hint = ", ".join(splits), did_you_mean(split, splits)
    return TasksetError(name, None, f"has no split {split!r}; expected one of {listed}{hint}")


class SplitTasksets(Taskset):
    """The tasksets of a source with several splits, for a caller that named no split.

    A server serves all splits. Reading tasks raises a `TasksetError`, so that nobody trains on a
    test split by accident.
    """

    def __init__(self, name: str, parts: Mapping[str, Taskset]) -> None:
        self.name = name
        self.split = self.revision = None
        self.splits = tuple(parts)
        self._parts = dict(parts)

    def by_split(self) -> dict[str, Taskset]:
        """Return the taskset of each split."""
        return dict(self._parts)

    def of(self, split: str) -> Taskset:
        """Return the taskset of a split.

        Raises:
            TasksetError: The source has no such split.
        """
        if split not in self._parts:
            raise unknown_split(self.name, split, self._parts)
        return self._parts[split]

    def __getattr__(self, name: str) -> Any:
        if name in _OF_ONE_SPLIT:
            raise ambiguous_split(self.name, self.splits)
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def __repr__(self) -> str:
        listed = ", ".join(f"{split} ({len(part)})" for split, part in self._parts.items())
        return f"<SplitTasksets {self.name}: {listed}>"

    def __getstate__(self) -> dict[str, Any]:
        return dict(vars(self))

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)


# Every method that reads tasks accesses one of these attributes.
_OF_ONE_SPLIT = frozenset({"_rows", "_reader", "_functions", "_chosen", "_origin"})


# ------------------------------------------------------------------ streams


class StreamRows(Rows):
    """Rows that a function yields. Each call of the function starts over."""

    def __init__(self, name: str, begin: Callable[[], Iterable[Any]], digest: str) -> None:
        self.name = name
        self._begin = begin
        self._digest = digest

    def __len__(self) -> int:
        raise TypeError(
            f"{self.name} has no known length; take the "
            "first N tasks with limit=N, or return a list"
        )

    def __getitem__(self, index: int) -> Any:
        return next(itertools.islice(self._begin(), index, None))

    def scan(self) -> Iterator[Any]:
        return iter(self._begin())

    def digest(self) -> str:
        return self._digest


class TaskStream(Taskset):
    """A taskset of unknown length, in the order in which a function yields the rows.

    A stream has no ``len``. ``stream[n]`` reads forward from the last position, or starts over to
    go back. ``stream[:n]`` is a `Taskset`. Duplicate ids are not detected.
    """

    is_finite = False

    def __init__(
        self, rows: StreamRows, reader: TaskReader, *, split: str | None, splits: Sequence[str] = ()
    ) -> None:
        self.name = rows.name
        self.split = split
        self.splits = tuple(splits)
        self.revision = None
        self._rows = rows
        self._reader = reader
        self._steps: tuple[tuple[bool, Callable[[Task], Any]], ...] = ()
        self._origin = self._digest_of_rows
        self._cursor = _Cursor()

    def __len__(self) -> int:
        return len(self._rows)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Task]:
        made = (
            self._reader.make_task(content, row) for row, content in enumerate(self._rows.scan())
        )
        for task in made:
            kept: Task | None = task
            for is_filter, function in self._steps:
                assert kept is not None
                if not is_filter:
                    kept = self._apply(kept, function)
                elif not function(kept):
                    kept = None
                    break
            if kept is not None:
                yield kept

    @overload
    def __getitem__(self, key: int) -> Task: ...

    @overload
    def __getitem__(self, key: slice) -> Taskset: ...

    def __getitem__(self, key: int | slice) -> Task | Taskset:
        if not isinstance(key, slice):
            task = self.at(key)
            if task is None:
                raise IndexError(f"{self.name} has no task {key}")
            return task
        if key.stop is None:
            len(self)  # raises TypeError
        tasks = list(itertools.islice(self, key.start, key.stop, key.step))
        rows = ListRows(self.name, tasks)
        return Taskset(
            self.name, rows, RowTaskReader(rows, self.split), split=self.split, splits=self.splits
        )

    def at(self, position: int) -> Task | None:
        if position < 0:
            raise IndexError(f"{self.name}: a stream has no negative positions")
        return self._cursor.go_to(position, self)

    def select(self, indices: Iterable[int]) -> Taskset:
        wanted = list(indices)
        return self[: max(wanted, default=-1) + 1].select(wanted)

    def filter(self, function: Callable[[Task], Any]) -> TaskStream:
        return self._append_step(True, function)

    def map(self, function: Callable[[Task], Task]) -> TaskStream:
        return self._append_step(False, function)

    def _append_step(self, is_filter: bool, function: Callable[[Task], Any]) -> TaskStream:
        changed = self._copy()
        changed._steps = (*self._steps, (is_filter, function))
        changed._cursor = _Cursor()
        how = digest_of_function(function)
        changed._origin = lambda: digest_of_parts(self.fingerprint, is_filter, how)
        return changed

    def position_of(self, task_id: str) -> int | None:
        """Return the position of the task with this id. On an endless stream this may not end."""
        return next((place for place, task in enumerate(self) if task.id == task_id), None)

    def check(self) -> None:
        """Do nothing, because the rows of a stream are checked when they are read."""

    def __repr__(self) -> str:
        return f"<TaskStream {self._describe()}>"


class _Cursor:
    """The last read position of a stream."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._tasks: Iterator[Task] = iter(())
        self._position = sys.maxsize

    def go_to(self, position: int, stream: TaskStream) -> Task | None:
        """Return the task at a position, or None if the stream ends before that position."""
        with self._turn:
            if position < self._position:
                self._tasks, self._position = iter(stream), 0
            reached, self._position = self._position, sys.maxsize  # if reading ends or fails
            for task in self._tasks:
                reached += 1
                if reached == position + 1:
                    self._position = reached
                    return task
            return None

    def __reduce__(self) -> tuple[Any, ...]:
        return (_Cursor, ())
