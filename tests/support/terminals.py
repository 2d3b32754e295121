"""Programs whose stderr is a terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
import textwrap

__all__ = ["run_on_a_terminal"]


def run_on_a_terminal(code: str) -> str:
    """Run a piece of Python, which must succeed; gives all that it showed on the terminal."""
    ours, theirs = pty.openpty()
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    shown = b""
    with subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stderr=theirs) as program:
        os.close(theirs)
        with contextlib.suppress(OSError):  # Linux says so where nobody has the other end
            while data := os.read(ours, 2**16):
                shown += data
    os.close(ours)
    assert program.returncode == 0, shown.decode()
    return shown.decode()
