"""Parquet tables of episodes and training rows that keep each tool call exactly.

Values without a fixed form (arguments of tools, observations) are JSON in a column of that type
(Arrow's ``arrow.json``), which `datasets` 5 reads unchanged. As a struct, each value would get the
fields of all other rows, filled with None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from openenv._internal.packages import needs
from openenv._internal.replacing import replacing
from openenv.rollouts.collect.serializer import read_records
from openenv.rollouts.lines import RolloutFileError

TABLE_FILENAME = "results.parquet"
ROWS_AT_ONCE = 1000

# Columns of episodes.
EPISODES = {
    "episode_id": "text",
    "messages": "list",
    "reward": "number",
    "done": "flag",
    "tool_trace": "list",
    "metrics": "json",
    "verify_metrics": "json",
    "artifacts": "json",
    "task": "json",
    "extra": "json",
}


def write_table(lines: Path, path: Path) -> int:
    """Write the table for a file of episodes; return the number of rows."""
    return write_rows((one.to_dict() for one in read_records(lines)), EPISODES, path)


def write_rows(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str], path: Path) -> int:
    """Write rows as a table; the file appears as a whole or not at all.

    Args:
        rows: The rows.
        columns: The kind of each column: ``text``, ``number``, ``flag``, ``json``, or ``list`` (of
            JSON).
        path: The file to write.

    Raises:
        RolloutFileError: A value does not have the kind of its column.
    """
    pyarrow = import_pyarrow()
    path.parent.mkdir(parents=True, exist_ok=True)
    count, left = 0, iter(rows)
    schema = pyarrow.schema([(name, _type(pyarrow, kind)) for name, kind in columns.items()])
    try:
        with (
            replacing(path) as partial,
            pyarrow.parquet.ParquetWriter(partial, schema, compression="zstd") as table,
        ):
            while batch := list(islice(left, ROWS_AT_ONCE)):
                arrays = [
                    _array(pyarrow, kind, [row.get(name) for row in batch])
                    for name, kind in columns.items()
                ]
                table.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))
                count += len(batch)
    except pyarrow.ArrowException as error:
        raise RolloutFileError(str(path), None, str(error)) from error
    return count


def _type(pyarrow: Any, kind: str) -> Any:
    return {
        "text": pyarrow.string(),
        "number": pyarrow.float64(),
        "flag": pyarrow.bool_(),
        "json": pyarrow.json_(),
        "list": pyarrow.list_(pyarrow.json_()),
    }[kind]


def _array(pyarrow: Any, kind: str, values: list[Any]) -> Any:
    if kind == "json":
        return _json(pyarrow, values)
    if kind != "list":
        return pyarrow.array(values, _type(pyarrow, kind))
    ends = [0]
    for value in values:
        ends.append(ends[-1] + len(value or ()))
    items = [item for value in values for item in value or ()]
    offsets = pyarrow.array(ends, pyarrow.int32())
    return pyarrow.ListArray.from_arrays(offsets, _json(pyarrow, items))


def _json(pyarrow: Any, values: list[Any]) -> Any:
    texts = [None if value is None else to_json(value).decode() for value in values]
    return pyarrow.ExtensionArray.from_storage(
        pyarrow.json_(), pyarrow.array(texts, pyarrow.string())
    )


def import_pyarrow() -> Any:
    """Return pyarrow, with the modules that tables need.

    Raises:
        MissingPackage: pyarrow is not installed, or is older than version 19.
    """
    command = "pip install 'openenv[datasets]' 'pyarrow>=19'"
    with needs("a Parquet file", command):
        import pyarrow
        import pyarrow.parquet

        if not hasattr(pyarrow, "json_"):
            raise ModuleNotFoundError("pyarrow.json_ is not there", name="pyarrow.json_")
    return pyarrow
