"""The marks by which a shell says, in the stream of its terminal, where it stands.

They are operating system commands (ECMA-48) that no terminal knows, with a number in them that is
drawn for each shell: what a program prints is not taken for one by accident. A program that reads
the number out of the shell on purpose can print marks of its own; it can so lie about its own exit
code and directory, and about being over. Nothing is scored by them.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Back", "Began", "Mark", "Marks", "Ready"]

_KIND = "7770"
_MAX_LENGTH = 2**14  # of a mark: a directory's name may be long


@dataclass(frozen=True)
class Began:
    """The shell has read a command, and begins it."""


@dataclass(frozen=True)
class Back:
    """The command is over, and the shell is going to print its prompt."""

    exit_code: int
    pid: int
    cwd: str


@dataclass(frozen=True)
class Ready:
    """The prompt was printed, and the shell reads."""


Mark = Began | Back | Ready


class Marks:
    """Draws a number, makes a shell print marks with it, and finds them."""

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

    def _printed(self, what: str) -> str:
        """A mark as bash's prompts spell it."""
        return rf"\e]{_KIND};{self._number};{what}\a"

    @property
    def setup(self) -> str:
        """Have an interactive bash print marks.

        `PS0` and `PROMPT_COMMAND` stay as they are: a script that sets them gets an error, and the
        shell goes on being understood. `PS1` may be changed.
        """
        back = self._printed(f"back;%d;%d;%s;{self._number}")
        return (
            f'PROMPT_COMMAND=\'builtin printf "{back}" "$?" "$$" "$PWD"\'\n'
            f"PS0='{self._printed('began')}'\n"
            f"PS1='\\w\\$ \\[{self._printed('ready')}\\]'\n"
            "readonly PROMPT_COMMAND PS0\n"
        )

    def split(self, data: bytes) -> Iterator[bytes | Mark]:
        """Take what the terminal was sent, and give what is printed and what are marks.

        What may be the beginning of a mark is kept for the next time.
        """
        data, at = self._rest + data, 0
        for found in self._pattern.finditer(data):
            if found.start() > at:
                yield data[at : found.start()]
            at = found.end()
            yield _mark(found)
        self._rest = data[self._safe(data, at) :]
        if end := data[at : len(data) - len(self._rest)]:
            yield end

    def _safe(self, data: bytes, at: int) -> int:
        """Up to where there is no beginning of a mark."""
        begun = data.find(self._begin, at)
        if begun >= 0:
            return begun if len(data) - begun <= _MAX_LENGTH else len(data)
        for length in range(min(len(self._begin) - 1, len(data) - at), 0, -1):
            if data.endswith(self._begin[:length]):
                return len(data) - length
        return len(data)


def _mark(found: re.Match[bytes]) -> Mark:
    if found[1]:
        return Began()
    if found[2]:
        return Ready()
    cwd = found[5].replace(b"\r\n", b"\n").decode(errors="replace")
    return Back(int(found[3]), int(found[4]), cwd)
