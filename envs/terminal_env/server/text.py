"""Conversion of a terminal's output to plain text, and limits of its length.

The sequences are those of ECMA-48 and xterm. The code emulates one line at a time: carriage
returns, backspaces and sequences that erase or move within the line have their effect. Sequences
that move between lines start a new line. Colors and the like leave nothing.
"""

from __future__ import annotations

import re

__all__ = ["Excerpt", "to_plain_text"]

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
    """A line of the terminal, which can be overwritten."""

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


def to_plain_text(text: str) -> str:
    """Return the readable text of a terminal's output."""
    lines, line = [], _Line()
    for found in _SEQUENCE.finditer(text):
        final = found["final"]
        if found["text"] is not None:
            line.write(found["text"])
        elif found["newline"] is not None or _starts_line(final, found["escaped"], line):
            lines.append(str(line))
            line = _Line()
        elif final is not None:
            line.obey(final, found["parameters"])
        elif found["control"] == "\r":
            line.column = 0
        elif found["control"] == "\b":
            line.move(line.column - 1)
    return "\n".join([*lines, str(line)])


def _starts_line(final: str | None, escaped: str | None, line: _Line) -> bool:
    moves = (final is not None and final in _MOVES_BETWEEN_LINES) or escaped in ("D", "E", "M")
    return moves and bool(line.cells)


class Excerpt:
    """The first and the last bytes of an output, and the number of bytes missing in between."""

    def __init__(self, limit: int) -> None:
        self._head, self._tail = bytearray(), bytearray()
        self._of_head, self._of_tail = limit // 2, limit - limit // 2
        self._before = ""
        self.left_out = 0

    def take(self, data: bytes) -> None:
        """Add output."""
        room = self._of_head - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._of_tail:  # seldom, since `_cut` moves the bytes
            self._cut()

    def _cut(self) -> None:
        over = len(self._tail) - self._of_tail
        if over > 0:
            self.left_out += over
            del self._tail[:over]

    def set_prompt(self, prompt: bytes) -> None:
        """Set the prompt in front of the output, if there is no output yet.

        The prompt is not part of the text, but sequences that move within the line count its
        columns.
        """
        if not self._head:
            self._before = prompt.decode(errors="replace")

    def text(self, raw: bool = False) -> str:
        """Return the kept output as text, with a note on missing bytes in the middle."""
        self._cut()
        tail = bytes(self._tail)
        if not self.left_out:
            return self._decode(bytes(self._head + tail), raw)
        last = tail.decode(errors="replace")
        note = f"\n[... {self.left_out} bytes are left out here ...]\n"
        return self._decode(bytes(self._head), raw) + note + (last if raw else to_plain_text(last))

    def _decode(self, data: bytes, raw: bool) -> str:
        text = data.decode(errors="replace")
        return (
            text
            if raw
            else to_plain_text(self._before + text).removeprefix(to_plain_text(self._before))
        )
