"""Consoles that print foreign text without control sequences."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

from openenv._internal.quoting import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


def console(**options: Any) -> Console:
    """Return a console of Rich that shows control characters as escapes.

    Names, descriptions and errors of servers, packages and files are printed in many places. A
    terminal would obey escape sequences in them, and change its title, colors or content. Rich's
    markup in texts is not interpreted either.

    On a terminal, lines printed with `soft_wrap` are broken between words and continued at their
    indentation; the terminal itself would break them inside a word. A word that is longer than a
    line stays whole. In a pipe or a file, each line stays one line.
    """
    made: Console = _class()(**{"markup": False, **options})
    return made


def _wrap(text: Text, width: int) -> Text:
    """Break the lines of a text between words to fit a width; longer words stay whole."""
    from rich.text import Text

    lines: list[Text] = []
    for line in text.split("\n", allow_blank=True):
        if line.cell_len > width:
            indent = _indent(line.plain, 2 * width // 3)
            first, *others = line.divide(_breaks(line.plain, width, indent))
            parts = [first, *(Text(" " * indent).append_text(part) for part in others)]
            for part in parts[:-1]:
                part.rstrip()
            lines += parts
        else:
            lines.append(line)
    wrapped = Text("\n").join(lines)
    wrapped.end = text.end
    return wrapped


def _indent(line: str, most: int) -> int:
    """Return the column of a continued line: the start of the last column of text."""
    gaps = [gap.end() for gap in re.finditer(r"^\s+|\s{2,}", line)]
    return max((end for end in gaps if end <= most), default=0)


def _breaks(line: str, width: int, indent: int) -> list[int]:
    from rich.cells import cell_len

    column, offsets = 0, []
    for word in re.finditer(r"\s*(\S+)", line):
        column += cell_len(word[0])
        if column > width and word.start(1) > indent:
            offsets.append(word.start(1))
            column = indent + cell_len(word[1])
    return offsets


@cache
def _class() -> type[Console]:
    from rich.console import Console
    from rich.segment import Segment
    from rich.text import Text

    class SafeConsole(Console):
        """A console that passes no control sequences except Rich's own."""

        def print(self, *objects: Any, soft_wrap: bool | None = None, **options: Any) -> None:
            if soft_wrap is None:
                soft_wrap = self.soft_wrap
            if soft_wrap and self.is_terminal:
                objects = tuple(
                    _wrap(one, self.width) if isinstance(one, Text) else one for one in objects
                )
            super().print(*objects, soft_wrap=soft_wrap, **options)

        def _render_buffer(self, buffer: Iterable[Segment]) -> str:
            return super()._render_buffer(
                segment
                if segment.control or segment.text.isprintable()
                else Segment(printable(segment.text), segment.style)
                for segment in buffer
            )

    return SafeConsole
