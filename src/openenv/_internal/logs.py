"""Log formatters; as JSON, an entry names the session and the request.

Entries that an environment logs in `reset` or `step` name the session and the request too. The
session is in a context variable and is read only when an entry is written, so that a step without
log entries has no overhead.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import datetime, timezone
from typing import Any, Protocol

from openenv._internal.redaction import redact, redacted
from openenv.settings import log_format, log_level

# Fields that a log entry may have besides its message, passed as ``extra``.
FIELDS = ("session_id", "environment", "request", "request_id", "incident")
ACCESS = ("client", "method", "path", "http_version", "status")


class Caller(Protocol):
    """The session or connection that code runs for."""

    def log_fields(self) -> dict[str, Any]:
        """Return the fields of a log entry that identify the caller."""
        ...


CALLER: ContextVar[Caller | None] = ContextVar("openenv_caller", default=None)


class RedactingFormatter(logging.Formatter):
    """A formatter of plain text that removes secrets."""

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


class JSONFormatter(logging.Formatter):
    """A formatter that writes an entry as a line of JSON, without secrets.

    The object has ``time`` (RFC 3339, in UTC), ``level``, ``logger``, ``message``, and if known
    ``session_id``, ``environment``, ``request`` (the method), ``request_id``, ``incident``,
    ``exception`` (the traceback), and for HTTP requests ``client``, ``method``, ``path``,
    ``http_version`` and ``status``.
    """

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, timezone.utc)
        entry: dict[str, Any] = {
            "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        caller = CALLER.get()
        if caller is not None:
            entry |= caller.log_fields()
        entry |= {name: vars(record)[name] for name in FIELDS if name in vars(record)}
        if record.name == "uvicorn.access" and isinstance(record.args, tuple):
            entry |= dict(zip(ACCESS, record.args, strict=False))
        if record.exc_info:
            entry["exception"] = record.exc_text or self.formatException(record.exc_info)
        return json.dumps(redacted(entry), default=str)


def set_up_logs() -> None:
    """Write the log of this process to stderr.

    In text format, warnings and errors are written, unless the program has set up logging. In JSON
    format, entries from the server's log level on are written; if the program has set up logging,
    its handlers write JSON instead.
    """
    root = logging.getLogger()
    if log_format() == "json":
        if not root.handlers:
            root.addHandler(logging.StreamHandler(sys.stderr))
            level = logging.getLevelName(log_level().upper())
            root.setLevel(level if isinstance(level, int) else logging.INFO)
        for handler in root.handlers:
            handler.setFormatter(JSONFormatter())
    elif not root.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(RedactingFormatter())
        handler.setLevel(logging.WARNING)
        root.addHandler(handler)


@contextlib.contextmanager
def silence(name: str) -> Iterator[None]:
    """Silence a logger and its children in a block that provokes errors on purpose."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
