"""What is wrong with tasks."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from openenv.errors import OpenEnvError

__all__ = ["TasksetError", "did_you_mean"]


class TasksetError(OpenEnvError, ValueError):
    """Tasks cannot be had, or a row is none.

    Attributes:
        source: Where they are: a file, a dataset, a function.
        row: Which row, as one finds it there: ``line 7``, ``row 6``; None where it is no one row.
    """

    def __init__(self, source: str, row: str | None, why: str) -> None:
        self.source = source
        self.row = row
        super().__init__(f"{source}{'' if row is None else f', {row}'}: {why}")


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """Ask whether the closest of the known names was meant; empty if none comes close."""
    close = difflib.get_close_matches(wrong, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
