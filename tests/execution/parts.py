"""What these tests share beside fixtures."""

from __future__ import annotations

from collections.abc import Callable

from openenv.execution.manager import SessionManager

__all__ = ["HANGS_S", "Manage"]

Manage = Callable[..., SessionManager]

HANGS_S = 30.0  # longer than any test waits, on a busy machine too
