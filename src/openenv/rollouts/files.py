"""Files of rollouts: one line of JSON, or one row of a Parquet table, for each rollout.

The writer is made for runs that are killed and disks that are full. Each line is complete, except
that the last one may be cut off: readers skip it, and the next writer removes it. After `write` has
returned, the rollout survives the end of the process; after `sync`, the end of the machine.

A Parquet file has a row for each rollout and these columns; columns of type JSON hold text:

    id, task_id, group, episode_id, unscored, no_token_rewards              string
    outcome, limit, reward_kind                                             string
    sample, seed, num_steps                                                 int64
    is_kept                                                                 bool
    reward, started_at, ended_at, seconds                                   float64
    model_calls, prompt_tokens, completion_tokens                           int64
    step_rewards                                                            list of float64
    token_rewards                                                           list of those
    task, first, metadata, steps, messages, components, refused, failures,
    usage, extra                                                            JSON

`extra` holds fields that later versions add, and `reward_range` and `reward_unfinished`. The header
is in the metadata of the schema, under ``openenv-rollouts``.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json
from typing_extensions import Self

from openenv._internal.packages import needs
from openenv._internal.quoting import first_problem
from openenv._internal.replacing import replacing
from openenv.rollouts.lines import LineFile, RolloutFileError, whole_lines
from openenv.rollouts.records import FORMAT, FORMAT_VERSION, Failure, Rollout, RolloutHeader

Path_ = str | os.PathLike[str]

PARQUET = ".parquet"
SYNC_EVERY_S = 5.0
ROWS_AT_ONCE = 1000
MAX_HEADER_BYTES = 16 * 2**20
# The beginning of every header, as `RolloutHeader` writes it.
BEGINNING = b'{"format":"%s"' % FORMAT.encode()


# ------------------------------------------------------------------ reading


def read_header(path: Path_) -> RolloutHeader:
    """Read the header of a file of rollouts, JSON lines or Parquet.

    Raises:
        OSError: The file cannot be read.
        RolloutFileError: The file does not hold rollouts.
    """
    path = Path(path)
    if path.suffix == PARQUET:
        return _parquet_header(path)
    with path.open("rb") as file:
        return _header(path, file.readline())


def read_rollouts(path: Path_) -> Iterator[Rollout]:
    """Yield the rollouts of a file, JSON lines or Parquet.

    An incomplete last line, left by a killed writer, is skipped with a log message.

    Raises:
        OSError: The file cannot be read.
        RolloutFileError: The file does not hold rollouts, or is damaged.
    """
    path = Path(path)
    if path.suffix == PARQUET:
        yield from _parquet_rollouts(path)
        return
    lines = whole_lines(path)
    _header(path, next(lines, (1, b""))[1])
    for number, line in lines:
        try:
            rollout = Rollout.model_validate_json(line)
        except ValidationError as error:
            raise RolloutFileError(str(path), number, _damage(error)) from error
        yield rollout


def _header(path: Path, line: bytes) -> RolloutHeader:
    try:
        found = from_json(line)
    except ValueError:
        found = None
    if not (line.endswith(b"\n") and isinstance(found, dict) and found.get("format") == FORMAT):
        raise RolloutFileError(str(path), None, "this is no file of rollouts: it has no header")
    return _checked_header(path, found)


def _checked_header(path: Path, found: Mapping[str, Any]) -> RolloutHeader:
    version = found.get("version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise RolloutFileError(
            str(path), 1, f"its version is {version!r}; this openenv reads up to {FORMAT_VERSION}"
        )
    try:
        return RolloutHeader.model_validate(found)
    except ValidationError as error:
        raise RolloutFileError(str(path), 1, _damage(error)) from error


def _damage(error: ValueError) -> str:
    why = first_problem(error) if isinstance(error, ValidationError) else error
    return f"it is damaged: {why}"


def format_of(path: Path) -> Any:
    """Return the format that the first line of a file names; None if it names none."""
    with path.open("rb") as file:
        beginning = file.readline(MAX_HEADER_BYTES)
    try:
        found = from_json(beginning)
    except ValueError:
        return None
    return found.get("format") if isinstance(found, dict) else None


# ------------------------------------------------------------------ writing


class RolloutWriter:
    """Writes rollouts to a file of JSON lines as the episodes end; a context manager.

    A lock of the operating system allows one writer per file at a time.

    Args:
        path: The file; its directory is created if missing.
        header: The first line of the file.
        resume: Continue an existing file, after removing an incomplete last line and failed
            rollouts. If False, an existing file is an error.
        keeps_failed: Keep failed rollouts in a continued file, and count them as done.
        sync_every_s: Seconds after which `write` flushes the file to the disk, which may take a
            while; None leaves this to `sync` and `close`.
        on_found: Called with each rollout in a continued file, failed ones included.

    Attributes:
        header: The first line of the file.
        is_resumed: True if the file existed before.
        done: The ids of the rollouts that the file holds. A caller that looks up each id only
            once may remove it.
        failed: The failures of the failed rollouts, by id. These rollouts are no longer in the
            file, and are to be played again.

    Raises:
        FileExistsError: The file exists, and `resume` is False.
        OSError: The file cannot be written to.
        RolloutFileError: Another process writes to the file. Or the file does not hold rollouts, is
            damaged before its last line, or was written with other settings. Or its name is that
            of a Parquet file, which cannot be written line by line.
    """

    def __init__(
        self,
        path: Path_,
        header: RolloutHeader,
        *,
        resume: bool = False,
        keeps_failed: bool = False,
        sync_every_s: float | None = SYNC_EVERY_S,
        on_found: Callable[[Rollout], object] | None = None,
    ) -> None:
        self.path = Path(path)
        if self.path.suffix == PARQUET:
            why = "a table is made of a file of JSON lines: write a .jsonl, and use write_parquet"
            raise RolloutFileError(str(path), None, why)
        self._keeps_failed = keeps_failed
        self._on_found = on_found
        self.is_resumed = False
        self.done: set[str] = set()
        self.failed: dict[str, list[Failure]] = {}
        self._sync_every_s = sync_every_s
        self._file = LineFile(self.path, exclusive=not resume)
        try:
            self.header = self._begin(header)
        except BaseException:
            self._file.close()
            raise

    def _begin(self, header: RolloutHeader) -> RolloutHeader:
        if _has_header(self.path):
            found = read_header(self.path)
            _check_same_run(self.path, found, header)
            self._file.cut_torn_line()
            for rollout in read_rollouts(self.path):
                self._note(rollout)
            if self.failed:
                self._file.keep(lambda n, line: n == 1 or from_json(line)["outcome"] != "failed")
            self.is_resumed = True
            return found
        self._file.clear()
        self._append(header.model_dump_json(exclude_none=True))
        self._file.sync_directory()
        return header

    def _note(self, rollout: Rollout) -> None:
        if rollout.id in self.done or rollout.id in self.failed:
            raise RolloutFileError(str(self.path), None, f"{rollout.id!r} is in it twice")
        if rollout.outcome == "failed" and not self._keeps_failed:
            self.failed[rollout.id] = rollout.failures
        else:
            self.done.add(rollout.id)
        if self._on_found is not None:
            self._on_found(rollout)

    def write(self, rollout: Rollout) -> None:
        """Append a rollout.

        Raises:
            OSError: The disk is full, for example. Nothing of the rollout is in the file then, and
                what was written before is intact.
            ValueError: The writer is closed.
        """
        if not self._file.is_open:
            raise ValueError(f"the writer of {self.path} is closed")
        try:
            line = rollout.model_dump_json()
        except PydanticSerializationError:  # text that UTF-8 cannot carry
            line = to_json(_carried(rollout.model_dump())).decode()
        self._append(line)
        if self._sync_every_s is not None and self._file.seconds_unsynced >= self._sync_every_s:
            self.sync()

    def sync(self) -> None:
        """Flush the file to the disk; may be called from any thread."""
        self._file.sync()

    def close(self) -> None:
        """Flush everything to the disk, and let others write. Idempotent."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, line: str) -> None:
        self._file.append(f"{line}\n".encode())


