"""Exit codes of `openenv`: 0; 1 if a command failed; 2 for wrong usage; 130 after Ctrl-C.

SIGTERM and SIGHUP, for example from `timeout`, Slurm or Kubernetes, act like Ctrl-C: unfinished
work is cleaned up, and finished work is kept. Then the exit code is 128 plus the signal's number.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from openenv._internal.redaction import redact
from openenv.cli._console import (
    DEBUG_HINT,
    FAILED,
    INTERRUPTED,
    MISUSED,
    CommandError,
    MisuseError,
    describe_error,
    did_you_mean,
    print_error,
    say,
)

# Directories whose traceback frames say nothing to a user: this package's and Python's.
HOMES = (Path(__file__).parents[1], Path(os.__file__).parent / "importlib")
NOT_THEIRS = (*(f"{home}{os.sep}" for home in HOMES), "<frozen ")

# The import path of this class differs between typer's versions.
UsageError: type[Exception] = typer.BadParameter.__bases__[0]

_ended_by: list[signal.Signals] = []


def handle_termination() -> None:
    """Make SIGTERM, and SIGHUP of a closed terminal, act like Ctrl-C.

    Ignored signals (`nohup`) stay ignored.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _interrupt)


def _interrupt(number: int, frame: Any) -> None:
    if _ended_by:  # `timeout` sends two signals; the second must not disturb the cleanup
        return
    _ended_by.append(signal.Signals(number))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a background process of a script
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


def run_and_report(run: Callable[[], Any]) -> int:
    """Run the command line, and print errors.

    Returns:
        The exit code; 1 without a message if the reader of stdout has closed the pipe.
    """
    try:
        code = run()
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_stdout()
        return FAILED
    except KeyboardInterrupt:
        code = INTERRUPTED
    except typer.Abort:  # Ctrl-C at a prompt, or a declined confirmation
        say("aborted")
        return FAILED
    except CommandError as error:
        print_error(error)
        return error.exit_code
    except UsageError as error:
        print_error(_describe_misuse(error))
        return MISUSED
    except Exception as error:
        print_error(_describe_unexpected(error))
        return FAILED
    if code == INTERRUPTED and _ended_by:
        say(f"ended by {_ended_by[0].name}")
        return 128 + _ended_by[0]
    if code == INTERRUPTED:
        say("interrupted")
    return code if isinstance(code, int) else 0


def _discard_stdout() -> None:
    """Redirect buffered output to /dev/null; Python would report an error at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _describe_misuse(error: Any) -> CommandError:
    """Convert click's error about an option or argument to a `CommandError`."""
    message, context = error.format_message().rstrip("."), error.ctx
    if context is None:
        return MisuseError(message)
    path = context.command_path
    hint = f"see `{path} --help`"
    examples = getattr(context.command, "examples", ())
    if hasattr(error, "possibilities"):  # unknown option
        message = f"there is no option {error.option_name} of {path}"
        meant = " or ".join(error.possibilities or ())
        hint = f"did you mean {meant}?" if meant else f"`{path} --help` lists them"
    elif message.startswith("Missing") and examples:
        hint = f"such as: {examples[0].line}; {hint}"
    elif " is not one of " in message:
        quoted = re.findall("'([^']*)'", message.partition(": ")[2])  # given value, allowed values
        hint = did_you_mean(quoted[0], quoted[1:]) or hint if quoted else hint
    return MisuseError(message.replace("Value error, ", ""), hint=hint)


def _describe_unexpected(error: Exception) -> CommandError:
    """Convert an unforeseen error; the text of our own errors needs no class name."""
    from openenv.errors import OpenEnvError

    words = str(error) if isinstance(error, OpenEnvError) else _error_text(error)
    told = CommandError(redact(words), hint=DEBUG_HINT)
    told.__cause__ = error
    return told


def _error_text(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return describe_error(error)
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def describe_user_error(error: Exception) -> str:
    """Return class, text and source line of an error raised by a user's code."""
    if isinstance(error, SyntaxError):  # the error's text names the line
        return _error_text(error)
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    theirs = [one for one in frames if not one[0].startswith(NOT_THEIRS)]
    own = [one for one in theirs if "site-packages" not in one[0]]
    if not theirs:
        return _error_text(error)
    file, line = (own or theirs)[-1]
    relative = os.path.relpath(file)
    path = file if relative.startswith("..") else relative
    return f"{_error_text(error)} ({path}, line {line})"
