"""Errors of tasks and tasksets."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from openenv.errors import OpenEnvError

__all__ = ["TasksetError", "did_you_mean"]


class TasksetError(OpenEnvError, ValueError):
    """A source of tasks cannot be read, or a row is not a task.

    Attributes:
        source: The source: a file, a data set, a function.
        row: The row's location in the source, such as ``line 7`` or ``row 6``; None if the error
            does
            not concern a single row.
    """

    def __init__(self, source: str, row: str | None, why: str) -> None:
        self.source = source
        self.row = row
        super().__init__(f"{source}{'' if row is None else f', {row}'}: {why}")


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """Return a hint that names the closest known name, or an empty string if none is close."""
    close = difflib.get_close_matches(wrong, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
