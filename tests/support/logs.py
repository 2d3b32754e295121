"""What the servers of this process write to their logs."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

# uvicorn's loggers do not hand their records on to the root.
LOGGERS = ("", "uvicorn", "uvicorn.error", "asyncio")


class Kept(logging.Handler):
    """Keeps the records that carry an exception."""

    def __init__(self) -> None:
        super().__init__()
        self.tracebacks: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[0] is not None:
            name, error = record.exc_info[0].__name__, record.exc_info[1]
            self.tracebacks.append(f"{record.name}: {record.getMessage()}: {name}: {error}")


@contextlib.contextmanager
def tracebacks() -> Iterator[list[str]]:
    """Collect the tracebacks logged meanwhile; begin once the servers run, which reset logging."""
    kept = Kept()
    for name in LOGGERS:
        logging.getLogger(name).addHandler(kept)
    try:
        yield kept.tracebacks
    finally:
        for name in LOGGERS:
            logging.getLogger(name).removeHandler(kept)
