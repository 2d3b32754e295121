"""What a terminal was sent, as plain text; and how much of it is kept.

Sequences are those of ECMA-48 (and xterm's). One line is emulated at a time: carriage returns,
backspaces and what erases or moves within the line do what they do; what moves between lines begins
a new one; colours and the like leave nothing.
"""

from __future__ import annotations

import re

__all__ = ["Excerpt", "plain"]

_SEQUENCE = re.compile(
    r"""
    (?P<newline>\r*\n)
  | (?P<text>[^\x00-\x08\x0a-\x1f\x7f-\x9f]+)
  | \x1b\[ (?P<parameters>[0-?]*) [\x20-/]* (?P<final>[@-~])  # control sequences
  | \x1b[\]PX^_] [^\x07\x1b\x9c\n]{0,4096} (?: \x07 | \x1b\\ | \x9c )  # strings: titles, links
  | \x1b [\x20-/]+ [0-~]                                      # character sets
  | \x1b\[ [0-?]* [\x20-/]*                                   # one that was cut off
  | \x1b (?P<escaped>[0-OQ-WYZ\\`-~])?
  | (?P<control>[\x00-\x1f\x7f-\x9f])
    """,
    re.VERBOSE,
)
_MOVES_BETWEEN_LINES = "ABEFHJdfr"
_MAX_COLUMN = 10_000


class _Line:
    """A line as it is written, and written over."""

    def __init__(self) -> None:
        self.cells: list[str] = []
        self.column = 0

    def write(self, text: str) -> None:
        self.cells += [" "] * (self.column - len(self.cells))
        self.cells[self.column : self.column + len(text)] = text
        self.column += len(text)

    def move(self, column: int) -> None:
        self.column = min(max(0, column), _MAX_COLUMN)

    def obey(self, final: str, parameters: str) -> None:
        """Carry out a control sequence that stays within the line."""
        first = parameters.split(";")[0]
        number = int(first) if first.isdecimal() else None
        count = min(max(1, number or 1), _MAX_COLUMN)
        if final == "C":
            self.move(self.column + count)
        elif final == "D":
            self.move(self.column - count)
        elif final in "G`":
            self.move(count - 1)
        elif final == "K":
            self._erase(number or 0)
        elif final == "P":
            del self.cells[self.column : self.column + count]
        elif final == "X":
            end = min(self.column + count, len(self.cells))
            self.cells[self.column : end] = " " * max(0, end - self.column)
        elif final == "@":
            self.cells[self.column : self.column] = " " * count

    def _erase(self, which: int) -> None:
        if which in (1, 2):
            end = min(self.column + 1, len(self.cells))
            self.cells[:end] = " " * end
        if which in (0, 2):
            del self.cells[self.column :]

    def __str__(self) -> str:
        return "".join(self.cells)


def plain(text: str) -> str:
    """Give what stays to be read of what a terminal was sent."""
    lines, line = [], _Line()
    for found in _SEQUENCE.finditer(text):
        final = found["final"]
        if found["text"] is not None:
            line.write(found["text"])
        elif found["newline"] is not None or _begins_a_line(final, found["escaped"], line):
            lines.append(str(line))
            line = _Line()
        elif final is not None:
            line.obey(final, found["parameters"])
        elif found["control"] == "\r":
            line.column = 0
        elif found["control"] == "\b":
            line.move(line.column - 1)
    return "\n".join([*lines, str(line)])


def _begins_a_line(final: str | None, escaped: str | None, line: _Line) -> bool:
    moves = (final is not None and final in _MOVES_BETWEEN_LINES) or escaped in ("D", "E", "M")
    return moves and bool(line.cells)


class Excerpt:
    """The first and the last half of a limit of bytes, and how many are missing in between."""

    def __init__(self, limit: int) -> None:
        self._head, self._tail = bytearray(), bytearray()
        self._of_head, self._of_tail = limit // 2, limit - limit // 2
        self._before = ""
        self.left_out = 0

    def take(self, data: bytes) -> None:
        """Add what comes next."""
        room = self._of_head - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._of_tail:  # seldom, since it moves what is kept
            self._cut()

    def _cut(self) -> None:
        over = len(self._tail) - self._of_tail
        if over > 0:
            self.left_out += over
            del self._tail[:over]

    def begins_after(self, prompt: bytes) -> None:
        """Have what comes be written after something that is no part of it, if nothing came yet:
        what moves within the line counts from its beginning.
        """
        if not self._head:
            self._before = prompt.decode(errors="replace")

    def text(self, raw: bool = False) -> str:
        """Give what is kept, as text, and in the middle how many bytes are not."""
        self._cut()
        tail = bytes(self._tail)
        if not self.left_out:
            return self._written(bytes(self._head + tail), raw)
        last = tail.decode(errors="replace")
        note = f"\n[... {self.left_out} bytes are left out here ...]\n"
        return self._written(bytes(self._head), raw) + note + (last if raw else plain(last))

    def _written(self, data: bytes, raw: bool) -> str:
        text = data.decode(errors="replace")
        return text if raw else plain(self._before + text).removeprefix(plain(self._before))
