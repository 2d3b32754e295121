"""Atomic replacement of files: a reader sees either the old file or the new one."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path of a new file beside `path`, which takes its place if nothing is raised.

    Raises:
        OSError: The file cannot be replaced; it is unchanged.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        yield partial
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise


def replace_text(path: Path, text: str) -> None:
    """Write a text as the whole content of a file.

    Raises:
        OSError: The file cannot be written; it is unchanged.
    """
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")
