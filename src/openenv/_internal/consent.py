"""Asking people before code runs that they have not named themselves."""

from __future__ import annotations

import sys

from openenv._internal.quoting import printable

__all__ = ["agrees", "is_at_terminal"]


def is_at_terminal() -> bool:
    """Whether somebody is there to be asked."""
    return sys.stdin is not None and sys.stdin.isatty()


def agrees(what: str, question: str) -> bool:
    """Say what would happen, and ask; only ``y`` and ``yes`` are agreement."""
    sys.stderr.write(f"{printable(what)}\n{printable(question)} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
