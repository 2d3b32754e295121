"""Tasksets of whatever holds tasks."""

from __future__ import annotations

import importlib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from openenv._internal.packages import needs
from openenv.tasks.columns import Columns, RowReader, digest_of_function, words_of
from openenv.tasks.errors import TasksetError, did_you_mean
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
from openenv.tasks.task import Task, told
from openenv.tasks.taskset import (
    Reader,
    SplitTasksets,
    StreamRows,
    Taskset,
    TaskStream,
    no_split,
    say_which,
)

__all__ = ["ONLY_SPLIT", "load_splits", "load_tasks"]

ONLY_SPLIT = "train"  # what the `datasets` library calls it
JSONL, PARQUET = (".jsonl", ".ndjson"), (".parquet",)
FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
SERVER = re.compile(r"(https?|wss?)://", re.IGNORECASE)
HUB = "hf://"
EXPECTED = (
    "a .jsonl or .parquet file, a folder of a data set, hf://datasets/ORG/NAME, module:function, "
    "the address of a server, or a list"
)


@dataclass(frozen=True)
class Opened:
    """A source, once it is known what it is.

    Attributes:
        name: For messages.
        splits: Its splits; empty where it does not say.
        rows: The rows of a split; of ONLY_SPLIT where it does not say.
        revision: Its version, where it has one.
        reader: Makes tasks of them, where the columns are not for the caller to say.
        rows_say_it: Its splits are what its rows say, one by one.
    """

    name: str
    splits: Sequence[str]
    rows: Callable[[str], Rows | StreamRows]
    revision: str | None = None
    reader: Callable[[Rows, str], Reader] | None = None
    rows_say_it: bool = False


def load_tasks(
    source: Any,
    *,
    split: str | None = None,
    revision: str | None = None,
    columns: Columns | None = None,
    config: str | None = None,
    limit: int | None = None,
) -> Taskset:
    """Load the tasks of one split.

    Args:
        source: Where they are:

            - ``hf://datasets/ORG/NAME``: a data set of the Hugging Face hub; with an environment of
              its ``environment.yaml`` and a revision, ``hf://datasets/ORG/NAME/ENVIRONMENT@REVISION``
              (RFC 006). What is loaded is one commit, which `Taskset.revision` names.
            - A folder: what ``save_to_disk`` of the `datasets` library has written, or a folder of
              data files that it loads.
            - A file of JSON lines (``.jsonl``, ``.ndjson``), or a Parquet file (``.parquet``).
            - ``module:function``, or a function: it returns a list, or gives rows one after the
              other, and then is a `TaskStream` unless there is a `limit`. One that takes an
              argument `split` is given it.
            - A list of tasks or of rows, a dict of lists by split, a `datasets.Dataset`.
            - A server's address, a client of one, or whatever has the methods of a `TaskProvider`:
              the tasks that an environment has by itself.
        split: Which split; by default the only one. A source that knows no splits is one split,
            called by this name, by default ``train``. One whose rows have a column ``split``, of
            several values, gives a `SplitTasksets` where none is named, which a server takes.
        revision: Of a data set of the hub: a commit, a tag or a branch. By default what its main
            branch is now, which a warning names.
        columns: Which columns the fields of a task come from, or a function that makes a task of a
            row; see `openenv.tasks.columns`. A column that is neither mapped nor has the name of
            a field is one of the `criteria`.
        config: Of a data set of the hub, or of a folder: which of its configurations.
        limit: Take so many tasks, the first ones.

    Raises:
        TasksetError: There is no such source or split, a row is no task, or two have the same id.
        MissingPackage: What the source needs is not installed.
        ConnectError: No server answers.
        ValueError: `limit` is negative.
    """
    if limit is not None and limit < 0:
        raise ValueError(f"limit={limit}; expected a number of tasks from 0")
    if isinstance(source, Taskset):
        return _limited(_of_split(source, split), limit)
    opened = _open(source, split, revision, config, limit)
    if split is None and limit is None and opened.rows_say_it:
        parts = {name: _taskset(opened, name, columns) for name in opened.splits}
        return SplitTasksets(opened.name, parts)
    return _limited(_taskset(opened, _chosen(opened, split), columns), limit)


