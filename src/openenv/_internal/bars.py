"""Bars on stderr, in one display for a whole program: two would write over each other."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from openenv._internal.terminal import console

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["Tell", "bar"]


class Tell(Protocol):
    """Says how far it has come."""

    def __call__(self, done: int, total: int | None, detail: str) -> object:
        """Show `done` of `total` units, None where nobody knows, and what there is to read."""


class _Screen:
    """The display: there while there are bars."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._shown: Progress | None = None
        self._bars = 0

    @contextlib.contextmanager
    def bar(self, what: str) -> Iterator[Tell]:
        with self._turn:
            shown = self._shown = self._shown or _display()
            self._bars += 1
            task = shown.add_task(what, total=None, detail="")
        try:
            yield lambda done, total, detail: shown.update(
                task, completed=done, total=total, detail=detail
            )
        finally:
            with self._turn:
                shown.stop_task(task)
                self._bars -= 1
                if not self._bars:
                    shown.stop()
                    self._shown = None


def _display() -> Progress:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    shown = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[detail]}", markup=False),
        TimeElapsedColumn(),
        console=console(stderr=True),
    )
    shown.start()
    return shown


_screen = _Screen()


def bar(what: str) -> contextlib.AbstractContextManager[Tell]:
    """Show a bar for as long as the ``with`` statement lasts; it stays to be read.

    Args:
        what: What takes so long.
    """
    return _screen.bar(what)
