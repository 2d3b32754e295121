"""Files of lines that are there whole or not at all, whatever becomes of who writes them.

A line is in the file whole, or it is the last one, cut off, which the next writer removes. There is
one writer a file at a time, which the system sees to.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from pathlib import Path

from openenv.errors import OpenEnvError

__all__ = ["RolloutFileError", "append", "cut_torn_line", "lock", "locked", "sync_directory"]

logger = logging.getLogger(__name__)

TAIL_BYTES = 2**16


class RolloutFileError(OpenEnvError, ValueError):
    """A file of rollouts cannot be read, written or gone on with.

    Attributes:
        path: The file.
        line: Where, from 1; the row, in a Parquet file; None where it is the file as a whole.
        why: What is wrong.
    """

    def __init__(self, path: str, line: int | None, why: str) -> None:
        self.path = path
        self.line = line
        self.why = why
        super().__init__(f"{path}{'' if line is None else f', line {line}'}: {why}")


def locked(path: Path, *, exclusive: bool) -> int:
    """Open a file for appending, for this writer alone; gives its descriptor.

    Args:
        path: The file; made where there is none.
        exclusive: There may be none.

    Raises:
        FileExistsError: There is one, and may not be.
        OSError: It cannot be written to.
        RolloutFileError: Somebody else writes to it.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (os.O_EXCL if exclusive else 0)
    try:
        file = os.open(path, flags, 0o644)
    except FileExistsError as error:
        why = "it is there already; go on with it by resume, or name another one"
        raise FileExistsError(error.errno, why, str(path)) from None
    try:
        lock(path, file)
        if not os.path.samestat(os.fstat(file), os.stat(path)):  # another writer replaced it
            raise RolloutFileError(str(path), None, "somebody else has just written it anew")
    except BaseException:
        os.close(file)
        raise
    return file


def lock(path: Path, file: int) -> None:
    """Have an open file for this writer alone.

    Raises:
        RolloutFileError: Somebody else writes to it.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise RolloutFileError(str(path), None, "somebody else is writing to it") from error


def cut_torn_line(path: Path, file: int) -> None:
    """Remove a last line that is not whole."""
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
    """Append whole lines; gives the size of the file after them.

    Args:
        path: The file, for the words of an error.
        file: Its descriptor.
        data: The lines, each with its end.
        size: Of the file now.

    Raises:
        OSError: The disk is full, say. Nothing of the lines is in the file then.
    """
    written = 0
    try:
        while written < len(data):  # the last byte of a line is what makes it one
            written += os.write(file, data[written:] if written else data)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.ftruncate(file, size)
        if isinstance(error, OSError):
            why = f"{error.strerror}; what was written before is there, and can be gone on with"
            raise OSError(error.errno, why, str(path)) from error
        raise
    return size + len(data)


def sync_directory(path: Path, file: int) -> None:
    """Have a file, and that it is there, put on the disk."""
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(file)
        os.fsync(directory)
    finally:
        os.close(directory)
