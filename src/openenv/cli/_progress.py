"""Progress of long commands: bars on a terminal, occasional lines elsewhere."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from openenv.cli._console import say, stderr

if TYPE_CHECKING:
    from rich.progress import Progress

LINE_EVERY_S = 3.0
REMIND_EVERY_S = 15.0


class Display(Protocol):
    """A display of consecutive phases."""

    def begin(self, what: str, total: int | None = None) -> None:
        """Begin a phase of `total` units; None for an unknown number."""

    def update(self, done: int, detail: str) -> None:
        """Show that `done` units of the phase are done, with a detail."""

    def finish(self, detail: str) -> None:
        """End the running phase."""


@contextlib.contextmanager
def display() -> Iterator[Display]:
    """Show progress on stderr, in the way that suits it."""
    if not stderr().is_terminal:
        lines = _LineDisplay()
        with lines.reminding():
            yield lines
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column

    with Progress(
        SpinnerColumn(finished_text="[green]✓"),
        TextColumn("{task.description:<12}"),
        BarColumn(bar_width=18),
        TextColumn("{task.fields[detail]}", table_column=Column(no_wrap=True)),
        TimeElapsedColumn(table_column=Column(no_wrap=True, min_width=len("0:00:00"))),
        console=stderr(),
    ) as bars:
        yield _BarDisplay(bars)


class _BarDisplay:
    """Progress bars on a terminal."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._task: Any = None

    def begin(self, what: str, total: int | None = None) -> None:
        self._task = self._bars.add_task(what, total=total, detail="")

    def update(self, done: int, detail: str) -> None:
        self._bars.update(self._task, completed=done, detail=detail)

    def finish(self, detail: str) -> None:
        total = self._bars.tasks[self._task].total or 1
        self._bars.update(self._task, total=total, completed=total, detail=detail)


class _LineDisplay:
    """Progress lines for logs and pipes.

    A phase prints a line at most every `LINE_EVERY_S` and at least every `REMIND_EVERY_S` seconds,
    since a build may take minutes without news. A thread prints the reminders; `_turn` guards the
    state.
    """

    def __init__(self) -> None:
        self._what = ""
        self._total: int | None = None
        self._began = self._spoke = 0.0
        self._known = ""
        self._over = threading.Event()
        self._turn = threading.Lock()
        self._beat = threading.Thread(target=self._remind, name="openenv-progress", daemon=True)

    def begin(self, what: str, total: int | None = None) -> None:
        with self._turn:
            self._what, self._total, self._known = what, total, ""
            self._began = self._spoke = time.monotonic()

    def update(self, done: int, detail: str) -> None:
        with self._turn:
            of = "" if self._total is None else f" of {self._total:,}"
            self._known = f"{done:,}{of}, {detail}"
            if time.monotonic() - self._spoke >= LINE_EVERY_S:
                self._spoke = time.monotonic()
                say(f"{self._what}: {self._known}")

    def finish(self, detail: str) -> None:
        with self._turn:
            say(f"{self._what}: {detail}, {time.monotonic() - self._began:.1f} s")
            self._what = ""

    def _remind(self) -> None:
        while not self._over.wait(REMIND_EVERY_S / 10):
            with self._turn:
                now = time.monotonic()
                if self._what and now - self._spoke >= REMIND_EVERY_S:
                    self._spoke = now
                    known = f"{self._known}, " if self._known else ""
                    say(f"{self._what}: {known}{now - self._began:.0f} s so far")

    @contextlib.contextmanager
    def reminding(self) -> Iterator[None]:
        """Print reminders within the block."""
        self._beat.start()
        try:
            yield
        finally:
            self._over.set()
            self._beat.join()
