"""Conversion of rows to tasks.

A column with the name of a `Task` field becomes that field. Any other column might hold the answer,
so unless the column is mapped, it becomes one of the `criteria`, which no agent receives. Three
column names of RFC 006 ("HF RL Environment Datasets", a draft of OpenEnv's) have a meaning:

- ``task_id`` is the id.
- ``openenv_reset`` holds arguments of `reset`.
- ``task`` holds further columns if its value is an object.

Nothing in a row is imported or run: the path of a class in a row is only text.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from openenv._internal.quoting import did_you_mean
from openenv.tasks.rows import Rows, digest_of_parts
from openenv.tasks.task import Task, TasksetError, to_public_data

Source = str | Sequence[str] | Mapping[str, str]
Columns = Mapping[str, Source] | Callable[[Any], Any]
"""A mapping of task fields to columns; or a function that converts a row to a `Task`, or to the
fields of a task.

A field that is an object (`reset`, `files`, `state`, `criteria`, `metadata`) may be mapped to one
column, a list of columns, or a dict from names in the object to columns.
"""

FIELDS = frozenset(Task.model_fields)
OBJECTS = frozenset({"reset", "files", "state", "criteria", "metadata"})
RFC_006 = {"task_id": "id", "openenv_reset": "reset"}
NESTED = "task"


class RowTaskReader:
    """Converts the rows of a split to tasks.

    Args:
        rows: The rows.
        split: The split of the rows; None if unknown.
        columns: The mapping of fields to columns; see `Columns`.

    Raises:
        TasksetError: `columns` names an unknown field or column.
    """

    def __init__(self, rows: Rows, split: str | None, columns: Columns | None = None) -> None:
        self._rows = rows
        self._split = split
        self._function = columns if callable(columns) else None
        self._mapped: Mapping[str, Source] = columns if isinstance(columns, Mapping) else {}
        # True if only the column names decide how a row is converted.
        self._is_plain = columns is None and rows.columns is None
        self._taken = frozenset(c for source in self._mapped.values() for c in _columns_of(source))
        self._check_names()

    def _check_names(self) -> None:
        for field in self._mapped:
            if field not in FIELDS:
                why = f"columns={field!r}: a task has no such field{did_you_mean(field, FIELDS)}"
                raise TasksetError(self._rows.name, None, why)
            if field not in OBJECTS and not isinstance(self._mapped[field], str):
                why = f"columns={field!r}: expected the name of one column"
                raise TasksetError(self._rows.name, None, why)
        known = self._rows.columns
        for column in self._taken if known is not None else ():
            if known is not None and column not in known:
                hint = did_you_mean(column, known)
                why = f"there is no column {column!r}{hint}; the columns are {', '.join(known)}"
                raise TasksetError(self._rows.name, None, why)

    @property
    def id_column(self) -> str | None:
        """The column that holds the ids; None if there is no such column."""
        known = self._rows.columns
        if known is None or self._function is not None or NESTED in known:
            return None
        if "id" in self._mapped:
            return str(self._mapped["id"])
        return next((name for name in ("id", "task_id") if name in set(known) - self._taken), None)

    def row_id(self, index: int) -> str | None:
        """Return the id made from the row's number, or None if the rows may hold ids."""
        known = self._rows.columns
        says = known is None or self._function is not None or NESTED in known
        return None if says or self.id_column is not None else self._number(index)

    def digest(self) -> str:
        """Return a digest of the settings that decide how rows become tasks."""
        made_by: Any = dict(self._mapped)
        if self._function is not None:
            made_by = digest_of_function(self._function)
        return digest_of_parts(made_by, self._split)

    def make_task(self, row: Any, index: int) -> Task:
        """Make the task of a row.

        Raises:
            TasksetError: The row is not a task.
        """
        if self._is_plain:
            if isinstance(row, Task):
                return self._add_position(row, index)
            if type(row) is dict and row.keys() <= FIELDS:  # fast path: takes half the time
                try:
                    return Task.model_validate(self._fill_defaults(dict(row), index))
                except ValidationError:
                    pass  # try the full conversion, which also parses JSON text
        try:
            fields = self._fields(row)
            if isinstance(fields, Task):
                return self._add_position(fields, index)
            return Task.model_validate(self._fill_defaults(fields, index))
        except (ValidationError, _NotATask) as error:
            raise TasksetError(
                self._rows.name, self._rows.place(index), describe_validation_error(error)
            ) from None

    def _fill_defaults(self, fields: dict[str, Any], index: int) -> dict[str, Any]:
        if fields.get("split") is None:
            fields["split"] = self._split
        if fields.get("index") is None:
            fields["index"] = index
        task_id = fields.get("id")
        if task_id is None:
            fields["id"] = self._number(index)
        elif type(task_id) is int:  # common in data sets
            fields["id"] = str(task_id)
        return fields

    def _number(self, index: int) -> str:
        return str(index) if self._split is None else f"{self._split}/{index}"

    def _add_position(self, task: Task, index: int) -> Task:
        known = {"split": self._split, "index": index}
        unsaid = {n: v for n, v in known.items() if getattr(task, n) is None and v is not None}
        return task.model_copy(update=unsaid) if unsaid else task

    def _fields(self, row: Any) -> dict[str, Any] | Task:
        if self._function is not None:
            made = self._function(row)
            if isinstance(made, Task):
                return made
            if not isinstance(made, Mapping):
                name = getattr(self._function, "__qualname__", type(self._function).__name__)
                raise _NotATask(f"{name} returned a {type(made).__name__}; expected a task")
            return dict(made)
        if isinstance(row, Task):
            row = row.model_dump(exclude_defaults=True)
        if not isinstance(row, Mapping):
            raise _NotATask(f"is a {type(row).__name__}; expected an object")
        fields = {
            field: self._mapped_value(field, source, row) for field, source in self._mapped.items()
        }
        left = {name: value for name, value in row.items() if name not in self._taken}
        is_table = self._rows.columns is not None
        return _normalize_objects(_add_unmapped(fields, left), is_table=is_table)

    def _mapped_value(self, field: str, source: Source, row: Mapping[str, Any]) -> Any:
        for column in _columns_of(source):
            if column not in row:
                hint = did_you_mean(column, row)
                raise _NotATask(f"has no column {column!r}{hint}; the columns are {', '.join(row)}")
        if isinstance(source, Mapping):
            return {name: row[column] for name, column in source.items()}
        if not isinstance(source, str):
            return {column: row[column] for column in source}
        value = _parse_object(row[source]) if field in OBJECTS else row[source]
        is_other = field in OBJECTS and not isinstance(value, Mapping)
        return {source: value} if is_other and value is not None else value


