"""How `openenv` ends: 0; 1 if a command failed; 2 if it was misused; 130 after Ctrl-C.

Another signal that ends it, be it of a person, `timeout`, Slurm or Kubernetes, does what Ctrl-C
does: what was begun is put away, and what was done is kept. Then it is 128 and its number.
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
    did_you_mean,
    plain,
    report,
    say,
)

__all__ = ["end_as_by_ctrl_c", "exit_code_of", "in_words"]

# Where frames are that say nothing to a user: of this package, and of Python.
HOMES = (Path(__file__).parents[1], Path(os.__file__).parent / "importlib")
NOT_THEIRS = (*(f"{home}{os.sep}" for home in HOMES), "<frozen ")

# Where typer has it from differs from version to version.
UsageError: type[Exception] = typer.BadParameter.__bases__[0]

_ended_by: list[signal.Signals] = []


def end_as_by_ctrl_c() -> None:
    """Have SIGTERM, and SIGHUP of a terminal that is closed, do what Ctrl-C does.

    Those that are ignored (`nohup`) stay so.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _interrupt)


def _interrupt(number: int, frame: Any) -> None:
    if _ended_by:  # `timeout` sends two, and the second is not to disturb what is put away
        return
    _ended_by.append(signal.Signals(number))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a script
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


def exit_code_of(run: Callable[[], Any]) -> int:
    """Run the command line, and say what went wrong, if anything did.

    Returns:
        The exit code; 1 without a word where what reads stdout has stopped to.
    """
    try:
        code = run()
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_stdout()
        return FAILED
    except KeyboardInterrupt:
        code = INTERRUPTED
    except typer.Abort:  # at a question
        say("aborted")
        return FAILED
    except CommandError as error:
        report(error)
        return error.exit_code
    except UsageError as error:
        report(_misuse(error))
        return MISUSED
    except Exception as error:
        report(_unexpected(error))
        return FAILED
    if code == INTERRUPTED and _ended_by:
        say(f"ended by {_ended_by[0].name}")
        return 128 + _ended_by[0]
    if code == INTERRUPTED:
        say("interrupted")
    return code if isinstance(code, int) else 0


def _discard_stdout() -> None:
    """Have what is still to be written go nowhere, or Python complains when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _misuse(error: Any) -> CommandError:
    """What click says of a wrong option or argument, as this program says it."""
    message, context = error.format_message().rstrip("."), error.ctx
    if context is None:
        return CommandError(message, exit_code=MISUSED)
    path = context.command_path
    hint = f"`{path} --help` says more"
    examples = getattr(context.command, "examples", ())
    if hasattr(error, "possibilities"):  # there is no such option
        message = f"there is no option {error.option_name} of {path}"
        meant = " or ".join(error.possibilities or ())
        hint = f"did you mean {meant}?" if meant else f"`{path} --help` lists them"
    elif message.startswith("Missing") and examples:
        hint = f"such as: {examples[0].line}; {hint}"
    elif " is not one of " in message:
        quoted = re.findall("'([^']*)'", message.partition(": ")[2])  # what came, what may come
        hint = did_you_mean(quoted[0], quoted[1:]) or hint if quoted else hint
    return CommandError(message.replace("Value error, ", ""), hint=hint, exit_code=MISUSED)


def _unexpected(error: Exception) -> CommandError:
    """An error that no command has foreseen; those of this package say all that there is to say."""
    from openenv.errors import OpenEnvError

    words = str(error) if isinstance(error, OpenEnvError) else _named(error)
    told = CommandError(redact(words), hint=DEBUG_HINT)
    told.__cause__ = error
    return told


def _named(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return plain(error)
    return f"{type(error).__name__}: {error}".removesuffix(": ")


# ------------------------------------------------------------------ errors of other people's code


def in_words(error: Exception) -> str:
    """An error that code of a user has raised: its class, its text, and where that is."""
    if isinstance(error, SyntaxError):  # whose text says it
        return _named(error)
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    theirs = [one for one in frames if not one[0].startswith(NOT_THEIRS)]
    own = [one for one in theirs if "site-packages" not in one[0]]
    if not theirs:
        return _named(error)
    file, line = (own or theirs)[-1]
    return f"{_named(error)} ({_near(file)}, line {line})"


def _near(file: str) -> str:
    path = os.path.relpath(file)
    return file if path.startswith("..") else path
