"""Loading of tasksets from files, data sets, functions, lists and servers."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from openenv._internal.imports import NameNotFound, import_attribute
from openenv._internal.packages import needs
from openenv._internal.quoting import did_you_mean
from openenv.tasks.columns import (
    Columns,
    ReferenceTaskReader,
    RowTaskReader,
    TaskReader,
    digest_of_function,
)
from openenv.tasks.rows import (
    TABLES,
    JSONLRows,
    ListRows,
    ParquetRows,
    ProviderRows,
    Rows,
    TableRows,
    digest_of_files,
    digest_of_parts,
)
from openenv.tasks.task import Task, TasksetError
from openenv.tasks.taskset import (
    SplitTasksets,
    StreamRows,
    Taskset,
    TaskStream,
    ambiguous_split,
    unknown_split,
)

ONLY_SPLIT = "train"  # the default name in the `datasets` library
JSONL, PARQUET = (".jsonl", ".ndjson"), (".parquet",)
FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
SERVER = re.compile(r"(https?|wss?)://", re.IGNORECASE)
HUB = "hf://"
EXPECTED = (
    "a .jsonl or .parquet file, a folder of a data set, hf://datasets/ORG/NAME, module:function, "
    "the address of a server, or a list"
)


@dataclass(frozen=True)
class TaskSource:
    """A source of tasks of a known kind.

    Attributes:
        name: The source's name, for messages.
        splits: The source's splits; empty if the source has no notion of splits.
        rows: Function that returns the rows of a split (`ONLY_SPLIT` if there are no splits).
        revision: The version of the source, such as a commit; None if unknown.
        has_references: True if the rows are an environment's own tasks.
        has_split_column: True if each row names its split.
    """

    name: str
    splits: Sequence[str]
    rows: Callable[[str], Rows]
    revision: str | None = None
    has_references: bool = False
    has_split_column: bool = False


def load_tasks(
    source: Any,
    *,
    split: str | None = None,
    revision: str | None = None,
    columns: Columns | None = None,
    config: str | None = None,
    limit: int | None = None,
) -> Taskset:
    """Load the tasks of a split.

    Args:
        source: One of these sources:

            - A data set on the Hugging Face Hub: ``hf://datasets/ORG/NAME``, or
              ``hf://datasets/ORG/NAME/ENVIRONMENT@REVISION`` with an environment that the data
              set's ``environment.yaml`` declares (RFC 006) and a revision. One commit is loaded,
              which `Taskset.revision` names.
            - A folder written by ``save_to_disk`` of the `datasets` library, or a folder of data
              files that the library can load.
            - A file of JSON lines (``.jsonl``, ``.ndjson``), or a Parquet file (``.parquet``).
            - ``module:function``, or a function that returns a list or yields rows. Yielded rows
              become a `TaskStream` unless there is a `limit`. A function with a parameter `split`
              receives the split.
            - A list of tasks or rows, a dict of lists by split, or a `datasets.Dataset`.
            - A server's address, a client, or any object with the methods of a `TaskProvider`: the
              tasks of that environment.
        split: The split; by default the source's only split. A source without splits has a single
            split with this name, by default ``train``. If the rows have a column ``split`` with
            several values and this argument is None, the result is a `SplitTasksets`, which a
            server accepts.
        revision: A commit, tag or branch, for a data set on the Hub. By default the latest commit
            of the main branch, which a warning names.
        columns: A mapping of task fields to columns, or a function that converts a row to a task;
            see `openenv.tasks.columns`. A column that is not mapped and does not have the name of a
            field becomes one of the `criteria`.
        config: A configuration of the data set, for a data set on the Hub or in a folder.
        limit: Maximum number of tasks to load, from the first on.

    Raises:
        TasksetError: The source or split does not exist, there are several splits and `split` is
            None, a row is not a task, or two tasks have the same id.
        MissingPackage: A package that the source needs is not installed.
        ConnectError: No server answers.
        ValueError: `limit` is negative.

    Example:
        >>> from openenv import load_tasks
        >>> rows = [{"id": "a", "question": "What is 1 + 1?", "answer": "2"}]
        >>> tasks = load_tasks(rows, columns={"prompt": "question"})
        >>> tasks[0].prompt, tasks[0].criteria
        ('What is 1 + 1?', {'answer': '2'})
    """
    if limit is not None and limit < 0:
        raise ValueError(f"limit={limit}; expected a number of tasks from 0")
    if isinstance(source, SplitTasksets) and split is not None:
        found = source.of(split)
    elif isinstance(source, Taskset):
        if split not in (None, source.split):
            raise TasksetError(source.name, None, f"holds split {source.split!r}, not {split!r}")
        found = source
    else:
        opened = _open(source, split, revision, config, limit)
        if split is None and limit is None and opened.has_split_column:
            parts = {name: _make_taskset(opened, name, columns) for name in opened.splits}
            return SplitTasksets(opened.name, parts)
        found = _make_taskset(opened, _choose_split(opened, split), columns)
    if limit is None or (found.is_finite and limit >= len(found)):
        return found
    return found[:limit]


def load_splits(
    source: Any,
    *,
    revision: str | None = None,
    columns: Columns | None = None,
    config: str | None = None,
) -> dict[str, Taskset]:
    """Load every split of a source. `load_tasks` describes the arguments and the sources.

    Raises:
        TasksetError: The source does not exist, a row is not a task, or two tasks have the same id.
    """
    if isinstance(source, SplitTasksets):
        return source.by_split()
    if isinstance(source, Taskset):
        return {source.split or ONLY_SPLIT: source}
    opened = _open(source, None, revision, config, None)
    names = opened.splits or (ONLY_SPLIT,)
    return {name: _make_taskset(opened, name, columns) for name in names}


def _choose_split(opened: TaskSource, split: str | None) -> str:
    if not opened.splits:
        return split or ONLY_SPLIT
    if split is None:
        if len(opened.splits) > 1:
            raise ambiguous_split(opened.name, opened.splits)
        return opened.splits[0]
    if split not in opened.splits:
        raise unknown_split(opened.name, split, opened.splits)
    return split


def _make_taskset(opened: TaskSource, split: str, columns: Columns | None) -> Taskset:
    rows = opened.rows(split)
    splits = opened.splits or (split,)
    if isinstance(rows, StreamRows):
        return TaskStream(rows, RowTaskReader(rows, split, columns), split=split, splits=splits)
    reader: TaskReader
    if opened.has_references and columns is None:
        reader = ReferenceTaskReader(opened.name, split)
    else:
        reader = RowTaskReader(rows, split, columns)
    taskset = Taskset(
        opened.name, rows, reader, split=split, splits=splits, revision=opened.revision
    )
    if not opened.has_references:
        taskset.check()
    return taskset


# ------------------------------------------------------------------ kinds of sources


def _open(
    source: Any, split: str | None, revision: str | None, config: str | None, limit: int | None
) -> TaskSource:
    name = source if isinstance(source, str) else None
    if name is not None and name.startswith(HUB):
        from openenv.tasks.hub import open_hub

        return open_hub(name, split, revision, config)
    shown = str(source) if isinstance(source, str | Path) else type(source).__name__
    if revision is not None:
        raise TasksetError(shown, None, "revision= applies only to data sets of the hub")
    is_folder = isinstance(source, str | Path) and Path(source).is_dir()
    if config is not None and not is_folder:
        raise TasksetError(shown, None, "config= applies only to data sets")
    if is_folder:
        return _open_folder(Path(source), config)
    if isinstance(source, Path) or (name is not None and Path(name).suffix in JSONL + PARQUET):
        return _open_file(Path(source))
    if name is not None and SERVER.match(name):
        from openenv.tasks.api import TaskAPIClient

        return _open_provider(name, TaskAPIClient(name))
    if name is not None:
        return _open_function(name, _import_function(name), split, limit)
    return _open_object(source, split, limit)


def _open_object(source: Any, split: str | None, limit: int | None) -> TaskSource:
    if isinstance(source, Mapping):
        return _open_mapping(source)
    if _is_table(source):
        return _split_table(TableRows("Dataset", source))
    if isinstance(source, Sequence):
        return _split_rows(ListRows("list", source), source)
    provider = _find_provider(source)
    if provider is not None:
        return _open_provider(type(source).__name__, provider)
    if callable(source):
        name = getattr(source, "__qualname__", type(source).__qualname__)
        name = f"{getattr(source, '__module__', '?')}:{name}"
        return _open_function(name, source, split, limit)
    why = f"is not a source of tasks; expected {EXPECTED}"
    if isinstance(source, Iterator):
        why = "cannot be read twice; pass the function that makes it, or list(...)"
    raise TasksetError(type(source).__name__, None, why)


def _is_table(source: Any) -> bool:
    """Return whether the source is a `datasets.Dataset`, without importing the library."""
    return hasattr(source, "column_names") and hasattr(source, "select_columns")


def _open_mapping(source: Mapping[str, Any]) -> TaskSource:
    def rows(split: str) -> Rows:
        found = source[split]
        return TableRows(split, found) if _is_table(found) else ListRows(split, found)

    if not source:
        raise TasksetError(type(source).__name__, None, "has no splits")
    for split, found in source.items():
        if not (_is_table(found) or (isinstance(found, Sequence) and not isinstance(found, str))):
            why = f"split {split!r} is a {type(found).__name__}; expected a list of tasks"
            raise TasksetError("dict", None, why)
    return TaskSource(type(source).__name__, tuple(source), rows)


# ------------------------------------------------------------------ files


def _open_file(path: Path) -> TaskSource:
    if not path.exists():
        raise TasksetError(str(path), None, f"there is no such file or folder{_suggest_file(path)}")
    if path.suffix in PARQUET:
        return _split_table(ParquetRows(path))
    if path.suffix not in JSONL:
        raise TasksetError(str(path), None, f"is not a source of tasks; expected {EXPECTED}")
    rows = JSONLRows(path)
    if not rows.may_say_splits:
        return TaskSource(str(path), (), lambda _: rows)
    return _split_rows(rows, rows.scan())


def _suggest_file(path: Path) -> str:
    if not path.parent.is_dir():
        return ""
    return did_you_mean(path.name, (one.name for one in path.parent.iterdir()))


def _split_table(table: ParquetRows | TableRows) -> TaskSource:
    """Make a source from a table that may have a column ``split``."""
    if "split" not in (table.columns or ()):
        return TaskSource(table.name, (), lambda _: table)
    return _split_rows(table, ({"split": value} for value in table.column("split")))


def _split_rows(rows: Rows, content: Iterable[Any]) -> TaskSource:
    """Make a source from rows that may each name a split."""
    places: dict[str, list[int]] = {}
    for index, row in enumerate(content):
        said = row.split if isinstance(row, Task) else None
        if isinstance(row, Mapping):
            said = row.get("split")
        if isinstance(said, str):
            places.setdefault(said, []).append(index)
    if len(places) < 2:
        return TaskSource(rows.name, tuple(places), lambda _: rows)
    if sum(map(len, places.values())) < len(rows):
        told = set[int]().union(*places.values())
        place = rows.place(next(i for i in range(len(rows)) if i not in told))
        raise TasksetError(rows.name, place, "has no split, but other rows do")
    return TaskSource(
        rows.name,
        tuple(places),
        lambda split: RowSubset(rows, places[split]),
        has_split_column=True,
    )


class RowSubset(Rows):
    """A subset of the rows of a source."""

    def __init__(self, rows: Rows, places: Sequence[int]) -> None:
        self.name = rows.name
        self.columns = rows.columns
        self._rows = rows
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> Any:
        return self._rows[self._places[index]]

    def scan(self) -> Iterator[Any]:
        wanted = set(self._places)
        return (row for index, row in enumerate(self._rows.scan()) if index in wanted)

    def column(self, name: str) -> Iterable[Any]:
        values = list(self._rows.column(name))
        return [values[place] for place in self._places]

    def place(self, index: int) -> str:
        return self._rows.place(self._places[index])

    def digest(self) -> str:
        return digest_of_parts(self._rows.digest(), list(self._places))


def _open_folder(path: Path, config: str | None) -> TaskSource:
    with needs("a taskset in a folder", TABLES):
        import datasets
        from datasets.exceptions import DatasetsError
    try:
        if (path / "dataset_dict.json").exists() or (path / "state.json").exists():
            found: Any = datasets.load_from_disk(str(path))
        else:
            found = datasets.load_dataset(str(path), config)  # nosec B615  # it is a folder
    except (OSError, ValueError, DatasetsError) as error:
        raise TasksetError(str(path), None, f"cannot be loaded as a data set: {error}") from error
    name, digest = str(path), digest_of_parts(digest_of_files(path), config)
    if not isinstance(found, Mapping):
        return TaskSource(name, (), lambda _: TableRows(name, found, digest))
    return TaskSource(
        name,
        tuple(found),
        lambda split: TableRows(name, found[split], digest_of_parts(digest, split)),
    )


# ------------------------------------------------------------------ functions


def _import_function(name: str) -> Callable[..., Any]:
    if not FUNCTION.fullmatch(name):
        path = Path(name)
        if path.suffix or "/" in name:
            why = f"there is no such file or folder{_suggest_file(path)}"
            raise TasksetError(name, None, why)
        raise TasksetError(name, None, f"is not a source of tasks; expected {EXPECTED}")
    try:
        found = import_attribute(name)
    except NameNotFound as error:
        raise TasksetError(name, None, f"{error}{error.hint}") from error
    if not callable(found) and not isinstance(found, Mapping | Sequence):
        raise TasksetError(name, None, f"is a {type(found).__name__}; expected a function")
    return found if callable(found) else lambda: found


def _open_function(
    name: str, function: Callable[..., Any], split: str | None, limit: int | None
) -> TaskSource:
    begin = _bind_split(function, split)
    found = begin()
    if isinstance(found, Mapping):
        return replace(_open_mapping(found), name=name)
    if isinstance(found, Taskset):
        names = (found.split,) if found.split is not None else ()
        rows = ListRows(name, found)  # type: ignore[arg-type]  # it is as good as a sequence
        return TaskSource(name, names, lambda _: rows, found.revision)
    if _is_table(found):
        return _split_table(TableRows(name, found))
    if isinstance(found, Sequence) and not isinstance(found, str | bytes):
        return _split_rows(ListRows(name, found), found)
    if (provider := _find_provider(found)) is not None:
        return _open_provider(name, provider)
    if not isinstance(found, Iterator):
        why = f"returned a {type(found).__name__}; expected a list of tasks, or an iterator"
        raise TasksetError(name, None, why)
    if limit is not None:
        some = list(itertools.islice(found, limit))
        return TaskSource(name, (), lambda _: ListRows(name, some))
    stream = StreamRows(name, begin, digest_of_function(function))
    return TaskSource(name, (), lambda _: stream)


def _bind_split(function: Callable[..., Any], split: str | None) -> Callable[[], Any]:
    import inspect

    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return function
    wants = parameters.get("split")
    if wants is None or (split is None and wants.default is not wants.empty):
        return function
    return lambda: function(split=split or ONLY_SPLIT)


# ------------------------------------------------------------------ environments


def _find_provider(source: Any) -> Any:
    """Return the object that has the methods of a `TaskProvider`, or None.

    For a client, this is the object with the blocking methods.
    """
    if isinstance(source, type):
        return _find_provider(source()) if hasattr(source, "num_tasks") else None
    if hasattr(source, "num_tasks"):
        return source
    face: Any = source  # becomes the synchronous counterpart of a client
    if not hasattr(face, "async_client"):
        sync = getattr(source, "sync", None)
        face = sync() if callable(sync) and hasattr(source, "tasks") else None
    return None if face is None else face.tasks


def _open_provider(name: str, provider: Any) -> TaskSource:
    name = re.sub(r"//[^/@]*@", "//", name)  # without a password
    listed: Any = provider.list_splits()
    if hasattr(listed, "__await__"):
        listed.close()
        cure = "pass a client of it: GenericEnvClient.local(...)"
        raise TasksetError(name, None, f"lists its tasks in coroutines; {cure}")
    splits = tuple(_split_name(one) for one in listed)
    return TaskSource(
        name, splits, lambda split: ProviderRows(name, provider, split), has_references=True
    )


def _split_name(split: Any) -> str:
    if isinstance(split, Mapping):
        return str(split["name"])
    return str(getattr(split, "name", split))
