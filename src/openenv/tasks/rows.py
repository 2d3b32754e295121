"""Rows of tasksets: lists, JSON lines files, tables and environments.

Rows are read on demand. For a JSON lines file, only the offset of each line is held in memory.
"""

from __future__ import annotations

import bisect
import collections
import hashlib
import os
import threading
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json, to_json

from openenv._internal.packages import needs
from openenv.errors import NotSupported
from openenv.tasks.task import TasksetError

if TYPE_CHECKING:
    import datasets
    import pyarrow

TABLES = "pip install 'openenv[datasets]'"
DIGEST_BYTES = 16
BLOCK_BYTES = 2**20
PAGE_TASKS = 256
PAGES_KEPT = 16
BATCH_ROWS = 1000
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Rows(ABC):
    """Base class of row sources, which can be read in any order and from any thread.

    Attributes:
        name: The source's name, for messages.
        columns: The names of the columns if all rows have the same columns, otherwise None.
    """

    name: str
    columns: Sequence[str] | None = None

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, index: int) -> Any:
        """Return a row.

        Raises:
            TasksetError: The row cannot be read.
        """

    def scan(self) -> Iterator[Any]:
        """Iterate over all rows in order."""
        return (self[index] for index in range(len(self)))

    def column(self, name: str) -> Iterable[Any]:
        """Return the values of a column. Only for sources with `columns`."""
        raise NotImplementedError

    def place(self, index: int) -> str:
        """Return the row's location in the source, for messages, such as ``line 7``."""
        return f"row {index}"

    @abstractmethod
    def digest(self) -> str:
        """Return a digest of all rows."""


def digest_of_parts(*parts: Any) -> str:
    """Return a digest of values, by their JSON form."""
    found = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        text = to_json(part, serialize_unknown=True, inf_nan_mode="constants")
        found.update(b"%d:" % len(text))
        found.update(text)
    return found.hexdigest()


