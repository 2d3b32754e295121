"""How the command line speaks: data to stdout, words to stderr."""

from __future__ import annotations

import difflib
import json
import os
import sys
import traceback
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from openenv._internal.quoting import printable
from openenv._internal.terminal import console

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "DEBUG_HINT",
    "CommandError",
    "be_quiet",
    "did_you_mean",
    "emit",
    "is_debugging",
    "plain",
    "report",
    "say",
    "set_color",
    "show_tracebacks",
    "stderr",
    "stdout",
]

# The exit codes; the shell's own 130 stands for Ctrl-C, and 128 and its number for another signal.
FAILED = 1
MISUSED = 2
INTERRUPTED = 130

DEBUG_HINT = "`openenv --debug COMMAND ...` shows where it comes from"


class CommandError(Exception):
    """A command cannot do what was asked. The message names the cause, `hint` the cure."""

    def __init__(self, message: str, *, hint: str | None = None, exit_code: int = FAILED) -> None:
        self.hint = hint
        self.exit_code = exit_code
        super().__init__(message)


# ------------------------------------------------------------------ what the options ask for


class _Manner:
    """What --debug and --quiet have asked for."""

    debug = False
    quiet = False


def show_tracebacks() -> None:
    """Have errors show where they come from."""
    _Manner.debug = True


def is_debugging() -> bool:
    """Whether errors are to show where they come from: by --debug, or by OPENENV_DEBUG."""
    from openenv import settings

    return _Manner.debug or settings.debug()


def be_quiet() -> None:
    """Print no words from now on, but for errors."""
    _Manner.quiet = True
    if stderr.cache_info().currsize:
        stderr().quiet = True


def set_color(wanted: bool) -> None:
    """Colour what is printed, here and by programs that are started, or do not."""
    here, gone = ("FORCE_COLOR", "NO_COLOR") if wanted else ("NO_COLOR", "FORCE_COLOR")
    os.environ[here] = "1"
    os.environ.pop(gone, None)


# ------------------------------------------------------------------ speaking


@cache
def stderr() -> Console:
    """The console that words go to."""
    return console(stderr=True, highlight=False, quiet=_Manner.quiet)


@cache
def stdout() -> Console:
    """The console for data that people read, such as a table."""
    return console(highlight=False)


def say(text: str, style: str = "") -> None:
    """Print words, as they are: no markup is read, no line is broken."""
    from rich.text import Text

    stderr().print(Text(text, style=style), soft_wrap=True)


def emit(data: Mapping[str, Any]) -> None:
    """Print data: one line of JSON."""
    sys.stdout.write(json.dumps(data) + "\n")
    sys.stdout.flush()


def report(error: CommandError) -> None:
    """Print an error, and what to do about it; the traceback before it, if that is asked for."""
    from rich.text import Text

    shown = console(stderr=True, highlight=False)
    if is_debugging():
        for lines in traceback.format_exception(error.__cause__ or error):
            sys.stderr.write(printable(lines))
    shown.print(Text.assemble(("Error: ", "bold red"), str(error)), soft_wrap=True)
    if error.hint is not None and not (is_debugging() and error.hint == DEBUG_HINT):
        shown.print(Text.assemble(("hint: ", "bold cyan"), error.hint), soft_wrap=True)


def plain(error: Exception) -> str:
    """What an error says; of one of the operating system, of which file and why."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def did_you_mean(wrong: str, known: Iterable[str]) -> str | None:
    """Ask whether the closest of the known names was meant; None if none comes close."""
    close = difflib.get_close_matches(wrong, list(known), n=1)
    return f"did you mean {close[0]}?" if close else None