def load_splits(
    source: Any,
    *,
    revision: str | None = None,
    columns: Columns | None = None,
    config: str | None = None,
) -> dict[str, Taskset]:
    """Load every split; the arguments are those of `load_tasks`.

    Raises:
        TasksetError: As of `load_tasks`.
    """
    if isinstance(source, SplitTasksets):
        return source.by_split()
    if isinstance(source, Taskset):
        return {source.split or ONLY_SPLIT: source}
    opened = _open(source, None, revision, config, None)
    names = opened.splits or (ONLY_SPLIT,)
    return {name: _taskset(opened, name, columns) for name in names}


def _of_split(taskset: Taskset, split: str | None) -> Taskset:
    if isinstance(taskset, SplitTasksets) and split is not None:
        return taskset.of(split)
    if split not in (None, taskset.split):
        raise TasksetError(taskset.name, None, f"is of split {taskset.split!r}, not {split!r}")
    return taskset


def _limited(taskset: Taskset, limit: int | None) -> Taskset:
    if limit is None or (taskset.is_finite and limit >= len(taskset)):
        return taskset
    return taskset[:limit]


def _chosen(opened: Opened, split: str | None) -> str:
    if not opened.splits:
        return split or ONLY_SPLIT
    if split is None:
        if len(opened.splits) > 1:
            raise say_which(opened.name, opened.splits)
        return opened.splits[0]
    if split not in opened.splits:
        raise no_split(opened.name, split, opened.splits)
    return split


def _taskset(opened: Opened, split: str, columns: Columns | None) -> Taskset:
    rows = opened.rows(split)
    splits = opened.splits or (split,)
    if isinstance(rows, StreamRows):
        return TaskStream(rows, RowReader(rows, split, columns), split=split, splits=splits)
    if opened.reader is not None and columns is None:
        reader = opened.reader(rows, split)
    else:
        reader = RowReader(rows, split, columns)
    taskset = Taskset(
        opened.name, rows, reader, split=split, splits=splits, revision=opened.revision
    )
    if opened.reader is None:
        taskset.check()
    return taskset


# ------------------------------------------------------------------ what it is


def _open(
    source: Any, split: str | None, revision: str | None, config: str | None, limit: int | None
) -> Opened:
    name = source if isinstance(source, str) else None
    if name is not None and name.startswith(HUB):
        from openenv.tasks.hub import open_hub

        return open_hub(name, split, revision, config)
    if revision is not None:
        raise TasksetError(_named(source), None, "revision= is for data sets of a hub")
    is_folder = isinstance(source, str | Path) and Path(source).is_dir()
    if config is not None and not is_folder:
        raise TasksetError(_named(source), None, "config= is for data sets")
    if is_folder:
        return _open_folder(Path(source), config)
    if isinstance(source, Path) or (name is not None and Path(name).suffix in JSONL + PARQUET):
        return _open_file(Path(source))
    if name is not None and SERVER.match(name):
        from openenv.tasks.api import TaskAPIClient

        return _open_provider(name, TaskAPIClient(name))
    if name is not None:
        return _open_function(name, _imported(name), split, limit)
    return _open_object(source, split, limit)


def _named(source: Any) -> str:
    return str(source) if isinstance(source, str | Path) else type(source).__name__


def _open_object(source: Any, split: str | None, limit: int | None) -> Opened:
    if isinstance(source, Mapping):
        return _open_mapping(source)
    if _is_table(source):
        return _with_splits_of_table(TableRows("Dataset", source))
    if isinstance(source, Sequence):
        return _with_splits_of_rows(ListRows("list", source), source)
    provider = _provider_of(source)
    if provider is not None:
        return _open_provider(type(source).__name__, provider)
    if callable(source):
        return _open_function(_function_name(source), source, split, limit)
    if isinstance(source, Iterator):
        why = "cannot be read twice; pass the function that makes it, or list(...)"
        raise TasksetError(type(source).__name__, None, why)
    raise TasksetError(type(source).__name__, None, f"is no source of tasks: expected {EXPECTED}")


def _is_table(source: Any) -> bool:
    """Whether it is a `datasets.Dataset`, which need not be imported to tell."""
    return hasattr(source, "column_names") and hasattr(source, "select_columns")


def _open_mapping(source: Mapping[str, Any]) -> Opened:
    def rows(split: str) -> Rows:
        found = source[split]
        return TableRows(split, found) if _is_table(found) else ListRows(split, found)

    if not source:
        raise TasksetError(type(source).__name__, None, "has no splits")
    for split, found in source.items():
        if not (_is_table(found) or (isinstance(found, Sequence) and not isinstance(found, str))):
            why = f"split {split!r} is a {type(found).__name__}; expected a list of tasks"
            raise TasksetError("dict", None, why)
    return Opened(type(source).__name__, tuple(source), rows)