def digest_of_bytes(data: bytes) -> str:
    """Return a digest of bytes."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


def digest_of_files(path: Path) -> str:
    """Return a digest of a file, or of all files in a directory that are not hidden."""
    found = hashlib.blake2b(digest_size=DIGEST_BYTES)
    files = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
    for file in files:
        within = file.relative_to(path) if file != path else Path()
        if any(part.startswith(".") for part in within.parts):
            continue
        found.update(f"{within.as_posix()}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as opened:
            while block := opened.read(BLOCK_BYTES):
                found.update(block)
    return found.hexdigest()


class ListRows(Rows):
    """Rows in memory: dicts or tasks."""

    def __init__(self, name: str, rows: Sequence[Any]) -> None:
        self.name = name
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Any:
        return self._rows[index]

    def scan(self) -> Iterator[Any]:
        return iter(self._rows)

    def digest(self) -> str:
        return digest_of_parts(*self._rows)


# ------------------------------------------------------------------ JSON lines


class JSONLRows(Rows):
    """Rows of a JSON lines file; empty lines are skipped.

    Attributes:
        may_say_splits: True if a line contains the text ``"split"``, and so may name its split.

    Raises:
        TasksetError: The file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self.may_say_splits = False
        self._path = path
        self._begins = array("Q")
        try:
            self._digest = self._index()
            self._written = self._stamp(path.stat())
        except OSError as error:
            raise TasksetError(self.name, None, f"cannot be read: {error.strerror}") from error

    def _index(self) -> str:
        found = hashlib.blake2b(digest_size=DIGEST_BYTES)
        position = 0
        with self._path.open("rb") as opened:
            for line in opened:
                found.update(line)
                begin, position = position, position + len(line)
                if begin == 0 and line.startswith(BYTE_ORDER_MARK):
                    begin = len(BYTE_ORDER_MARK)
                    line = line[begin:]
                if line and not line.isspace():
                    self._begins.append(begin)
                    self.may_say_splits = self.may_say_splits or b'"split"' in line
        return found.hexdigest()

    @staticmethod
    def _stamp(status: os.stat_result) -> tuple[int, int]:
        return status.st_size, status.st_mtime_ns

    def __len__(self) -> int:
        return len(self._begins)

    def __getitem__(self, index: int) -> Any:
        begin = self._begins[index]
        return self._parse(self._read(begin, self._end_of(index)), index)

    def scan(self) -> Iterator[Any]:
        first = 0
        while first < len(self):
            begin = self._begins[first]
            after = bisect.bisect_right(self._begins, begin + BLOCK_BYTES)
            block = self._read(begin, self._end_of(after - 1))
            for index in range(first, after):
                line = block[self._begins[index] - begin : self._end_of(index) - begin]
                yield self._parse(line, index)
            first = after

    def _end_of(self, index: int) -> int:
        is_last = index == len(self._begins) - 1
        return self._written[0] if is_last else self._begins[index + 1]

    def _read(self, begin: int, end: int) -> bytes:
        # Opened for each read, because threads and forked processes would share a file's position.
        try:
            with self._path.open("rb", buffering=0) as opened:
                if self._stamp(os.fstat(opened.fileno())) != self._written:
                    raise TasksetError(self.name, None, "has changed since it was loaded")
                opened.seek(begin)
                return opened.read(end - begin)
        except OSError as error:
            raise TasksetError(self.name, None, f"cannot be read: {error.strerror}") from error

    def _parse(self, line: bytes, index: int) -> Any:
        try:
            return from_json(line)
        except ValueError as error:
            raise TasksetError(
                self.name, self.place(index), f"is not valid JSON: {error}"
            ) from None

    def place(self, index: int) -> str:
        with self._path.open("rb") as opened:
            before, left = 0, self._begins[index]
            while left and (block := opened.read(min(left, BLOCK_BYTES))):
                before += block.count(b"\n")
                left -= len(block)
        return f"line {before + 1}"

    def digest(self) -> str:
        return self._digest


# ------------------------------------------------------------------ tables


