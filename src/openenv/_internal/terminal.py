"""The terminal, to which what others say must be text and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

from openenv._internal.quoting import printable

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["console"]


def console(**options: Any) -> Console:
    """A console of Rich's that shows the control characters of texts as escapes.

    The names, descriptions and errors of servers, packages and files are printed in many places. A
    terminal would obey an escape sequence in one: change its title, its colours, what is on it. Nor
    is markup of Rich's read in a text.
    """
    made: Console = _class()(**{"markup": False, **options})
    return made


@cache
def _class() -> type[Console]:
    from rich.console import Console
    from rich.segment import Segment

    class SafeConsole(Console):
        """Beside Rich's own sequences, which it adds here, no other comes through."""

        def _render_buffer(self, buffer: Iterable[Segment]) -> str:
            return super()._render_buffer(
                segment
                if segment.control or segment.text.isprintable()
                else Segment(printable(segment.text), segment.style)
                for segment in buffer
            )

    return SafeConsole
