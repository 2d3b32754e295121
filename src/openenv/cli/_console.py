"""How the command line speaks: data to stdout, words to stderr."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from rich.console import Console
from rich.text import Text

__all__ = ["CommandError", "did_you_mean", "emit", "report", "say", "stderr"]

# The exit codes; the shell's own 130 stands for Ctrl-C.
FAILED = 1
MISUSED = 2
INTERRUPTED = 130


class CommandError(Exception):
    """A command cannot do what was asked. The message names the cause, `hint` the cure."""

    def __init__(self, message: str, *, hint: str | None = None, exit_code: int = FAILED) -> None:
        self.hint = hint
        self.exit_code = exit_code
        super().__init__(message)


@cache
def stderr() -> Console:
    """The console that words go to."""
    return Console(stderr=True, highlight=False)


def say(text: str, style: str = "") -> None:
    """Print words, as they are: no markup is read, no line is broken."""
    stderr().print(Text(text, style=style), soft_wrap=True)


def emit(data: Mapping[str, Any]) -> None:
    """Print data: one line of JSON."""
    sys.stdout.write(json.dumps(data) + "\n")
    sys.stdout.flush()


def report(error: CommandError) -> None:
    """Print an error, and what to do about it."""
    stderr().print(Text.assemble(("Error: ", "bold red"), str(error)), soft_wrap=True)
    if error.hint is not None:
        stderr().print(Text.assemble(("hint: ", "bold cyan"), error.hint), soft_wrap=True)


def did_you_mean(wrong: str, known: Iterable[str]) -> str | None:
    """Ask whether the closest of the known names was meant; None if none comes close."""
    close = difflib.get_close_matches(wrong, list(known), n=1)
    return f"did you mean {close[0]}?" if close else None
