"""Marks in a terminal's output by which a shell reports its position.

Marks are operating system commands (ECMA-48) that no terminal knows. They contain a random number
that is unique to each shell, so no program prints one by accident. A program that reads the number
out of the shell on purpose can print marks of its own. So it can lie about its exit code, its
directory and its end. No score depends on marks.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Back", "Began", "Mark", "Marks", "Ready"]

_KIND = "7770"
_MAX_LENGTH = 2**14  # the maximum length of a mark, since a directory's name may be long


@dataclass(frozen=True)
class Began:
    """The mark that the shell has read a command and starts it."""


@dataclass(frozen=True)
class Back:
    """The mark that the command is over and the shell is going to print its prompt."""

    exit_code: int
    pid: int
    cwd: str


@dataclass(frozen=True)
class Ready:
    """The mark that the prompt was printed and the shell reads."""


Mark = Began | Back | Ready


class Marks:
    """A random number, the setup of a shell that prints marks with it, and their parser."""

    def __init__(self) -> None:
        self._number = secrets.token_hex(16)
        begin = f"\x1b]{_KIND};{self._number};".encode()
        self._begin = begin
        self._pattern = re.compile(
            re.escape(begin)
            + rb"(?:(began)|(ready)|back;(\d+);(\d+);(.*?);"
            + self._number.encode()
            + rb")\x07",
            re.DOTALL,
        )
        self._rest = b""

    def _write_mark(self, what: str) -> str:
        """Write a mark in the syntax of bash's prompts."""
        return rf"\e]{_KIND};{self._number};{what}\a"

    @property
    def setup(self) -> str:
        """The commands that make an interactive bash print marks.

        `PS0` and `PROMPT_COMMAND` are read-only: a script that sets them gets an error, and the
        marks continue. `PS1` may be changed.
        """
        back = self._write_mark(f"back;%d;%d;%s;{self._number}")
        return (
            f'PROMPT_COMMAND=\'builtin printf "{back}" "$?" "$$" "$PWD"\'\n'
            f"PS0='{self._write_mark('began')}'\n"
            f"PS1='\\w\\$ \\[{self._write_mark('ready')}\\]'\n"
            "readonly PROMPT_COMMAND PS0\n"
        )

    def split(self, data: bytes) -> Iterator[bytes | Mark]:
        """Split the terminal's output into text and marks.

        Bytes that may be the start of a mark are kept for the next call.
        """
        data, at = self._rest + data, 0
        for found in self._pattern.finditer(data):
            if found.start() > at:
                yield data[at : found.start()]
            at = found.end()
            yield _parse_mark(found)
        self._rest = data[self._find_safe_end(data, at) :]
        if end := data[at : len(data) - len(self._rest)]:
            yield end

    def _find_safe_end(self, data: bytes, at: int) -> int:
        """Return the end of the bytes that cannot be the start of a mark."""
        begun = data.find(self._begin, at)
        if begun >= 0:
            return begun if len(data) - begun <= _MAX_LENGTH else len(data)
        for length in range(min(len(self._begin) - 1, len(data) - at), 0, -1):
            if data.endswith(self._begin[:length]):
                return len(data) - length
        return len(data)


def _parse_mark(found: re.Match[bytes]) -> Mark:
    if found[1]:
        return Began()
    if found[2]:
        return Ready()
    cwd = found[5].replace(b"\r\n", b"\n").decode(errors="replace")
    return Back(int(found[3]), int(found[4]), cwd)
