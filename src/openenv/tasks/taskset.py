"""Tasksets: the tasks of one split, in their order."""

from __future__ import annotations

import bisect
import itertools
import sys
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol, overload

from typing_extensions import Self

from openenv.tasks.columns import RowReader, digest_of_function
from openenv.tasks.errors import TasksetError, did_you_mean
from openenv.tasks.rows import (
    IdIndex,
    ListRows,
    Rows,
    digest_of_bytes,
    digest_of_parts,
    id_hash,
)
from openenv.tasks.task import Task

__all__ = ["SplitTasksets", "TaskStream", "Taskset", "no_split", "say_which"]

HINTED_IDS = 2000  # of so many tasks the ids are compared to one that is unknown


class Reader(Protocol):
    """Makes tasks of rows; see `openenv.tasks.columns.RowReader`."""

    def made(self, row: Any, index: int) -> Task:
        """Make a task of a row, and of where it stands."""
        ...

    @property
    def id_column(self) -> str | None:
        """The column that all ids are in; None where they are not in one."""
        ...

    def counted(self, index: int) -> str | None:
        """The id of a row, where rows are numbered; None where they say it themselves."""
        ...

    def digest(self) -> str:
        """A digest of what it makes of rows."""
        ...


class Taskset:
    """The tasks of one split. Use `openenv.tasks.load_tasks`.

    It is a sequence: ``len(tasks)``, ``tasks[3]``, ``tasks[:100]``, ``for task in tasks``. A task
    is made when it is asked for, and not kept. It may be used from several threads, and pickled.

    Args:
        name: Where the tasks are from.
        rows: Their rows.
        reader: Makes tasks of the rows.
        split: Their split; None where nobody knows.
        splits: The splits that there are.
        revision: Which version of the source it is: the commit of a dataset of a hub.

    Attributes:
        name: Where the tasks are from.
        split: Their split; None where nobody knows.
        splits: The splits that there are.
        revision: Which version of the source it is; None where it has none.
    """

    is_finite = True

    def __init__(
        self,
        name: str,
        rows: Rows,
        reader: Reader,
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
            return self._sifted(self._chosen[key], "slice")
        row = self._chosen[key]
        return self._mapped(self._reader.made(self._rows[row], row))

    def at(self, position: int) -> Task | None:
        """The task at a place from 0; None where they have ended before."""
        return self[position] if position < len(self) else None

    def __iter__(self) -> Iterator[Task]:
        if isinstance(self._chosen, range) and self._chosen == range(len(self._rows)):
            for row, content in enumerate(self._rows.scan()):
                yield self._mapped(self._reader.made(content, row))
            return
        for position in range(len(self)):
            yield self[position]

    def _mapped(self, task: Task) -> Task:
        for function in self._functions:
            task = self._as_mapped(task, function)
        return task

    def _as_mapped(self, task: Task, function: Callable[[Task], Task]) -> Task:
        made = function(task)
        if isinstance(made, Task) and made.id == task.id:
            return made
        what = f"task {made.id!r}" if isinstance(made, Task) else f"a {type(made).__name__}"
        why = f"of task {task.id!r} map made {what}; expected a Task of the same id"
        raise TasksetError(self.name, None, why)

    # ------------------------------------------------------------------ choosing

    def select(self, indices: Iterable[int]) -> Taskset:
        """The tasks at these places, in this order.

        Raises:
            IndexError: There is none at one of them.
        """
        return self._sifted(array("Q", (self._chosen[index] for index in indices)), "select")

    def filter(self, function: Callable[[Task], Any]) -> Taskset:
        """The tasks of which `function` is true; it is asked once, now."""
        kept = (self._chosen[at] for at, task in enumerate(self) if function(task))
        return self._sifted(array("Q", kept), "filter")

    def map(self, function: Callable[[Task], Task]) -> Taskset:
        """The same tasks, each as `function` makes it when it is asked for.

        Args:
            function: Gives a task of the same id; it gives the same one every time.
        """
        mapped = self._copy()
        mapped._functions = (*self._functions, function)
        mapped._origin = lambda: digest_of_parts(self.fingerprint, digest_of_function(function))
        return mapped

    def _sifted(self, chosen: Sequence[int], how: str) -> Taskset:
        sifted = self._copy()
        sifted._chosen = chosen
        sifted._origin = lambda: digest_of_parts(self.fingerprint, how, _digest_of(chosen))
        return sifted

    def _copy(self) -> Self:
        copy = object.__new__(type(self))
        vars(copy).update({k: v for k, v in vars(self).items() if k not in _CACHED})
        return copy

    # ------------------------------------------------------------------ telling it from others

    @cached_property
    def fingerprint(self) -> str:
        """A digest of what the tasks are, and of their order.

        It is that of the content; of a dataset of a hub, that of its name and its commit. What
        goes on where it has been interrupted compares it.
        """
        return self._origin()

    def _digest_of_rows(self) -> str:
        return digest_of_parts(self._rows.digest(), self._reader.digest())

    def find(self, task_id: str) -> int:
        """Where the task of this id stands.

        Raises:
            TasksetError: There is none.
        """
        position = self.place_of(task_id)
        if position is None:
            why = f"there is no task {task_id!r:.200}{self.hint(task_id)}"
            raise TasksetError(self.name, None, why)
        return position

    def place_of(self, task_id: str) -> int | None:
        """Where the task of this id stands; None where there is none."""
        row = self._ids.find(task_id)
        return None if row is None else self._position(row)

    def hint(self, task_id: str) -> str:
        """Ask whether the closest of the first ids was meant; empty if none comes close."""
        return did_you_mean(task_id, (task.id for task in itertools.islice(self, HINTED_IDS)))

    def _position(self, row: int) -> int | None:
        """Where a row stands among those that were chosen."""
        chosen = self._chosen
        if isinstance(chosen, range):
            return chosen.index(row) if row in chosen else None
        at = bisect.bisect_left(chosen, row)
        if at < len(chosen) and chosen[at] == row:  # as a rule they are in order
            return at
        try:
            return chosen.index(row)
        except ValueError:
            return None

    @cached_property
    def _ids(self) -> IdIndex:
        return IdIndex(array("Q", map(id_hash, self._all_ids())), self._id_of)

    def _all_ids(self) -> Iterator[str]:
        """The id of every row, chosen or not."""
        reader, rows = self._reader, self._rows
        if reader.counted(0) is not None:
            return (self._id_of(row) for row in range(len(rows)))
        if reader.id_column is None:
            return (reader.made(content, row).id for row, content in enumerate(rows.scan()))
        values: Iterable[Any] = rows.column(reader.id_column)  # type: ignore[attr-defined]
        return (str(v) if v is not None else self._id_of(row) for row, v in enumerate(values))

    def _id_of(self, row: int) -> str:
        return self._reader.counted(row) or self._reader.made(self._rows[row], row).id

    def check(self) -> None:
        """See that rows are tasks, and that no two have the same id.

        Raises:
            TasksetError: One is none, or two have.
        """
        if self._reader.counted(0) is not None:
            return
        twice = self._ids.duplicates()
        if twice is not None:
            first, second = (self._rows.place(row) for row in twice)
            task_id = self._id_of(twice[0])
            raise TasksetError(self.name, second, f"has the id {task_id!r} of {first}")

    def __repr__(self) -> str:
        return f"<Taskset {self._described()}: {len(self)} tasks>"

    def _described(self) -> str:
        version = "" if self.revision is None else f"@{self.revision}"
        split = "" if self.split is None else f" ({self.split})"
        return f"{self.name}{version}{split}"

    def __getstate__(self) -> dict[str, Any]:
        # What finds the fingerprint is a function of this process.
        fingerprint = self.fingerprint
        return {k: v for k, v in vars(self).items() if k != "_origin"} | {
            "fingerprint": fingerprint
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._origin = lambda: state["fingerprint"]


_CACHED = frozenset({"fingerprint", "_ids"})


def _digest_of(chosen: Sequence[int]) -> str:
    if isinstance(chosen, range):
        return digest_of_parts(chosen.start, chosen.stop, chosen.step)
    places = array("Q", chosen)
    if sys.byteorder == "big":
        places.byteswap()
    return digest_of_bytes(places.tobytes())


# ------------------------------------------------------------------ several splits


def say_which(name: str, splits: Sequence[str]) -> TasksetError:
    """The error of who asks for the tasks of a source, and names none of its splits."""
    listed = ", ".join(splits)
    return TasksetError(name, None, f"has the splits {listed}; say which: split={splits[0]!r}")


def no_split(name: str, split: str, splits: Iterable[str]) -> TasksetError:
    """The error of who names a split that there is not."""
    listed, hint = ", ".join(splits), did_you_mean(split, splits)
    return TasksetError(name, None, f"has no split {split!r}, but {listed}{hint}")


class SplitTasksets(Taskset):
    """The tasks of a source of several splits, of which none was named. A server has them all.

    Reading tasks from it is a `TasksetError`, so that nobody trains on what is to be tested on.

    Args:
        name: Where the tasks are from.
        parts: The tasks of each split.
    """

    def __init__(self, name: str, parts: Mapping[str, Taskset]) -> None:
        self.name = name
        self.split = self.revision = None
        self.splits = tuple(parts)
        self._parts = dict(parts)

    def by_split(self) -> dict[str, Taskset]:
        """Give the taskset of each split."""
        return dict(self._parts)

    def of(self, split: str) -> Taskset:
        """Give the taskset of a split.

        Raises:
            TasksetError: There is no such split.
        """
        if split not in self._parts:
            raise no_split(self.name, split, self._parts)
        return self._parts[split]

    def __getattr__(self, name: str) -> Any:
        if name in _OF_ONE_SPLIT:
            raise say_which(self.name, self.splits)
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def __repr__(self) -> str:
        listed = ", ".join(f"{split} ({len(part)})" for split, part in self._parts.items())
        return f"<SplitTasksets {self.name}: {listed}>"

    def __getstate__(self) -> dict[str, Any]:
        return dict(vars(self))

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)


# What every reading of a taskset begins with.
_OF_ONE_SPLIT = frozenset({"_rows", "_reader", "_functions", "_chosen", "_origin"})


# ------------------------------------------------------------------ streams


class StreamRows:
    """Rows that a function gives one after the other; it begins anew each time that it is called.

    Args:
        name: Where they are, for messages.
        begin: The function.
        digest: A digest of what it gives, or of itself.
    """

    columns: Sequence[str] | None = None

    def __init__(self, name: str, begin: Callable[[], Iterable[Any]], digest: str) -> None:
        self.name = name
        self._begin = begin
        self._digest = digest

    def __len__(self) -> int:
        raise TypeError(
            f"{self.name} gives tasks one after the other, and nobody knows how many; take the "
            "first N with limit=N, or have it return a list"
        )

    def __getitem__(self, index: int) -> Any:
        return next(itertools.islice(self._begin(), index, None))

    def scan(self) -> Iterator[Any]:
        return iter(self._begin())

    def place(self, index: int) -> str:
        return f"row {index}"

    def digest(self) -> str:
        return self._digest


class TaskStream(Taskset):
    """Tasks whose number nobody knows, in the order in which a function gives them.

    It has no length. ``stream[n]`` goes there from where it was last, and back by beginning anew;
    ``stream[:n]`` is a `Taskset`. That no two tasks have the same id is not checked.
    """

    is_finite = False

    def __init__(
        self, rows: StreamRows, reader: Reader, *, split: str | None, splits: Sequence[str] = ()
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
        made = (self._reader.made(content, row) for row, content in enumerate(self._rows.scan()))
        for task in made:
            kept: Task | None = task
            for is_filter, function in self._steps:
                assert kept is not None
                if not is_filter:
                    kept = self._as_mapped(kept, function)
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
                raise IndexError(f"{self.name} has no task {key}: it ended before")
            return task
        if key.stop is None:
            len(self)  # raises: it has none
        tasks = list(itertools.islice(self, key.start, key.stop, key.step))
        rows = ListRows(self.name, tasks)
        return Taskset(
            self.name, rows, RowReader(rows, self.split), split=self.split, splits=self.splits
        )

    def at(self, position: int) -> Task | None:
        """The task at a place from 0; None where they have ended before."""
        if position < 0:
            raise IndexError(f"{self.name}: a stream has no end to count from")
        return self._cursor.go_to(position, self)

    def select(self, indices: Iterable[int]) -> Taskset:
        """The tasks at these places, in this order.

        Raises:
            IndexError: There is none at one of them.
        """
        wanted = list(indices)
        return self[: max(wanted, default=-1) + 1].select(wanted)

    def filter(self, function: Callable[[Task], Any]) -> TaskStream:
        """The tasks of which `function` is true."""
        return self._with(True, function)

    def map(self, function: Callable[[Task], Task]) -> TaskStream:
        """The same tasks, each as `function` makes it; see `Taskset.map`."""
        return self._with(False, function)

    def _with(self, is_filter: bool, function: Callable[[Task], Any]) -> TaskStream:
        changed = self._copy()
        changed._steps = (*self._steps, (is_filter, function))
        changed._cursor = _Cursor()
        how = digest_of_function(function)
        changed._origin = lambda: digest_of_parts(self.fingerprint, is_filter, how)
        return changed

    def place_of(self, task_id: str) -> int | None:
        """Where the task of this id stands; of a stream without end it may look for ever."""
        return next((place for place, task in enumerate(self) if task.id == task_id), None)

    def check(self) -> None:
        """Nothing: its rows are seen when they come."""

    def __repr__(self) -> str:
        return f"<TaskStream {self._described()}>"


class _Cursor:
    """Where a stream was last read."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._tasks: Iterator[Task] = iter(())
        self._position = sys.maxsize

    def go_to(self, position: int, stream: TaskStream) -> Task | None:
        """The task at a place; None where the stream ends before."""
        with self._turn:
            if position < self._position:
                self._tasks, self._position = iter(stream), 0
            for task in self._tasks:
                self._position += 1
                if self._position == position + 1:
                    return task
            self._position = sys.maxsize
            return None

    def __reduce__(self) -> tuple[Any, ...]:
        return (_Cursor, ())
