"""Questions to the user before running code that the user did not name."""

from __future__ import annotations

import sys

from openenv._internal.quoting import printable


def is_at_terminal() -> bool:
    """Return whether standard input is a terminal, so that the user can be asked."""
    return sys.stdin is not None and sys.stdin.isatty()


def agrees(what: str, question: str) -> bool:
    """Describe an action and ask the user; return True for ``y`` and ``yes`` only."""
    sys.stderr.write(f"{printable(what)}\n{printable(question)} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