def _carried(value: Any) -> Any:
    """Return a value whose strings have backslash escapes for characters that UTF-8 lacks."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_carried(name): _carried(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_carried(one) for one in value]
    return value


def _has_header(path: Path) -> bool:
    """Return whether a file has a whole header; an empty file or a cut-off header counts as none.

    Raises:
        RolloutFileError: The file is of another kind.
    """
    with path.open("rb") as file:
        line = file.readline()
    begins_as_one = line[: len(BEGINNING)] == BEGINNING[: len(line)]
    if line and not begins_as_one:
        raise RolloutFileError(str(path), None, "this is no file of rollouts: it has no header")
    return line.endswith(b"\n")


def _check_same_run(path: Path, found: RolloutHeader, header: RolloutHeader) -> None:
    """Raise an error if a file was begun with other settings.

    Addresses are not compared, since an environment may move to another server.
    """
    if "://" not in found.environment and "://" not in header.environment:
        _check_same(path, "environment", found.environment, header.environment)
    _check_same(path, "policy", found.policy, header.policy)
    there, here = found.settings, from_json(to_json(header.settings))
    for name in sorted(there.keys() | here.keys()):
        _check_same(path, f"settings.{name}", there.get(name), here.get(name))


def _check_same(path: Path, name: str, there: Any, here: Any) -> None:
    if there != here:
        raise RolloutFileError(
            str(path),
            1,
            f"it was begun with {name} {_shown(there)}, and is to be gone on with by "
            f"{_shown(here)}; use the same, or write to another file",
        )


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


# ------------------------------------------------------------------ Parquet

_TEXT = (
    *("id", "task_id", "group", "episode_id", "unscored", "no_token_rewards"),
    *("outcome", "limit", "reward_kind"),
)
_WHOLE = ("sample", "seed")
_REAL = ("reward", "started_at", "ended_at")
_FLAGS = ("is_kept",)
_LISTS = ("step_rewards", "token_rewards")
_PLAIN = (*_TEXT, *_WHOLE, *_REAL, *_FLAGS, *_LISTS)
_JSON = (
    *("task", "first", "metadata", "steps", "messages", "components", "refused", "failures"),
    "usage",
)
_LATER = ("reward_range", "reward_unfinished")  # older tables have no columns for these
_EXTRA = "extra"
# Derived from other fields for readers of the table; these columns are not read back.
_USAGE = ("model_calls", "prompt_tokens", "completion_tokens", "seconds")
_STEPS = "num_steps"


def write_parquet(source: Path_ | tuple[RolloutHeader, Iterable[Rollout]], path: Path_) -> int:
    """Write rollouts as a Parquet table with the columns described above.

    The file appears as a whole or not at all. Install the requirements with
    ``pip install 'openenv[datasets]'``.

    Args:
        source: A file of JSON lines, or a header and rollouts.
        path: The file to write; an existing file is replaced.

    Returns:
        The number of rollouts.

    Raises:
        MissingPackage: pyarrow is not installed.
        OSError: The file cannot be written.
        RolloutFileError: The source does not hold rollouts or is damaged, or contains a number
            that a column cannot hold.
    """
    pyarrow = _pyarrow()
    if isinstance(source, tuple):
        header, rollouts = source
    else:
        header, rollouts = read_header(source), read_rollouts(source)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    schema, count, left = _schema(header), 0, iter(rollouts)
    with (
        replacing(path) as partial,
        pyarrow.parquet.ParquetWriter(partial, schema, compression="zstd") as table,
    ):
        while batch := list(islice(left, ROWS_AT_ONCE)):
            try:
                rows = pyarrow.Table.from_pylist([_row(one) for one in batch], schema)
            except (pyarrow.ArrowException, OverflowError) as error:
                where = f"among rows {count + 1} to {count + len(batch)}: "
                raise RolloutFileError(str(path), None, f"{where}{error}") from error
            table.write_table(rows)
            count += len(batch)
    return count


def check_table(lines: Path, table: Path, *, resume: bool) -> None:
    """Check, before anything is played, that a table can be written and replaces no other table.

    Raises:
        FileExistsError: The table exists, and `resume` is False.
        MissingPackage: pyarrow is not installed.
        RolloutFileError: The table exists, but not the file of JSON lines to continue.
    """
    _pyarrow()
    if not table.exists():
        return
    if not resume:
        why = "it is there already; go on with it by resume, or name another one"
        raise FileExistsError(errno.EEXIST, why, str(table))
    if not lines.exists():
        why = f"it is gone on with by the lines it was made of, and there is no {lines}"
        raise RolloutFileError(str(table), None, why)


def _pyarrow() -> Any:
    with needs("a Parquet file", "pip install 'openenv[datasets]'"):
        import pyarrow
        import pyarrow.parquet
    return pyarrow


def _schema(header: RolloutHeader) -> Any:
    pyarrow = _pyarrow()
    kinds: dict[str, Any] = dict.fromkeys(_TEXT, pyarrow.string())
    kinds |= dict.fromkeys((*_WHOLE, _STEPS), pyarrow.int64())
    kinds |= dict.fromkeys(_REAL, pyarrow.float64()) | dict.fromkeys(_FLAGS, pyarrow.bool_())
    kinds |= dict.fromkeys(_USAGE[:-1], pyarrow.int64()) | {_USAGE[-1]: pyarrow.float64()}
    shares = pyarrow.list_(pyarrow.float64())
    kinds |= {"step_rewards": shares, "token_rewards": pyarrow.list_(shares)}
    kinds |= dict.fromkeys((*_JSON, _EXTRA), pyarrow.string())
    return pyarrow.schema(list(kinds.items()), metadata={FORMAT: header.model_dump_json()})


def _row(rollout: Rollout) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(rollout, name) for name in _PLAIN}
    row |= {name: getattr(rollout.usage, name) for name in _USAGE}
    row[_STEPS] = len(rollout.steps)
    row |= {name: to_json(getattr(rollout, name)).decode() for name in _JSON}
    extra = dict(rollout.model_extra or {})
    later = {name: getattr(rollout, name) for name in _LATER}
    extra |= {name: value for name, value in later.items() if value is not None}
    row[_EXTRA] = to_json(extra).decode()
    return row


def _parquet_header(path: Path) -> RolloutHeader:
    pyarrow = _pyarrow()
    try:
        metadata = pyarrow.parquet.read_schema(path).metadata or {}
    except pyarrow.ArrowInvalid as error:
        raise RolloutFileError(str(path), None, f"this is no Parquet file: {error}") from error
    text = metadata.get(FORMAT.encode())
    if text is None:
        raise RolloutFileError(str(path), None, "this is no table of rollouts: it has no header")
    return _checked_header(path, from_json(text))


def _parquet_rollouts(path: Path) -> Iterator[Rollout]:
    _parquet_header(path)
    columns = [*_PLAIN, *_JSON, _EXTRA]
    with _pyarrow().parquet.ParquetFile(path) as table:
        batches = table.iter_batches(batch_size=ROWS_AT_ONCE, columns=columns)
        rows = (row for batch in batches for row in batch.to_pylist())
        for number, row in enumerate(rows, 1):
            try:
                fields = {name: from_json(row.pop(name)) for name in (*_JSON, _EXTRA)}
                rollout = Rollout.model_validate({**fields.pop(_EXTRA), **fields, **row})
            except ValueError as error:
                raise RolloutFileError(str(path), number, _damage(error)) from error
            yield rollout
