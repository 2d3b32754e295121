"""Progress bars on stderr, in a single display: two displays would overwrite each other."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from openenv._internal.terminal import console

if TYPE_CHECKING:
    from rich.progress import Progress


class Tell(Protocol):
    """A callback that reports progress."""

    def __call__(self, done: int, total: int | None, detail: str) -> object:
        """Show `done` of `total` units (None if unknown), with the text `detail` beside the bar."""


_turn = threading.Lock()
_shown: Progress | None = None  # while there are bars
_bars = 0


@contextlib.contextmanager
def bar(what: str) -> Iterator[Tell]:
    """Show a bar during the ``with`` statement, and leave the finished bar on the screen.

    Args:
        what: The label of the bar.
    """
    global _shown, _bars
    with _turn:
        shown = _shown = _shown or _display()
        _bars += 1
        task = shown.add_task(what, total=None, detail="")
    try:
        yield lambda done, total, detail: shown.update(
            task, completed=done, total=total, detail=detail
        )
    finally:
        with _turn:
            shown.stop_task(task)
            _bars -= 1
            if not _bars:
                shown.stop()
                _shown = None


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
