"""Output of the command line: data to stdout, messages to stderr."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from openenv._internal.quoting import closest, printable
from openenv._internal.terminal import console

if TYPE_CHECKING:
    from rich.console import Console

# The exit codes; 130 stands for Ctrl-C, 128 plus the number for another signal.
FAILED = 1
MISUSED = 2
INTERRUPTED = 130

DEBUG_HINT = "`openenv --debug COMMAND ...` shows the traceback"


class CommandError(Exception):
    """A command's failure: the message names the cause, `hint` names the fix.

    Most functions of this package raise this error, so their docstrings do not list it.
    """

    def __init__(self, message: str, *, hint: str | None = None, exit_code: int = FAILED) -> None:
        self.hint = hint
        self.exit_code = exit_code
        super().__init__(message)


class MisuseError(CommandError):
    """A failure because of wrong usage."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, exit_code=MISUSED)


def unknown_name(message: str, wrong: str, known: Iterable[str]) -> MisuseError:
    """Return an error with the closest known name as the hint, or all names if none is close."""
    known = list(known)
    return MisuseError(message, hint=did_you_mean(wrong, known) or f"there are {', '.join(known)}")


class _OutputSettings:
    """The effects of --debug and --quiet."""

    debug = False
    quiet = False


def show_tracebacks() -> None:
    """Print a traceback with each error from now on."""
    _OutputSettings.debug = True


def is_debugging() -> bool:
    """Return whether errors show a traceback, by --debug or OPENENV_DEBUG."""
    from openenv import settings

    return _OutputSettings.debug or settings.debug()


def be_quiet() -> None:
    """Print no messages from now on, except errors."""
    _OutputSettings.quiet = True
    if stderr.cache_info().currsize:
        stderr().quiet = True


def set_color(wanted: bool) -> None:
    """Enable or disable colors, in this program and in child processes."""
    here, gone = ("FORCE_COLOR", "NO_COLOR") if wanted else ("NO_COLOR", "FORCE_COLOR")
    os.environ[here] = "1"
    os.environ.pop(gone, None)


@cache
def stderr() -> Console:
    """Return the console for messages."""
    return console(stderr=True, highlight=False, quiet=_OutputSettings.quiet)


@cache
def stdout() -> Console:
    """Return the console for data in human-readable form, such as tables."""
    return console(highlight=False)


def say(text: str, style: str = "") -> None:
    """Print a message verbatim, without markup or line breaks."""
    from rich.text import Text

    stderr().print(Text(text, style=style), soft_wrap=True)


def warn(text: str) -> None:
    """Print a warning, as `say` does."""
    say(text, style="yellow")


def emit(data: Mapping[str, Any]) -> None:
    """Print data as a line of JSON."""
    sys.stdout.write(json.dumps(data) + "\n")
    sys.stdout.flush()


def print_error(error: CommandError) -> None:
    """Print an error and the hint, after the traceback if requested."""
    from rich.text import Text

    shown = console(stderr=True, highlight=False)
    if is_debugging():
        for lines in traceback.format_exception(error.__cause__ or error):
            sys.stderr.write(printable(lines))
    shown.print(Text.assemble(("Error: ", "bold red"), str(error)), soft_wrap=True)
    if error.hint is not None and not (is_debugging() and error.hint == DEBUG_HINT):
        shown.print(Text.assemble(("hint: ", "bold cyan"), error.hint), soft_wrap=True)


def describe_error(error: Exception) -> str:
    """Return an error's text; for an operating system error, the file and the reason."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def did_you_mean(wrong: str, known: Iterable[str]) -> str | None:
    """Return "did you mean ...?" with the closest known name, or None if no name is close."""
    close = closest(wrong, known)
    return f"did you mean {close}?" if close else None