# ------------------------------------------------------------------ files


def _open_file(path: Path) -> Opened:
    if not path.exists():
        raise TasksetError(str(path), None, f"there is no such file or folder{_nearby(path)}")
    if path.suffix in PARQUET:
        return _with_splits_of_table(ParquetRows(path))
    if path.suffix not in JSONL:
        raise TasksetError(str(path), None, f"is no source of tasks: expected {EXPECTED}")
    rows = JSONLRows(path)
    if not rows.may_say_splits:
        return Opened(str(path), (), lambda _: rows)
    return _with_splits_of_rows(rows, rows.scan())


def _nearby(path: Path) -> str:
    if not path.parent.is_dir():
        return ""
    return did_you_mean(path.name, (one.name for one in path.parent.iterdir()))


def _with_splits_of_table(table: ParquetRows | TableRows) -> Opened:
    """A table that may have a column of splits."""
    if "split" not in (table.columns or ()):
        return Opened(table.name, (), lambda _: table)
    return _with_splits_of_rows(table, ({"split": value} for value in table.column("split")))


def _with_splits_of_rows(rows: Rows, content: Iterable[Any]) -> Opened:
    """Rows that may each say their split."""
    places: dict[str, list[int]] = {}
    for index, row in enumerate(content):
        said = row.split if isinstance(row, Task) else None
        if isinstance(row, Mapping):
            said = row.get("split")
        if isinstance(said, str):
            places.setdefault(said, []).append(index)
    if len(places) < 2:
        return Opened(rows.name, tuple(places), lambda _: rows)
    if sum(map(len, places.values())) < len(rows):
        told = set[int]().union(*places.values())
        place = rows.place(next(i for i in range(len(rows)) if i not in told))
        raise TasksetError(rows.name, place, "says no split, and others do")
    return Opened(
        rows.name,
        tuple(places),
        lambda split: PartOfRows(rows, places[split]),
        rows_say_it=True,
    )


class PartOfRows:
    """Some of the rows of a source.

    Args:
        rows: All of them.
        places: Where those are that are meant.
    """

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
        """The values of one column, of a table."""
        values = list(self._rows.column(name))  # type: ignore[attr-defined]
        return [values[place] for place in self._places]

    def place(self, index: int) -> str:
        return self._rows.place(self._places[index])

    def digest(self) -> str:
        return digest_of_parts(self._rows.digest(), list(self._places))


def _open_folder(path: Path, config: str | None) -> Opened:
    with needs("a taskset in a folder", TABLES):
        import datasets
        from datasets.exceptions import DatasetsError
    try:
        if (path / "dataset_dict.json").exists() or (path / "state.json").exists():
            found: Any = datasets.load_from_disk(str(path))
        else:
            found = datasets.load_dataset(str(path), config)  # nosec B615  # it is a folder
    except (OSError, ValueError, DatasetsError) as error:
        raise TasksetError(str(path), None, f"is no folder of a data set: {error}") from error
    name, digest = str(path), digest_of_parts(digest_of_files(path), config)
    if not isinstance(found, Mapping):
        return Opened(name, (), lambda _: TableRows(name, found, digest))
    return Opened(
        name,
        tuple(found),
        lambda split: TableRows(name, found[split], digest_of_parts(digest, split)),
    )


# ------------------------------------------------------------------ functions


def _imported(name: str) -> Callable[..., Any]:
    if not FUNCTION.fullmatch(name):
        path = Path(name)
        if path.suffix or "/" in name:
            why = f"there is no such file or folder{_nearby(path)}"
            raise TasksetError(name, None, why)
        raise TasksetError(name, None, f"is no source of tasks: expected {EXPECTED}")
    module, _, attribute = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise TasksetError(name, None, f"there is no module {error.name!r}") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise TasksetError(name, None, f"has no {part!r}{did_you_mean(part, dir(found))}")
        found = getattr(found, part)
    if not callable(found) and not isinstance(found, Mapping | Sequence):
        raise TasksetError(name, None, f"is a {type(found).__name__}; expected a function")
    return found if callable(found) else lambda: found