class ParquetRows(Rows):
    """Rows of a Parquet file, held in memory as an Arrow table.

    Raises:
        TasksetError: The file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        self._table = self._read()
        self.columns = self._table.column_names

    def _read(self) -> pyarrow.Table:
        with needs("a taskset in a Parquet file", TABLES):
            import pyarrow
            import pyarrow.parquet
        try:
            return pyarrow.parquet.read_table(self._path)
        except (OSError, pyarrow.ArrowException) as error:
            raise TasksetError(self.name, None, f"cannot be read: {error}") from error

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, index: int) -> Any:
        return self._table.slice(index, 1).to_pylist()[0]

    def scan(self) -> Iterator[Any]:
        for batch in self._table.to_batches(max_chunksize=BATCH_ROWS):
            yield from batch.to_pylist()

    def column(self, name: str) -> Iterable[Any]:
        values: Iterable[Any] = self._table.column(name).to_pylist()
        return values

    def digest(self) -> str:
        return digest_of_files(self._path)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_table": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._table = self._read()


class TableRows(Rows):
    """Rows of a `datasets.Dataset`. Images and sounds are left as encoded bytes.

    Args:
        name: The source's name, for messages.
        table: The data set.
        digest: A digest of the data set; by default computed from the rows.
    """

    def __init__(self, name: str, table: datasets.Dataset, digest: str | None = None) -> None:
        self.name = name
        self._table = _disable_decoding(table)
        self._digest = digest
        self.columns = table.column_names

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, index: int) -> Any:
        return self._table[index]

    def scan(self) -> Iterator[Any]:
        for begin in range(0, len(self), BATCH_ROWS):
            batch = self._table[begin : begin + BATCH_ROWS]
            names = list(batch)
            for values in zip(*batch.values(), strict=True):
                yield dict(zip(names, values, strict=True))

    def column(self, name: str) -> Iterable[Any]:
        return self._table.select_columns([name])[:][name]  # type: ignore[no-any-return]

    def digest(self) -> str:
        if self._digest is None:
            self._digest = digest_of_parts(*self.scan())
        return self._digest


def _disable_decoding(table: datasets.Dataset) -> datasets.Dataset:
    """Return the table with decoding turned off, because JSON cannot carry decoded images."""
    for name, feature in (table.features or {}).items():
        if getattr(feature, "decode", False):
            table = table.cast_column(name, type(feature)(decode=False))
    return table.with_format(None)


# ------------------------------------------------------------------ an environment


class ProviderRows(Rows):
    """Rows of a `TaskProvider`'s split, read in pages of 256 tasks; the last 16 pages are kept."""

    def __init__(self, name: str, provider: Any, split: str) -> None:
        self.name = name
        self._provider = provider
        self._split = split
        self._count = int(provider.num_tasks(split))
        self._turn = threading.Lock()
        self._pages: collections.OrderedDict[int, list[Any]] = collections.OrderedDict()

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        number, offset = divmod(index, PAGE_TASKS)
        with self._turn:
            page = self._pages.get(number)
            if page is None:
                page = self._pages[number] = self._read(number)
                while len(self._pages) > PAGES_KEPT:
                    self._pages.popitem(last=False)
            self._pages.move_to_end(number)
        return page[offset]

    def _read(self, number: int) -> list[Any]:
        start = number * PAGE_TASKS
        stop = min(start + PAGE_TASKS, self._count)
        read = getattr(self._provider, "get_task_range", None)
        try:
            page = None if read is None else list(read(self._split, start, stop))
        except NotSupported:
            page = None
        if page is None:
            page = [self._provider.get_task(self._split, index) for index in range(start, stop)]
        if len(page) != stop - start:
            why = f"returned {len(page)} tasks for the range {start} to {stop - 1}"
            raise TasksetError(self.name, None, why)
        return page

    def place(self, index: int) -> str:
        return f"task {index} of {self._split}"

    def digest(self) -> str:
        return digest_of_parts(*map(_plain, self.scan()))


def _plain(task: Any) -> Any:
    return task if isinstance(task, Mapping) else from_json(to_json(task, serialize_unknown=True))


class IdIndex:
    """An index from task ids to rows that takes 16 bytes per row.

    Args:
        hashes: The `id_hash` of each row's id, in order of the rows.
        read: Function that returns the id of a row, to tell ids with equal hashes apart.
    """

    def __init__(self, hashes: array[int], read: Callable[[int], str]) -> None:
        self._order = array("Q", sorted(range(len(hashes)), key=hashes.__getitem__))
        self._hashes = array("Q", map(hashes.__getitem__, self._order))
        self._read = read

    def find(self, task_id: str) -> int | None:
        """Return the first row with this id, or None if no row has it."""
        wanted = id_hash(task_id)
        at = bisect.bisect_left(self._hashes, wanted)
        while at < len(self._hashes) and self._hashes[at] == wanted:
            if self._read(self._order[at]) == task_id:
                return self._order[at]
            at += 1
        return None

    def duplicates(self) -> tuple[int, int] | None:
        """Return two rows with the same id, or None if all ids differ."""
        begin = 0
        for at in range(1, len(self._hashes) + 1):
            if at < len(self._hashes) and self._hashes[at] == self._hashes[begin]:
                continue
            if at - begin > 1:
                seen: dict[str, int] = {}
                for row in sorted(self._order[begin:at]):
                    if (first := seen.setdefault(self._read(row), row)) != row:
                        return first, row
            begin = at
        return None


def id_hash(task_id: str) -> int:
    """Return a 64-bit hash of a task id."""
    return int.from_bytes(hashlib.blake2b(task_id.encode(), digest_size=8).digest(), "little")
