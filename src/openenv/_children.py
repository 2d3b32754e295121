"""Python modules that run in processes of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

__all__ = ["Child", "absolute_target", "run_module", "wait_for_all"]


class Child(Protocol):
    """A child process; what `subprocess.Popen` has of it."""

    @property
    def pid(self) -> int:
        """The process id."""

    def poll(self) -> int | None:
        """How it ended; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end.

        Raises:
            subprocess.TimeoutExpired: It took longer.
        """

    def kill(self) -> None:
        """End it at once. Nothing happens if it has ended."""


def run_module(module: str, arguments: Sequence[str] = (), *, stdin: int) -> Child:
    """Run ``python -m module arguments`` in a session, and process group, of its own.

    Raises:
        OSError: It could not be started.
    """
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.Popen(command, stdin=stdin, start_new_session=True)


def wait_for_all(child: Child) -> int:
    """Wait for the end of a process, and end what is left of its group."""
    # While the process has not been waited for, its id is nobody else's.
    with contextlib.suppress(OSError, AttributeError):  # macOS has it since Python 3.13
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        os.killpg(child.pid, signal.SIGKILL)
    return child.wait()


def absolute_target(target: str) -> str:
    """Name what is served such that the name does not depend on the current directory."""
    path, colon, attribute = target.partition(":")
    return f"{Path(path).resolve()}{colon}{attribute}" if Path(path).exists() else target