class _NotATask(Exception):
    """A row is not a task; the message gives the reason."""


class ReferenceTaskReader:
    """Converts an environment's own tasks to references.

    The `reset` of a reference holds the split and the index. Other fields that the environment
    reveals become `metadata`, since any client may see them.

    Args:
        name: The source's name, for messages.
        split: The split of the tasks.
    """

    id_column = None

    def __init__(self, name: str, split: str) -> None:
        self._name = name
        self._split = split

    def row_id(self, index: int) -> None:
        """Return None, as ids come from the environment."""

    def digest(self) -> str:
        """Return a digest of the settings that decide how rows become tasks."""
        return digest_of_parts(self._split)

    def make_task(self, row: Any, index: int) -> Task:
        """Make a reference from the public part of a task, which is all that remote clients see.

        Raises:
            TasksetError: The public part has an invalid value.
        """
        row = to_public_data(row)
        said = dict(row) if isinstance(row, Mapping) else {"task": row}
        own_id = said.pop("id", None)
        fields: dict[str, Any] = {
            "id": f"{self._split}/{index}" if own_id in (None, "") else str(own_id),
            "split": self._split,
            "index": index,
            "reset": {"split": self._split, "index": index},
        }
        kinds: dict[str, Any] = {"prompt": str | list, "group": str, "difficulty": int | float}
        fields |= {n: said.pop(n) for n, kind in kinds.items() if isinstance(said.get(n), kind)}
        metadata = said.pop("metadata", None)
        known = dict(metadata) if isinstance(metadata, Mapping) else {}
        said = {name: value for name, value in said.items() if name not in ("split", "index")}
        try:
            return Task(**fields, metadata={**known, **said})
        except ValidationError as error:
            place = f"task {index} of {self._split}"
            raise TasksetError(self._name, place, describe_validation_error(error)) from None


TaskReader = RowTaskReader | ReferenceTaskReader


def _columns_of(source: Source) -> Sequence[str]:
    if isinstance(source, str):
        return [source]
    return list(source.values()) if isinstance(source, Mapping) else source


def _add_unmapped(fields: dict[str, Any], left: Mapping[str, Any]) -> dict[str, Any]:
    left = _flatten_nested(left)
    # In a table that was not made for tasks, a column "metadata" may hold the answer.
    is_ours = set(left) <= FIELDS | set(RFC_006)
    private: dict[str, Any] = {}
    for name, value in left.items():
        field = name if name in FIELDS else RFC_006.get(name)
        if field is None or field in fields or (field == "metadata" and not is_ours):
            private[name] = value
        else:
            fields[field] = value
    if private:
        known = _parse_object(fields.get("criteria")) or {}
        if not isinstance(known, Mapping):
            raise _NotATask(f"criteria: expected an object, got {type(known).__name__}")
        if twice := sorted(set(known) & set(private)):
            raise _NotATask(f"criteria: {twice[0]!r} is both a criterion and a column")
        fields["criteria"] = {**known, **private}
    return fields


def _flatten_nested(row: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = _parse_object(row.get(NESTED))
    if not isinstance(inner, Mapping):
        return row
    outer = {name: value for name, value in row.items() if name != NESTED}
    if twice := sorted(set(inner) & set(outer)):
        raise _NotATask(f"{twice[0]!r} is both a column and a member of the column {NESTED!r}")
    return {**inner, **outer}


def _parse_object(value: Any) -> Any:
    """Parse an object stored as JSON text, as in tables; return any other value unchanged."""
    if isinstance(value, str) and value.lstrip()[:1] == "{":
        try:
            found = from_json(value)
        except ValueError:
            return value
        return found if isinstance(found, dict) else value
    return value


def _normalize_objects(fields: dict[str, Any], *, is_table: bool) -> dict[str, Any]:
    """Parse objects that are stored as text, and drop the None that tables have for no value."""
    for name in OBJECTS & fields.keys():
        value = _parse_object(fields[name])
        if value is None and name != "state":
            value = {}
        if is_table and name in ("reset", "files") and isinstance(value, Mapping):
            # In a table every row has all keys, with None for missing values.
            value = {key: one for key, one in value.items() if one is not None}
        fields[name] = value
    return fields


def describe_validation_error(error: Exception) -> str:
    """Describe an error, leaving out invalid values, since they may be private."""
    if not isinstance(error, ValidationError):
        return str(error)
    found = error.errors(include_url=False, include_input=False, include_context=False)
    return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in found)


def digest_of_function(function: Callable[..., Any]) -> str:
    """Return a digest of a function's name and, if available, its source."""
    named = (
        getattr(function, "__module__", None),
        getattr(function, "__qualname__", type(function).__qualname__),
    )
    try:
        return digest_of_parts(*named, inspect.getsource(function))
    except (OSError, TypeError):
        return digest_of_parts(*named)