def _function_name(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', '?')}:{name}"


def _open_function(
    name: str, function: Callable[..., Any], split: str | None, limit: int | None
) -> Opened:
    begin = _with_split(function, split)
    found = begin()
    if isinstance(found, Mapping):
        return replace(_open_mapping(found), name=name)
    if isinstance(found, Taskset):
        names = (found.split,) if found.split is not None else ()
        rows = ListRows(name, found)  # type: ignore[arg-type]  # it is as good as a sequence
        return Opened(name, names, lambda _: rows, found.revision)
    if _is_table(found):
        return _with_splits_of_table(TableRows(name, found))
    if isinstance(found, Sequence) and not isinstance(found, str | bytes):
        return _with_splits_of_rows(ListRows(name, found), found)
    if (provider := _provider_of(found)) is not None:
        return _open_provider(name, provider)
    if not isinstance(found, Iterator):
        why = f"returned a {type(found).__name__}; expected a list of tasks, or an iterator"
        raise TasksetError(name, None, why)
    if limit is not None:
        some = list(itertools.islice(found, limit))
        return Opened(name, (), lambda _: ListRows(name, some))
    stream = StreamRows(name, begin, digest_of_function(function))
    return Opened(name, (), lambda _: stream)


def _with_split(function: Callable[..., Any], split: str | None) -> Callable[[], Any]:
    """The function, given the split if it takes one."""
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


def _provider_of(source: Any) -> Any:
    """What has the methods of a `TaskProvider`, such that they can be called; None if nothing."""
    if isinstance(source, type):
        return _provider_of(source()) if hasattr(source, "num_tasks") else None
    if hasattr(source, "num_tasks"):
        return source
    face: Any = source  # of a client, the synchronous one
    if not hasattr(face, "async_client"):
        sync = getattr(source, "sync", None)
        face = sync() if callable(sync) and hasattr(source, "tasks") else None
    return None if face is None else face.tasks


def _open_provider(name: str, provider: Any) -> Opened:
    name = re.sub(r"//[^/@]*@", "//", name)  # without a password
    listed: Any = provider.list_splits()
    if hasattr(listed, "__await__"):
        listed.close()
        cure = "GenericEnvClient.local(...), a client of it, can be asked"
        raise TasksetError(name, None, f"tells of its tasks in coroutines; {cure}")
    splits = tuple(_split_name(one) for one in listed)
    return Opened(
        name,
        splits,
        lambda split: ProviderRows(name, provider, split),
        reader=lambda _, split: ReferenceReader(name, split),
    )


def _split_name(split: Any) -> str:
    if isinstance(split, Mapping):
        return str(split["name"])
    return str(getattr(split, "name", split))


class ReferenceReader:
    """Makes tasks of what an environment says of its own.

    They say which task it is, and their `reset` is how one has it: by split and index. What else
    the environment says is in `metadata`, since it says that to everybody.

    Args:
        name: Where they are from.
        split: Their split.
    """

    id_column = None

    def __init__(self, name: str, split: str) -> None:
        self._name = name
        self._split = split

    def counted(self, index: int) -> str | None:
        """None: the environment says ids itself, or else none are known."""
        return None

    def digest(self) -> str:
        """A digest of what it makes of them."""
        return digest_of_parts(self._split)

    def made(self, row: Any, index: int) -> Task:
        """Make a task of what is said of one: to everybody, so that it is as over the wire, without
        what is private.

        Raises:
            TasksetError: It is none.
        """
        row = told(row)
        said = dict(row) if isinstance(row, Mapping) else {"task": row}
        own_id = said.pop("id", None)
        fields: dict[str, Any] = {
            "id": f"{self._split}/{index}" if own_id in (None, "") else str(own_id),
            "split": self._split,
            "index": index,
            "reset": {"split": self._split, "index": index},
        }
        if isinstance(said.get("prompt"), str | list):
            fields["prompt"] = said.pop("prompt")
        if isinstance(said.get("group"), str):
            fields["group"] = said.pop("group")
        if isinstance(said.get("difficulty"), int | float):
            fields["difficulty"] = said.pop("difficulty")
        metadata = said.pop("metadata", None)
        known = dict(metadata) if isinstance(metadata, Mapping) else {}
        said = {name: value for name, value in said.items() if name not in ("split", "index")}
        try:
            return Task(**fields, metadata={**known, **said})
        except ValidationError as error:
            place = f"task {index} of {self._split}"
            raise TasksetError(self._name, place, words_of(error)) from None
