"""Files of complete lines, which survive the end of the process that writes them.

A lock of the operating system allows one writer per file at a time. Each line is complete, except
that the last one may be cut off: readers skip it, and the next writer removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from openenv._internal.replacing import replacing
from openenv.errors import OpenEnvError

logger = logging.getLogger(__name__)

TAIL_BYTES = 2**16


class RolloutFileError(OpenEnvError, ValueError):
    """A file of rollouts cannot be read, written or continued.

    Attributes:
        path: The file.
        line: The number of the line, from 1, or of the row of a Parquet file; None for the file as
            a whole.
        why: A description of the problem.
    """

    def __init__(self, path: str, line: int | None, why: str) -> None:
        self.path = path
        self.line = line
        self.why = why
        super().__init__(f"{path}{'' if line is None else f', line {line}'}: {why}")


class LineFile:
    """A file to which only this writer appends lines.

    Args:
        path: The file. The file and its directory are created if missing.
        exclusive: Raise an error if the file exists.

    Raises:
        FileExistsError: The file exists, and `exclusive` is True.
        RolloutFileError: Another writer has the file open.
    """

    def __init__(self, path: Path, *, exclusive: bool = False) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = _FLAGS | (os.O_EXCL if exclusive else 0)
        try:
            self._file = os.open(path, flags, 0o644)
        except FileExistsError as error:
            why = "it is there already; go on with it by resume, or name another one"
            raise FileExistsError(error.errno, why, str(path)) from None
        try:
            _lock(path, self._file)
            if not os.path.samestat(os.fstat(self._file), os.stat(path)):  # it was replaced
                raise RolloutFileError(str(path), None, "somebody else has just written it anew")
        except BaseException:
            os.close(self._file)
            raise
        self._is_open = True
        self._size = os.fstat(self._file).st_size
        self._synced = time.monotonic()

    @property
    def is_open(self) -> bool:
        """True until the file is closed."""
        return self._is_open

    @property
    def seconds_unsynced(self) -> float:
        """Seconds since the file was last flushed to the disk."""
        return time.monotonic() - self._synced

    def append(self, lines: bytes) -> None:
        """Append whole lines.

        Raises:
            OSError: The disk is full, for example. None of the lines is in the file then.
        """
        self._size = append(self.path, self._file, lines, self._size)

    def cut_torn_line(self) -> None:
        """Remove an incomplete last line."""
        cut_torn_line(self.path, self._file)
        self._size = os.fstat(self._file).st_size

    def clear(self) -> None:
        """Remove every line."""
        os.ftruncate(self._file, 0)
        self._size = 0

    def keep(self, is_kept: Callable[[int, bytes], bool]) -> None:
        """Rewrite the file with only some of its lines; the file is replaced as a whole.

        Args:
            is_kept: Called with the number of each line, from 1, and the line; returns whether to
                keep the line.
        """
        with replacing(self.path) as partial:
            mode = os.fstat(self._file).st_mode & 0o777
            new = os.open(partial, _FLAGS | os.O_TRUNC, mode)
            try:
                _lock(self.path, new)
                with self.path.open("rb") as old, open(os.dup(new), "ab") as kept:
                    kept.writelines(
                        line for number, line in enumerate(old, 1) if is_kept(number, line)
                    )
                os.fsync(new)
            except BaseException:
                os.close(new)
                raise
        os.close(self._file)
        self._file = new
        self._size = os.fstat(new).st_size

    def sync(self) -> None:
        """Flush what was written to the disk; may be called from any thread."""
        self._synced = time.monotonic()
        os.fsync(self._file)

    def sync_directory(self) -> None:
        """Flush the file and the directory entry to the disk."""
        directory = os.open(self.path.parent, os.O_RDONLY)
        try:
            self.sync()
            os.fsync(directory)
        finally:
            os.close(directory)

    def close(self) -> None:
        """Flush everything to the disk and release the lock. Idempotent."""
        if self._is_open:
            self._is_open = False
            try:
                os.fsync(self._file)
            finally:
                os.close(self._file)


_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


def _lock(path: Path, file: int) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise RolloutFileError(str(path), None, "somebody else is writing to it") from error


def whole_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the complete lines of a file with line numbers from 1.

    An incomplete last line, left by a killed writer, is skipped with a log message.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.endswith(b"\n"):
                yield number, line
            else:
                logger.warning(
                    "%s, line %d is cut off: its writer was killed, or is at it; it is passed over",
                    path,
                    number,
                )


def cut_torn_line(path: Path, file: int) -> None:
    """Remove an incomplete last line from an open file."""
    size = begin = os.fstat(file).st_size
    whole = 0
    while begin and not whole:
        begin, end = max(0, begin - TAIL_BYTES), begin
        whole = os.pread(file, end - begin, begin).rfind(b"\n") + 1
    if begin + whole < size:
        torn = size - begin - whole
        logger.warning("%s: a last line that was cut off is removed, %d bytes", path, torn)
        os.ftruncate(file, begin + whole)


def append(path: Path, file: int, data: bytes, size: int) -> int:
    """Append whole lines to an open file; return the new size.

    Args:
        path: The file's path, for error messages.
        file: The file's descriptor.
        data: The lines, each with its line ending.
        size: The size of the file before, in bytes.

    Raises:
        OSError: The disk is full, for example. None of the lines is in the file then.
    """
    written = 0
    try:
        while written < len(data):  # a line is complete only with its last byte
            written += os.write(file, data[written:] if written else data)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.ftruncate(file, size)
        if isinstance(error, OSError):
            why = f"{error.strerror}; what was written before is there, and can be gone on with"
            raise OSError(error.errno, why, str(path)) from error
        raise
    return size + len(data)
